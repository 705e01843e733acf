"""Runs one command and prints what it cost as JSON. A program of its own, because it must be small.

The kernel counts the size of the process that starts a child as the child's: measured from a large one, every child
has at least its peak. Usage: probe.py PROGRAM ARGUMENT...; stdout of the command is dropped, stderr passed on.
"""

import json
import os
import sys
import time


def main() -> None:
    argv = sys.argv[1:]
    nothing = os.open(os.devnull, os.O_WRONLY)
    start = time.perf_counter()
    pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nothing, 1)])
    _, status, used = os.wait4(pid, 0)
    figures = {
        "wall": time.perf_counter() - start,
        "cpu": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10),
        "code": os.waitstatus_to_exitcode(status),
    }
    print(json.dumps(figures))


main()
