"""A row of the queue that kills its process is given up; the rows that were written beside it are recorded."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from massmem.core.records import SessionRecord
from massmem.memory.persistent import Episode
from massmem.recording.worker import Recorder
from massmem.store import open_store
from tests.support.forked import processes
from tests.support.plain_memory import PlainMemory
from tests.support.sample_turn import START, answer, begin

ANSWERS = [f"The answer number {number} was said." for number in range(6)]
LETHAL = ANSWERS[2]


class LethalMemory(PlainMemory):
    async def record(self, episodes: Sequence[Episode]) -> None:
        if any(episode.text == LETHAL for episode in episodes):
            os.kill(os.getpid(), signal.SIGKILL)
        await super().record(episodes)


def drain(database: Path, memories: Path) -> None:
    async def run() -> None:
        store = await open_store(f"sqlite:///{database}", database.parent)
        await Recorder(store, LethalMemory(memories)).drain()
        await store.close()

    asyncio.run(run())


async def test_a_row_that_kills_its_process_is_given_up_alone(home: Path):
    database, memories = home / "massmem.db", home / "memories"
    store = await open_store(f"sqlite:///{database}", home)
    await store.create_session(SessionRecord(session_id="session_a", created_at=START, updated_at=START))
    await store.append("session_a", 1, [begin("ann"), *(answer(n, "ann", text) for n, text in enumerate(ANSWERS, 1))])
    exit_codes = list[int | None]()
    while exit_codes[-1:] != [0] and len(exit_codes) < 20:
        process = processes.Process(target=drain, args=(database, memories), daemon=True)
        process.start()
        await asyncio.to_thread(process.join, 120)
        exit_codes.append(process.exitcode)
    counts = await store.count_recordings()
    assert exit_codes == [-signal.SIGKILL] * 5 + [0]
    assert (counts.pending, counts.failed) == (0, 1)
    assert counts.reason == "the process died again and again while it worked on this"
    recorded = [line for line in memories.read_text().splitlines() if line.startswith("episode")]
    assert len(recorded) == len(set(recorded)) == len(ANSWERS)  # the question, and all answers but one
    await store.close()
