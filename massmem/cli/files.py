"""Files that a user asked to be written: whole or not at all."""

import os
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

from massmem.cli.streams import write_out
from massmem.errors import InputError


@contextmanager
def writing(path: Path | None) -> Generator[Callable[[str], object]]:
    """Give a function that writes text to the file, or to stdout when there is none.

    The file, readable by its owner alone, is put in place when all went well; what was there before is replaced then.

    Raises:
        InputError: it cannot be written.
    """
    if path is None:
        yield write_out
        return
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="\n") as file:
                yield file.write
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as e:
        raise InputError(f"{path} cannot be written: {e.strerror or e}", "choose another file") from e
