"""What this machine has of conversations beside store and index: debug files, crash reports, logs, backups."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.config.home import explain_write_error, list_files
from massmem.config.models import TeamConfig


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """What was deleted."""

    debug_runs: int = 0
    """Folders with the debug files of one run."""
    reports: int = 0
    """Crash reports, and copies of the registry."""
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

    def delete(self, texts: Sequence[bytes], *, with_backups: bool = True) -> TraceCounts:
        """Delete debug files, crash reports, backups and lines that have one of the texts. Raises HomeError."""
        try:
            runs = [run for run in self._find_runs() if any(has_any(path, texts) for path in list_files(run))]
            for run in runs:
                shutil.rmtree(run)
            reports = [*self.home.glob("sessions.json.*"), *self.home.glob("logs/crash-*")]
            backups = self._find_backups() if with_backups else []
            copies = [[path for path in paths if has_any(path, texts)] for paths in (reports, backups)]
            for path in (path for paths in copies for path in paths):
                path.unlink(missing_ok=True)
            lines = [_delete_lines(path, texts) for path in (*self.home.glob("logs/*.log"), self.home / "history")]
        except OSError as e:
            raise explain_write_error(self.home, e) from e
        return TraceCounts(len(runs), len(copies[0]), len(copies[1]), sum(lines))

    def _find_runs(self) -> list[Path]:
        """Return the folders with debug files, one for each run."""
        return [
            run
            for folder in {self.folder, self.home.parent}
            for run in (folder / ".massmem" / "massmem_logs").glob("log_*")
        ]

    def _find_backups(self) -> list[Path]:
        """Return copies of the database from before a migration, which are kept when it fails."""
        path = find_database(self.config)
        return [] if path is None else list(path.parent.glob(f"{path.name}.bak-*"))


def find_database(config: TeamConfig) -> Path | None:
    """Return the file of the store; None for a store on a server, or without a file."""
    kind, _, name = config.store.url.partition(":///")
    return Path(name).expanduser() if kind == "sqlite" else None


def has_any(path: Path, texts: Sequence[bytes]) -> bool:
    """Return whether a file has one of the texts; one that is gone has none."""
    with suppress(FileNotFoundError, IsADirectoryError):
        data = path.read_bytes()
        return any(text in data for text in texts)
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
