"""Ids of points."""

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.index.point_ids import FIRST_FACT, MOST_PASSAGES, base_of, fact_id, message_number, session_base


@given(st.text(), st.integers(0, 15), st.integers(0, MOST_PASSAGES - 1))
def test_passages_and_facts_never_meet_and_fit_a_signed_column(session: str, attempt: int, position: int):
    base = session_base(session, attempt)
    assert 0 <= base + position < FIRST_FACT <= fact_id(session, "a", "t") < 2**63
    assert base_of(base + position) == base


def test_another_attempt_is_another_place():
    assert len({session_base("s", attempt) for attempt in range(16)}) == 16


def test_parts_are_kept_apart():
    assert fact_id("ab", "c", "t") != fact_id("a", "bc", "t")


def test_ids_do_not_change_between_versions():
    """They are on disk."""
    assert (session_base("s", 0), message_number("m")) == (4450898094996848640, 3224792186807189667)
