"""The session handle for programs: the messages, the params and the waiting state of one session."""

import logging
from collections.abc import Mapping
from typing import Any, Literal, Self, overload

from massmem.core.events import ContextMeasured, Event, HistoryCleared, MessageAdded, ParamCleared, now
from massmem.core.ids import check_session_id
from massmem.core.outcome import read_waiting
from massmem.core.records import EVERYBODY, MessageKind, MessageRecord, SessionFilter, SessionRecord, SessionState
from massmem.memory import tokens
from massmem.memory.conversation import HistoryBudget, HistoryWindow
from massmem.memory.tokens import TokenCounter
from massmem.memory.unstored import (
    CONTEXT_MESSAGES,
    InMemoryConversationMemory,
    Message,
    Role,
    check_role,
    format_line,
)
from massmem.render.text import is_near_limit, report_context
from massmem.store.lookup import find_last_hidden
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

_NEARLY_FULL = 0.75
_PAGE = 1_000
_ROLES: Mapping[MessageKind, Role] = {
    "user": "user",
    "assistant": "agent",
    "tool_call": "tool",
    "tool_result": "tool",
}


class ConversationMemory:
    """The sessions of a store (`massmem.store.open_store`); without a store, an InMemoryConversationMemory."""

    _store: SessionStore

    @overload
    def __new__(cls) -> InMemoryConversationMemory: ...
    @overload
    def __new__(cls, store: SessionStore) -> Self: ...
    def __new__(cls, store: SessionStore | None = None) -> "Self | InMemoryConversationMemory":
        if store is None:
            return InMemoryConversationMemory()
        self = super().__new__(cls)
        self._store = store
        return self

    def for_session(self, session_id: str) -> "SessionHandle":
        """Return a handle to the session; one that does not exist is created by the first write.

        Raises InputError: `session_id` cannot be the id of a session.
        """
        check_session_id(session_id)
        return SessionHandle(self._store, session_id)

    async def add_message(
        self, session_id: str, role: Literal["user", "assistant"], message: str, agent_type: str | None = None
    ) -> None:
        """Add a message at the end of the conversation. agent_type: name of the assistant that wrote it.

        Raises InputError: `session_id` cannot be the id of a session, or the role is another one.
        """
        check_role(role)
        metadata = {} if agent_type is None else {"agent_type": agent_type}
        text_role: Role = "user" if role == "user" else "agent"
        await self.for_session(session_id).append(Message(text_role, message, metadata=metadata))

    async def get_conversation_context(self, session_id: str) -> str:
        """Return the newest 6 messages, one `User: ...` or `Assistant (NAME): ...` per line; "" for an unknown session.

        Of an assistant's message the first 200 characters are returned, followed by `...`.
        """
        check_session_id(session_id)
        hidden = await find_last_hidden(self._store, session_id)
        records = await self._store.read_conversation(session_id, None, CONTEXT_MESSAGES)
        return "\n".join(
            format_line(record.kind, record.content, record.metadata.get("agent_type") or record.agent_id)
            for record in reversed(records)
            if record.seq > hidden
        )

    async def get_conversation_summary(self, session_id: str) -> dict[str, Any]:
        """Return `message_count`, and `last_activity` and `session_started` as ISO 8601; {} for an unknown session."""
        check_session_id(session_id)
        listed = await self._store.find_sessions(SessionFilter(owner=EVERYBODY, session_id=session_id))
        if not listed:
            return {}
        entry = listed[0]
        newest = await self._store.read_conversation(session_id, None, 1)
        return {
            "message_count": entry.conversation_length,
            "last_activity": (newest[0].created_at if newest else entry.session.updated_at).isoformat(),
            "session_started": entry.session.created_at.isoformat(),
        }

    async def get_conversation_history_for_agent(
        self, session_id: str, max_messages: int = 20, max_tokens: int = 4_000
    ) -> list[dict[str, str]]:
        """Return the newest questions and answers, oldest first, as role and content, within both limits.

        They are taken from the newest backwards until the next one does not fit.
        """
        check_session_id(session_id)
        window = HistoryWindow(HistoryBudget(max_tokens, max_messages), await find_last_hidden(self._store, session_id))
        for record in await self._store.read_conversation(session_id, None, max_messages):
            window.add(record)
        log.info(
            "Retrieved %d conversation messages for agent (~%d tokens) from session %s",
            len(window.records), window.used, session_id,
        )  # fmt: skip
        return [{"role": record.speaker, "content": record.content} for record in reversed(window.records)]


class SessionHandle:
    """One session in a store. Holds nothing open; several handles to a session see the same.

    Use it while no turn of the session runs: a turn writes the state too. Values are never logged. All methods raise
    StoreError.
    """

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._id = session_id

    async def history(self) -> list[Message]:
        """Return the messages of the user, the agents and the tools, oldest first, without reasoning."""
        return [
            Message(_ROLES[record.kind], record.content, record.created_at, record.metadata)
            for record in await self._read_records()
            if record.kind in _ROLES
        ]

    async def append(self, message: Message) -> None:
        """Add a message at the end of the log."""
        await self._create_if_missing()
        added = MessageAdded(role=message.role, text=message.text, metadata=dict(message.metadata))
        await self._store.append(self._id, await self._get_last_turn_number(), [added])

    async def params(self) -> dict[str, Any]:
        """Return the known values by name."""
        return dict((await self._store.load_state(self._id)).params)

    async def merge(self, params: Mapping[str, Any]) -> None:
        """Add values, or replace those of the same name. A turn that waits for one of them goes on when resumed."""
        state = await self._store.load_state(self._id)
        await self._save_state(state.model_copy(update={"params": {**state.params, **params}}))

    async def waiting(self) -> str | None:
        """Return the name of the param that the user is asked for, None when the session waits for none."""
        return (await self._store.load_state(self._id)).waiting_for_param

    async def set_waiting(self, name: str | None) -> None:
        """Wait for this param: a value that a rule finds in the next message is taken from there.

        name None: wait no longer. A turn that waited goes on without the value when it is resumed.
        """
        state = (await self._store.load_state(self._id)).model_copy(update={"waiting_for_param": name})
        turn = await self._get_last_turn_number()
        open_ = () if name is not None else read_waiting(await self._store.read_turn_events(self._id, turn)).params
        cleared: list[Event] = [ParamCleared(param=param, why="gave_up") for param in open_]
        if cleared:
            await self._store.append(self._id, turn, cleared, state=state)
        else:
            await self._save_state(state)

    async def clear(self) -> None:
        """Delete all params and stop waiting; hide the history so far from all handles and agents. The log keeps it."""
        await self.set_waiting(None)
        state = await self._store.load_state(self._id)
        await self._create_if_missing()
        state = state.model_copy(update={"params": {}, "last_result": None})
        await self._store.append(self._id, 0, [HistoryCleared()], state=state)

    async def prune(self, max_messages: int = 10) -> None:
        """Hide all but the newest messages of the history from all handles and agents. The log keeps them."""
        shown = [record for record in await self._read_records() if record.kind in _ROLES]
        hidden = shown[: max(len(shown) - max(max_messages, 0), 0)]
        if hidden:
            await self._store.append(self._id, 0, [HistoryCleared(until=hidden[-1].seq)])

    async def get_token_stats(self, calculator: TokenCounter = tokens.estimate_tokens) -> dict[str, int]:
        """Return the tokens of the conversation by kind of message: user, assistant, tool_call, reasoning, ...

        calculator: counts a text; by default bytes / 4.
        """
        stats: dict[str, int] = {}
        for record in await self._read_records():
            stats[record.kind] = stats.get(record.kind, 0) + calculator(record.content)
        return stats

    async def estimate_tokens(self, calculator: TokenCounter = tokens.estimate_tokens) -> int:
        """Return the tokens of the whole conversation. calculator: as for `get_token_stats`."""
        return sum((await self.get_token_stats(calculator)).values())

    async def log_context_usage(self, window: int, calculator: TokenCounter = tokens.estimate_tokens) -> None:
        """Log how much of a context window of so many tokens the conversation fills, as a warning from 75 % on."""
        stats = await self.get_token_stats(calculator)
        usage = ContextMeasured(
            agent_id="",
            round=0,
            tokens=sum(stats.values()),
            window=window,
            source="buffer",
            entries=stats,
            threshold=_NEARLY_FULL,
        )
        level = logging.WARNING if is_near_limit(usage) else logging.INFO
        for line in report_context(usage, await self._get_last_turn_number()):
            log.log(level, "%s", line)

    async def _read_records(self) -> list[MessageRecord]:
        records: list[MessageRecord] = []
        after = await find_last_hidden(self._store, self._id)
        while page := await self._store.read_messages(self._id, after, _PAGE):
            records += [record for record in page if not record.metadata.get("cleared")]
            after = page[-1].seq
        return records

    async def _get_last_turn_number(self) -> int:
        last = await self._store.get_last_turn(self._id)
        return 0 if last is None else last.turn

    async def _save_state(self, state: SessionState) -> None:
        await self._create_if_missing()
        await self._store.save_state(self._id, state)

    async def _create_if_missing(self) -> None:
        if await self._store.get_session(self._id) is None:
            moment = now()
            await self._store.create_session(SessionRecord(session_id=self._id, created_at=moment, updated_at=moment))
