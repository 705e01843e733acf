"""What was used last, kept for a while: the sessions of a service that many users ask again and again."""

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

_MOST = 256


class Warm(Generic[T]):
    """By name; each is with one user at a time: it is taken out, and brought back. The one used longest ago goes."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: OrderedDict[str, T] = OrderedDict()

    def take(self, name: str) -> T | None:
        return self._kept.pop(name, None)

    def keep(self, name: str, kept: T) -> None:
        """In place of what is kept under this name."""
        self._kept[name] = kept
        self._kept.move_to_end(name)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)
