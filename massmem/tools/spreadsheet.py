"""A program: reads a spreadsheet from standard input, writes its sheets as tables in Markdown.

`massmem.tools.converter` runs it, since strangers' files decide what it computes: it must be possible to end it.
"""

import resource
import sys
from io import BytesIO
from typing import Any

MAX_MEMORY = 1_000_000_000
"""Bytes of address space."""


def main() -> None:
    """Raises what the library raises, which ends the program with an exit code."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    from python_calamine import CalamineWorkbook

    book = CalamineWorkbook.from_filelike(BytesIO(sys.stdin.buffer.read()))
    sheets = [_write_sheet(name, book.get_sheet_by_name(name).to_python()) for name in book.sheet_names]
    sys.stdout.buffer.write("\n\n".join(sheets).encode("utf-8", "replace"))


def _write_sheet(name: str, rows: list[list[Any]]) -> str:
    lines = [[_write_cell(cell) for cell in row] for row in rows]
    lines = [line for line in lines if any(line)]
    if not lines:
        return f"## {name}\n\n(empty)"
    first, *others = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([f"## {name}\n", first, "|" + " --- |" * len(lines[0]), *others])


def _write_cell(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value).replace("\\", "\\\\").replace("|", "\\|").replace("\r", "").replace("\n", "<br>")


if __name__ == "__main__":
    main()
