"""massmem: a council of agents answers a question together, and remembers."""

__version__ = "0.1.0"
