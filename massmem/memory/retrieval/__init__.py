"""From a question to the memories worth showing: its words, the candidates, their rank, and the text that fits."""
