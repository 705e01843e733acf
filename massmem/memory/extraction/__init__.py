"""Facts out of what was said, by a model."""
