"""Taking the oldest part of a session in Redis away: what is over its limit, or all of it, part by part."""

from datetime import datetime, timedelta
from typing import Any

from massmem.events import now
from massmem.records import RecordingRecord
from massmem.store.redis.append import keeping
from massmem.store.redis.keys import Command, key
from massmem.store.redis.log import Head, TurnRow, said, unpacked
from massmem.store.redis.queue import RowChange, changed
from massmem.store.redis.scripts import DROP
from massmem.store.redis.session import Made, Sessions, Snapshot
from massmem.store.redis.trim import Aside, Removal, outdated, removing, set_aside, to_trim

_PAGE = 200


async def trim(sessions: Sessions, head: Head, most: int) -> None:
    """Take the oldest messages of the session away until it has `most`, as far as they may go.

    head: the session after the last change.
    """
    may_go = head.session.message_count - head.newest - head.pinned
    session_id, page = head.session.session_id, _PAGE
    more = head.session.message_count > most and may_go > 0
    while more:
        reads: list[Command] = [
            ("ZRANGE", key("log", session_id), 0, page - 1),
            ("HGETALL", key("turns", session_id)),
            ("HVALS", key("recordings", session_id)),
            ("HGETALL", key("aside", session_id)),
        ]

        def make(snapshot: Snapshot, page: int = page) -> Made[bool]:
            return _trimmed(snapshot, most, page, sessions.ttl)

        more = await sessions.change(session_id, reads, make, used=False)
        page *= 4


async def delete_some(sessions: Sessions, session_id: str, limit: int) -> int | None:
    """As SessionStore.delete_session."""
    async with sessions.alone(session_id):
        while (snapshot := await sessions.read(session_id, _reads(session_id, limit))) is not None:
            head = snapshot.head
            nothing = {"status": "deleting", "title": "", "last_message": "", "description": ""}
            head.session = head.session.model_copy(update=nothing)
            seqs = sorted(unpacked(member).seq for part in snapshot.more[:2] for member in part)
            if limit and len(seqs) <= limit:
                if await sessions.client.program(DROP, session_id, snapshot.version):
                    break
                continue
            commands = _cut(snapshot, seqs[limit]) if limit else []
            if await sessions.commit(session_id, snapshot.version, [*commands, *keeping(head)], used=False):
                return head.session.message_count
    sessions.forget(session_id)
    return None


def _reads(session_id: str, limit: int) -> list[Command]:
    return [
        ("ZRANGE", key("log", session_id), 0, limit),
        ("ZRANGE", key("deltas", session_id), 0, limit),
        ("HGETALL", key("turns", session_id)),
        ("HVALS", key("recordings", session_id)),
    ]


def _trimmed(snapshot: Snapshot, most: int, page: int, ttl: int) -> Made[bool]:
    """Whether more of the log must be read to know what may go."""
    log, turns, texts, aside = snapshot.more
    head, moment = snapshot.head, now()
    removal = to_trim(head, [unpacked(member) for member in log], most, whole=len(log) < page)
    if removal is None:
        return Made((), True)
    if not removal.entries:
        return Made((), False)
    rows = _rows(texts)
    kept = {name: Aside.model_validate_json(text) for name, text in aside.items()}
    setting, gone = set_aside(head, removal, rows, moment)
    clearing, outdated_ = outdated(head, kept, rows, _oldest(moment, ttl))
    commands = [*removing(head, removal, _turns(turns)), *setting, *clearing, *changed(head, [*gone, *outdated_])]
    return Made([*commands, *keeping(head)], False)


def _cut(snapshot: Snapshot, end: int) -> list[Command]:
    """Take everything before `end` away."""
    log, _, turns, texts = snapshot.more
    session_id = snapshot.head.session.session_id
    entries = [entry for member in log if (entry := unpacked(member)).seq < end]
    removal = Removal(tuple(entries), tuple(each for entry in entries for each in said(session_id, entry)))
    gone = [RowChange(row, None) for row in _rows(texts) if row.seq < end]
    return [
        *removing(snapshot.head, removal, _turns(turns)),
        ("ZREMRANGEBYSCORE", key("deltas", session_id), "-inf", f"({end}"),
        ("DEL", key("aside", session_id), key("summaries", session_id)),
        *changed(snapshot.head, gone),
    ]


def _oldest(moment: datetime, ttl: int) -> datetime | None:
    return None if ttl < 0 else moment - timedelta(milliseconds=ttl)


def _rows(texts: list[str]) -> list[RecordingRecord]:
    return [RecordingRecord.model_validate_json(text) for text in texts]


def _turns(texts: dict[str, Any]) -> dict[int, TurnRow]:
    return {int(turn): TurnRow.model_validate_json(text) for turn, text in texts.items()}
