"""The configuration: `massmem.config.load` reads it, `massmem.config.models` says what it holds."""


def reference() -> str:
    """The Markdown table of all keys."""
    # Only the README needs it: no start pays for it.
    from massmem.config.key_table import key_table

    return key_table()
