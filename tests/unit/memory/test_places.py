"""Where passages stand: consecutive, the same again, and never in another session's place."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable
from massmem.memory.index import payload
from massmem.memory.index.embedded import EmbeddedIndex
from massmem.memory.index.point_ids import MOST_PASSAGES, base_of, session_base
from massmem.memory.index.visible import Point
from massmem.memory.persistent import Selection
from massmem.memory.places import Places, Plan, pages
from tests.support.memories import count, said

TWO = "The quick brown fox jumps over the lazy dog and the cat as well today. " * 3
"""A message of two passages."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EmbeddedIndex]:
    index = EmbeddedIndex(tmp_path / "index", 0)
    yield index
    index.close()


def write(index: EmbeddedIndex, plan: Plan) -> None:
    index.upsert([
        Point(i, None, {}, payload.of_passage(p.episode, p.text, [], p.position, count))
        for i, p in plan.passages.items()
    ])  # fmt: skip


def taken(index: EmbeddedIndex, session: str, point_id: int) -> None:
    """Another session stands at this place."""
    index.upsert([Point(point_id, None, {}, payload.of_passage(said("x", session=session), "x", [], 0, count))])


def places(index: EmbeddedIndex) -> Places:
    return Places(index, lambda _: None)


def test_passages_follow_each_other(index: EmbeddedIndex):
    here = places(index)
    plan = here.plan("s", [said(TWO, 0), said("Short one.", 1)])
    base = session_base("s", 0)
    assert [*plan.passages] == [base, base + 1, base + 2]
    assert [p.position for p in plan.passages.values()] == [0, 1, 2]
    write(index, plan)
    here.took("s", plan)
    assert [*here.plan("s", [said("Next.", 2)]).passages] == [base + 3]
    assert [*places(index).plan("s", [said("Next.", 2)]).passages] == [base + 3], "as the index has it"


def test_what_is_there_is_not_planned_again(index: EmbeddedIndex):
    here = places(index)
    plan = here.plan("s", [said(TWO, 0), said(TWO, 0)])
    assert len(plan.passages) == 2
    write(index, plan)
    assert here.plan("s", [said(TWO, 0)]).passages == {}, "even when it was not said that it is there"
    assert places(index).plan("s", [said(TWO, 0)]).passages == {}


def test_a_message_of_which_a_part_is_there_is_written_anew(index: EmbeddedIndex):
    plan = places(index).plan("s", [said(TWO, 0), said("Another one.", 1)])
    write(index, plan)
    index.delete(Selection(ids=(str(min(plan.passages)),)))
    again = places(index).plan("s", [said(TWO, 0), said("Another one.", 1)])
    assert [*again.passages] == [max(plan.passages) + 1, max(plan.passages) + 2]
    assert again.outdated == [min(plan.passages) + 1]


def test_a_gap_is_not_filled_over_what_follows(index: EmbeddedIndex):
    write(index, places(index).plan("s", [said(f"Message {i}.", i) for i in range(5)]))
    index.delete(Selection(ids=tuple(str(session_base("s", 0) + i) for i in (1, 2))))
    assert min(places(index).plan("s", [said("New.", 9)]).passages) == session_base("s", 0) + 5


def test_another_session_in_the_same_place_is_left_alone(index: EmbeddedIndex):
    taken(index, "other", session_base("s", 0))
    here = places(index)
    plan = here.plan("s", [said("Mine.", 0)])
    assert [*plan.passages] == [session_base("s", 1)]
    write(index, plan)
    here.took("s", plan)
    for known in (here, places(index)):
        assert [*known.plan("s", [said("More.", 1)]).passages] == [session_base("s", 1) + 1]


def test_what_another_process_wrote_meanwhile_is_seen(index: EmbeddedIndex):
    here, there = places(index), places(index)
    first = here.plan("s", [said("One.", 0)])
    write(index, first)
    here.took("s", first)
    second = there.plan("s", [said("Two.", 1)])
    write(index, second)
    plan = here.plan("s", [said("Three.", 2)])
    assert [*plan.passages] == [session_base("s", 0) + 2]


def test_a_session_that_is_full_goes_on_elsewhere(index: EmbeddedIndex):
    last = session_base("s", 0) + MOST_PASSAGES - 1
    write(index, Plan({last: next(iter(places(index).plan("s", [said("Last.", 0)]).passages.values()))}))
    plan = places(index).plan("s", [said("One more.", 1)])
    assert base_of(next(iter(plan.passages))) == session_base("s", 1)


def test_a_session_without_room_anywhere_says_so(index: EmbeddedIndex):
    for attempt in range(16):
        taken(index, "other", session_base("s", attempt))
    with pytest.raises(MemoryUnavailable, match="no room"):
        places(index).plan("s", [said("Mine.", 0)])


def test_pages_are_everything_in_parts(index: EmbeddedIndex):
    plan = places(index).plan("s", [said(f"Message {i}.", i) for i in range(25)])
    write(index, plan)
    assert sorted(i for page in pages(index, Selection(), 10) for i, _ in page) == sorted(plan.passages)
