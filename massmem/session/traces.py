"""Files of this machine that mention a session or a statement: debug files, crash reports, backups, lines of logs."""

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.config.home import explain_write_error, list_files
from massmem.config.models import TeamConfig

Progress = Callable[[int, int], None]
"""Called with the number of messages that are done and of all of them."""

_BLOCK = 2**20
"""Bytes that are searched at once: no other thread of the process goes on meanwhile."""


@dataclass(frozen=True, slots=True)
class TraceCounts:
    debug_runs: int = 0
    """Folders with the debug files of one run."""
    reports: int = 0
    """Crash reports, copies of the registry, and what came of imports."""
    backups: int = 0
    """Copies of the database."""
    lines: int = 0
    """Lines of log files, and of what was typed in conversations."""


@dataclass(frozen=True, slots=True)
class Traces:
    """The files below the home and below a working folder. All methods block."""

    config: TeamConfig
    home: Path
    folder: Path
    """The working directory, in which debug files may be."""

    def find(self, texts: Sequence[bytes]) -> tuple[list[Path], ...]:
        """Return the debug folders and files that have one of the texts, in the order of TraceCounts."""
        database, home = find_database(self.config), self.home
        debug_logs = [folder / ".massmem" / "massmem_logs" for folder in {self.folder, home.parent}]
        candidates = (
            [run for folder in debug_logs for run in folder.glob("log_*")],
            [*home.glob("sessions.json.*"), *home.glob("logs/crash-*"), *home.glob("imports/*")],
            # From before a migration; they are kept when it fails.
            [] if database is None else [*database.parent.glob(f"{database.name}.bak-*")],
            [*home.glob("logs/*.log"), home / "history"],
        )
        return tuple(
            [path for path in paths if any(has_any(file, texts) for file in (path, *list_files(path)))]
            for paths in candidates
        )

    def delete(self, texts: Sequence[bytes]) -> TraceCounts:
        """Delete debug files, crash reports, backups and lines that have one of the texts. Raises HomeError."""
        try:
            runs, reports, backups, with_lines = self.find(texts)
            for run in runs:
                shutil.rmtree(run)
            for path in (*reports, *backups):
                path.unlink(missing_ok=True)
            lines = sum(_delete_lines(path, texts) for path in with_lines)
        except OSError as e:
            raise explain_write_error(self.home, e) from e
        return TraceCounts(len(runs), len(reports), len(backups), lines)


def find_database(config: TeamConfig) -> Path | None:
    """Return the file of the store; None for a store on a server, or without a file."""
    kind, _, name = config.store.url.partition(":///")
    return Path(name).expanduser() if kind == "sqlite" else None


def has_any(path: Path, texts: Sequence[bytes]) -> bool:
    """Return whether a file has one of the texts; one that is gone has none."""
    overlap = max(map(len, texts), default=1) - 1
    with suppress(FileNotFoundError, IsADirectoryError), path.open("rb") as file:
        end = b""
        while block := file.read(_BLOCK):
            data = end + block
            if any(text in data for text in texts):
                return True
            end = data[-overlap:] if overlap else b""
    return False


def _delete_lines(path: Path, texts: Sequence[bytes]) -> int:
    """Delete the lines with one of the texts, in place: another process may have the file open, and goes on at its end.

    Returns how many those were.
    """
    if not has_any(path, texts):
        return 0
    lines = path.read_bytes().splitlines(keepends=True)
    remaining = [line for line in lines if not any(text in line for text in texts)]
    path.write_bytes(b"".join(remaining))
    return len(lines) - len(remaining)
