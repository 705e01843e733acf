"""The council as a model for clients of OpenAI's API: chat completions and responses."""
