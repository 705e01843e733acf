"""How a turn is run: rounds, the agents and their steps, what each is sent, and what it may spend."""
