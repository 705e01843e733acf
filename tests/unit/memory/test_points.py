"""Ids and payloads of points."""

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.points import (
    ASKS,
    FIRST_FACT,
    HAS_TIME,
    MOST_PASSAGES,
    add_keys,
    base_of,
    fact_id,
    fact_payload,
    message_number,
    passage_payload,
    session_base,
    to_memory,
)
from tests.support.memories import count, fact, make_episode


def test_a_passage_comes_back_as_it_was_said():
    episode = make_episode("Did it rain? Yes.", number=7, turn=2, by="a", won=True, group="g")
    stored = passage_payload(episode, "Did it rain?", 1, 12, count)
    assert stored["f"] == [12, 7, ASKS, 1, count(" Did it rain?"), episode.created_at.toordinal()]
    assert (stored["won"], stored["user_id"]) == (True, "massmem")
    memory = to_memory(5, stored, 0.5)
    assert (memory.id, memory.kind, memory.text, memory.score) == ("5", "episode", "Did it rain?", 0.5)
    assert (memory.session_id, memory.turn, memory.agent_id, memory.group) == ("s", 2, "a", "g")
    assert (memory.message_ids, memory.created_at) == (("s-7",), episode.created_at)


def test_a_fact_names_all_its_messages():
    stored = fact_payload(fact("It rained yesterday.", sources=("m1", "m2")), 1, count)
    assert stored["kind"] == "fact"
    assert stored["f"][:4] == [0, 0, HAS_TIME, 1]
    assert to_memory(1, stored).message_ids == ("m1", "m2")


def test_tokens_are_those_of_what_is_shown():
    stored = passage_payload(make_episode("x"), "a\x1b[31mb", [], 0, count)
    assert stored["f"][4] == count(" a [31mb")
    assert stored["data"] == "a\x1b[31mb", "what was said is kept as it is"


def test_keys_for_the_index_are_added_to_a_copy():
    payload = passage_payload(make_episode("x"), "x", [], 0, count)
    stored = add_keys(payload)
    assert stored["at"] == make_episode("x").created_at.toordinal() * 86_400 + 9 * 3600
    assert payload.items() <= stored.items()
    assert "seen" not in payload


@given(st.text(), st.integers(0, 15), st.integers(0, MOST_PASSAGES - 1))
def test_passages_and_facts_never_meet_and_fit_a_signed_column(session: str, attempt: int, position: int):
    base = session_base(session, attempt)
    assert 0 <= base + position < FIRST_FACT <= fact_id(fact("t", session=session), "t") < 2**63
    assert base_of(base + position) == base


def test_another_attempt_is_another_place():
    assert len({session_base("s", attempt) for attempt in range(16)}) == 16


def test_parts_are_kept_apart():
    assert fact_id(fact("t", by="c", session="ab"), "t") != fact_id(fact("t", by="bc", session="a"), "t")


def test_ids_do_not_change_between_versions():
    """They are on disk."""
    assert (session_base("s", 0), message_number("m")) == (4450898094996848640, 3224792186807189667)
