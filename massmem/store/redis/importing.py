"""A session from another store into Redis, in place of whatever is there under its id, whole or not at all."""

import secrets
from collections.abc import AsyncIterable, Sequence

from massmem.messages import clean_text
from massmem.records import LogEntry, SessionCopy, SessionRecord, SessionState
from massmem.store.redis.append import Adding, creating
from massmem.store.redis.keys import PREFIX, Command, arguments, key
from massmem.store.redis.log import Head, TurnRow
from massmem.store.redis.queue import new_rows
from massmem.store.redis.scripts import APPLY, REPLACE
from massmem.store.redis.session import Sessions
from massmem.store.rows import clean

_LEFT_BEHIND = 3_600_000
"""Milliseconds after which what a copying that was killed has left is gone."""

_KEYS = ("log", "deltas", "turns", "words", "summaries")


async def import_session(sessions: Sessions, copy: SessionCopy, log: AsyncIterable[Sequence[LogEntry]]) -> None:
    """It comes whole, also what this store would trim: that goes when the conversation goes on.

    Pages are put under names of their own; one last step gives them those of the session.
    """
    session = stored_form(copy.session)
    name, turns = session.session_id, dict[int, TurnRow]()
    prefix = f"{PREFIX}import:{secrets.token_hex(8)}:"
    adding = Adding(Head(session=session.model_copy(update={"message_count": 0})), turns, prefix)
    queue: list[Command] = []
    step = 0
    async for entries in log:
        step += 1
        adding.restore(entries)
        commands = [*adding.commands(), *_fleeting(name, prefix)]
        await sessions.client.program(APPLY, f"{prefix}step", step, *arguments(commands))
        queue += new_rows(adding.head, adding.queued())
    for turn in copy.abandoned:
        if turn in turns:
            turns[turn].status = "abandoned"
    head = adding.head
    head.session = session
    finish = [*creating(head), *_abandoned(name, turns, copy.abandoned), *queue]
    if copy.state.updated_at is not None:
        finish.append(keeping_state(name, copy.state))
    finish.append(("DEL", f"{prefix}step"))
    await sessions.client.program(REPLACE, name, prefix, secrets.token_hex(6), sessions.ttl, *arguments(finish))
    sessions.forget(name)


def stored_form(session: SessionRecord) -> SessionRecord:
    """Without characters that no store keeps."""
    texts = {name: clean_text(value) for name, value in session.model_dump().items() if isinstance(value, str)}
    return session.model_copy(update=texts)


def keeping_state(session_id: str, state: SessionState) -> Command:
    storable = SessionState.model_validate(clean(state.model_dump()))
    return ("HSET", key("session", session_id), "state", storable.model_dump_json())


def _fleeting(session_id: str, prefix: str) -> list[Command]:
    return [("PEXPIRE", f"{prefix}{kind}:{session_id}", _LEFT_BEHIND) for kind in _KEYS]


def _abandoned(session_id: str, turns: dict[int, TurnRow], abandoned: Sequence[int]) -> list[Command]:
    """These rows were stored before it was known."""
    return [
        ("HSET", key("turns", session_id), turn, turns[turn].model_dump_json())
        for turn in abandoned
        if turn in turns
    ]  # fmt: skip
