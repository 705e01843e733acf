"""Loads what tokens are counted with, once for all processes that are forked: it takes a third of a second."""

from massmem.memory.tokens import count_tokens

count_tokens("")
