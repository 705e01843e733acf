"""Who may see what, as keys of a point and as a condition."""

from hashlib import sha256

import pytest

from massmem.core.events import now
from massmem.core.ids import make_message_id
from massmem.memory.access import may_see, only_author_sees, reader_keys, visible_to
from massmem.memory.index import All, Ids, OneOf, Span
from massmem.memory.persistent import USER, Memory, Scope

PAYLOAD = {"run_id": "s1", "agent_id": "a", "turn": 1, "group": "", "won": False}

ALPHA = f"#{sha256(b'/alpha').hexdigest()[:16]}"
"""Where the project /alpha looks."""


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ["a", "a|s1"]),
        ({"group": "team"}, ["a", "a|s1", "a|@team"]),
        ({"won": True}, ["*", "*|s1"]),
        ({"agent_id": "user", "group": "g"}, ["*", "*|s1", "*|@g"]),
        ({"project": "/alpha"}, [f"a|{ALPHA}", "a|s1"]),
        ({"project": "/alpha", "group": "g"}, [f"a|{ALPHA}", "a|s1", f"a|{ALPHA}@g"]),
        ({"project": "/alpha", "global": True}, ["a", "a|s1"]),
    ],
)
def test_seen_keys_name_the_reader_with_each_place(fields: dict[str, object], expected: list[str]) -> None:
    assert reader_keys({**PAYLOAD, **fields}) == expected


def test_scope_of_one_session_is_one_key_look_up_and_the_turn() -> None:
    assert visible_to(Scope("s1", "me", 4)) == All(
        (OneOf("seen", ("me|s1", "*|s1")),),
        (All((Span("turn", 5, None),)), All((Span("turn", 4, 4),), (OneOf("agent_id", ("me",)),))),
    )


def test_scope_of_more_sessions_restricts_the_turn_in_its_own_session_only() -> None:
    here = OneOf("run_id", ("s1",))
    everywhere = visible_to(Scope("s1", "me", 4, all_sessions=True))
    assert everywhere.must == (OneOf("seen", ("me|s1", "me", "*|s1", "*")),)
    assert everywhere.must_not[0] == All((here, Span("turn", 5, None)))
    named = visible_to(Scope("s1", "me", 4, group="team"), Ids(frozenset({1})))
    assert named.must == (OneOf("seen", ("me|s1", "me|@team", "*|s1", "*|@team")), Ids(frozenset({1})))
    assert named.must_not == everywhere.must_not


def test_other_sessions_are_seen_by_name_and_with_all_their_turns() -> None:
    pinned = visible_to(Scope("s1", "me", 4, others=("s2",)))
    assert pinned.must == (OneOf("seen", ("me|s1", "me|s2", "*|s1", "*|s2")),)
    assert pinned.must_not == visible_to(Scope("s1", "me", 4, group="team")).must_not


def test_scope_in_a_project_looks_there_and_in_what_is_global() -> None:
    everywhere = visible_to(Scope("s1", "me", 4, all_sessions=True, project="/alpha"))
    assert everywhere.must == (OneOf("seen", ("me|s1", "me", f"me|{ALPHA}", "*|s1", "*", f"*|{ALPHA}")),)
    (named,) = visible_to(Scope("s1", "me", 4, group="g", project="/alpha")).must
    assert set(named.values) == {f"{who}|{place}" for who in ("me", "*") for place in ("s1", "@g", f"{ALPHA}@g")}  # type: ignore[union-attr]


def test_group_with_the_name_of_a_project_is_another_place() -> None:
    posing = set(reader_keys({**PAYLOAD, "run_id": "x", "group": ALPHA, "won": True}))
    assert not posing & set(visible_to(Scope("s1", "me", 1, group="g", project="/alpha")).must[0].values)  # type: ignore[union-attr]


def test_group_is_never_taken_for_a_session_of_that_name() -> None:
    in_group = set(reader_keys({**PAYLOAD, "run_id": "x", "group": "s1", "won": True}))
    assert not in_group & set(visible_to(Scope("s1", "me", 1)).must[0].values)  # type: ignore[union-attr]


def test_only_author_sees_selects_what_a_turn_has_not_shared() -> None:
    turn = (OneOf("run_id", ("s1",)), Span("turn", 2, 2))
    assert only_author_sees("s1", 2, "a") == All((OneOf("seen", ("a|s1",)), *turn))


def make_memory(session_id: str = "s1", turn: int = 2, *, seq: int = 5, turns: tuple[int, ...] = ()) -> Memory:
    ids = (make_message_id(session_id, seq),)
    return Memory("1", "fact" if turns else "episode", session_id, turn, USER, "It rains.", ids, now(), turns=turns)


def test_nothing_of_a_hidden_turn_is_seen_but_a_fact_that_stands_elsewhere_too() -> None:
    scope = Scope("s1", "me", 9, all_sessions=True, hidden=frozenset({("s1", 2), ("s1", 3), ("s1", 6), ("s2", 4)}))
    seen = [may_see(scope, memory, won=False) for memory in (
        make_memory(), make_memory(turn=4), make_memory("s2"), make_memory("s2", 4), make_memory(turns=(2, 4)),
        make_memory(turns=(2, 6)),
    )]  # fmt: skip
    assert seen == [False, True, True, False, True, False]
    here = (OneOf("run_id", ("s1",)), OneOf("kind", ("episode",)))
    assert visible_to(scope).must_not[2:] == (All((*here, Span("turn", 2, 3))), All((*here, Span("turn", 6, 6))))


def test_memories_that_a_fork_shares_count_as_its_own() -> None:
    scope = Scope("s2", "me", 3, origins=(("s1", 7),), hidden=frozenset({("s1", 2), ("s2", 1)}))
    seen = [may_see(scope, memory, won=False) for memory in (
        make_memory(), make_memory(seq=8), make_memory(turn=1), make_memory(turn=3), make_memory("s3"),
    )]  # fmt: skip
    assert seen == [True, False, False, False, False], "what is withdrawn in s1 by now does not matter here"
    assert visible_to(scope).must == (OneOf("seen", ("me|s2", "me|s1", "*|s2", "*|s1")),)
