"""From the words of a question to the passages worth showing. Pure."""
