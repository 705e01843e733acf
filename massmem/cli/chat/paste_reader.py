"""Pastes taken out of what the terminal sends, before they are parsed key by key: that takes minutes for megabytes."""

from prompt_toolkit.input.posix_utils import PosixStdinReader

from massmem.cli.chat.pastes import Pastes

_START, _END = "\x1b[200~", "\x1b[201~"
_AT_ONCE = 65_536
_MOST = 4_000_000
"""Characters of a paste that are kept: far more than a question may have."""


class PasteReader(PosixStdinReader):
    """Gives what is typed, and of a large paste the short mark that stands for it."""

    def __init__(self, descriptor: int, pastes: Pastes) -> None:
        super().__init__(descriptor, encoding="utf-8")
        self._pastes = pastes
        self._parts: list[str] | None = None
        self._size = 0
        self._end = ""

    def read(self, count: int = _AT_ONCE) -> str:
        return self.passed(super().read(_AT_ONCE))

    def passed(self, data: str) -> str:
        """What of this is passed on now."""
        found = ""
        while data:
            if self._parts is None:
                before, mark, data = data.partition(_START)
                found += before
                if mark:
                    self._parts, self._size, self._end = [], 0, ""
                continue
            # The mark may have come in two pieces.
            held = self._end + data
            text, mark, data = held.partition(_END)
            if mark:
                self._keep(text)
                found += _START + self._pastes.taken("".join(self._parts)) + _END
                self._parts = None
            else:
                whole = len(held) - len(_END)
                self._keep(held[: max(whole, 0)])
                self._end = held[max(whole, 0) :]
        return found

    def _keep(self, text: str) -> None:
        if self._parts is not None and self._size < _MOST:
            self._parts.append(text)
            self._size += len(text)
