"""Large pastes: replaced by a short placeholder in the edited line, because editing megabytes takes minutes."""

import re

from prompt_toolkit.input.posix_utils import PosixStdinReader

MAX_INLINE_CHARACTERS = 2_000
MAX_INLINE_LINES = 30
"""Longer pastes get a placeholder."""

_PLACEHOLDER = re.compile(r"\[pasted ([\d,]+) characters #(\d+)\]")
_START, _END = "\x1b[200~", "\x1b[201~"
"""What a terminal sends around a paste."""
_CHUNK = 65_536
_MAX_CHARACTERS = 4_000_000
"""Characters of a paste that are kept: more than a question may have, so that it is refused as too long."""


class Pastes:
    """The large pastes of one line."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Return what to insert into the line: the text, or the placeholder of a large one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= MAX_INLINE_CHARACTERS and text.count("\n") < MAX_INLINE_LINES:
            return text
        self._texts.append(text)
        return f"[pasted {len(text):,} characters #{len(self._texts)}]"

    def expand(self, line: str) -> str:
        """Return the line with the pastes in place of their placeholders; text that only looks like one stays."""
        return _PLACEHOLDER.sub(self._find, line)

    def clear(self) -> None:
        """Start a new line."""
        self._texts.clear()

    def _find(self, match: re.Match[str]) -> str:
        number = int(match[2])
        is_known = 0 < number <= len(self._texts) and f"{len(self._texts[number - 1]):,}" == match[1]
        return self._texts[number - 1] if is_known else match[0]


class PasteReader(PosixStdinReader):
    """Reads from the terminal and replaces large pastes before prompt_toolkit parses them key by key."""

    def __init__(self, descriptor: int, pastes: Pastes) -> None:
        super().__init__(descriptor, encoding="utf-8")
        self._pastes = pastes
        self._parts: list[str] | None = None
        """Parts of the paste that is being read; None outside of a paste."""
        self._size = 0
        self._rest = ""
        """The last characters read, which may be the first of _END."""

    def read(self, count: int = _CHUNK) -> str:
        return self.replace_pastes(super().read(_CHUNK))

    def replace_pastes(self, data: str) -> str:
        """Return what prompt_toolkit gets of `data`, a piece of the input."""
        output = ""
        while data:
            if self._parts is None:
                before, mark, data = data.partition(_START)
                output += before
                if mark:
                    self._parts, self._size, self._rest = [], 0, ""
                continue
            pending = self._rest + data
            text, mark, data = pending.partition(_END)
            if mark:
                self._append(text)
                output += _START + self._pastes.add("".join(self._parts)) + _END
                self._parts = None
            else:
                split = max(len(pending) - len(_END), 0)
                self._append(pending[:split])
                self._rest = pending[split:]
        return output

    def _append(self, text: str) -> None:
        if self._parts is not None and self._size < _MAX_CHARACTERS:
            self._parts.append(text)
            self._size += len(text)
