from datetime import UTC, datetime

import pytest

from massmem.memory.index.visible import All, Ids, OneOf, Span, Visible, possible, seen_by, selected, settled, stored
from massmem.memory.persistent import Scope, Selection

NOON = datetime(2026, 11, 21, 12, 30, 15, tzinfo=UTC)
PAYLOAD = {
    "run_id": "s1", "agent_id": "a", "turn": 1, "group": "", "won": False, "created_at": NOON.isoformat(),
    "f": [0, 0, 0, 1, 1, NOON.toordinal()],
}  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["a", "a|s1"]),
        ({"group": "team"}, ["a", "a|s1", "a|@team"]),
        ({"won": True}, ["*", "*|s1"]),
        ({"agent_id": "user", "group": "g"}, ["*", "*|s1", "*|@g"]),
    ],
)
def test_who_may_see_a_point(fields: dict[str, object], expected: list[str]) -> None:
    assert seen_by({**PAYLOAD, **fields}) == expected


def test_what_is_stored_with_a_point() -> None:
    kept = stored(PAYLOAD)
    assert kept["at"] == NOON.toordinal() * 86_400 + 12 * 3600 + 30 * 60 + 15
    assert PAYLOAD.items() <= kept.items()
    assert "seen" not in PAYLOAD


def test_in_its_own_session_an_agent_asks_by_one_look_up_and_the_turn() -> None:
    condition = Visible.of(Scope("s1", "me", 4)).condition()
    assert condition == All(
        (OneOf("seen", ("me|s1", "*|s1")),),
        (All((Span("turn", 5, None),)), All((Span("turn", 4, 4),), (OneOf("agent_id", ("me",)),))),
    )


def test_elsewhere_the_turn_counts_in_the_own_session_only() -> None:
    here = OneOf("run_id", ("s1",))
    everywhere = Visible.of(Scope("s1", "me", 4, all_sessions=True)).condition()
    assert everywhere.of == (OneOf("seen", ("me", "*")),)
    assert everywhere.none_of[0] == All((here, Span("turn", 5, None)))
    named = Visible.of(Scope("s1", "me", 4, group="team")).condition(Ids(frozenset({1})))
    assert named.of == (OneOf("seen", ("me|s1", "me|@team", "*|s1", "*|@team")), Ids(frozenset({1})))
    assert named.none_of == everywhere.none_of


def test_a_group_is_never_taken_for_a_session() -> None:
    in_group = set(seen_by({**PAYLOAD, "run_id": "x", "group": "s1", "won": True}))
    assert not in_group & set(Visible("me", "s1", 1).condition().of[0].values)  # type: ignore[union-attr]


def test_selections() -> None:
    assert selected(Selection()) == All(())
    assert selected(Selection(session_id="s", kind="fact", turn=2)) == All(
        (OneOf("run_id", ("s",)), OneOf("kind", ("fact",)), Span("turn", 2, 2))
    )
    assert selected(Selection(ids=("12", "x", "-1", "٣"))) == All((Ids(frozenset({12})),))
    assert selected(Selection(agent_id="")) == All((OneOf("agent_id", ("",)),))


def test_only_ids_that_can_be() -> None:
    assert possible([-1, 0, 2**64 - 1, 2**64]) == Ids(frozenset({0, 2**64 - 1}))


def test_the_order_does_not_depend_on_where_the_index_cut() -> None:
    ties = {5, 6, 7, 8}
    assert settled([(9, 1), (3, 5)], ties, newest_first=True) == [1, 8]
    assert settled([(9, 1), (3, 7), (3, 6)], ties, newest_first=True) == [1, 8, 7]
    assert settled([(1, 4), (3, 7)], ties, newest_first=False) == [4, 5]
