"""What was used last, kept for a while: the sessions of a service that many users ask again and again."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 128
_HEAVIEST = 1_000_000
"""Characters of conversations; as messages, with what is known of each, they take ten times as many bytes."""


class Warm(Generic[T]):
    """By name; each is with one user at a time: it is taken out, and brought back. The one used longest ago goes."""

    def __init__(self, most: int = _MOST, heaviest: int = _HEAVIEST) -> None:
        """most: how many. heaviest: what all of them weigh."""
        self._most = most
        self._heaviest = heaviest
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._weight = 0

    def take(self, name: str) -> T | None:
        found = self._kept.pop(name, None)
        if found is None:
            return None
        self._weight -= found[1]
        return found[0]

    def keep(self, name: str, kept: T, weight: int = 0) -> None:
        """In place of what is kept under this name."""
        self.take(name)
        self._kept[name] = kept, weight
        self._weight += weight
        while len(self._kept) > self._most or self._weight > self._heaviest:
            self.take(next(iter(self._kept)))
