"""What of a session stays in it: values that the user gave when asked. Memories are found by others."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from massmem.records import MessageRecord
from massmem.redact import masked

if TYPE_CHECKING:
    from massmem.store.base import SessionStore


async def without_values(store: "SessionStore", messages: Sequence[MessageRecord]) -> list[MessageRecord]:
    """The messages as they may be remembered: no replies of the user to a request, and names instead of values.

    Raises:
        StoreError: the state of their sessions cannot be read.
    """
    sessions = dict.fromkeys(message.session_id for message in messages)
    params = {session_id: (await store.state(session_id)).params for session_id in sessions}
    return [_masked(message, params[message.session_id]) for message in messages if not is_reply(message)]


def is_reply(message: MessageRecord) -> bool:
    """The user said it when asked for a value."""
    return message.kind == "user" and "param" in message.metadata


def _masked(message: MessageRecord, params: dict[str, object]) -> MessageRecord:
    if not params:
        return message
    text = masked(message.content, params)
    return message if text == message.content else message.model_copy(update={"content": text})
