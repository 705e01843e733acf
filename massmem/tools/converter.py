"""Word processors', presentations', spreadsheets', books' and web pages' files as Markdown.

Pandoc reads documents, python-calamine spreadsheets. Strangers' files decide what they compute: a file of a few
kilobytes may unpack to gigabytes. So this runs in a worker process: see `massmem.tools.documents`.
"""

import shutil
import subprocess
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from massmem.core.errors import InputError

DOCUMENTS = {
    ".docx": "docx", ".pptx": "pptx", ".epub": "epub", ".odt": "odt", ".rtf": "rtf",
    ".html": "html", ".htm": "html", ".xhtml": "html",
}  # fmt: skip
"""Suffix -> the format's name in Pandoc."""
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

_HEAP = "-M600M"
_MAX_OUTPUT = 8_000_000
"""Bytes that are read of a text; a question is shorter."""

_INSTALL = "pip install 'massmem[documents]'"


def can_convert(suffix: str) -> bool:
    """Whether files with this suffix, such as `.docx`, can be read: the program for them is installed."""
    if suffix in SPREADSHEETS:
        return find_spec("python_calamine") is not None
    return suffix in DOCUMENTS and _find_pandoc() is not None


def convert(name: str, suffix: str, data: bytes) -> str:
    """Return a document as Markdown: headings, lists, tables, footnotes, slides and sheets in their order.

    suffix: one of DOCUMENTS or SPREADSHEETS.

    Raises InputError: the program for it is not installed; the file is damaged, has a password, or is too large.
    """
    if not can_convert(suffix):
        raise InputError(f"to read {suffix} files such as {name}, a package is missing", _INSTALL)
    return (_read_spreadsheet if suffix in SPREADSHEETS else _run_pandoc)(name, suffix, data).strip("\n")


def _run_pandoc(name: str, suffix: str, data: bytes) -> str:
    command = [str(_find_pandoc()), "--sandbox", "--wrap=none", f"--from={DOCUMENTS[suffix]}", "--to=gfm"]
    command += [f"--lua-filter={Path(__file__).with_name('plain.lua')}", "+RTS", _HEAP, "-RTS"]
    with TemporaryFile() as source, TemporaryFile() as target:
        source.write(data)
        source.seek(0)
        result = subprocess.run(command, stdin=source, stdout=target, stderr=subprocess.PIPE, check=False)
        if result.returncode != 0:
            raise _explain_failure(name, suffix, result.stderr.decode(errors="replace"), result.returncode)
        target.seek(0)
        return target.read(_MAX_OUTPUT).decode(errors="replace")


def _read_spreadsheet(name: str, suffix: str, data: bytes) -> str:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        book = CalamineWorkbook.from_filelike(BytesIO(data))
        return "\n\n".join(_write_sheet(sheet, book.get_sheet_by_name(sheet).to_python()) for sheet in book.sheet_names)
    except (CalamineError, OSError, ValueError) as e:
        raise _explain_failure(name, suffix, str(e)) from e


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


def _explain_failure(name: str, suffix: str, errors: str, code: int = 1) -> InputError:
    if code in (251, 252) or code < 0:
        return InputError(f"{name} needs too much memory to read", "save the part that matters as a file of its own")
    if "nknown input format" in errors:  # of Pandoc before 3.8.3
        return InputError(f"the program pandoc is too old to read {suffix} files such as {name}", _INSTALL)
    if "assword" in errors:
        return InputError(f"{name} is encrypted with a password", "save a copy without a password")
    return InputError(f"{name} is damaged: it cannot be read as {suffix}", "open it in its program and save it again")


def _find_pandoc() -> str | None:
    """Return Pandoc of the extra, else of the system."""
    package = find_spec("pypandoc")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder) / "files" / "pandoc"
        if program.is_file():
            return str(program)
    return shutil.which("pandoc")
