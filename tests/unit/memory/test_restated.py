"""A fact found again: whoever sees it, sees it after a turn that its agent won, and not before."""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.index.payload import of_fact
from massmem.memory.persistent import Fact
from massmem.memory.restated import restated
from tests.support.memories import count, fact


def payload(of: Fact) -> dict[str, Any]:
    return of_fact(of, ["kite"], count)


def found(turn: int, *, won: bool = False, source: str = "") -> Fact:
    return fact("Kites are red.", turn, sources=(source or f"m{turn}",), won=won)


def told(facts: Sequence[Fact]) -> Fact:
    """What stands in the index after all of these."""
    first, *rest = facts
    for each in rest:
        first = restated(payload(first), each) or first
    return first


def test_won_later_it_moves_there_and_keeps_both_origins():
    now = restated(payload(found(1)), found(3, won=True))
    assert now is not None
    assert (now.turn, now.won, now.message_ids) == (3, True, ("m1", "m3"))


def test_what_was_won_already_stays_where_it_is():
    now = restated(payload(found(1, won=True)), found(3, won=True))
    assert now is not None
    assert (now.turn, now.message_ids) == (1, ("m1", "m3"))
    lost = restated(payload(found(1, won=True)), found(3))
    assert lost is not None
    assert (lost.turn, lost.won) == (1, True)


def test_not_yet_won_it_waits_in_the_last_turn():
    now = restated(payload(found(1)), found(2))
    assert now is not None
    assert (now.turn, now.won) == (2, False)


def test_the_same_again_changes_nothing():
    for each in (found(1), found(2, won=True)):
        assert restated(payload(each), each) is None
    both = told([found(1), found(3, won=True)])
    assert restated(payload(both), found(1)) is None
    assert restated(payload(both), found(3, won=True)) is None


@given(won=st.lists(st.booleans(), min_size=1, max_size=4))
def test_the_order_of_recording_makes_no_difference(won: list[bool]):
    facts = [found(turn, won=is_won) for turn, is_won in enumerate(won, 1)]
    results = {told(order) for order in permutations(facts)}
    (one,) = results
    turns = [each.turn for each in facts if each.won]
    assert (one.won, one.turn) == (bool(turns), min(turns) if turns else len(facts))
    assert set(one.message_ids) == {f"m{turn}" for turn in range(1, len(won) + 1)}
