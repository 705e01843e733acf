"""What a Redis server has acknowledged to this process, so that one that came back without it is noticed.

A server that is killed or restarted may come back with an older state: all of it without an append-only file, the last
second or two with `appendfsync everysec`. Whoever wrote to it finds out with the next look at the session, also when
others have written there since.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha1
from typing import Any

from massmem.errors import StoreError
from massmem.store.redis.client import RedisClient
from massmem.store.redis.keys import Command, key
from massmem.store.redis.log import Entry, Head, packed, unpacked

_SESSIONS = 10_000
"""Sessions that are watched; those written to longest ago are not."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """seq: the last number that was given. last: the last event that this process stored. breaks: see RedisClient."""

    created: datetime
    seq: int
    breaks: int
    last: int = 0
    digest: bytes = b""


class Witness:
    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._seen: dict[str, _Seen] = {}

    def note(self, head: Head, last: Entry | None, breaks: int) -> None:
        """A change was acknowledged. last: the last event of it, None for a change without events.

        breaks: how often a connection had broken before it was begun.
        """
        name = head.session.session_id
        before = self._seen.pop(name, None)
        number, digest = (0, b"") if before is None else (before.last, before.digest)
        if last is not None:
            number, digest = last.seq, _digest(packed(last))
        self._seen[name] = _Seen(head.session.created_at, head.seq, breaks, number, digest)
        if len(self._seen) > _SESSIONS:
            del self._seen[next(iter(self._seen))]

    def forget(self, session_id: str) -> None:
        """The session is gone, or another one has its name."""
        self._seen.pop(session_id, None)

    def questions(self, session_id: str) -> list[Command]:
        """What is to be read with the session to know whether all is there: nothing as long as no connection broke."""
        seen = self._seen.get(session_id)
        if seen is None or seen.breaks == self._client.breaks or not seen.last:
            return []
        at = (seen.last, seen.last)
        log, deltas = key("log", session_id), key("deltas", session_id)
        return [("ZRANGEBYSCORE", log, *at), ("ZRANGEBYSCORE", deltas, *at), ("ZRANGE", log, 0, 0)]

    def check(self, head: Head, replies: Sequence[Any], breaks: int) -> None:
        """Raises StoreError, once, when something that was acknowledged is not there.

        replies: to `questions`. breaks: how often a connection had broken before they were asked.
        """
        name = head.session.session_id
        seen = self._seen.get(name)
        if seen is None or seen.created != head.session.created_at or head.session.status == "deleting":
            return
        if head.seq < seen.seq or (replies and not _is_there(seen, *replies)):
            self.forget(name)
            raise StoreError(
                f"{self._client.name} has lost part of session {name} that it had acknowledged: it came back older",
                "see what is left with: massmem sessions show; set `appendonly yes` and `appendfsync always` there",
            )
        if replies:
            self._seen[name] = _Seen(seen.created, seen.seq, breaks, seen.last, seen.digest)


def _is_there(seen: _Seen, log: Sequence[str], deltas: Sequence[str], oldest: Sequence[str]) -> bool:
    trimmed = bool(oldest) and unpacked(oldest[0]).seq > seen.last
    return trimmed or any(_digest(member) == seen.digest for member in (*log, *deltas))


def _digest(member: str) -> bytes:
    return sha1(member.encode(), usedforsecurity=False).digest()
