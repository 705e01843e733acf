"""What every PersistentMemory does, on each index that there is.

The server is used where MASSMEM_QDRANT_URL names one that answers.
"""

import os
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from massmem.config.models import EmbeddingConfig, MemoryConfig, PersistentMemoryConfig, QdrantConfig
from massmem.core.errors import InputError, MemoryUnavailable
from massmem.core.events import MemoryAction
from massmem.memory import open_memory
from massmem.memory.access import HERE
from massmem.memory.persistent import CompletedTurn, MemoryChange, PersistentMemory, RecallOptions, Selection
from tests.support.memories import START, asks, fact, letters, make_episode, open_disk_memory

ROOM = RecallOptions(1000, abstain=False)


async def _server(home: Path) -> PersistentMemory:
    url = os.environ.get("MASSMEM_QDRANT_URL")
    if not url:
        pytest.skip("MASSMEM_QDRANT_URL is not set: no Qdrant server to test against")
    qdrant = QdrantConfig(mode="server", url=url)
    config = MemoryConfig(
        persistent_memory=PersistentMemoryConfig(qdrant=qdrant, embedding=EmbeddingConfig(provider="none"))
    )
    try:
        return await open_memory(config, home, os.environ)
    except MemoryUnavailable as e:
        pytest.skip(f"the Qdrant server does not answer: {e.message}")


@pytest.fixture(params=["embedded", "words", "server"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[PersistentMemory]:
    match request.param:
        case "embedded":
            memory: PersistentMemory = open_disk_memory(tmp_path / "memory", letters())
        case "words":
            memory = open_disk_memory(tmp_path / "memory")
        case _:
            memory = await _server(tmp_path)
    yield memory
    await memory.close()


@pytest.fixture
def s() -> str:
    """A session of this test's own: a server keeps those of others."""
    return f"s{uuid4().hex[:12]}"


async def test_message_is_recalled_by_its_words(memory: PersistentMemory, s: str):
    await memory.record([make_episode("The red kites nest in Cobham.", session=s)])
    result = await memory.recall("Where do kites nest?", asks(session=s), ROOM)
    assert "Cobham" in result.text
    (one,) = result.memories
    assert (one.kind, one.session_id, one.turn, one.agent_id, one.message_ids) == ("episode", s, 1, "user", (f"{s}-0",))
    assert 0 < result.tokens <= 1000


async def test_nothing_is_found_where_nothing_is(memory: PersistentMemory, s: str):
    for query in ("kites", "", " ", "the of", "?", "x" * 10_000):
        assert (await memory.recall(query, asks(session=s), ROOM)).memories == ()


async def test_storing_again_stores_once(memory: PersistentMemory, s: str):
    episodes = [make_episode(f"Kites, number {i}.", i, session=s) for i in range(4)]
    facts = [fact(f"Kites have {i} wings.", session=s) for i in range(3)]
    for _ in range(3):
        await memory.record(episodes)
        await memory.record(episodes[1:3])
    assert [await memory.add_facts(facts) for _ in range(3)] == [3, 0, 0]
    assert len(await memory.list(Selection(session_id=s))) == 7


async def test_others_see_a_winners_turn_once_it_is_complete(memory: PersistentMemory, s: str):
    await memory.record([make_episode(f"{agent} saw kites.", i, by=agent, session=s) for i, agent in enumerate("ab")])
    await memory.add_facts([fact("Kites are red.", by="b", session=s)])

    async def seen(turn: int) -> set[str]:
        result = await memory.recall("kites", asks("a", turn, s), ROOM)
        return {m.agent_id for m in result.memories}

    assert await seen(1) == {"a"}
    assert await seen(2) == {"a"}, "the turn was never completed"
    await memory.complete_turns([CompletedTurn(s, 1, "b")])
    assert await seen(1) == {"a"}, "not in the turn itself"
    assert await seen(2) == {"a", "b"}
    kinds = {m.kind for m in (await memory.recall("kites", asks("a", 2, s), ROOM)).memories}
    assert kinds == {"episode", "fact"}


async def test_having_won_once_shows_that_turn_alone(memory: PersistentMemory, s: str):
    await memory.record([make_episode(f"Kites in turn {turn}.", turn, turn, "b", s) for turn in (1, 2, 3)])
    await memory.complete_turns([CompletedTurn(s, 2, "b")])
    result = await memory.recall("kites", asks("a", 5, s), ROOM)
    assert {m.turn for m in result.memories} == {2}


async def test_other_sessions_are_seen_only_where_the_scope_says_so(memory: PersistentMemory, s: str):
    other, grouped = f"{s}x", f"{s}y"
    await memory.record([make_episode("Kites here.", session=s), make_episode("Kites there.", session=other)])
    await memory.record([make_episode("Kites in the group.", session=grouped, group=f"g{s}")])

    async def seen(**more: object) -> set[str]:
        result = await memory.recall("kites", asks("a", 5, s, **more), RecallOptions(100_000, abstain=False))
        return {m.session_id for m in result.memories if m.session_id.startswith(s)}

    assert await seen() == {s}
    assert await seen(group=f"g{s}") == {s, grouped}
    assert await seen(group="unknown") == {s}
    assert await seen(others=(other,)) == {s, other}
    assert await seen(all_sessions=True) == {s, other, grouped}


async def test_note_for_its_session_alone_is_seen_nowhere_else(memory: PersistentMemory, s: str):
    await memory.record([make_episode("Kites here only.", session=s, group=HERE)])
    assert (await memory.recall("kites", asks("a", 5, s), ROOM)).memories
    for scope in (
        asks("a", 5, f"{s}x", all_sessions=True), asks("a", 5, f"{s}x", others=(s,)), asks("a", 5, f"{s}x", group=HERE)
    ):  # fmt: skip
        assert not (await memory.recall("kites", scope, RecallOptions(100_000, abstain=False))).memories


async def test_the_turn_under_way_is_seen_by_who_is_in_it(memory: PersistentMemory, s: str):
    await memory.record(
        [
            make_episode("Kites asked.", 0, 4, "user", s),
            make_episode("Kites mine.", 1, 4, "a", s),
            make_episode("Kites later.", 2, 5, "a", s),
        ]
    )
    result = await memory.recall("kites", asks("a", 4, s), ROOM)
    assert [m.text for m in result.memories] == ["Kites mine."]


async def test_message_in_the_prompt_is_not_recalled(memory: PersistentMemory, s: str):
    await memory.record([make_episode(f"Kites, number {i}.", i, session=s) for i in range(3)])
    result = await memory.recall("kites", asks(session=s), RecallOptions(1000, exclude=frozenset({f"{s}-0", f"{s}-2"})))
    assert [m.message_ids for m in result.memories] == [(f"{s}-1",)]


@pytest.mark.parametrize(("tokens", "limit"), [(30, None), (100, None), (1000, 3), (0, None), (1000, 0)])
async def test_the_budget_holds(memory: PersistentMemory, s: str, tokens: int, limit: int | None):
    await memory.record([make_episode(f"Kites number {i} fly high.", i, session=s) for i in range(40)])
    result = await memory.recall("kites", asks(session=s), RecallOptions(tokens, limit))
    assert result.tokens <= tokens
    assert limit is None or len({m.message_ids for m in result.memories}) <= limit
    assert bool(result.memories) is (tokens > 0 and limit != 0)


async def test_lists_are_newest_first_and_can_be_turned_over(memory: PersistentMemory, s: str):
    await memory.record([make_episode(f"Kites {i}.", i, session=s) for i in range(5)])
    listed = [m.text for m in await memory.list(Selection(session_id=s))]
    assert listed == [f"Kites {i}." for i in (4, 3, 2, 1, 0)]
    assert [m.text for m in await memory.list(Selection(session_id=s), 2, 1)] == listed[1:3]
    assert list(await memory.list(Selection(session_id=s), 2, 9)) == []


@pytest.mark.parametrize(
    ("selection", "left"),
    [
        (Selection(agent_id="a"), 3),
        (Selection(turn=2), 3),
        (Selection(kind="fact"), 4),
        (Selection(kind="episode", turn=1), 3),
        (Selection(), 0),
    ],
)
async def test_forgotten_memories_are_gone(memory: PersistentMemory, s: str, selection: Selection, left: int):
    texts = [("a", 1), ("a", 2), ("b", 1), ("user", 2)]
    await memory.record([make_episode(f"Kites of {by}.", i, turn, by, s) for i, (by, turn) in enumerate(texts)])
    await memory.add_facts([fact("Kites are birds.", session=s, by="b")])
    chosen = Selection(s, selection.agent_id, selection.turn, selection.kind)
    assert await memory.forget(chosen) == 5 - left
    assert len(await memory.list(Selection(session_id=s))) == left
    assert list(await memory.list(chosen)) == []
    assert await memory.forget(chosen) == 0


async def test_one_memory_can_be_forgotten_by_its_id(memory: PersistentMemory, s: str):
    await memory.record([make_episode(f"Kites {i}.", i, session=s) for i in range(3)])
    (found,) = (await memory.recall("kites", asks(session=s), RecallOptions(1000, 1))).memories
    assert await memory.forget(Selection(ids=(found.id,))) == 1
    assert found.id not in {m.id for m in await memory.list(Selection(session_id=s))}


async def test_everything_at_once_is_not_forgotten(memory: PersistentMemory, s: str):
    await memory.record([make_episode("Kites.", session=s)])
    with pytest.raises(InputError):
        await memory.forget(Selection())
    assert len(await memory.list(Selection(session_id=s))) == 1


async def test_stats_count_what_there_is(memory: PersistentMemory, s: str):
    before = await memory.stats()
    await memory.record(
        [
            make_episode("The quick brown fox jumps over the lazy dog and more. " * 6, 0, session=s),
            make_episode("Kites.", 1, session=s),
        ]
    )
    await memory.add_facts([fact("Kites are birds.", session=s)])
    after = await memory.stats()
    assert (after.episodes - before.episodes, after.facts - before.facts, after.sessions - before.sessions) == (2, 1, 1)
    assert after.passages - before.passages > 2
    assert after.location


@pytest.mark.parametrize(
    "text", ["", "\x00", "🪁" * 50, "a" * 100_000, "line\nline\r\n\u2028line", "'; DROP TABLE x; --", "[]{}<>"]
)
async def test_any_text_can_be_said(memory: PersistentMemory, s: str, text: str):
    await memory.record([make_episode(f"{text} kites", session=s), make_episode(text, 1, session=s)])
    assert any(m.text.endswith("kites") for m in await memory.list(Selection(session_id=s), limit=1_000))
    await memory.recall(text, asks(session=s), ROOM)


def change(s: str, action: MemoryAction, old: str, text: str = "", number: int = 1) -> MemoryChange:
    """What the user does with a memory of the user's first message. number: of the change."""
    time = START + timedelta(days=number)
    return MemoryChange(f"{s}-c{number}", action, s, "episode", "user", 1, (f"{s}-0",), old, text or old, "user", time)


async def test_edited_memory_is_found_by_its_new_words_and_under_its_old_id(memory: PersistentMemory, s: str):
    await memory.record([make_episode("My home is Porto.", session=s)])
    (before,) = await memory.list(Selection(s))
    edit = change(s, "edit", "My home is Porto.", "My home is Ghent.")
    await memory.change(before.id, edit)
    await memory.change(before.id, edit)
    (after,) = await memory.list(Selection(s))
    assert (after.id, after.text, after.edited_at, after.changes) == (
        before.id, "My home is Ghent.", START + timedelta(days=1), (edit.id,),
    )  # fmt: skip
    assert [claim.value for claim in after.claims] == ["Ghent"]
    result = await memory.recall("Where do I live?", asks(session=s), ROOM)
    assert "User (edited 9 May 2026): My home is Ghent." in result.text
    assert "Porto" not in (await memory.recall("Porto", asks(session=s), ROOM)).text
    await memory.change(before.id, change(s, "edit", "My home is Porto.", "My home is Oslo.", number=0))
    assert [m.text for m in await memory.list(Selection(s))] == ["My home is Ghent."], "an older edit comes too late"


async def test_message_that_is_recorded_again_stays_edited(memory: PersistentMemory, s: str):
    episode = make_episode("My home is Porto.", session=s)
    await memory.record([episode])
    (one,) = await memory.list(Selection(s))
    await memory.change(one.id, change(s, "edit", one.text, "My home is Ghent."))
    await memory.record([episode])
    assert [m.text for m in await memory.list(Selection(s))] == ["My home is Ghent."]


async def test_pinned_memory_is_shown_whatever_the_question(memory: PersistentMemory, s: str):
    others = [make_episode(f"Kite {n} nests.", n, session=s) for n in range(1, 4)]
    await memory.record([make_episode("I am allergic to peanuts.", session=s), *others])
    (one,) = await memory.list(Selection(s, message_ids=(f"{s}-0",)))
    await memory.change(one.id, change(s, "pin", one.text))
    assert [m.text for m in await memory.list(Selection(s, is_pinned=True))] == [one.text]
    result = await memory.recall("Where does kite 2 nest?", asks(session=s), ROOM)
    assert result.text.count("peanuts") == 1
    assert ([m.id for m in result.pinned], result.pins_left_out) == ([one.id], 0)
    assert "peanuts" not in (await memory.recall("peanuts", asks(session=f"{s}x"), ROOM)).text, "another session"
    verbatim = RecallOptions(1000, exclude=frozenset({f"{s}-0"}))
    assert "peanuts" not in (await memory.recall("peanuts", asks(session=s), verbatim)).text
    await memory.change(one.id, change(s, "unpin", one.text, number=2))
    assert await memory.list(Selection(s, is_pinned=True)) == []
    await memory.change(one.id, change(s, "pin", one.text, number=3))
    assert len(await memory.list(Selection(s, is_pinned=True))) == 1


async def test_of_many_pins_the_first_are_shown_within_their_room(memory: PersistentMemory, s: str):
    texts = [f"Rule {n}: {'always answer in metric units ' * 4}" for n in range(10)]
    await memory.record([make_episode(text, n, session=s) for n, text in enumerate(texts)])
    for n, text in enumerate(texts):
        (one,) = await memory.list(Selection(s, message_ids=(f"{s}-{n}",)))
        await memory.change(one.id, change(s, "pin", text, number=n))
    result = await memory.recall("Hello?", asks(session=s), ROOM)
    assert 0 < len(result.pinned) < 10
    assert [m.text[:6] for m in result.pinned] == [f"Rule {n}" for n in range(len(result.pinned))]
    assert result.pins_left_out == 10 - len(result.pinned)
