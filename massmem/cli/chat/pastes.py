"""Large pastes: kept aside, with a short mark in the line where they stand. A line of megabytes cannot be edited."""

import re

LONGEST_SHOWN = 2_000
"""Characters of a paste that is put into the line as it is."""
MOST_LINES = 30
"""And lines of it."""

_MARK = re.compile(r"\[pasted ([\d,]+) characters #(\d+)\]")


class Pastes:
    """The pastes of one line."""

    def __init__(self) -> None:
        self._kept: list[str] = []

    def taken(self, text: str) -> str:
        """What to put into the line for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= LONGEST_SHOWN and text.count("\n") < MOST_LINES:
            return text
        self._kept.append(text)
        return f"[pasted {len(text):,} characters #{len(self._kept)}]"

    def whole(self, line: str) -> str:
        """The line with its pastes; a mark that was changed, or that the user wrote, stays as it is."""
        return _MARK.sub(self._paste, line)

    def clear(self) -> None:
        """A new line begins."""
        self._kept.clear()

    def _paste(self, mark: re.Match[str]) -> str:
        number = int(mark[2])
        known = 0 < number <= len(self._kept) and f"{len(self._kept[number - 1]):,}" == mark[1]
        return self._kept[number - 1] if known else mark[0]
