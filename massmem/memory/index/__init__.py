"""Where memories are stored and found: an embedded or a served Qdrant, and what both agree on."""
