"""The conversations of one user: to find, read, list, count and delete. Those of others do not exist.

Users name their sessions. The stored id begins with a hash of the owner: two users may give the same name, and no
response tells whether somebody else has given it. Sessions of this machine's user have no such beginning.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from massmem.core.errors import MassmemError, SessionBusyError, UnknownSessionError
from massmem.core.records import (
    EVERYBODY,
    Everybody,
    ListedSession,
    MessageRecord,
    Owner,
    SessionFilter,
    SessionRecord,
    TurnRecord,
)
from massmem.server.schemas import is_session_id
from massmem.server.turns import Turns
from massmem.session.catalogue import SessionDeleter, choose_version, delete_contents, rename_session
from massmem.session.fork import fork_session
from massmem.session.imports import ImportResult, import_conversation
from massmem.session.imports.conversations import ImportedConversation
from massmem.session.lease import hold_lease, mark_interrupted
from massmem.session.memories import Memories
from massmem.session.owners import public_session_id, to_stored_id
from massmem.session.registry import register_sessions
from massmem.session.team import Team
from massmem.store.lookup import require_own_session

log = logging.getLogger(__name__)

MAX_MESSAGES = 10_000
"""Messages of a conversation that is read whole."""

_END_SECONDS = 1.0
"""Seconds for which another process may still hold a session whose answer its user has seen."""

_PAGE = 1_000
_NEWEST = 10


@dataclass(frozen=True, slots=True)
class ConversationPage:
    sessions: list[ListedSession]
    agents: dict[str, list[str]]
    """The names of the agents that answered in each, by the session's id."""
    total: int
    """The length of the whole list."""


@dataclass(frozen=True, slots=True)
class ConversationPart:
    messages: list[MessageRecord]
    """Questions, notes and final answers, oldest first."""
    turns: list[TurnRecord]
    """The turns that these messages belong to, and the last turn."""
    has_older: bool
    """There are messages before them."""
    follow_after: int | None
    """A turn is under way: its events have higher numbers than this one."""


class Conversations:
    """The sessions of a store as their owners see them. All methods raise StoreError."""

    def __init__(self, team: Team, turns: Turns) -> None:
        self._team = team
        self._store = team.store
        self._turns = turns
        self._must_erase = False
        """The files of the store may still hold bytes of deleted sessions."""

    async def find(self, owner: Owner, session_id: str) -> SessionRecord:
        """Return the user's session. Raise UnknownSessionError, always with the same message."""
        if is_session_id(session_id):
            with suppress(UnknownSessionError):
                return await require_own_session(self._store, to_stored_id(owner, session_id), owner)
        raise UnknownSessionError("Session not found")  # a documented response

    async def read(self, session: SessionRecord, limit: int = MAX_MESSAGES) -> list[MessageRecord]:
        """Return the newest questions and final answers of the session, oldest first."""
        messages: list[MessageRecord] = []
        before: int | None = None
        while len(messages) < limit:
            size = min(_PAGE, limit - len(messages))
            page = await self._store.read_conversation(session.session_id, before, size)
            messages += page
            if len(page) < size:
                break
            before = page[-1].seq
        return messages[::-1]

    async def read_part(self, session: SessionRecord, before: int | None, limit: int) -> ConversationPart:
        """Return messages with a number < `before`, the newest for None, and their turns."""
        store, session_id = self._store, session.session_id
        last = await store.get_last_turn(session_id)
        messages = (await store.read_conversation(session_id, before, limit + 1))[::-1]
        has_older = len(messages) > limit
        messages = messages[-limit:]
        numbers = {message.turn for message in messages if message.turn}
        turns: list[TurnRecord] = []
        if numbers:
            count = max(numbers) - min(numbers) + 1
            turns = [t for t in await store.list_turns(session_id, min(numbers) - 1, count) if t.turn in numbers]
        if last is not None and last.turn not in numbers and before is None:
            turns.append(last)
        return ConversationPart(messages, turns, has_older, await self._find_start(session, last))

    async def describe(self, session: SessionRecord) -> ListedSession:
        """Return the session with what lists show beside it."""
        last = await self._store.get_last_turn(session.session_id)
        answer = await self._read_newest_answer(session.session_id)
        fields = {} if answer is None else answer.model_dump(include={"confidence", "escalated"})
        return ListedSession(session=session, turns=0 if last is None else last.turn, **fields)

    async def _read_newest_answer(self, session_id: str) -> MessageRecord | None:
        before = None
        while messages := await self._store.read_conversation(session_id, before, _NEWEST):
            if answer := next((message for message in messages if message.final), None):
                return answer
            before = messages[-1].seq
        return None

    async def _find_start(self, session: SessionRecord, last: TurnRecord | None) -> int | None:
        """Return the number of the event before the turn that is under way; None when none is."""
        if last is None or last.status != "running" or session.status == "interrupted":
            return None
        messages = await self._store.read_turn_messages(session.session_id, last.turn)
        return messages[0].seq - 1 if messages else 0

    async def mark_interrupted(self, session: SessionRecord) -> SessionRecord:
        """Return this machine's user's session with its real status; a killed process leaves it active in the store.

        Those of other users are resumed by the service itself.
        """
        if session.user_id is not None or self._turns.is_running(session.session_id):
            return session
        return await mark_interrupted(self._store, self._team.home, session)

    async def rename(self, session: SessionRecord, title: str) -> SessionRecord:
        """Give the session a title. Raise InputError: it cannot be a name, or another session has it."""
        renamed = await rename_session(self._store, session, title)
        await self._register(renamed)
        return renamed

    async def fork(
        self,
        session: SessionRecord,
        turn: int | None = None,
        *,
        event: int | None = None,
    ) -> SessionRecord:
        """Begin a new session with a copy of this one. Arguments, raises: as `fork_session`."""
        await self._turns.check_room(session.owner, is_new=True)
        prefix = to_stored_id(session.owner, "")
        fork = await fork_session(self._store, session.session_id, turn, prefix, event=event)
        await self._register(fork)
        self._team.memory.wake()
        return fork

    async def choose_version(self, session: SessionRecord, turn: int) -> None:
        """Show another version of a turn. Raises as `choose_version`, and SessionBusyError: a turn is under way."""
        await self._turns.wait_for_end(session.session_id)
        async with hold_lease(self._store, self._team.process, session.session_id, _END_SECONDS):
            await choose_version(self._store, session.session_id, turn)

    async def import_conversations(
        self, owner: Owner, conversations: Sequence[ImportedConversation]
    ) -> list[ImportResult]:
        """Make sessions of the user of what other programs export, or add to them what is new."""
        team, memories = self._team, Memories.of(self._team, owner)
        results: list[ImportResult] = []
        for conversation in conversations:
            await self._turns.check_room(owner, is_new=True)
            results.append(await import_conversation(memories, team.process, conversation))
        ids = [to_stored_id(owner, result.session_id) for result in results if not result.conflict]
        await self._register(*filter(None, [await self._store.get_session(session_id) for session_id in ids]))
        team.memory.wake()
        return results

    async def _register(self, *sessions: SessionRecord) -> None:
        await register_sessions(self._team.home, self._team.config.store.url, sessions)

    async def list_page(self, owner: Owner, limit: int, offset: int) -> ConversationPage:
        """Return the user's conversations from number `offset` on, the last used first."""
        of_owner = SessionFilter(owner=owner, has_messages=True)
        sessions = await self._store.find_sessions(of_owner, limit, offset)
        winners = await self._store.get_winner_names([listed.session.session_id for listed in sessions])
        agents: dict[str, dict[str, None]] = {listed.session.session_id: {} for listed in sessions}
        for (session_id, _), winner in sorted(winners.items()):
            agents[session_id][winner] = None
        return ConversationPage(
            [listed for listed in sessions if listed.session.status != "deleting"],
            {session_id: list(names) for session_id, names in agents.items()},
            (await self._store.count_sessions(of_owner)).sessions,
        )

    async def list_ids(self, owner: Owner) -> list[str]:
        """Return the ids of all sessions of the user, the last used first."""
        sessions = await self._store.find_sessions(SessionFilter(owner=owner, has_messages=True))
        return [
            public_session_id(listed.session.session_id) for listed in sessions if listed.session.status != "deleting"
        ]

    async def count(self, owner: Owner | Everybody) -> tuple[int, int]:
        """Return how many conversations and messages one user has, or all users."""
        of_owner = SessionFilter(owner=owner, has_messages=True)
        sessions = (await self._store.count_sessions(of_owner)).sessions
        return sessions, await self._store.count_messages(of_owner)

    async def delete(self, session: SessionRecord) -> None:
        """Delete the session and what is remembered of it. When that fails half-way, `finish_deletions` goes on.

        Raises SessionBusyError: a turn of it is under way.
        """
        await self._turns.wait_for_end(session.session_id)
        async with hold_lease(self._store, self._team.process, session.session_id, _END_SECONDS):
            await self._store.delete_session(session.session_id, 0)
        try:
            await self._erase(session)
        except MassmemError as e:
            log.warning("the rest of a deleted session will be erased later: %s", e.message)

    async def finish_deletions(self) -> None:
        """Erase what is left of deleted sessions, also of those that another process began."""
        for listed in await self._store.find_sessions(SessionFilter(owner=EVERYBODY, status="deleting")):
            try:
                await self._erase(listed.session)
            except SessionBusyError:
                continue  # another process erases it
        if self._must_erase and await self._store.erase_deleted():
            self._must_erase = False

    async def _erase(self, session: SessionRecord) -> None:
        async def erase_memories(session_ids: Sequence[str]) -> int:
            for session_id in session_ids:
                await self._team.memory.forget(session_id)
            return 0  # nobody asks how many there were

        team = self._team
        async with hold_lease(self._store, team.process, session.session_id):
            await delete_contents(self._store, [session], erase_memories)
        self._must_erase = True
        if session.user_id is None:
            deleter = SessionDeleter(team.config, team.home, self._store, Path.cwd())
            await deleter.delete_traces([session.session_id])


def list_agents(messages: Sequence[MessageRecord]) -> list[str]:
    return list(dict.fromkeys(m.agent_name for m in messages if m.agent_name and m.kind != "user"))
