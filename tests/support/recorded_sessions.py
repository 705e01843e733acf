"""A user with sessions that are stored and recorded, for tests that kill what changes them."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.cli import call_massmem
from tests.support.forked import ForkedMassmem
from tests.support.sample_turn import answer, begin

TEAM = ("--config", "team.yaml")
CONFIG = """
agents: [{id: ann, backend: {type: scripted, script: {answer: "Hello."}}}]
memory: {persistent_memory: {embedding: {model: none}}}
"""


def record_sessions(home: Path, sessions: Mapping[str, Iterable[Sequence[str]]]) -> Path:
    """Write `team.yaml` here, store the sessions and record them; return massmem's folder in this home.

    sessions: the turns of each, by its id. A turn: the question, what ann answers, and the final answer.
    """
    Path("team.yaml").write_text(CONFIG)
    folder = home / ".massmem"
    asyncio.run(store_sessions(folder, sessions))
    assert call_massmem("memory", "record", *TEAM).returncode == 0
    return folder


async def store_sessions(folder: Path, sessions: Mapping[str, Iterable[Sequence[str]]]) -> None:
    """As record_sessions, but leave them in the queue."""
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name, turns in sessions.items():
        await store.create_session(session(name))
        for turn, (question, *answers, final) in enumerate(turns, start=1):
            drafts = [answer(1, "ann", text) for text in answers]
            await store.append(name, turn, [begin("ann", question=question), *drafts, done(5, final)])
    await store.close()


def wait_for(path: Path, child: ForkedMassmem) -> None:
    """Wait for a file that a process makes and later removes, and look for it every millisecond.

    The process is to be killed then. On a busy machine it may have ended before anybody looked.
    """
    deadline = time.monotonic() + 60
    while not path.exists() and child.is_alive:
        assert time.monotonic() < deadline, f"{path} was not made"
        time.sleep(0.001)
