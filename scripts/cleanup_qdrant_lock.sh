#!/usr/bin/env bash
# Removes what a killed massmem left of its locks on the embedded Qdrant index. Never needed for massmem itself: a lock
# that nobody holds does not stop anybody. Refuses, and says who, while a process holds one.
#   scripts/cleanup_qdrant_lock.sh [FOLDER]     FOLDER: qdrant.path, ~/.massmem/memory when left out
set -euo pipefail
folder=${1:-$HOME/.massmem/memory}
if [ ! -d "$folder" ]; then
    echo "there is no index in $folder: nothing to do" >&2
    exit 0
fi
python="$(dirname "$0")/../.venv/bin/python"
[ -x "$python" ] || python=python3
exec "$python" - "$folder" <<'PYTHON'
import fcntl
import sys
from pathlib import Path

held = removed = 0
for lock in sorted(Path(sys.argv[1]).rglob("lock")):
    owner = lock.with_name("lock.pid")
    with lock.open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pid = owner.read_text().strip() if owner.exists() else "unknown"
            print(f"{lock.parent} is in use by process {pid}: end that one first; nothing was removed there")
            held += 1
            continue
        for leftover in (owner, lock):  # the lock is held meanwhile: whoever opens it now finds out that it is gone
            if leftover.exists():
                leftover.unlink()
                print(f"removed {leftover}")
                removed += 1
print(f"{removed} removed, {held} in use")
sys.exit(1 if held else 0)
PYTHON
