"""How much an agent's model reads, and how it counts: learnt while a session goes on."""

from dataclasses import dataclass

from massmem.errors import ContextOverflow
from massmem.memory.buffer import Buffer

SMALLEST_WINDOW = 512
"""Tokens that any model reads."""


@dataclass(slots=True)
class Meter:
    """What a session learns of an agent's model: how many tokens it reads, and how it counts them.

    assumed: nobody has said how large the window is.
    """

    window: int
    buffer: Buffer
    assumed: bool = False

    def learn(self, estimated: int, overflow: ContextOverflow) -> None:
        """The server refused a prompt that we took for `estimated` tokens."""
        size = overflow.prompt_tokens or max(estimated, self.buffer.tokens)
        # Without a number all that is known is that less must be sent.
        self.window = overflow.window or max(SMALLEST_WINDOW, min(self.window, int(0.9 * size)))
        self.assumed = False
        if overflow.prompt_tokens or estimated <= self.window:
            self.buffer.calibrate(estimated, overflow.prompt_tokens or int(1.1 * self.window))
