"""The environment that mem0 must find when it is imported, for extraction and for embedding alike."""

import logging
import os
from pathlib import Path

from massmem.config.home import make_folder


def prepare_mem0(home: Path) -> None:
    """Turn mem0's telemetry off and put its folder into `home`. mem0 reads both once, when it is imported: call first.

    Otherwise mem0 makes ~/.mem0, asks servers of its maker, and fails when another process does the same.

    Raises:
        HomeError: the folder cannot be made.
    """
    folder = home / "mem0"
    make_folder(folder)
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder))
    # It writes what it reads to the log; its errors are raised or counted by whoever calls it.
    logging.getLogger("mem0").setLevel(logging.CRITICAL + 1)
