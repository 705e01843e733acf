"""Conditions that select points."""

from massmem.memory.index import All, Ids, OneOf, Span, matching, sort_by_time, valid_ids
from massmem.memory.persistent import Selection


def test_matching_has_a_condition_for_every_field_that_is_set() -> None:
    assert matching(Selection()) == All(())
    assert matching(Selection(session_id="s", kind="fact", turn=2)) == All(
        (OneOf("run_id", ("s",)), OneOf("kind", ("fact",)), Span("turn", 2, 2))
    )
    assert matching(Selection(ids=("12", "x", "-1", "٣"))) == All((Ids(frozenset({12})),))
    assert matching(Selection(agent_id="")) == All((OneOf("agent_id", ("",)),))


def test_valid_ids_fit_64_bits() -> None:
    assert valid_ids([-1, 0, 2**64 - 1, 2**64]) == Ids(frozenset({0, 2**64 - 1}))


def test_settled_order_does_not_depend_on_where_the_index_cut() -> None:
    ties = {5, 6, 7, 8}
    assert sort_by_time([(9, 1), (3, 5)], ties, newest_first=True) == [1, 8]
    assert sort_by_time([(9, 1), (3, 7), (3, 6)], ties, newest_first=True) == [1, 8, 7]
    assert sort_by_time([(1, 4), (3, 7)], ties, newest_first=False) == [4, 5]
