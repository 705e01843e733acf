"""Removes the oldest turns of a session in Redis that has more messages than it may keep.

A turn goes whole, so that no answer is left without its question. The last turn stays whole, so that it can be
resumed, and system messages stay. Messages that a pending job needs are set aside until it is done, for the time to
live of a session at most.
"""

import time
from typing import Any

from massmem.store.ports import Retention
from massmem.store.redis.document import AsideMessage, Document, StoredEvent, StoredTurn, is_conversation

_LONGEST_READ = 5_000
"""Events read at once: more than a turn has."""


async def trim_session(document: Document, read: Any, retention: Retention) -> None:
    """Remove what is over the limit. An edit for `Sessions.change`."""
    log = await read.zrange(document.keys.log, 0, _LONGEST_READ)
    document.removed = _choose(document, log, retention.messages)
    for member in document.removed:
        stored_event = StoredEvent.unpack(member)
        turn = document.turns.setdefault(stored_event.turn, StoredTurn())
        turn.is_trimmed = 0 != stored_event.turn != document.stored.turns
        messages = stored_event.messages(document.keys.session_id)
        document.stored.conversation_length -= sum(map(is_conversation, messages))
        document.stored.update(message_count=document.stored.session.message_count - len(messages))
        turn.aside += [AsideMessage(message=message, trimmed_at=time.time()) for message in messages]
    oldest = 0.0 if retention.seconds is None else time.time() - retention.seconds
    for number, turn in list(document.turns.items()):
        _forget_recorded(turn, oldest)
        if turn.is_trimmed and not turn.aside:
            del document.turns[number]


def _choose(document: Document, log: list[str], limit: int) -> list[str]:
    """Choose members from the beginning of the log until `limit` messages of the conversation are left."""
    excess, chosen, turn = document.stored.conversation_length - limit, list[str](), -1
    for member in log:
        stored_event = StoredEvent.unpack(member)
        messages = stored_event.messages(document.keys.session_id)
        is_part = _is_part_of_turn(stored_event)
        if any(message.kind == "system" for message in messages):
            continue
        if is_part and stored_event.turn == document.stored.turns:
            continue
        if excess <= 0 and stored_event.turn != turn:
            break
        chosen.append(member)
        excess -= sum(map(is_conversation, messages))
        turn = stored_event.turn if is_part else -1
    return chosen


def _is_part_of_turn(stored_event: StoredEvent) -> bool:
    """Would the turn be incomplete without the event? Not without what was added from outside."""
    event = stored_event.parse()
    is_added = event.type == "message_added" or (event.type == "tool_returned" and event.round == 0)
    return stored_event.turn != 0 and not is_added


def _forget_recorded(turn: StoredTurn, oldest: float) -> None:
    """Drop trimmed messages that no job needs any more, with their jobs. oldest: drop those trimmed before it."""
    pending = {job.seq for job in turn.jobs if job.status == "pending"}

    def is_needed(aside: AsideMessage) -> bool:
        return aside.trimmed_at >= oldest and bool(pending if turn.is_trimmed else aside.message.seq in pending)

    needed = [aside for aside in turn.aside if is_needed(aside)]
    dropped = {aside.message.seq for aside in turn.aside} - {aside.message.seq for aside in needed}
    turn.jobs = [job for job in turn.jobs if job.seq not in dropped and (needed or not turn.is_trimmed)]
    turn.aside = needed
