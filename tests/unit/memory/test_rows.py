"""The table of numbers that ranking works on."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from massmem.memory.access import may_see
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
    expected = [may_see(scope, to_memory(i, payload), won=payload["won"]) for i, payload in stored]
    assert rows.visible(rows.read(keys(*range(len(stored))))[1], scope).tolist() == expected


def test_winning_a_turn_shows_what_was_said_in_it():
    rows = Rows(count)
    rows.add([(i, of_passage(said("x", i, turn, "b"), "x", [], i, count)) for i, turn in enumerate((1, 2))])
    asks = Scope("s", "a", 5)
    assert not rows.visible(rows.read(keys(0, 1))[1], asks).any()
    rows.set_won(("s", 1, "b"), [0])
    rows.set_won(("unknown", 2, "b"), [7])
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


def many(numbers: range) -> list[tuple[int, dict]]:
    return [(7 * i, of_passage(said("x", i, i % 50, session=f"s{i % 3}"), "x", [], i, count)) for i in numbers]


def test_rows_are_found_however_many_came_after_each_other():
    rows = Rows(count)
    for start in range(0, 30_000, 1000):
        rows.add(many(range(start, start + 1000)))
    rows.add(many(range(5)))
    assert len(rows) == 30_000
    found, table = rows.read(keys(0, 1, 7, 7 * 4999, 7 * 29_999, 7 * 30_000))
    assert found.tolist() == [0, 7, 7 * 4999, 7 * 29_999]
    assert table["turn"].tolist() == [0, 1, 4999 % 50, 29_999 % 50]
    assert rows.missing(keys(0, 1, 7 * 30_000)) == [1, 7 * 30_000]


def test_the_next_run_goes_on_with_what_was_kept(tmp_path: Path):
    kept = tmp_path / "rows.npz"
    before, after = Rows(count), Rows(count)
    before.add(everything())
    before.save(kept)
    after.take(kept)
    assert not kept.exists()  # it is not true any more once something is written
    wanted = keys(*range(len(everything())))
    scores = np.zeros(len(wanted))
    assert after.missing(wanted) == []
    for scope in (Scope("s", "a", 2), Scope("t", "b", 2, group="g"), Scope("u", "b", 1, all_sessions=True)):
        assert (after.visible(after.read(wanted)[1], scope) == before.visible(before.read(wanted)[1], scope)).all()
    one, other = (rows.candidates(*rows.read(wanted), scores, "a") for rows in (before, after))
    assert one.speakers == other.speakers
    assert one.label.tolist() == other.label.tolist()
    after.set_won(("s", 1, "a"), [0])
    after.add([(1000, everything()[0][1])])
    assert len(after) == len(wanted) + 1


def test_nothing_is_kept_of_what_was_forgotten(tmp_path: Path):
    rows = Rows(count)
    rows.add(everything())
    rows.clear()
    rows.add(everything()[:1])
    rows.save(tmp_path / "rows.npz")
    assert not (tmp_path / "rows.npz").exists()


@pytest.mark.parametrize("content", [b"", b"PK", b"no table at all"])
def test_a_damaged_file_is_a_fresh_start(tmp_path: Path, content: bytes):
    kept = tmp_path / "rows.npz"
    rows = Rows(count)
    rows.add(everything())
    rows.save(kept)
    kept.write_bytes(content or kept.read_bytes()[:-200])
    again = Rows(count)
    again.take(kept)
    assert len(again) == 0
    assert not kept.exists()
    again.take(kept)


def test_what_was_read_before_its_turn_was_won_counts_as_won():
    rows = Rows(count)
    rows.set_won(("s", 1, "b"), [])
    rows.add([(1, of_passage(said("x", 0, 1, "b"), "x", [], 0, count))])
    assert rows.visible(rows.read(keys(1))[1], Scope("s", "a", 5)).all()
