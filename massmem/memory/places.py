"""Where the passages of a session stand in the index: a message that is stored again keeps its place."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from massmem.core.errors import MemoryUnavailable
from massmem.memory.index.point_ids import MOST_PASSAGES, base_of, message_number, session_base
from massmem.memory.persistent import Episode, Selection
from massmem.memory.ranking.text import passages

if TYPE_CHECKING:
    from massmem.memory.index.embedded import EmbeddedIndex
    from massmem.memory.index.server import ServerIndex

    Index = EmbeddedIndex | ServerIndex

_PAGE = 10_000
_MOST_ATTEMPTS = 16
_MOST_SESSIONS = 100

Points = Sequence[tuple[int, dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a message on its way into the index. position: among the passages of the session."""

    episode: Episode
    text: str
    position: int


@dataclass(slots=True)
class Plan:
    """passages: to be stored, by id. messages: their numbers. outdated: ids of what they take the place of."""

    passages: dict[int, Passage] = field(default_factory=dict[int, Passage])
    messages: set[int] = field(default_factory=set[int])
    outdated: list[int] = field(default_factory=list[int])


@dataclass(slots=True)
class _Place:
    """One session. base: id of its first passage; free: the first position never used; messages: ids by number."""

    base: int
    free: int = 0
    messages: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    def plan(self, episodes: Iterable[Episode]) -> "Plan":
        """New ids for the passages that are not there yet, or not all of their message."""
        plan = Plan()
        free = self.base + self.free
        for episode in episodes:
            texts = passages(episode.text)
            number = message_number(episode.message_id)
            there = self.messages.get(number, [])
            if number in plan.messages or len(there) >= len(texts):
                continue
            plan.messages.add(number)
            plan.outdated.extend(there)
            for text in texts:
                plan.passages[free] = Passage(episode, text, free - self.base)
                free += 1
        return plan

    def take(self, points: Iterable[tuple[int, str]]) -> None:
        """Points that are in the index: id and id of the message."""
        for point_id, message_id in points:
            self.messages.setdefault(message_number(message_id), []).append(point_id)
            if base_of(point_id) == self.base:
                self.free = max(self.free, point_id - self.base + 1)


class Places:
    """Not safe to use from several threads. seen: is given every point that is read on the way."""

    def __init__(self, index: "Index", seen: Callable[[Points], None]) -> None:
        self._index = index
        self._seen = seen
        self._places: dict[str, _Place] = {}

    def plan(self, session_id: str, episodes: Sequence[Episode]) -> Plan:
        """Where this session's episodes go that are not in the index yet.

        Raises:
            MemoryUnavailable: the session is longer than the index allows.
        """
        for attempt in range(-1, _MOST_ATTEMPTS):  # first as it is known here, then as the index has it
            place = self._places.get(session_id) or self._read(session_id, max(0, attempt))
            plan = place.plan(episodes)
            if place.free + len(plan.passages) <= MOST_PASSAGES and not self._taken(plan):
                self._places[session_id] = place
                return plan
            self._places.pop(session_id, None)
        raise MemoryUnavailable(
            f"session {session_id} has no room for more memories",
            "start a new session; what is stored already is still found",
        )

    def took(self, session_id: str, plan: Plan) -> None:
        """It is in the index now."""
        points = ((point_id, passage.episode.message_id) for point_id, passage in plan.passages.items())
        self._places[session_id].take(points)
        while len(self._places) > _MOST_SESSIONS:
            self._places.pop(next(iter(self._places)))

    def forget(self) -> None:
        """What is known of the index may be wrong: read it again when it is needed."""
        self._places.clear()

    def _read(self, session_id: str, attempt: int) -> _Place:
        points = list(self._pages(Selection(session_id=session_id, kind="episode")))
        bases = {base_of(point_id) for point_id, _ in points}
        used = [i for i in range(_MOST_ATTEMPTS) if session_base(session_id, i) in bases]
        # Further on than the newest of its own places only when that one is full, or another session stands in it.
        place = _Place(session_base(session_id, max([attempt, *used])))
        place.take(sorted(points))
        return place

    def _pages(self, selection: Selection) -> Iterator[tuple[int, str]]:
        for page in pages(self._index, selection):
            self._seen(page)
            yield from ((point_id, payload["message_ids"][0]) for point_id, payload in page)

    def _taken(self, plan: Plan) -> bool:
        """Does another session stand there, or what another process wrote?"""
        return bool(self._index.payloads([*plan.passages]))


def pages(index: "Index", selection: Selection, size: int = _PAGE) -> Iterator[Points]:
    """Everything that is selected, in parts."""
    offset = 0
    while page := index.page(selection, size, offset):
        yield page
        offset += len(page)
