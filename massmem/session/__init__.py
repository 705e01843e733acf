"""One conversation and what lives across its turns: opening it, running its turns, recall, ownership, deletion."""
