"""Interactive mode: a conversation at a terminal, with commands that begin with a slash."""
