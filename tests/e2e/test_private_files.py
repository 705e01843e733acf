"""A program that uses massmem as a library: what is written is its user's alone, whatever umask the program has."""

import stat
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import asyncio, os, sys
from pathlib import Path

from massmem import Session
from massmem.config.models import TeamConfig

folder = Path(sys.argv[1])
TEAM = {
    "agents": [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": ["The pump is in hall H-412."]}}}],
    "telemetry": {"stages": str(folder / "telemetry" / "stages.jsonl")},
}


async def main():
    team = TeamConfig.model_validate(TEAM)
    async with await Session.open(team, debug=folder / "debug") as session:
        async for _ in session.ask("Where is the pump of the new plant?"):
            pass
        await session.remember("I prefer metric units to any others.")
        async for _ in session.ask("And where is the other one?"):
            pass
    async with await Session.open(team, session_id=session.id) as session:
        await session.undo()


os.umask(0)
asyncio.run(main())
assert os.umask(0) == 0, "it is the program's, not ours"
(folder / "of the program").write_text("")
"""


def test_files_of_a_program_with_an_open_umask(tmp_path: Path, home: Path):
    ran = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, timeout=90, check=False)
    assert ran.returncode == 0, ran.stderr.decode()
    own = home / ".massmem"
    assert stat.S_IMODE((tmp_path / "of the program").stat().st_mode) == 0o666
    written = [own, tmp_path / "telemetry", *own.rglob("*"), *(tmp_path / "telemetry").rglob("*")]
    assert {path.name for path in written} >= {"massmem.db", "sessions.json", "shard", "wal", "stages.jsonl"}
    wrong = [
        f"{stat.S_IMODE(path.stat().st_mode):o} {path}"
        for path in written
        if stat.S_IMODE(path.stat().st_mode) != (0o700 if path.is_dir() else 0o600)
    ]
    assert wrong == []
