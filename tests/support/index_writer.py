"""Processes that write to an embedded index, to be started with `store_writer.start`, and what they leave."""

import sys
from pathlib import Path

from massmem.core.errors import MemoryUnavailable
from massmem.memory import index_edge
from massmem.memory.index import Point
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Selection
from tests.support.points import EVERYWHERE, point
from tests.support.store_writer import Notes

DIMS = 8
AT_ONCE = 3
SLICE = 100


def make_crowded_point(number: int, text: str = "text") -> Point:
    """One of many points, in five sessions; each has a word that one in fifty has, and one that all have."""
    words = {number % 50: 1.0, 1000: 1.0}
    return point(number, text, run_id=f"s{number % 5}", dense=[1.0 + number % 7] * DIMS, sparse=words)


def store_points(folder: Path, notes: Path, first: int, count: int, wait: float) -> None:
    """Store points with ids from `first` on, AT_ONCE at a time; flush, and delete one for good, now and then.

    Notes an id when it is stored, and `-id` before it is deleted again: from then on it may be there or not.
    """
    index, book = EdgeIndex(folder, DIMS, wait), Notes(notes)
    for number in range(first, first + count, AT_ONCE):
        index.upsert([make_crowded_point(n) for n in range(number, number + AT_ONCE)])
        for stored in range(number, number + AT_ONCE):
            book.add(str(stored))
        if number % 7 == 0:
            index.flush()
        if number % 23 == 0:
            book.add(f"-{number}")
            index.delete(Selection(ids=(str(number),)))
    index.close()


def store_and_tidy(folder: Path, notes: Path, first: int, count: int, wait: float) -> None:
    """Store points, SLICE at a time, and bring each slice into its final form: nearly all of the time goes into that.

    Notes an id when it is stored.
    """
    index_edge.SLICE = SLICE
    index, book = EdgeIndex(folder, DIMS, wait), Notes(notes)
    for number in range(first, first + count, SLICE):
        index.upsert([make_crowded_point(n) for n in range(number, number + SLICE)])
        for stored in range(number, number + SLICE):
            book.add(str(stored))
        index.flush()
    index.close()


def found_in(folder: Path) -> list[int]:
    """Ids of all points, which are whole: each is found by its words and by its meaning."""
    index = EdgeIndex(folder, DIMS, 30)
    ids = [number for number, _ in index.page(Selection(), 1_000_000)]
    assert index.count(Selection()) == len(ids)
    assert {number for number, _ in index.search_words({1000: 1.0}, EVERYWHERE, 1_000_000)} == set(ids)
    assert {number for number, _ in index.search_meaning([1.0] * DIMS, EVERYWHERE, 1_000_000)} == set(ids)
    index.close()
    return ids


def use(folder: Path) -> None:
    """Open the index and do a bit of everything. Exits with 0, or with 3 when it says that it cannot be used."""
    try:
        index = EdgeIndex(folder, DIMS)
        index.search_words({1000: 1.0}, EVERYWHERE, 50)
        index.search_meaning([1.0] * DIMS, EVERYWHERE, 50)
        index.page(Selection(), 50)
        index.upsert([make_crowded_point(1_000_000 + n) for n in range(10)])
        index.set_payload([1_000_000], {"won": True})
        index.delete(Selection(ids=("1000001",)))
        index.close()
    except MemoryUnavailable:
        sys.exit(3)
