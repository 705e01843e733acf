"""What of the log stands as memory: not what the user has forgotten, and in the user's words what was corrected.

Both are facts of the store, whichever process asks; an index is a view of them.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from massmem.core.ids import make_message_id
from massmem.core.records import MessageRecord, MessageToRecord, is_remembered
from massmem.memory.access import HERE
from massmem.memory.claims import read_claims
from massmem.memory.origins import AGENT, find_tool_name, name_tool_origin
from massmem.memory.persistent import QUEUED, USER, Memory, MemoryChange
from massmem.memory.quoting import NOT_CHOSEN
from massmem.recording.jobs import is_change, read_change
from massmem.recording.rules import (
    find_message_origin,
    find_web_origin,
    is_ballot,
    is_for_session_only,
    is_lost,
    is_tool_use,
    mask_params,
    read_tool_words,
    write_out,
)
from massmem.store.ports import SessionStore


async def read_standing(store: SessionStore, message_ids: Sequence[str]) -> list[tuple[Memory, bool]]:
    """Return the messages as memories, each with whether its agent won the complete turn; values of params are masked.

    A message of which one passage was forgotten does not stand at all; nor does one without the words that the user has
    corrected in it, or a final answer that repeats an answer. Raise StoreError.
    """
    rows = [row for row in await store.get_messages_to_record(message_ids) if not row.is_forgotten]
    changes: list[MemoryChange] = []
    for session_id in dict.fromkeys(row.message.session_id for row in rows):
        changes += await _read_changes(store, session_id)
    read = [await _read(store, row) for row in rows if is_remembered(row.message)]
    corrected = ((_correct(memory, changes), won) for memory, won in filter(None, read))
    return [(memory, won) for memory, won in corrected if memory is not None]


async def apply_queued_changes(store: SessionStore, memories: Iterable[Memory], why: str = "") -> list[Memory]:
    """Return memories of the index with the changes by the user that it lacks; those have a note. Raise StoreError.

    why: why it lacks them; "": nobody has tried.
    """
    memories = [*memories]
    sessions = [*dict.fromkeys(memory.session_id for memory in memories)]
    read = await asyncio.gather(*(_read_changes(store, session_id) for session_id in sessions))
    changes, applied = dict(zip(sessions, read, strict=True)), list[Memory]()
    for memory in memories:
        for change in changes[memory.session_id]:
            is_of_memory = change.kind == memory.kind and not set(change.message_ids).isdisjoint(memory.message_ids)
            if is_of_memory and change.old == memory.text and change.id not in memory.changes:
                memory = replace(_apply(memory, change), note=": ".join(filter(None, (QUEUED, why))))
        applied.append(replace(memory, project="") if memory.is_global else memory)
    return applied


async def find_originals(store: SessionStore, messages: Sequence[MessageRecord]) -> list[str]:
    """Return the ids of messages; of those that a fork has copied, the ids that they have where they were said."""
    sessions = {name: await store.get_session(name) for name in {message.session_id for message in messages}}
    ids: dict[str, None] = {}
    for message in messages:
        session = sessions[message.session_id]
        shared = (origin for origin, last in (session.origins if session else ()) if message.seq <= last)
        ids[make_message_id(next(shared, message.session_id), message.seq)] = None
    return [*ids]


async def _read(store: SessionStore, row: MessageToRecord) -> tuple[Memory, bool] | None:
    """Return the message as it was said; with whose words it rests on as far as its own turn tells it."""
    for m in mask_params([row]):
        origin = find_message_origin(m) or (AGENT if m.agent_id else USER)
        rests_on = origin if find_tool_name(origin) else ""
        if origin == AGENT:
            turn = await read_tool_words(store, m.session_id, m.turn)
            if turn.repeats_answer(row.message):
                break
            words = turn.list_before(m.agent_id, m.round, m.seq)
            rests_on = name_tool_origin(await asyncio.to_thread(words.find_tool, write_out(m))) or find_web_origin(m)
        if is_change(m) or is_ballot(m) or is_tool_use(m):
            break
        group, note = HERE if is_for_session_only(m) else "", NOT_CHOSEN if is_lost(m, row.winner) else ""
        place, sources = (m.session_id, m.turn, m.agent_id or USER), (m.id,)
        memory = Memory(m.id, "episode", *place, write_out(m), sources, m.created_at, group=group, note=note)
        memory = replace(memory, project=row.project, origin=origin, rests_on=rests_on)
        return memory, row.winner is not None and row.winner == m.agent_id
    return None


async def _read_changes(store: SessionStore, session_id: str) -> list[MemoryChange]:
    """Return what the user changed of the session's messages, oldest first. That belongs to no turn."""
    ids = [message.id for message in await store.read_turn_messages(session_id, 0) if is_change(message)]
    changes = map(read_change, mask_params(await store.get_messages_to_record(ids)))
    return sorted(changes, key=lambda change: (change.created_at, change.id))


def _correct(memory: Memory, changes: Iterable[MemoryChange]) -> Memory | None:
    """Return the memory as the user has changed it, None when it does not have what was changed."""
    for change in changes:
        if memory.id not in change.message_ids or change.kind != "episode":
            continue
        if change.action == "edit" and change.old not in memory.text:
            return None
        memory = _apply(memory, change)
    return replace(memory, project="") if memory.is_global else memory


def _apply(memory: Memory, change: MemoryChange) -> Memory:
    if change.action in ("pin", "unpin"):
        return replace(memory, is_pinned=change.action == "pin")
    if change.action in ("promote", "demote"):
        return replace(memory, is_global=change.action == "promote")
    text = memory.text.replace(change.old, change.text)
    is_users = memory.kind == "episode" and memory.agent_id == USER
    claims = tuple(read_claims(text, text)) if is_users and memory.claims else ()  # others are a model's
    return replace(memory, text=text, edited_at=change.created_at, origin=USER, rests_on="", claims=claims)
