"""What every SessionStore promises about sessions as a whole: finding, naming, counting and deleting them."""

from datetime import timedelta
from typing import Any

import pytest

from massmem.core.errors import InputError, StoreError, UnknownSessionError
from massmem.core.events import MessageAdded, ToolReturned
from massmem.core.messages import AttachedFile
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.core.report import VerdictCandidate
from massmem.core.turn_result import TurnResult
from massmem.memory.persistent import Selection
from massmem.store.lookup import (
    find_session,
    get_newest_session,
    read_results,
    read_transcript,
    read_turn,
    require_session,
)
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, everything, queue, session
from tests.support.sample_turn import START, answer, begin, other_ends, whole_turn


async def store_question(store: SessionStore, name: str, question: str, at: float = 0, turn: int = 1) -> None:
    if turn == 1:
        await store.create_session(session(name, at))
    await store.append(name, turn, [begin("ann", at=at, question=question), done(at + 1, f"On {question}")])


async def ids(store: SessionStore, limit: int | None = None, offset: int = 0, **wanted: object) -> list[str]:
    found = await store.find_sessions(SessionFilter.model_validate({"owner": EVERYBODY, **wanted}), limit, offset)
    return [each.session.session_id for each in found]


@pytest.fixture
async def three(store: SessionStore) -> SessionStore:
    await store_question(store, "session_20251028_143000", "Trip to Lisbon", 0)
    await store_question(store, "session_20251028_150000", "Kafka or 100% RabbitMQ?", 10)
    await store_question(store, "session_20251029_090000", "Why is the sky blue?", 20)
    await store.append("session_20251028_143000", 2, [begin("ann", at=30, question="And if it rains?")])
    return store


TRIP, KAFKA, SKY = "session_20251028_143000", "session_20251028_150000", "session_20251029_090000"


async def test_the_last_used_comes_first(three: SessionStore) -> None:
    assert await ids(three) == [TRIP, SKY, KAFKA]
    assert await ids(three, limit=1, offset=1) == [SKY]
    listed = (await three.find_sessions(SessionFilter(owner=EVERYBODY)))[0]
    assert (listed.turns, listed.session.status, listed.session.title) == (2, "active", "Trip to Lisbon")


async def test_filters(three: SessionStore) -> None:
    assert await ids(three, status="completed") == [SKY, KAFKA]
    assert await ids(three, text="lisbon") == [TRIP]
    assert await ids(three, text="IF IT RAINS") == [TRIP]
    assert await ids(three, text="100%") == [KAFKA]
    assert await ids(three, text="1_0%") == []
    assert await ids(three, title="trip TO lisbon") == [TRIP]
    assert await ids(three, title="trip") == []
    assert await ids(three, prefix="session_20251028") == [TRIP, KAFKA]
    assert await ids(three, prefix="sessionX20251028") == []
    assert await ids(three, since=START + timedelta(seconds=21)) == [TRIP, SKY]
    assert await ids(three, before=START + timedelta(seconds=21)) == [KAFKA]
    assert await ids(three, text="no \ud800 such") == []


async def test_counts(three: SessionStore) -> None:
    counts = await three.count_sessions(SessionFilter(owner=EVERYBODY))
    assert (counts.sessions, counts.active, counts.messages) == (3, 3, 7)
    assert counts.by_status == {"active": 1, "completed": 2}
    one = await three.count_sessions(SessionFilter(text="lisbon", owner=EVERYBODY))
    assert (one.sessions, one.messages) == (1, 3)
    none = await three.count_sessions(SessionFilter(text="nothing", owner=EVERYBODY))
    assert (none.sessions, none.active, none.messages, none.by_status) == (0, 0, 0, {})


async def test_bytes_grow_with_texts_and_files_and_go_with_the_session(three: SessionStore) -> None:
    async def count_bytes(text: str = "") -> int:
        return (await three.count_sessions(SessionFilter(text=text, owner=EVERYBODY))).bytes

    every, sky = await count_bytes(), await count_bytes("sky")
    assert 0 < sky < every
    picture = AttachedFile(name="a.png", media_type="image/png", size=5_000, hash="0" * 64)
    question = begin("ann", at=40, question="é" * 1_000).model_copy(update={"attachments": (picture,)})
    await three.append(SKY, 2, [question])
    assert 7_000 < await count_bytes() - every < 8_000
    while await three.delete_session(SKY, 1) is not None:
        assert await count_bytes() < every, "what is being deleted counts no longer"
    assert await count_bytes() == every - sky


async def test_confidence_of_the_last_answer(three: SessionStore) -> None:
    criteria = SessionFilter(title="Trip to Lisbon", owner=EVERYBODY)
    assert [(e.confidence, e.escalated) for e in await three.find_sessions(criteria)] == [(None, False)]
    candidate = VerdictCandidate(answer="42", agents=("ann",))
    unsure: dict[str, Any] = {"escalated": True, "verdict": "unsure", "candidates": (candidate,)}
    before = await three.get_winner_names([TRIP])
    await three.append(TRIP, 2, [done(40).model_copy(update={"confidence": 0.25, **unsure})])
    assert [(e.confidence, e.escalated) for e in await three.find_sessions(criteria)] == [(0.25, True)]
    final = (await everything(three, TRIP))[-1]
    assert (final.final, final.confidence, final.escalated) == (True, 0.25, True)
    (to_record,) = await three.get_messages_to_record([final.id])
    assert (to_record.winner, await three.get_winner_names([TRIP])) == ("", before), "for memory nobody won"


async def test_a_new_name_stays(three: SessionStore) -> None:
    await three.rename_session(TRIP, "Urlaub \x00 2026")
    record = await three.get_session(TRIP)
    assert record is not None
    assert record.title == "Urlaub \ufffd 2026"
    assert record.updated_at == START + timedelta(seconds=30)
    await three.append(TRIP, 2, [done(40)])
    assert await ids(three, title="urlaub \ufffd 2026") == [TRIP]
    with pytest.raises(StoreError, match="not in the store"):
        await three.rename_session("session_x", "name")


async def test_sessions_are_found_by_id_name_and_beginning(three: SessionStore) -> None:
    async def find(name: str) -> str:
        return (await find_session(three, name, EVERYBODY)).session_id

    await three.rename_session(SKY, "physics")
    for name in (SKY, "physics", "PHYSICS", "session_20251029", "20251029", "20251029_09"):
        assert await find(name) == SKY
    with pytest.raises(InputError, match="any of 2") as several:
        await find("20251028")
    assert TRIP in several.value.hint
    assert "Kafka" in several.value.hint
    with pytest.raises(UnknownSessionError) as unknown:
        await find("Trip to Lisbom")
    assert f"did you mean {TRIP}?" in unknown.value.hint
    assert (await get_newest_session(three, EVERYBODY)).session_id == TRIP


async def test_an_exact_name_goes_before_the_beginning_of_an_id(three: SessionStore) -> None:
    await three.rename_session(KAFKA, "session_20251029")
    assert (await find_session(three, "session_20251029", EVERYBODY)).session_id == KAFKA
    await three.rename_session(KAFKA, SKY)
    assert (await find_session(three, SKY, EVERYBODY)).session_id == SKY


async def test_no_session_to_go_on_with(store: SessionStore) -> None:
    with pytest.raises(UnknownSessionError, match="no session yet"):
        await get_newest_session(store, EVERYBODY)


async def test_turns_in_pages(store: SessionStore) -> None:
    for turn in (1, 2, 3):
        await store_question(store, "session_a", f"q{turn}", turn=turn)
    await store.append("session_a", 4, [begin("ann", question="q4")])
    assert [(t.turn, t.question, t.answer) for t in await store.list_turns("session_a")] == [
        (1, "q1", "On q1"), (2, "q2", "On q2"), (3, "q3", "On q3"), (4, "q4", None)
    ]  # fmt: skip
    assert [t.turn for t in await store.list_turns("session_a", after=1, limit=2)] == [2, 3]
    assert await store.list_turns("session_b") == []


async def test_a_session_is_read_turn_by_turn(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    await store.append("session_a", 2, [begin("ann", at=10, question="And sunsets?"), *other_ends()[2:]])
    stored = await require_session(store, "session_a")
    first, second = [each async for each in read_transcript(store, stored)]
    assert first.result.model_dump(mode="json") == TurnResult.of(whole_turn()).model_dump(mode="json")
    assert (second.result.status, second.result.answer, len(second.messages)) == ("interrupted", None, 1)
    assert [each.turn async for each in read_results(store, stored)] == [1, 2]
    again = await read_turn(store, stored, 1)
    assert (again.messages, again.result.model_dump(mode="json")) == (
        first.messages,
        first.result.model_dump(mode="json"),
    )
    with pytest.raises(InputError, match="no turn 3"):
        await read_turn(store, stored, 3)


async def test_message_before_the_first_turn_is_turn_zero(store: SessionStore) -> None:
    await store.create_session(session())
    added = MessageAdded(role="user", text="Where is the pump?")
    await store.append("session_a", 0, [added, ToolReturned(agent_id="ann", round=0, name="find", content="Hall H-4.")])
    stored = await require_session(store, "session_a")
    (only,) = [each async for each in read_transcript(store, stored)]
    assert [m.content for m in only.messages] == ["Where is the pump?", "Hall H-4."]
    await store.append("session_a", 1, whole_turn())
    assert [(each.is_between_turns, each.result.turn) async for each in read_transcript(store, stored)] == [
        (True, 0),
        (False, 1),
    ]


async def test_a_deleted_session_is_gone_and_the_others_are_not(three: SessionStore) -> None:
    before = await everything(three, KAFKA), await queue(three, KAFKA)
    assert await three.delete_session(TRIP, 1000) is None
    assert await three.get_session(TRIP) is None
    assert await everything(three, TRIP) == []
    assert await three.list_turns(TRIP) == []
    assert await three.read_turn_events(TRIP, 1) == []
    assert await queue(three, TRIP) == []
    assert await three.search_messages("Lisbon rains", owner=EVERYBODY) == []
    assert await ids(three) == [SKY, KAFKA]
    assert (await everything(three, KAFKA), await queue(three, KAFKA)) == before
    assert await three.erase_deleted() is True
    assert [m.session_id for m in await three.search_messages("Kafka", owner=EVERYBODY)] == [KAFKA, KAFKA]
    with pytest.raises(StoreError, match="deleted"):
        await three.append(TRIP, 3, [begin("ann", at=50)])
    assert await three.delete_session(TRIP, 1000) is None


async def test_a_session_is_deleted_in_parts_and_says_so_meanwhile(store: SessionStore) -> None:
    for turn in range(1, 6):
        await store_question(store, "session_a", f"q{turn}", at=turn, turn=turn)
    assert await store.delete_session("session_a", 0) == 10
    left: int | None = 10
    seen: list[int] = []
    while (left := await store.delete_session("session_a", 3)) is not None:
        seen.append(left)
        record = await store.get_session("session_a")
        assert record is not None
        assert (record.status, record.title, record.last_message, record.message_count) == ("deleting", "", "", left)
        assert await store.list_sessions() == []
        assert await ids(store, status="deleting") == ["session_a"]
        assert len(await everything(store)) == left
        with pytest.raises(UnknownSessionError, match="being deleted"):
            await find_session(store, "session_a", EVERYBODY)
        with pytest.raises(UnknownSessionError, match="being deleted"):
            await require_session(store, "session_a")
        with pytest.raises(UnknownSessionError):
            await get_newest_session(store, EVERYBODY)
        with pytest.raises(StoreError):
            await store.rename_session("session_a", "again")
    assert seen == sorted(seen, reverse=True)
    assert len(seen) == 3
    assert await store.get_session("session_a") is None
    with pytest.raises(UnknownSessionError, match="was deleted"):
        await require_session(store, "session_a")


async def test_answers_ballots_and_leases_go_with_their_session(store: SessionStore) -> None:
    await store.create_session(session())
    await store.append("session_a", 1, whole_turn())
    await store.forget_recordings(Selection(session_id="session_a"))
    assert await store.acquire_lease("session_a", "me", 60)
    while await store.delete_session("session_a", 2) is not None:
        pass
    await store.create_session(session())
    assert await store.acquire_lease("session_a", "you", 60)
    assert (await store.count_recordings("session_a")).done == 0
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "A fresh start."), done()])
    assert await store.get_winner_names(["session_a"]) == {("session_a", 1): "ann"}


async def test_secret_in_a_title_of_an_earlier_release_is_shown_nowhere(store: SessionStore) -> None:
    await store.create_session(session())
    await store.rename_session("session_a", "my password is hunter22")
    (listed,) = await store.find_sessions(SessionFilter(owner=EVERYBODY))
    (by_id,), one = await store.list_sessions(), await store.get_session("session_a")
    assert one is not None
    assert {listed.session.title, by_id.title, one.title} == {"my password is [redacted]"}
