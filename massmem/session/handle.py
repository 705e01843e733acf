"""One session's conversation and state, for programs: what was said, what is known, what is waited for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from massmem.core.events import Event, MessageAdded, ParamCleared, now
from massmem.core.ids import check_session_id
from massmem.core.records import MessageKind, MessageRecord, SessionRecord, SessionState
from massmem.core.waiting import read_waiting

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

Role = Literal["user", "agent", "tool"]

_PAGE = 1_000
_ROLES: Mapping[MessageKind, Role] = {
    "user": "user",
    "assistant": "agent",
    "tool_call": "tool",
    "tool_result": "tool",
}


@dataclass(frozen=True, slots=True)
class Message:
    """timestamp: when it was said; an appended message gets the time of its storing."""

    role: Role
    text: str
    timestamp: datetime = field(default_factory=now)
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ConversationMemory:
    """The sessions of a store (`massmem.store.open_store`)."""

    def __init__(self, store: "SessionStore") -> None:
        self._store = store

    def for_session(self, session_id: str) -> "SessionHandle":
        """A handle to the session, known or not: the first thing that is written makes it.

        Raises:
            InputError: it cannot be the id of a session.
        """
        check_session_id(session_id)
        return SessionHandle(self._store, session_id)


class SessionHandle:
    """A light view of one session; it holds nothing open. Several handles to a session see the same.

    To be used while no turn of the session runs: a turn writes the state too. Values are what they were given as;
    they are never logged. All methods raise StoreError.
    """

    def __init__(self, store: "SessionStore", session_id: str) -> None:
        self._store = store
        self._id = session_id
        self._after = 0
        self._most: int | None = None

    async def history(self) -> list[Message]:
        """What was said, oldest first: by the user, by the agents, to and from tools; not what they thought."""
        found = [_message(record) for record in await self._records() if record.kind in _ROLES]
        return found if self._most is None else found[max(len(found) - self._most, 0) :]

    async def append(self, message: Message) -> None:
        """Add a message to the log, below everything that is there."""
        await self._exist()
        added = MessageAdded(role=message.role, text=message.text, metadata=dict(message.metadata))
        await self._store.append(self._id, await self._turn(), [added])

    async def params(self) -> dict[str, Any]:
        """The known values by name."""
        return dict((await self._store.load_state(self._id)).params)

    async def merge(self, params: Mapping[str, Any]) -> None:
        """Add values, and replace those of the same name. A turn that waits for one of them goes on when resumed."""
        state = await self._store.load_state(self._id)
        await self._save(state.model_copy(update={"params": {**state.params, **params}}))

    async def waiting(self) -> str | None:
        """The name of the value that the user is asked for."""
        return (await self._store.load_state(self._id)).waiting_for_param

    async def set_waiting(self, name: str | None) -> None:
        """Wait for this value: where a rule finds it in the next message, it is taken from there.

        None: wait no longer. A turn that waited goes on without the value when it is resumed.
        """
        state = (await self._store.load_state(self._id)).model_copy(update={"waiting_for_param": name})
        turn = await self._turn()
        open_ = () if name is not None else read_waiting(await self._store.read_turn_events(self._id, turn)).params
        cleared: list[Event] = [ParamCleared(param=param, why="gave_up") for param in open_]
        if cleared:
            await self._store.append(self._id, turn, cleared, state=state)
        else:
            await self._save(state)

    async def clear(self) -> None:
        """Forget all values and what is waited for, and show nothing of the history so far. The log keeps it."""
        await self.set_waiting(None)
        state = await self._store.load_state(self._id)
        await self._save(state.model_copy(update={"params": {}, "last_result": None}))
        records = await self._records()
        self._after = records[-1].seq if records else self._after

    async def prune(self, max_messages: int = 10) -> None:
        """Let this handle's history show the newest messages only. The log keeps all of them."""
        self._most = max(max_messages, 0)

    async def _records(self) -> list[MessageRecord]:
        found: list[MessageRecord] = []
        after = self._after
        while page := await self._store.read_messages(self._id, after, _PAGE):
            found += page
            after = page[-1].seq
        return found

    async def _turn(self) -> int:
        last = await self._store.get_last_turn(self._id)
        return 0 if last is None else last.turn

    async def _save(self, state: SessionState) -> None:
        await self._exist()
        await self._store.save_state(self._id, state)

    async def _exist(self) -> None:
        if await self._store.get_session(self._id) is None:
            moment = now()
            await self._store.create_session(SessionRecord(session_id=self._id, created_at=moment, updated_at=moment))


def _message(record: MessageRecord) -> Message:
    return Message(_ROLES[record.kind], record.content, record.created_at, record.metadata)
