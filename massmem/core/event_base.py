"""What all events have."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal, Self, dataclass_transform

import msgspec


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class _EventMeta(msgspec.StructMeta):
    """Events do not change, and their fields are given by name."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        body["type"] = tag = re.sub("(?<=.)(?=[A-Z])", "_", name).lower()
        return super().__new__(cls, name, bases, body, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=tag)


class EventBase(msgspec.Struct, metaclass=_EventMeta):
    """The fields of all events. Events are copied and dumped as configurations are, with pydantic's names for that."""

    type: ClassVar[str]
    """The name of its class in snake case."""
    at: datetime = msgspec.field(default_factory=now)
    """When it happened."""

    def model_copy(self, *, update: Mapping[str, Any]) -> Self:
        """Return the event with other values. update: values of today's types, by field."""
        return msgspec.structs.replace(self, **update)

    def model_dump(self, *, mode: Literal["json"] = "json") -> dict[str, Any]:
        """Return its JSON, as values."""
        return msgspec.json.decode(self.model_dump_json())

    def model_dump_json(self) -> str:
        """Return its JSON. Raises UnicodeEncodeError: a text has a lone surrogate."""
        return msgspec.json.encode(self).decode()


class SourceEvent(EventBase):
    """An event whose text may become a memory."""

    remember: bool = True
    """False: memory is off for the agent, or for the team: nothing of this event ever becomes a memory."""
    imported: bool = False
    """It was said in another program, whose export was imported."""


class AgentEvent(EventBase):
    """Of an agent, in a round."""

    agent_id: str
    round: int


class AgentSourceEvent(SourceEvent):
    """Of an agent, in a round, with a text that may become a memory."""

    agent_id: str
    round: int
