"""Brings the keys of an older massmem in Redis (layout 1: massmem:KIND:SESSION) to the layout of today."""

import json
import time
from functools import partial
from typing import Any

from massmem.core.errors import StoreVersionError
from massmem.core.records import RecordingJob
from massmem.store.redis.document import (
    AsideMessage,
    Document,
    Keys,
    StoredEvent,
    StoredSession,
    StoredTurn,
    is_conversation,
    read_messages,
)
from massmem.store.redis.server import Server
from massmem.store.redis.sessions import JOB_KINDS, store_document

LAYOUT, _LAYOUT_KEY = 2, "massmem:layout"

_SESSIONS = "massmem:all:created"
_KINDS = ("session", "log", "deltas", "turns", "words", "summaries", "aside", "lease", "writers", "recordings")
_QUEUES = [f"{when}:{kind}" for when in ("ready", "later") for kind in JOB_KINDS]
_INDEXES = [f"massmem:all:{name}" for name in ("used", "expiry", "trouble", *_QUEUES)]


async def upgrade_layout(server: Server) -> None:
    """Move sessions of layout 1, each in a transaction of its own: when it is cut off, the next call goes on.

    Raises StoreVersionError: a newer massmem wrote the database; nothing was changed.
    """
    layout, session_ids = await server.run_all([("GET", _LAYOUT_KEY), ("ZRANGE", _SESSIONS, 0, -1)])
    if layout is not None and int(layout) > LAYOUT:
        raise StoreVersionError(
            f"{server.name} was written by a newer massmem (layout {layout}; this one knows {LAYOUT})",
            "update massmem; nothing was changed",
        )
    for session_id in session_ids:
        await server.transact(partial(_move, session_id), f"massmem:session:{session_id}", Keys(session_id).session)
    if session_ids:
        await server.run("UNLINK", *_INDEXES)
    if layout is None:
        await server.run("SET", _LAYOUT_KEY, LAYOUT)


async def _move(session_id: str, pipeline: Any) -> None:
    old, keys = {kind: f"massmem:{kind}:{session_id}" for kind in _KINDS}, Keys(session_id)
    hashes = {kind: await pipeline.hgetall(old[kind]) for kind in _KINDS if kind not in ("log", "deltas")}
    logs = {kind: await pipeline.zrange(old[kind], 0, -1, withscores=True) for kind in ("log", "deltas")}
    ttl, is_taken = await pipeline.pttl(old["session"]), await pipeline.exists(keys.session)
    pipeline.multi()
    if hashes["session"] and not is_taken:
        document = _convert(keys, hashes, [member for member, _ in logs["log"]])
        document.log, document.deltas = dict(logs["log"]), dict(logs["deltas"])
        store_document(pipeline, document, {}, is_new=True)
        for key in keys if ttl > 0 else ():
            pipeline.pexpire(key, ttl)
    pipeline.unlink(*old.values(), f"massmem:id:{hashes['session'].get('hash', '')}")
    pipeline.zrem(_SESSIONS, session_id)


def _convert(keys: Keys, hashes: dict[str, dict[str, str]], log: list[str]) -> Document:
    """Return the session of layout 1. hashes: by kind."""
    head, seqs = json.loads(hashes["session"]["head"]), {StoredEvent.unpack(member).seq for member in log}
    document = Document(keys, StoredSession.model_validate(head | {"lease": hashes["lease"] or None}), is_whole=True)
    document.stored.conversation_length = sum(map(is_conversation, read_messages(keys.session_id, log)))
    document.fields = {f"summary:{agent}": text for agent, text in hashes["summaries"].items()}
    if "state" in hashes["session"]:
        document.fields["state"] = hashes["session"]["state"]
    for number, text in hashes["turns"].items():
        row = json.loads(text)
        names = {"running_since": row["begun"], "last_seqs": row["spoke"], "extracted_until": row["extracted"]}
        turn = StoredTurn.model_validate({name: value for name, value in (row | names).items() if value is not None})
        turn.is_trimmed = turn.question_seq not in seqs
        document.turns[int(number)] = turn
        document.fields |= {f"request:{name}": str(seq) for name, seq in row["requests"].items()}
        if turn.status == "completed" and turn.winner is not None:
            document.stored.winners[int(number)] = turn.winner
    for text in hashes["recordings"].values():
        job = RecordingJob.model_validate_json(text)
        document.turns.setdefault(job.turn, StoredTurn()).jobs.append(job)
    for text in hashes["aside"].values():
        for item in json.loads(text)["messages"]:
            aside = AsideMessage(message=item["message"], trimmed_at=time.time())
            document.turns[aside.message.turn].aside.append(aside)
    return document
