"""What ranking needs to know of each memory, as one table of numbers in this process: a cache of the index's payloads.

A row is true when it is written; `won` may be older than the index when another process ends a turn (Qdrant as a
server). It can only be too careful then, and whatever is shown is checked once more against the payload itself.

Asking the index takes 10 us a memory, and a search looks at up to 800: so the table is kept in a file between runs.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import repeat
from pathlib import Path
from threading import Lock
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from massmem.memory.index.payload import ASKS, HAS_TIME, PRIVATE, is_fact
from massmem.memory.index.point_ids import message_number
from massmem.memory.persistent import USER, Scope
from massmem.memory.quoting import label
from massmem.memory.ranking.retrieval import Candidates, Flags, Floats, Ints

log = logging.getLogger(__name__)

MOST_ROWS = 1_000_000
"""About 50 MB; then the cache starts again."""

_MOST_ABSENT = 50_000
_MOST_WON = 10_000
"""The last turns that were won: what is read from the index at that very moment may not know it yet."""

_FEW_NEW = 4096
"""New rows that are looked up one by one before they are sorted in."""

Table = NDArray[np.void]

_COLUMNS = ("session", "group", "speaker", "turn", "flags", "tokens", "day", "won")
_ROW = np.dtype([("message", np.int64), *((name, np.int32) for name in _COLUMNS)])


class Rows:
    """Safe to use from several threads. count: tokens of a text."""

    def __init__(self, count: Callable[[str], int], most: int = MOST_ROWS) -> None:
        self._count = count
        self._most = most
        self._lock = Lock()
        # The first rows belong to `_keys`, which ascend; those after them to `_new`, in its order.
        self._table: Table = np.zeros(0, _ROW)
        self._keys: Ints = np.zeros(0, np.int64)
        self._new: dict[int, int] = {}
        self._absent: set[int] = set()
        self._sessions: dict[str, int] = {}
        self._groups: dict[str, int] = {"": 0}
        self._speakers: dict[str, int] = {}
        self._labels: list[int] = []
        self._own = 0
        self._won: dict[tuple[str, int, str], None] = {}
        self._forgot = False

    def __len__(self) -> int:
        return len(self._keys) + len(self._new)

    @property
    def speakers(self) -> tuple[str, ...]:
        return tuple(self._speakers)

    def add(self, points: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Take up points, or renew them."""
        renewed = dict(points)
        keys = np.fromiter(renewed, np.int64, len(renewed))
        with self._lock:
            if len(self) >= self._most:
                self._drop()
            self._absent.difference_update(renewed)
            rows = np.array([self._numbers(key, payload) for key, payload in renewed.items()], _ROW)
            at = self._places(keys)
            self._table[at[at >= 0]] = rows[at >= 0]
            self._append(keys[at < 0], rows[at < 0])

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

    def read(self, keys: Ints) -> tuple[Ints, Table]:
        """Those of the keys that have a row, and their rows."""
        with self._lock:
            at = self._places(keys)
            known = at >= 0
            return keys[known], self._table[at[known]]

    def missing(self, keys: Ints) -> list[int]:
        """Those that the index must be asked about."""
        with self._lock:
            unknown = keys[self._places(keys) < 0].tolist()
            return [key for key in unknown if key not in self._absent]

    def save(self, path: Path) -> None:
        """Keep the table for the next run; but not when something was forgotten: then it begins anew."""
        with self._lock:
            if self._forgot or not len(self):
                return
            self._settle()
            names = json.dumps([[*self._sessions], [*self._groups], [*self._speakers]])
            try:
                with path.open("wb") as file:
                    np.savez(file, keys=self._keys, table=self._table, names=np.frombuffer(names.encode(), np.uint8))
            except OSError as e:
                log.info("the next run reads its memories anew: %s", e)
                path.unlink(missing_ok=True)

    def take(self, path: Path) -> None:
        """Go on with what `save` kept, if anything. The file is gone then: what changes from now on is not in it."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                keys, table, names = kept["keys"], kept["table"], json.loads(kept["names"].tobytes())
            path.unlink()
            if table.dtype != _ROW or keys.shape != table.shape:
                return
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as e:
            log.info("memories are read anew: %s: %s", path, e)
            path.unlink(missing_ok=True)
            return
        with self._lock:
            self._keys, self._table = keys, table
            self._sessions, self._groups = ({name: i for i, name in enumerate(of)} for of in names[:2])
            for name in names[2]:
                self._speaker(name)

    def _places(self, keys: Ints) -> Ints:
        """Where in the table each of them stands; -1 for nowhere."""
        at = find(self._keys, keys)
        if self._new:
            unknown = np.flatnonzero(at < 0)
            at[unknown] = np.fromiter(map(self._new.get, keys[unknown].tolist(), repeat(-1)), np.int64, len(unknown))
        return at

    def _append(self, keys: Ints, rows: Table) -> None:
        size = len(self)
        if size + len(rows) > len(self._table):
            more = np.zeros(max(len(rows), _FEW_NEW, size // 8), _ROW)
            self._table = np.concatenate([self._table[:size], more])
        self._table[size : size + len(rows)] = rows
        self._new.update(zip(keys.tolist(), range(size, size + len(rows)), strict=True))
        if len(self._new) > max(_FEW_NEW, len(self._keys) // 8):
            self._settle()

    def _settle(self) -> None:
        """Sort the new rows in."""
        keys = np.concatenate([self._keys, np.fromiter(self._new, np.int64, len(self._new))])
        order = np.argsort(keys, kind="stable")
        self._keys, self._table = keys[order], self._table[order]
        self._new.clear()

    def visible(self, table: Table, scope: Scope) -> Flags:
        """The rule of `Scope.allows`, for all rows at once."""
        here = table["session"] == self._sessions.get(scope.session_id, -1)
        mine = table["speaker"] == self._speakers.get(scope.agent_id, -1)
        users = table["speaker"] == self._speakers.get(USER, -1)
        reach = here
        if scope.all_sessions:
            reach = np.ones(len(table), np.bool_)
        elif scope.group is not None:
            reach = here | (table["group"] == self._groups.get(scope.group, -1))
        others = ~(here & (table["turn"] >= scope.turn)) & (users | (table["won"] == 1))
        own = ~here | (table["turn"] <= scope.turn)
        return np.asarray(reach & np.where(mine, own, others), np.bool_)

    def candidates(self, keys: Ints, table: Table, bm25: Floats, reader: str) -> Candidates:
        """keys: ascending; table: their rows; reader: whose own words need no name."""
        names: tuple[str, ...] = tuple(self._speakers)
        speaker, flags = table["speaker"], table["flags"]
        labels = np.array([*self._labels[: len(names)], 0], np.int64)
        labels[self._speakers.get(reader, -1)] = self._own
        present = np.flatnonzero(np.bincount(speaker, minlength=1))
        new = np.zeros(len(names) + 1, np.int64)
        new[present] = np.arange(len(present))
        return Candidates(
            key=keys,
            bm25=bm25,
            session=_wide(table["session"]),
            message=_wide(table["message"]),
            speaker=new[speaker],
            from_user=speaker == self._speakers.get(USER, -1),
            asks=(flags & ASKS) > 0,
            has_time=(flags & HAS_TIME) > 0,
            label=labels[speaker],
            tokens=_wide(table["tokens"]),
            day=_wide(table["day"]),
            speakers=tuple(names[i] for i in present.tolist()),
        )

    def set_won(self, turn: tuple[str, int, str], ids: Iterable[int]) -> None:
        """turn: session, number and winner. ids: of what others see from now on."""
        with self._lock:
            self._won[turn] = None
            if len(self._won) > _MOST_WON:
                del self._won[next(iter(self._won))]
            at = self._places(np.fromiter(ids, np.int64))
            self._table["won"][at[at >= 0]] = 1

    def clear(self) -> None:
        with self._lock:
            self._drop()
            self._forgot = True

    def _drop(self) -> None:
        self._table, self._keys = np.zeros(0, _ROW), np.zeros(0, np.int64)
        self._new.clear()
        self._absent.clear()

    def _numbers(self, key: int, payload: Mapping[str, Any]) -> tuple[int, ...]:
        _, _, flags, _, tokens, day = payload["f"]
        # It may have been read from the index just before the turn was won.
        won = (payload["run_id"], payload["turn"], payload["agent_id"]) in self._won and not flags & PRIVATE
        return (
            key if is_fact(payload) else message_number(payload["message_ids"][0]),
            self._sessions.setdefault(payload["run_id"], len(self._sessions)),
            self._groups.setdefault(payload.get("group", ""), len(self._groups)),
            self._speaker(payload["agent_id"]),
            payload["turn"],
            flags,
            tokens,
            day,
            int(won or payload["won"]),
        )

    def _speaker(self, name: str) -> int:
        if name not in self._speakers:
            self._own = self._own or self._label(name, name)
            self._speakers[name] = len(self._speakers)
            self._labels.append(self._label(name, ""))
        return self._speakers[name]

    def _label(self, name: str, reader: str) -> int:
        return self._count(label(name, 1, reader)) + 1  # and a line break


def find(keys: Ints, wanted: Ints) -> Ints:
    """Where each of these stands in `keys`, which ascend; -1 for nowhere."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1)


def _wide(column: NDArray[Any]) -> Ints:
    return column.astype(np.int64)
