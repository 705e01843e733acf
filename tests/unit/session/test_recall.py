"""The memory of a session: what its agents recall, what its extractor is shown, and what its user is told."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import resolve_agents
from massmem.config.models import AgentConfig, MemoryConfig, TeamConfig
from massmem.core.events import Event, NoteAdded
from massmem.memory.persistent import RecallOptions, Scope
from massmem.session.recall import SessionMemory
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, everything, session
from tests.support.extraction_stub import FIRST, SECOND, completion, facts, prompts, section
from tests.support.provider_stub import KEY, Stub
from tests.support.sample_turn import answer, ballot, begin, event, tool_call, tool_result

WORDS = {"embedding": {"provider": "none"}}


@pytest.fixture
def folder(home: Path) -> Path:
    return home / ".massmem"


@pytest.fixture
async def store(folder: Path) -> AsyncIterator[SessionStore]:
    opened = await open_store(f"sqlite:///{folder / 'm.db'}", folder)
    await opened.create_session(session())
    yield opened
    await opened.close()


def make_memory_config(**persistent: Any) -> MemoryConfig:
    return MemoryConfig.model_validate({"persistent_memory": WORDS | persistent})


def agents(memory: MemoryConfig) -> tuple[AgentConfig, ...]:
    team = {"agents": [{"id": name, "backend": {"type": "scripted"}} for name in ("ann", "bob")], "memory": memory}
    return resolve_agents(TeamConfig.model_validate(team), {})


@asynccontextmanager
async def open_session_memory(
    config: MemoryConfig, folder: Path, store: SessionStore, debug: Path | None = None
) -> AsyncGenerator[SessionMemory]:
    memory = SessionMemory(config, folder, store, agents(config), debug)
    memory.start()
    try:
        yield memory
    finally:
        await memory.close(10)


def build_scope(agent: AgentConfig, session_id: str, turn: int) -> Scope:
    settings = agent.memory.persistent_memory
    return Scope(session_id, agent.id, turn, settings.all_sessions, settings.session_name)


async def recall(memory: SessionMemory, agent: str, question: str, shown: Sequence[str] = (), turn: int = 2) -> str:
    (who,) = (each for each in agents(make_memory_config()) if each.id == agent)
    return await memory.recall(
        who, question, build_scope(who, "session_a", turn), RecallOptions(1_000, exclude=frozenset(shown))
    )


def turn_one(text: str = "Red kites nest in Cobham.") -> list[Event]:
    """ann wins with her answer as it is; both have voted."""
    end = done(5, text=text).model_copy(update={"presented": False, "winner": "ann"})
    return [
        begin("ann", "bob", question="Where do kites nest?"),
        answer(1, "ann", text), answer(2, "bob", "Kites? No idea."),
        ballot(3, "ann", "ann", reason="kites are named"), ballot(4, "bob", "ann", reason="kites are found"),
        end,
    ]  # fmt: skip


async def test_an_answer_that_was_shown_as_it_is_is_not_recalled_beside_itself(store: SessionStore, folder: Path):
    await store.append("session_a", 1, turn_one())
    shown = [m.id for m in await store.read_conversation("session_a", None, 9)]
    assert len(shown) == 2
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        await caught_up(store)
        assert "Cobham" in await recall(memory, "ann", "Where do kites nest?")
        assert "Cobham" not in await recall(memory, "ann", "Where do kites nest?", shown)
        assert "Cobham" not in await recall(memory, "bob", "Where do kites nest?", shown)
        assert "No idea" in await recall(memory, "bob", "Where do kites nest?", shown)


@pytest.mark.parametrize("index", [True, False], ids=["index", "log alone"])
async def test_ballot_is_recalled_by_nobody(store: SessionStore, folder: Path, index: bool):
    await store.append("session_a", 1, turn_one())
    if not index:
        (folder / "memory").write_text("in the way")
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        if index:
            await caught_up(store)
        for agent in ("ann", "bob"):
            text = await recall(memory, agent, "kites")
            assert "Cobham" in text
            assert "are named" not in text
            assert "are found" not in text
        assert bool(memory.take_notices()) is not index


@pytest.mark.parametrize("index", [True, False], ids=["index", "log alone"])
async def test_tool_result_is_not_recalled_unless_it_was_recorded(store: SessionStore, folder: Path, index: bool):
    question, first, *rest = turn_one()
    result = tool_result(2).model_copy(
        update={"content": "Kites: 17 nests.", "call_id": "call_r1b1n1", "recorded": False}
    )
    await store.append("session_a", 1, [question, tool_call(1, name="count_kites"), result, first, *rest])
    if not index:
        (folder / "memory").write_text("in the way")
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        if index:
            await caught_up(store)
        text = await recall(memory, "ann", "kites nests")
    assert "Cobham" in text
    assert "17" not in text
    assert "count_kites" not in text


def extracting(stub: Stub) -> MemoryConfig:
    llm = {"provider": "openai", "model": "stub", "api_key": KEY, "base_url": f"{stub.url}/v1"}
    return make_memory_config(llm=llm)


async def test_the_extractor_is_shown_what_is_known(store: SessionStore, folder: Path, stub: Stub):
    stub.replies = [facts(FIRST), facts(FIRST, SECOND)]
    for turn in (1, 2):
        end = done(9, text="See above.").model_copy(update={"presented": False, "winner": "ann"})
        await store.append("session_a", turn, [begin("ann", at=turn), answer(2, "ann", "1,200 a second."), end])
        async with open_session_memory(extracting(stub), folder, store) as memory:
            await wait_for_recordings(store)
            text = await recall(memory, "ann", "How many writes does Postgres take? What did Redis lose?", turn=3)
    known = [section(prompts(request)[1], "Known already") for request in stub.requests]
    assert FIRST not in known[0]
    assert FIRST in known[1]
    assert text.count(FIRST) == 1
    assert SECOND in text


async def caught_up(store: SessionStore) -> None:
    """Everything that was said is searchable; a question waits for that only for a while."""
    async with asyncio.timeout(20):
        while await store.list_due_recordings("episode", 1) or await store.list_due_recordings("complete", 1):
            await asyncio.sleep(0.02)


async def wait_for_recordings(store: SessionStore) -> None:
    async with asyncio.timeout(20):
        while (await store.count_recordings()).pending:
            await asyncio.sleep(0.02)


async def test_debug_files_stand_under_the_last_round_of_the_turn(
    store: SessionStore, folder: Path, stub: Stub, tmp_path: Path
):
    stub.replies = [facts(FIRST)]
    later = answer(3, "ann", "1,250 writes a second.", round=3, number=2)
    end = done(9, text="See above.").model_copy(update={"winner": "ann"})
    await store.append("session_a", 1, [begin("ann", "bob"), answer(1, "ann", "1,200 a second."), later])
    await store.append("session_a", 1, [answer(4, "bob", "I do not know."), end])
    async with open_session_memory(extracting(stub), folder, store, tmp_path / "log"):
        await wait_for_recordings(store)
    files = {p.parts[-4:-1] for p in (tmp_path / "log").rglob("*.json")}
    assert files == {("attempt_3", "memory_debug", "ann"), ("attempt_1", "memory_debug", "bob")}


async def test_the_log_names_each_memory_operation_once_and_no_content(
    store: SessionStore, folder: Path, stub: Stub, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG", "massmem")
    stub.replies = [facts(FIRST), facts()]
    for turn in (1, 2):
        end = done(9, text="See above.").model_copy(update={"presented": False, "winner": "ann"})
        await store.append("session_a", turn, [begin("ann", at=turn), answer(2, "ann", "1,200 a second."), end])
        async with open_session_memory(extracting(stub), folder, store) as memory:
            await wait_for_recordings(store)
            await recall(memory, "ann", "How many writes does Postgres take?", turn=turn)
    lines = [record.getMessage() for record in caplog.records]
    where = "agent=ann, session=session_a, turn="
    expected = [
        f"Recording facts ({where}1): 2 message(s), combined content length: ",
        f"Extracted 1 fact(s) ({where}1)",
        f"Searching memories ({where}1, limit=",
        "Found ",
        f"Recording facts ({where}2): 2 message(s), combined content length: ",
        f"Extracted 0 fact(s) ({where}2)",
        f"Extracted 0 facts ({where}2)",
        f"Searching memories ({where}2, limit=",
        "Found ",
    ]
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))
    assert "Postgres" not in " ".join(lines)


async def test_an_extraction_that_fails_is_reported(
    store: SessionStore, folder: Path, stub: Stub, caplog: pytest.LogCaptureFixture
):
    stub.replies = [completion('{"memory": [{"text": "The budget of proj')]
    await store.append("session_a", 1, turn_one())
    async with open_session_memory(extracting(stub), folder, store) as memory:
        await caught_up(store)
        async with asyncio.timeout(20):
            while (await store.count_recordings()).reason is None:
                await asyncio.sleep(0.02)
    (notice,) = memory.take_notices()
    assert notice.startswith("not everything is remembered yet: no fact in the model's reply could be read")
    assert "not recorded (tried again later): no fact in the model's reply could be read" in caplog.text


async def test_a_model_that_cannot_be_opened_costs_the_facts_alone(
    store: SessionStore, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path / "none"))
    await store.append("session_a", 1, turn_one())
    llm = {"provider": "local", "model": "https://models.example/big.gguf"}
    async with open_session_memory(make_memory_config(llm=llm), folder, store) as memory:
        await caught_up(store)
        assert "Cobham" in await recall(memory, "ann", "kites")
        (notice,) = memory.take_notices()
        assert "no facts" in notice
        assert "(run: massmem models fetch https://models.example/big.gguf)" in notice
    counts = await store.count_recordings()
    assert (counts.pending, counts.failed) == (2, 0)
    assert counts.reason
    assert counts.reason in notice


def test_the_embedded_model_is_refused_for_facts():
    with pytest.raises(ValueError, match="the embedded model finds no facts"):
        make_memory_config(llm={"provider": "local"})


async def test_a_changed_embedder_is_said_once_in_each_run(store: SessionStore, folder: Path):
    await store.append("session_a", 1, turn_one())
    async with open_session_memory(MemoryConfig(), folder, store) as memory:
        await wait_for_recordings(store)
        assert memory.take_notices() == []
    for _ in range(2):
        async with open_session_memory(make_memory_config(), folder, store) as memory:
            for _ in range(3):
                await recall(memory, "ann", "kites")
            (notice,) = memory.take_notices()
            assert "massmem memory rebuild" in notice


async def test_memories_of_one_run_are_made_again_by_one_that_keeps_them(store: SessionStore, folder: Path):
    await store.append("session_a", 1, turn_one())
    async with open_session_memory(make_memory_config(on_disk=False), folder, store) as memory:
        await caught_up(store)
        assert "Cobham" in await recall(memory, "ann", "kites")
    assert not (folder / "memory").exists()
    for _ in range(2):
        async with open_session_memory(make_memory_config(), folder, store) as memory:
            await wait_for_recordings(store)
            assert "Cobham" in await recall(memory, "ann", "kites")
    assert len(await everything(store)) == 6


async def test_agent_whose_time_is_up_does_not_end_the_wait_of_the_others(store: SessionStore, folder: Path):
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        late = asyncio.create_task(memory.wait_until_open())
        waiting = asyncio.create_task(memory.wait_until_open())
        await asyncio.sleep(0)
        late.cancel()
        assert await waiting is not None
        assert late.cancelled()


@pytest.mark.parametrize("index", [True, False], ids=["index", "log"])
async def test_restart_in_the_first_turn_recalls_what_the_agent_did_before(
    store: SessionStore, folder: Path, index: bool, caplog: pytest.LogCaptureFixture
):
    if not index:
        (folder / "memory").write_text("in the way")
    question = begin("ann", "bob", question="Where do kites nest?")
    await store.append("session_a", 1, [question])
    caplog.set_level("DEBUG", "massmem")
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        assert await recall(memory, "ann", "Where do kites nest?", turn=1) == ""
    assert "No relevant memories found (agent=ann)" in caplog.text
    answers = [answer(1, "ann", "Red kites nest in Cobham."), answer(2, "bob", "Kites nest in Kent.")]
    await store.append("session_a", 1, answers)
    async with open_session_memory(make_memory_config(), folder, store) as memory:
        text = await recall(memory, "ann", "Where do kites nest?", turn=1)
    assert "Cobham" in text
    assert "Kent" not in text


async def test_facts_of_what_an_agent_did_before_a_restart_are_recalled_after_it(
    store: SessionStore, folder: Path, stub: Stub
):
    stub.replies = [facts("The stub nests 1,200 kites."), facts("Bob nests no kites.")]
    answers = [answer(1, "ann", "Red kites nest in Cobham."), answer(2, "bob", "Kites nest in Kent.")]
    restart = event(3, "round_started", round=3, agents=("ann", "bob"), final=False)
    await store.append("session_a", 1, [begin("ann", "bob", question="Where do kites nest?"), *answers, restart])
    async with open_session_memory(extracting(stub), folder, store) as memory:
        await wait_for_recordings(store)
        text = await recall(memory, "ann", "Where do kites nest?", turn=1)
    assert "The stub nests 1,200 kites." in text
    assert "Bob nests" not in text


@pytest.mark.parametrize("index", [True, False], ids=["index", "log"])
async def test_note_for_one_session_is_recalled_in_no_other(store: SessionStore, folder: Path, index: bool):
    if not index:
        (folder / "memory").write_text("in the way")
    notes = [NoteAdded(text="Kites are private here.", session_only=True), NoteAdded(text="Kites are for all.")]
    await store.append("session_a", 0, notes)
    everywhere = make_memory_config(session_name=None)
    (ann, _) = agents(everywhere)
    async with open_session_memory(everywhere, folder, store) as memory:
        here, elsewhere = [
            await memory.recall(ann, "kites", build_scope(ann, session_id, 1), RecallOptions(1_000))
            for session_id in ("session_a", "session_b")
        ]
    assert "private" in here
    assert "for all" in here
    assert "private" not in elsewhere
    assert "for all" in elsewhere
