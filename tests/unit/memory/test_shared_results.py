"""The result of a tool is one memory for all agents that got it, and it says who called what."""

from pathlib import Path

import pytest

from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import CompletedTurn, Episode, Memory, RecallOptions, Selection
from tests.support.memories import asks, make_episode, open_disk_memory

PAGE = "The adapter opens the vault with REED-4410."
CALL = "read_file src/app.py"


def read(number: int, by: str = "a", turn: int = 1, call: str = CALL, **more: object) -> Episode:
    return make_episode(PAGE, number, turn, by, origin="tool:read_file", call=call, **more)


async def list_results(memory: IndexedMemory) -> list[Memory]:
    return [m for m in await memory.list(Selection()) if m.call]


async def recall(memory: IndexedMemory, agent: str, turn: int = 9, query: str = "src/app.py") -> str:
    text = (await memory.recall(query, asks(agent, turn), RecallOptions(400))).text
    return "\n".join(line for line in text.splitlines() if CALL in line)


@pytest.mark.parametrize("together", [True, False])
async def test_all_who_got_a_result_in_a_turn_share_it_until_one_wins(tmp_path: Path, together: bool):
    reads = [read(0), read(1, "b"), read(2), read(3, call="read_file src/b.py")]
    memory = open_disk_memory(tmp_path)
    try:
        for batch in [reads] if together else [[one] for one in reads]:
            await memory.record(batch)
            await memory.record(batch)
        first = next(m for m in await list_results(memory) if m.call == CALL)
        assert len(await list_results(memory)) == 2, "one for each call"
        assert (first.agent_id, first.callers, first.message_ids) == ("a", ("b",), ("s-0", "s-1", "s-2"))
        assert await recall(memory, "a", 1) == await recall(memory, "b") == f"You (tool {CALL}): {PAGE}"
        assert await recall(memory, "c") == "", "nobody has won"
        await memory.complete_turns([CompletedTurn("s", 1, "b")])
        assert await recall(memory, "c") == f"[From b Turn 1, tool {CALL}] {PAGE}"
        assert await recall(memory, "a") == f"You (tool {CALL}): {PAGE}"
        await memory.record([read(7, "c", turn=2)])
        assert len(await list_results(memory)) == 2, "everybody may see what the winner got"
        assert await memory.forget(Selection(message_ids=("s-7",))) == 1
    finally:
        await memory.close()


async def test_what_a_loser_got_is_stored_again_when_a_later_turn_may_show_it(tmp_path: Path):
    memory = open_disk_memory(tmp_path)
    try:
        await memory.record([read(0), read(1, turn=2), read(2, "b", turn=2, won=True)])
        assert [(m.agent_id, m.turn, m.callers) for m in await list_results(memory)] == [("b", 2, ("a",)), ("a", 1, ())]
        assert await recall(memory, "a") == f"You (tool {CALL}): {PAGE}", "shown once"
        assert await recall(memory, "c") == f"[From b Turn 2, tool {CALL}] {PAGE}"
    finally:
        await memory.close()
