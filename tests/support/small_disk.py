"""A disk of a few kilobytes or megabytes, for what happens when it is full."""

import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_small_disk(place: Path, size: str, *, in_use: bool = False) -> Generator[Path]:
    """A tmpfs at `place`, which is made; the test is skipped where mounting is not permitted.

    size: as mount has it, `64k`. in_use: files on it may still be open at the end.
    """
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"mounting a small disk is not permitted: {done.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", *(["-l"] if in_use else []), str(place)], check=True)
