"""The port to an index of points, and the conditions that select points. Pure; each index translates conditions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from massmem.core.errors import InputError
from massmem.memory.persistent import Selection

MEANING, WORDS = "meaning", "words"
"""Names of the dense and of the sparse vector."""

ALL_POINTS = 1_000_000_000
"""A limit that no index reaches."""

PINNED = "yes"
"""In `pin` of what agents are always shown."""

DAY = 86_400
"""Seconds."""

_LARGEST_ID = 2**64 - 1

Payloads = list[tuple[int, dict[str, Any]]]
"""Ids and payloads of points."""


@dataclass(frozen=True, slots=True)
class Point:
    id: int
    """0 to 2**64 - 1."""
    dense: Sequence[float] | None
    """The meaning; None without an embedder."""
    sparse: Mapping[int, float]
    """Weight of each word, by the word's number."""
    payload: dict[str, Any]
    """See massmem.memory.points."""


@dataclass(frozen=True, slots=True)
class OneOf:
    """A text field, or one element of a list of texts, is one of the values."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A whole number from first to last, both included; None: no end."""

    key: str
    first: int | None
    last: int | None


@dataclass(frozen=True, slots=True)
class Ids:
    """The point has one of these ids."""

    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class All:
    """Every condition of `must` holds, and none of `must_not`."""

    must: "tuple[Condition, ...]" = ()
    must_not: "tuple[Condition, ...]" = ()


Condition = OneOf | Span | Ids | All

EVERYTHING = All()


class Index(Protocol):
    """Points with a dense vector, a sparse vector and a payload. Safe to use from several threads; every call blocks.

    Raises (all methods): MemoryUnavailable when the index cannot be used now; nothing was written then.
    """

    folder: Path | None = None
    """The folder that it is in; None: it is on a server."""

    def writing(self) -> AbstractContextManager[None]:
        """Keep other processes from writing in the block, where the index is able to."""
        return nullcontext()

    def upsert(self, points: Sequence[Point]) -> None:
        """Store points, or replace those with the same ids. They are searchable when this returns."""
        ...

    def set_payload(self, ids: Sequence[int], fields: Mapping[str, Any]) -> None:
        """Overwrite these fields in the payloads of points that exist."""
        ...

    def search_words(self, terms: Mapping[int, float], condition: All, limit: int) -> list[tuple[int, float]]:
        """Return points that share a word with the terms, best first.

        terms: weight of each word, by the word's number. Returns id and score: the sum of weight x weight x IDF.
        """
        ...

    def search_meaning(self, vector: Sequence[float], condition: All, limit: int) -> list[tuple[int, float]]:
        """Return the points nearest to the vector, best first: id and cosine. Nothing in an index without vectors."""
        ...

    def list_seconds(self, condition: All, limit: int, *, newest_first: bool) -> list[tuple[int, int]]:
        """Return second and id in the order of time; those of one second in any order."""
        ...

    def list_ids(self, condition: All, limit: int, *, newest_first: bool) -> list[int]:
        """Return ids in the order of time, always the same for points of one second."""
        points = self.list_seconds(condition, max(limit, 1), newest_first=newest_first)
        if not points:
            return []
        last = points[-1][0]
        same_second = All((condition, Span("at", last, last)))
        ties = [point_id for _, point_id in self.list_seconds(same_second, ALL_POINTS, newest_first=newest_first)]
        return sort_by_time(points, ties, newest_first=newest_first)[:limit]

    def read_payloads(self, ids: Iterable[int]) -> dict[int, dict[str, Any]]:
        """Return payloads by id, of those points that exist."""
        ...

    def read_page(self, condition: All, offset: Any) -> tuple[Payloads, Any]:
        """Return ids and payloads of points that match, few enough that nobody waits, and the next offset.

        offset: None: the first ones; None that is returned: there are no more.
        """
        ...

    def read_pages(self, condition: All = EVERYTHING) -> Iterator[Payloads]:
        """Yield ids and payloads of all points that match, in parts."""
        page, offset = self.read_page(condition, None)
        yield page
        while offset is not None:
            page, offset = self.read_page(condition, offset)
            yield page

    def page(self, selection: Selection, limit: int, offset: int = 0) -> Payloads:
        """Return ids and payloads of what is selected, newest first."""
        ids = self.list_ids(matching(selection), offset + limit, newest_first=True)[offset:]
        payloads = self.read_payloads(ids)
        return [(point_id, payloads[point_id]) for point_id in ids if point_id in payloads]

    def count(self, selection: Selection) -> int: ...

    def count_values(self, key: str) -> dict[str, int]:
        """Return every value of run_id, agent_id or kind, and how many points have it."""
        ...

    def delete(self, selection: Selection, *, erase: bool = True) -> int:
        """Delete what is selected; return how many points that were.

        erase: leave nothing of them on the disk, either.

        Raises InputError: the selection is empty.
        """
        if selection == Selection():
            raise InputError("nothing was selected to delete", "name a session, an agent, a turn or memories")
        count = self.count(selection)
        if count:
            self.delete_matching(matching(selection), erase=erase)
        return count

    def erase_deleted(self) -> None:
        """Leave nothing on the disk of what was deleted before, when that was cut off."""
        self.delete_matching(All((valid_ids(()),)), erase=True)

    def delete_matching(self, condition: All, *, erase: bool) -> None:
        """Delete every point for which the condition holds. erase: as for `delete`."""
        ...

    def read_outside(self) -> list[tuple[str, dict[str, Any]]]:
        """Return ids and payloads of what other programs wrote here, and that was not copied yet."""
        return []

    def mark_copied(self, ids: Sequence[str]) -> None:
        """Note that these were copied."""

    def sync(self) -> None:
        """Make what was stored survive a loss of power. It survives a kill of the process without this."""
        ...

    def close(self) -> None: ...


def matching(selection: Selection) -> All:
    """Return the condition for every field that is set; no condition for an empty selection.

    An id that is no number matches nothing.
    """
    conditions: list[Condition] = [
        OneOf(key, (value,))
        for key, value in (("run_id", selection.session_id), ("agent_id", selection.agent_id), ("kind", selection.kind))
        if value is not None
    ]
    if selection.session_ids:
        conditions.append(OneOf("run_id", selection.session_ids))
    if selection.message_ids:
        conditions.append(OneOf("message_ids", selection.message_ids))
    if selection.origin is not None:
        conditions.append(from_origin(selection.origin))
    if selection.is_pinned:
        conditions.append(OneOf("pin", (PINNED,)))
    if selection.turn is not None:
        conditions.append(Span("turn", selection.turn, selection.turn))
    if selection.ids:
        conditions.append(parse_ids(selection.ids))
    return All(tuple(conditions))


def parse_ids(texts: Iterable[str]) -> Ids:
    """Return those numbers in the texts that can be ids."""
    return valid_ids(int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) <= 20)


def valid_ids(numbers: Iterable[int]) -> Ids:
    """Return those numbers that can be ids."""
    return Ids(frozenset(number for number in numbers if 0 <= number <= _LARGEST_ID))


def from_origin(origin: str) -> Condition:
    """Return the condition for who said it, or whose words it rests on."""
    return OneOf("origin", (origin,))


def between_days(first: int, last: int) -> Span:
    """Return the condition for what was said on these days (ordinals, both included)."""
    return Span("at", first * DAY, (last + 1) * DAY - 1)


def until_second(moment: datetime) -> Span:
    """Return the condition for what was said up to this second."""
    return Span("at", None, second_of(moment))


def second_of(moment: datetime) -> int:
    """Return the number under which the index keeps a moment: seconds, in the moment's own time zone."""
    return moment.toordinal() * DAY + moment.hour * 3600 + moment.minute * 60 + moment.second


def sort_by_time(points: Sequence[tuple[int, int]], ties: Iterable[int], *, newest_first: bool) -> list[int]:
    """Return ids in an order that is always the same.

    An index cuts anywhere among points of the same second, so that a page could miss some and repeat others.

    points: second and id, in order of time. ties: ids of all points with the last second.
    """
    last = points[-1][0]
    whole = {(second, point_id) for second, point_id in points if second != last}
    whole |= {(last, point_id) for point_id in ties}
    return [point_id for _, point_id in sorted(whole, reverse=newest_first)][: len(points)]
