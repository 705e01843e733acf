"""What an index holds, and the one condition that says who may see it. Pure; each index translates conditions.

Every point carries two keys that are made here. `seen`: who may see it, joined with where, so that the whole rule but
for the turn under way is a single look-up in a keyword index (a tenth of the time that an OR over several keys takes).
`at`: when it was said, as seconds, for "newest first" and for days.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from massmem.memory.persistent import USER, Scope, Selection

EVERYONE = "*"
"""In place of an agent's name, which cannot contain it."""

DAY = 86_400
_LARGEST_ID = 2**64 - 1


@dataclass(frozen=True, slots=True)
class Point:
    """id: 0 to 2**64 - 1. dense: the meaning, None without an embedder. sparse: weight of each word, by its number.

    payload: mem0's field names, and f: [position, message number, flags, content words, tokens, day].
    """

    id: int
    dense: Sequence[float] | None
    sparse: Mapping[int, float]
    payload: dict[str, Any]


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
    """Points by id."""

    ids: frozenset[int]


@dataclass(frozen=True, slots=True)
class All:
    """Every condition of `of` holds and none of `none_of`."""

    of: "tuple[Condition, ...]" = ()
    none_of: "tuple[Condition, ...]" = ()


Condition = OneOf | Span | Ids | All


@dataclass(frozen=True, slots=True)
class Visible:
    """Who asks, in which turn of which session, and where else they may look: see Scope."""

    agent_id: str
    session_id: str
    turn: int
    all_sessions: bool = False
    group: str | None = None

    @classmethod
    def of(cls, scope: Scope) -> Self:
        return cls(scope.agent_id, scope.session_id, scope.turn, scope.all_sessions, scope.group)

    def condition(self, *more: Condition) -> All:
        """`Scope.allows` as one condition, and what else must hold."""
        places: list[str | None] = [None] if self.all_sessions else [self.session_id]
        if self.group is not None and not self.all_sessions:
            places.append(_group(self.group))
        seen = OneOf("seen", tuple(_seen(who, place) for who in (self.agent_id, EVERYONE) for place in places))
        own_session_only = not self.all_sessions and self.group is None
        here = () if own_session_only else (OneOf("run_id", (self.session_id,)),)
        later = All((*here, Span("turn", self.turn + 1, None)))
        of_others_now = All((*here, Span("turn", self.turn, self.turn)), (OneOf("agent_id", (self.agent_id,)),))
        return All((seen, *more), (later, of_others_now))


def nearest_among(visible: Visible | None, among: Iterable[int] | None) -> All:
    """What `semantic` of an index looks at."""
    more = () if among is None else (possible(among),)
    return All(more) if visible is None else visible.condition(*more)


def selected(selection: Selection) -> All:
    """All that matches every given field; everything when none is given. An id that is no number matches nothing."""
    conditions: list[Condition] = [
        OneOf(key, (value,))
        for key, value in (("run_id", selection.session_id), ("agent_id", selection.agent_id), ("kind", selection.kind))
        if value is not None
    ]
    if selection.session_ids:
        conditions.append(OneOf("run_id", selection.session_ids))
    if selection.turn is not None:
        conditions.append(Span("turn", selection.turn, selection.turn))
    if selection.ids:
        numbers = (int(text) for text in selection.ids if text.isascii() and text.isdecimal() and len(text) <= 20)
        conditions.append(possible(numbers))
    return All(tuple(conditions))


def possible(ids: Iterable[int]) -> Ids:
    """Those that can be ids at all."""
    return Ids(frozenset(number for number in ids if 0 <= number <= _LARGEST_ID))


def told(day_from: int, day_to: int) -> Span:
    """Said on one of these days (ordinals)."""
    return Span("at", day_from * DAY, (day_to + 1) * DAY - 1)


def settled(found: Sequence[tuple[int, int]], ties: Iterable[int], *, newest_first: bool) -> list[int]:
    """Ids in an order that is always the same. found: `at` and id, in order of `at`; ties: all with the last `at`.

    An index cuts anywhere among points of the same second, so that a page could miss some and repeat others.
    """
    last = found[-1][0]
    whole = {(at, point_id) for at, point_id in found if at != last} | {(last, point_id) for point_id in ties}
    return [point_id for _, point_id in sorted(whole, reverse=newest_first)][: len(found)]


def unseen(session_id: str, turn: int, agent_id: str) -> All:
    """What the agent said in this turn, as long as only itself sees it."""
    alone = OneOf("seen", (_seen(agent_id, session_id),))
    return All((alone, OneOf("run_id", (session_id,)), Span("turn", turn, turn)))


def stored(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A point's payload as it is kept: with `seen` and `at`."""
    time = datetime.fromisoformat(payload["created_at"])
    at = payload["f"][5] * DAY + time.hour * 3600 + time.minute * 60 + time.second
    return {**payload, "seen": seen_by(payload), "at": at}


def seen_by(payload: Mapping[str, Any]) -> list[str]:
    """Who may see a point with this run_id, agent_id, group and won."""
    who = EVERYONE if payload["won"] or payload["agent_id"] == USER else payload["agent_id"]
    group = payload.get("group", "")
    return [_seen(who, place) for place in (None, payload["run_id"], *([_group(group)] if group else []))]


def _seen(who: str, place: str | None) -> str:
    return who if place is None else f"{who}|{place}"


def _group(name: str) -> str:
    return f"@{name}"  # no session id begins like this
