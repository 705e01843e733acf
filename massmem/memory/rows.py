"""What ranking needs to know of each memory, as one table of numbers in this process: a cache of the index's payloads.

A row is true when it is written; `won` may be older than the index when another process ends a turn (Qdrant as a
server). It can only be too careful then, and whatever is shown is checked once more against the payload itself.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from threading import Lock
from typing import Any

import numpy as np

from massmem.memory.index.payload import ASKS, HAS_TIME, PRIVATE, is_fact
from massmem.memory.index.point_ids import message_number
from massmem.memory.memories import USER
from massmem.memory.persistent import Scope
from massmem.memory.quoting import label
from massmem.memory.ranking.retrieval import Candidates, Flags, Floats, Ints

MOST_ROWS = 400_000
"""About 70 MB; then the cache starts again."""

_MOST_ABSENT = 50_000

_SESSION, _GROUP, _SPEAKER, _MESSAGE, _TURN, _FLAGS, _TOKENS, _DAY, _WON = range(9)


class Rows:
    """Safe to use from several threads. count: tokens of a text."""

    def __init__(self, count: Callable[[str], int], most: int = MOST_ROWS) -> None:
        self._count = count
        self._most = most
        self._lock = Lock()
        self._table = np.zeros((1024, 9), np.int64)
        self._row: dict[int, int] = {}
        self._absent: set[int] = set()
        self._sessions: dict[str, int] = {}
        self._groups: dict[str, int] = {"": 0}
        self._speakers: dict[str, int] = {}
        self._labels: list[int] = []
        self._own = 0

    @property
    def speakers(self) -> tuple[str, ...]:
        return tuple(self._speakers)

    def add(self, points: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Take up points, or renew them."""
        with self._lock:
            if len(self._row) >= self._most:
                self._row.clear()
            for key, payload in points:
                self._absent.discard(key)
                at = self._row.get(key, len(self._row))
                if at == len(self._table):
                    self._table = np.vstack([self._table, np.zeros_like(self._table)])
                self._table[at] = self._numbers(key, payload)
                self._row[key] = at

    def add_absent(self, keys: Iterable[int]) -> None:
        """The index has no such points: there is nothing before a session's first passage."""
        with self._lock:
            if len(self._absent) > _MOST_ABSENT:
                self._absent.clear()
            self._absent.update(keys)

    def not_absent(self, keys: Ints) -> None:
        """The index does have them, since another process wrote them."""
        if self._absent:
            with self._lock:
                self._absent.difference_update(keys.tolist())

    def read(self, keys: Ints) -> tuple[Ints, Ints]:
        """Those of the keys that have a row, and their rows."""
        with self._lock:
            at = np.fromiter(map(self._row.get, keys.tolist(), repeat(-1)), np.int64, len(keys))
            known = at >= 0
            return keys[known], self._table[at[known]]

    def missing(self, keys: Ints) -> list[int]:
        """Those that the index must be asked about."""
        return [key for key in keys.tolist() if key not in self._row and key not in self._absent]

    def visible(self, table: Ints, scope: Scope) -> Flags:
        """The rule of `Scope.allows`, for all rows at once."""
        here = table[:, _SESSION] == self._sessions.get(scope.session_id, -1)
        mine = table[:, _SPEAKER] == self._speakers.get(scope.agent_id, -1)
        users = table[:, _SPEAKER] == self._speakers.get(USER, -1)
        reach = here
        if scope.everywhere:
            reach = np.ones(len(table), np.bool_)
        elif scope.named is not None:
            reach = here | (table[:, _GROUP] == self._groups.get(scope.named, -1))
        others = ~(here & (table[:, _TURN] >= scope.turn)) & (users | (table[:, _WON] == 1))
        own = ~here | (table[:, _TURN] <= scope.turn)
        return np.asarray(reach & np.where(mine, own, others), np.bool_)

    def candidates(self, keys: Ints, table: Ints, bm25: Floats, reader: str) -> Candidates:
        """keys: ascending; table: their rows; reader: whose own words need no name."""
        names: tuple[str, ...] = tuple(self._speakers)
        speaker, flags = table[:, _SPEAKER], table[:, _FLAGS]
        labels = np.array([*self._labels[: len(names)], 0], np.int64)
        labels[self._speakers.get(reader, -1)] = self._own
        present = np.flatnonzero(np.bincount(speaker, minlength=1))
        new = np.zeros(len(names) + 1, np.int64)
        new[present] = np.arange(len(present))
        return Candidates(
            key=keys,
            bm25=bm25,
            session=table[:, _SESSION],
            message=table[:, _MESSAGE],
            speaker=new[speaker],
            from_user=speaker == self._speakers.get(USER, -1),
            asks=(flags & ASKS) > 0,
            has_time=(flags & HAS_TIME) > 0,
            label=labels[speaker],
            tokens=table[:, _TOKENS],
            day=table[:, _DAY],
            speakers=tuple(names[i] for i in present.tolist()),
        )

    def set_won(self, session_id: str, turn: int, agent_id: str) -> None:
        with self._lock:
            table = self._table[: len(self._row)]
            session, agent = self._sessions.get(session_id, -1), self._speakers.get(agent_id, -1)
            of_turn = (table[:, _SESSION] == session) & (table[:, _TURN] == turn) & (table[:, _SPEAKER] == agent)
            table[of_turn & (table[:, _FLAGS] & PRIVATE == 0), _WON] = 1

    def clear(self) -> None:
        with self._lock:
            self._row.clear()
            self._absent.clear()

    def _numbers(self, key: int, payload: Mapping[str, Any]) -> tuple[int, ...]:
        _, _, flags, _, tokens, day = payload["f"]
        return (
            self._sessions.setdefault(payload["run_id"], len(self._sessions)),
            self._groups.setdefault(payload.get("group", ""), len(self._groups)),
            self._speaker(payload["agent_id"]),
            key if is_fact(payload) else message_number(payload["message_ids"][0]),
            payload["turn"],
            flags,
            tokens,
            day,
            int(payload["won"]),
        )

    def _speaker(self, name: str) -> int:
        if name not in self._speakers:
            self._own = self._own or self._label(name, name)
            self._speakers[name] = len(self._speakers)
            self._labels.append(self._label(name, ""))
        return self._speakers[name]

    def _label(self, name: str, reader: str) -> int:
        return self._count(label(name, 1, reader)) + 1  # and a line break
