"""The table of numbers that ranking works on."""

import itertools

import numpy as np
import pytest

from massmem.memory.index.payload import of_fact, of_passage, to_memory
from massmem.memory.persistent import Scope
from massmem.memory.rows import Rows
from tests.support.memories import count, fact, said


def keys(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def everything() -> list[tuple[int, dict]]:
    """Every combination of session, group, agent, turn and won."""
    axes = (("s", "t"), ("", "g"), ("a", "b", "user"), (1, 2, 3), (False, True))
    return [
        (i, of_passage(said("x", i, turn, agent, session, group=group, won=won), "x", [], i, count))
        for i, (session, group, agent, turn, won) in enumerate(itertools.product(*axes))
    ]


@pytest.mark.parametrize("everywhere", [False, True])
@pytest.mark.parametrize("named", [None, "g", "h"])
@pytest.mark.parametrize("agent", ["a", "unknown"])
@pytest.mark.parametrize("session", ["s", "unknown"])
def test_the_rule_is_that_of_the_scope(everywhere: bool, named: str | None, agent: str, session: str):
    stored = everything()
    rows = Rows(count)
    rows.add(stored)
    scope = Scope(session, agent, 2, everywhere, named)
    expected = [scope.allows(to_memory(i, payload), won=payload["won"]) for i, payload in stored]
    assert rows.visible(rows.read(keys(*range(len(stored))))[1], scope).tolist() == expected


def test_winning_a_turn_shows_what_was_said_in_it():
    rows = Rows(count)
    rows.add([(i, of_passage(said("x", i, turn, "b"), "x", [], i, count)) for i, turn in enumerate((1, 2))])
    asks = Scope("s", "a", 5)
    assert not rows.visible(rows.read(keys(0, 1))[1], asks).any()
    rows.set_won("s", 1, "b")
    rows.set_won("unknown", 2, "b")
    assert rows.visible(rows.read(keys(0, 1))[1], asks).tolist() == [True, False]


def test_candidates_have_the_numbers_of_their_points():
    rows = Rows(count)
    rows.add([
        (10, of_passage(said("Is it?", 0, by="a"), "Is it?", [], 0, count)),
        (11, of_passage(said("Today.", 1), "Today.", [], 1, count)),
        (12, of_fact(fact("A fact.", by="b"), [], count)),
        (13, of_passage(said("Is it?", 0, by="a"), "More.", [], 3, count)),
    ])  # fmt: skip
    c = rows.candidates(*rows.read(keys(10, 11, 12, 13)), np.array([1.0, 2, 3, 4]), reader="b")
    assert c.speakers == ("a", "user", "b")
    assert c.from_user.tolist() == [False, True, False, False]
    assert c.asks.tolist() == [True, False, False, False]
    assert c.has_time.tolist() == [False, True, False, False]
    assert c.label.tolist() == [count("[From a Turn 1]") + 1, 3, 3, count("[From a Turn 1]") + 1]
    assert c.message[0] == c.message[3]
    assert len(set(c.message.tolist())) == 3


def test_it_knows_what_it_has_and_what_there_is_not():
    rows = Rows(count)
    rows.add(everything()[:3])
    rows.add_absent([7])
    assert rows.missing(keys(1, 2, 3, 7)) == [3]
    assert rows.read(keys(1, 2, 3, 7))[0].tolist() == [1, 2]
    rows.add([(7, everything()[7][1])])
    assert rows.read(keys(7))[0].tolist() == [7]
    rows.clear()
    assert rows.missing(keys(1, 7)) == [1, 7]


def test_it_is_bounded():
    """A cache of everything would grow with the index."""
    stored = everything()
    rows = Rows(count, most=100)
    for start in range(0, 1000, len(stored)):
        rows.add((start + i, payload) for i, payload in stored)
    assert 0 < len(rows.read(keys(*range(1000)))[0]) < 100 + len(stored)
