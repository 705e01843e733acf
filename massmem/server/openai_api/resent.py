"""Which session a request belongs to, when its client names none and resends what was said so far.

After each turn the session stores a hash of the conversation as its client has it. The next request of this client
begins with the same messages, and so their hash finds the session, at any process. Another history is another session,
which begins with these messages.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal
from uuid import uuid4

from massmem.core.records import Owner, SessionFilter
from massmem.session.owners import to_stored_id
from massmem.store.ports import SessionStore

Exchanged = tuple[Literal["user", "agent"], str]
"""Who spoke, and the text."""


@dataclass(frozen=True, slots=True)
class FoundSession:
    """The session of a request."""

    id: str
    """As the store knows it; it may be new."""
    is_resent: bool
    """The client resends the whole conversation: the session can be found by it."""


def hash_history(messages: Sequence[Exchanged]) -> str:
    """Return the SHA-256 of a conversation. Blanks do not count: clients trim texts."""
    plain = [(role, " ".join(text.split())) for role, text in messages]
    return sha256(json.dumps(plain).encode()).hexdigest()


async def find_session(
    store: SessionStore, owner: Owner, history: Sequence[Exchanged], *, named: str | None, chat: str | None
) -> FoundSession:
    """Return the session that a request goes on with, or the id of a new one.

    named: a session that the client names: it is this one, whatever the client resends. chat: a chat of the client, in
    which the user may have changed what was said: it is this session only while nothing was changed.

    Raises StoreError.
    """
    if named is not None:
        is_new = await store.get_session(to_stored_id(owner, named)) is None
        return FoundSession(to_stored_id(owner, named), is_new)
    if history:
        by_hash = SessionFilter(owner=owner, history_hash=hash_history(history))
        for listed in await store.find_sessions(by_hash, 1):
            if listed.session.status != "deleting":
                return FoundSession(listed.session.session_id, is_resent=True)
    if chat is not None:
        chat_id = to_stored_id(owner, chat)
        by_id = await store.find_sessions(SessionFilter(owner=owner, prefix=chat_id))
        lengths = {listed.session.session_id: listed.conversation_length for listed in by_id}
        if lengths.get(chat_id, len(history)) == len(history):
            return FoundSession(chat_id, is_resent=True)
    return FoundSession(to_stored_id(owner, f"session_{uuid4().hex}"), is_resent=True)
