"""Search in the messages of Redis sessions: what matches, and what comes first."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest

from massmem.core.events import Event
from massmem.core.records import MessageRecord, SessionRecord
from massmem.store.encoding import MAX_QUERY_WORDS, encode_event, split_query, split_words
from massmem.store.redis.record import Record, StoredSession
from massmem.store.redis.tables import search
from tests.support.sample_turn import answer, ballot, event


def read(session_id: str, events: Iterable[Event]) -> list[MessageRecord]:
    """Return the messages of a session with these events."""
    created = datetime(2026, 1, 1, tzinfo=UTC)
    session = SessionRecord(session_id=session_id, created_at=created, updated_at=created)
    record = Record(StoredSession(session=session))
    record.append(0, [encode_event(event) for event in events])
    return record.read_messages()


def find(query: str, sessions: dict[str, list[str]]) -> list[tuple[str, int]]:
    """Return session and seq of what is found in sessions with messages of these texts."""
    logs = {name: [event(0, "message_added", role="user", text=t) for t in texts] for name, texts in sessions.items()}
    messages = [message for name, events in logs.items() for message in read(name, events)]
    return [(message.session_id, message.seq) for message in search(messages, query, 20)]


def test_words_have_no_case_and_no_accents() -> None:
    assert split_words("Café, STRASSE straße snake_case 100%") == ["cafe", "strasse", "strasse", "snake", "case", "100"]
    assert split_query("snake_case Case case ?") == [("snake", "case"), ("case",)]
    assert len(split_query(" ".join(f"w{n}" for n in range(1000)))) == MAX_QUERY_WORDS


def test_rare_words_and_short_messages_come_first() -> None:
    sessions = {
        "x": ["the the plan", "the sky"],
        "y": ["the sky is blue and wide and high today", "sky blue"],
        "z": ["the"],
    }
    assert find("blue", sessions) == [("y", 2), ("y", 1)]
    assert find("the plan", sessions)[0] == ("x", 1)
    assert find("nothing", sessions) == []
    assert set(find("the", sessions)) == {("x", 1), ("x", 2), ("y", 1), ("z", 1)}


def test_parts_of_a_word_must_stand_side_by_side() -> None:
    texts = ["max", "size max", "the max_size of it", "max-size", "max is the size"]
    assert {seq for _, seq in find("max_size", {"x": texts})} == {3, 4}
    assert {seq for _, seq in find("max size", {"x": texts})} == {1, 2, 3, 4, 5}


def test_a_part_of_a_longer_word_does_not_match() -> None:
    assert find("cat", {"x": ["concatenate", "the cat"]}) == [("x", 2)]


@pytest.mark.parametrize(("query", "number"), [("vote", 1), ("café", 2), ("because", 0)])
def test_words_are_found_in_messages_of_agents(query: str, number: int) -> None:
    """The word "vote" stands in no ballot's event, only in its message. Reasoning is not searched."""
    events = [ballot(1, "ann", "ann", reason="The CAFÉ"), answer(2, "ann", "cafe\nbar")]
    events[1] = events[1].model_copy(update={"reasoning": "because"})
    assert len(search(read("s", events), query, 20)) == number
