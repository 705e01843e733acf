"""Word processors', presentations', spreadsheets', books' and web pages' files as Markdown.

Pandoc reads documents, python-calamine spreadsheets. Both run as processes with a limit of time and memory, since
strangers' files decide what they compute: a file of a few kilobytes may unpack to gigabytes.
"""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile

from massmem.core.errors import InputError

DOCUMENTS = {
    ".docx": "docx", ".pptx": "pptx", ".epub": "epub", ".odt": "odt", ".rtf": "rtf",
    ".html": "html", ".htm": "html", ".xhtml": "html",
}  # fmt: skip
"""Suffix -> the format's name in Pandoc."""
SPREADSHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")

SECONDS = 20.0
"""For one file."""
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

    suffix: one of DOCUMENTS or SPREADSHEETS. Takes SECONDS at most.

    Raises:
        InputError: the program for it is not installed; the file is damaged, has a password, or is too large.
    """
    if not can_convert(suffix):
        raise InputError(f"to read {suffix} files such as {name}, a package is missing", _INSTALL)
    if suffix in SPREADSHEETS:
        command = [sys.executable, "-I", str(Path(__file__).with_name("spreadsheet.py"))]
    else:
        command = [str(_find_pandoc()), "--sandbox", "--wrap=none", f"--from={DOCUMENTS[suffix]}", "--to=gfm"]
        command += [f"--lua-filter={Path(__file__).with_name('plain.lua')}", "+RTS", _HEAP, "-RTS"]
    return _run(name, suffix, command, data).strip("\n")


def _run(name: str, suffix: str, command: list[str], data: bytes) -> str:
    with TemporaryFile() as source, TemporaryFile() as target:
        source.write(data)
        source.seek(0)
        try:
            result = subprocess.run(
                command, stdin=source, stdout=target, stderr=subprocess.PIPE, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired as e:
            raise InputError(
                f"{name} takes longer than {SECONDS:g} s to read", "save the part that matters as a file of its own"
            ) from e
        if result.returncode != 0:
            raise _explain_failure(name, suffix, result.stderr.decode(errors="replace"), result.returncode)
        target.seek(0)
        return target.read(_MAX_OUTPUT).decode(errors="replace")


def _explain_failure(name: str, suffix: str, errors: str, code: int) -> InputError:
    if code in (251, 252) or "MemoryError" in errors or "memory allocation" in errors or code < 0:
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
