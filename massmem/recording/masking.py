"""What of a session stays in it: values that the user gave when asked. Memories are found by others. Pure."""

from collections.abc import Iterable, Mapping

from massmem.core.records import MessageRecord, MessageToRecord
from massmem.core.redact import mask


def without_values(found: Iterable[MessageToRecord]) -> list[MessageRecord]:
    """The messages as they may be remembered: no replies of the user to a request, and names instead of values."""
    return [_masked(each.message, each.params) for each in found if not is_reply(each.message)]


def is_reply(message: MessageRecord) -> bool:
    """The user said it when asked for a value."""
    return message.kind == "user" and "param" in message.metadata


def _masked(message: MessageRecord, params: Mapping[str, object]) -> MessageRecord:
    if not params:
        return message
    text = mask(message.content, params)
    return message if text == message.content else message.model_copy(update={"content": text})
