"""The configuration: `massmem.config.load` reads it, `massmem.config.models` says what it holds."""
