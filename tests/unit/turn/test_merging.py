"""Which items of several agents are the same: right pairs and wrong pairs, in several languages and forms."""

import pytest

from massmem.core.items import Check, Item, add_checks, sort_items, write_union
from massmem.turn.merging import compare_items, merge_items


def item(title: str, where: str = "", reason: str = "") -> Item:
    file, _, line = where.partition(":")
    first, _, last = line.partition("-")
    return Item(title, file=file, lines=(int(first), int(last or first)) if line else None, reason=reason)


SAME = [
    (item("SQL injection through the user id", "db.py:10"), item("The user id allows SQL injection", "db.py:12")),
    (item("SQL injection", "src/db.py:10-20", "the user id is concatenated"),
     item("User id is concatenated into SQL", "db.py:15")),
    (item("Die Verbindung zur Datenbank wird nie geschlossen", "a.go:7"),
     item("Datenbank: Verbindung nicht geschlossen", "a.go:7")),
    (item("La connexion n'est jamais fermée", "a.rs:3"), item("connexion jamais fermée après usage", "a.rs:5")),
    (item("No limit on login attempts lets a program try all passwords"),
     item("Login attempts have no limit, a program can try every password")),
    (item("El índice supera el final de la lista", "m.py:40"), item("índice tras el final de la lista", "m.py:41")),
    (item("Off by one in paginate", "p.ts:9"), item("paginate is off by one", "p.ts:9-11")),
]  # fmt: skip
OTHER = [
    # The same line, another fault.
    (item("SQL injection through the user id", "db.py:10"), item("The cursor is never closed", "db.py:10")),
    (item("The timeout is in milliseconds", "c.py:5"), item("Errors are swallowed silently", "c.py:5")),
    (item("Variable shadows a builtin", "c.py:5"), item("Missing await: the coroutine never runs", "c.py:5")),
    # The same fault, elsewhere.
    (item("SQL injection through the user id", "db.py:10"), item("SQL injection through the user id", "db.py:90")),
    (item("SQL injection through the user id", "db.py:10"), item("SQL injection through the user id", "log.py:10")),
    (item("Off by one", "a/util.py:3"), item("Off by one", "b/util.py:3")),
    # Without a place.
    (item("Costs may rise when more users come"), item("Nobody knows the costs when users leave")),
    (item("Der Vertrag endet zu früh"), item("Der Vertrag nennt keinen Preis")),
]  # fmt: skip


@pytest.mark.parametrize("pair", SAME, ids=lambda pair: pair[0].title[:20])
def test_the_same_fault_is_one_item(pair: tuple[Item, Item]) -> None:
    assert compare_items({"a": [pair[0]], "b": [pair[1]]})[0] == [(0, 1)]


@pytest.mark.parametrize("pair", OTHER, ids=lambda pair: pair[1].title[:20])
def test_another_fault_is_another_item(pair: tuple[Item, Item]) -> None:
    assert not compare_items({"a": [pair[0]], "b": [pair[1]]})[0]


def test_unclear_pairs_at_one_place_are_asked_about_and_others_are_not() -> None:
    german = item("Eingabe ungeprüft in der Abfrage", "db.py:11")
    assert compare_items({"a": [SAME[0][0]], "b": [german]}) == ([], [(0, 1)])
    assert compare_items({"a": [SAME[0][0]], "b": [item("Passwords are logged", "log.py:3")]}) == ([], [])


def test_items_of_one_agent_never_become_one() -> None:
    one, other = SAME[0]
    lists = {"a": [one, other], "b": [one]}
    merged = merge_items(lists, compare_items(lists)[0])
    assert [entry.found_by for entry in merged] == [("a", "b"), ("a",)]
    assert merged[0].versions == (one, one)


def test_nothing_is_lost_and_numbers_go_on() -> None:
    lists = {"a": [pair[0] for pair in OTHER], "b": [pair[1] for pair in OTHER], "c": []}
    merged = merge_items(lists, compare_items(lists)[0], 7)
    assert sum(len(entry.versions) for entry in merged) == 2 * len(OTHER)
    assert [entry.number for entry in merged] == list(range(7, 7 + len(merged)))


def test_a_list_says_who_found_confirmed_and_rejected_what_and_contested_items_stand_apart() -> None:
    lists = {"a": [item("one"), item("two")], "b": [item("three")]}
    items = merge_items(lists, [])
    items = add_checks(items, "c", [Check(1, "reject", "it is tested"), Check(2, "confirm"), Check(3, "abstain")])
    assert [entry.number for entry in sort_items(items)] == [2, 3, 1]
    assert write_union(items, 3, str.upper) == (
        "- **2. two**: 1 of 3 found it (A); 1 confirmed (C)\n"
        "- **3. three**: 1 of 3 found it (B); 0 confirmed; cannot tell: C\n\n"
        "### Contested\n\n"
        "- **1. one**: 1 of 3 found it (A); 0 confirmed; rejected by C: it is tested"
    )
