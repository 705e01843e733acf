"""massmem as an MCP server: other agents ask the council, and search what it remembers. Nothing here needs FastAPI,
except `http`.
"""
