"""The memories of one owner, as every front end has them: to search as an agent does, to list, to trace, to forget."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from massmem.config.home import measure_disk_usage
from massmem.config.models import AgentConfig, TeamConfig
from massmem.config.projects import name_project
from massmem.core.errors import (
    InputError,
    MemoryUnavailable,
    SessionExistsError,
    UnknownMemoryError,
)
from massmem.core.events import MemoryAction, MemoryChanged, NoteAdded, now
from massmem.core.ids import make_message_id, read_seq
from massmem.core.messages import clean_text
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, MessageRecord, Owner, SessionRecord
from massmem.memory.access import HERE
from massmem.memory.claims import Chain, build_chains, find_topic
from massmem.memory.opening import index_root
from massmem.memory.persistent import (
    PINNED_TOKENS,
    QUEUED,
    USER,
    Memory,
    MemoryChange,
    RecallOptions,
    RecallResult,
    Scope,
    Selection,
)
from massmem.memory.retrieval.query import analyse, share_words
from massmem.memory.tokens import estimate_tokens
from massmem.recording.comparison import Comparison, mend
from massmem.recording.forgetting import erase_from_indexes, forget_memories, resolve_ids, unknown_memory
from massmem.recording.jobs import read_change
from massmem.recording.standing import apply_queued_changes, read_standing
from massmem.recording.worker import Recorder
from massmem.session.erasure import Eraser
from massmem.session.owners import (
    extend_scope,
    find_project,
    general_group,
    list_own_sessions,
    memory_group,
    name_notes,
    restrict_memory,
    restrict_selection,
    restrict_to_owner,
    to_stored_id,
)
from massmem.session.recall import recall_by_words, remembers
from massmem.session.registry import register_sessions
from massmem.session.team import Team
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

MAX_MEMORY_LENGTH = 2_000
"""Characters of what a user writes as a memory."""
_MOST_BEYOND, _BEYOND_TOKENS = 50, 100_000
"""Of what was found and an agent would not be shown."""
_FIRST_BEYOND = 10
"""Of that, where all of it is not asked for."""
_MAX_OF_SESSION = 1_000_000
_VIEW_SECONDS = 1.0
"""That a view waits for what is recorded meanwhile."""
_MOST_COUNTED = 1_000
"""Messages that wait of a user of the service, and of others before them."""
_MOST_SESSIONS = 1_000
"""Sessions of a user of the service that are searched, the last used."""
WITHDRAWN = "withdrawn"
_LEAST_FIT = 0.005
"""Less is shown as nothing."""


def _add_fits(query: str, memories: Sequence[Memory]) -> tuple[Memory, ...]:
    """Return the memories; the fit of one that came by its words alone is the share of the query's words in it."""
    question = analyse(query)
    fits = (m.relevance if m.relevance >= _LEAST_FIT else share_words(question, m.text) for m in memories)
    return tuple(replace(memory, relevance=fit) for memory, fit in zip(memories, fits, strict=True))


@dataclass(frozen=True, slots=True)
class View:
    """Who looks at the memories, from where, and when."""

    agent_id: str | None = None
    """None: what every agent may recall."""
    session_id: str | None = None
    """None: from any session of the owner."""
    turn: int | None = None
    """In this turn of the session; None: in the next one."""
    as_of: datetime | None = None
    """As if nothing had been said later."""
    origin: str | None = None
    """As in Selection."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is in the log, and not in what a view shows."""

    waiting: int = 0
    """Messages that are not recorded yet."""
    comparison: Comparison = field(default_factory=Comparison)
    """What the index had lost, and what it had beyond the store, when it was opened."""

    def describe(self) -> list[str]:
        notices = self.comparison.describe()
        if self.waiting:
            count = "1 message is" if self.waiting == 1 else f"{self.waiting:,} messages are"
            notices.append(f"{count} not recorded yet: the next question does it, or massmem memory record")
        return notices

    def to_dict(self) -> dict[str, int]:
        return {"not_recorded": self.waiting, "not_in_index": sum(self.comparison.lost.values())}


@dataclass(frozen=True, slots=True)
class Hits:
    """What a search found."""

    recalled: RecallResult
    """What an agent would be shown."""
    beyond: Sequence[Memory]
    """What else was found, best first; where an agent would find nothing, what has words of the query, whoever may
    recall it."""
    unavailable: str
    """Why the index was not used, and the log was searched by words; "": it was used."""
    backlog: Backlog


@dataclass(frozen=True, slots=True)
class Memories:
    """Ids of sessions are those of the store.

    All methods raise StoreError; all that need the index, not `search` and `add`, also MemoryUnavailable.
    """

    config: TeamConfig
    home: Path
    store: SessionStore
    open_index: Callable[[], AbstractAsyncContextManager["IndexedMemory"]]
    """Raises MemoryUnavailable: it is damaged, or the process or the server that has it does not answer."""
    owner: Owner | Everybody
    project: str = ""
    """Where one is, outside of any session: what is searched, and what notes belong to. "": in no project."""
    agents: Sequence[AgentConfig] = ()
    """Those that recall from other sessions than the one of a view as their settings say; the others from that one."""

    @classmethod
    def of(cls, team: Team, owner: Owner, project: str = "") -> Self:
        agents = restrict_to_owner(team.agents, owner)
        return cls(team.config, team.home, team.store, team.open_durable_memory, owner, project, agents)

    async def of_project(self, name: str | None) -> Self:
        """Return the same in another project; None: as it is. Raises InputError: see find_project."""
        return self if name is None else replace(self, project=await find_project(self.store, self.user, name))

    async def search(
        self,
        query: str,
        view: View,
        limit: int | None = None,
        max_tokens: int | None = None,
        *,
        shows_all: bool = False,
    ) -> Hits:
        """Return what an agent recalls, and what it does not.

        limit, max_tokens: None: as configured. shows_all: all that is beyond what an agent recalls, not the first ten.
        """
        settings, scope = self.config.memory.retrieval, await self._build_scope(view)
        options = RecallOptions(max_tokens or settings.max_tokens, limit or settings.limit, is_search=True)
        anything = RecallOptions(_BEYOND_TOKENS, limit or _MOST_BEYOND, abstain=False)
        unavailable, backlog, others = "", Backlog(), list[Memory]()
        try:
            async with self.open_view() as (index, backlog):
                recalled = await index.recall(query, scope, options)
                more = await index.recall(query, scope, anything)
                if not (more.memories or more.pinned or view.as_of):
                    selection = Selection(view.session_id, view.agent_id, origin=view.origin)
                    others = await index.find_near(query, await self._select(index, selection), _MOST_BEYOND)
        except MemoryUnavailable as e:
            unavailable = e.message
            recalled = await recall_by_words(self.store, query, scope, options)
            more = await recall_by_words(self.store, query, scope, anything)
        shown = {memory.id for memory in (*recalled.memories, *recalled.pinned)}
        fits = [m for m in _add_fits(query, (*more.memories, *others)) if m.id not in shown and m.relevance > 0]
        beyond = sorted(fits, key=lambda memory: memory.relevance, reverse=True)[: None if shows_all else _FIRST_BEYOND]
        memories: Sequence[Memory] = _add_fits(query, recalled.memories)
        if backlog.waiting:
            memories, beyond = [await apply_queued_changes(self.store, part) for part in (memories, beyond)]
        recalled = replace(recalled, memories=tuple(memories))
        return Hits(recalled, await self._mark_withdrawn(beyond), unavailable, backlog)

    async def read_history(self, query: str, view: View) -> tuple[Sequence[Chain], Backlog]:
        """Return the values of what the query names, by topic, the best first, with the changes that wait."""
        scope = await self._build_scope(view)
        async with self.open_view() as (index, backlog):
            chains = await index.read_history(query, scope)
        if backlog.waiting:
            stated = {memory.id: memory for chain in chains for entry in chain.entries for memory in entry.memories}
            memories = await apply_queued_changes(self.store, stated.values())
            edited = [find_topic(claim) for memory in memories if memory.is_queued for claim in memory.claims]
            new = build_chains(memories)
            chains = [new[topic] for topic in dict.fromkeys([*(c.topic for c in chains), *edited]) if topic in new]
        return chains, backlog

    @asynccontextmanager
    async def open_view(self) -> AsyncGenerator[tuple["IndexedMemory", Backlog]]:
        """Yield the index with what waited for being recorded, as far as a second suffices; the backlog has the rest.

        Raises MemoryUnavailable.
        """
        async with self.open_index() as index:
            settings, backlog = self.config.memory, Backlog()
            if remembers(settings) and settings.persistent_memory.on_disk:
                comparison = await mend(self.store, index)
                await Recorder(self.store, index, leaves_facts=True).drain_for(_VIEW_SECONDS)
                backlog = Backlog(await self._count_waiting(), comparison)
            yield index, backlog

    async def _count_waiting(self) -> int:
        if self.user == COMMAND_LINE_USER:
            return (await self.store.count_recordings()).messages
        jobs, own = await self.store.list_due_recordings("episode", _MOST_COUNTED), to_stored_id(self.user, "")
        return sum(job.session_id.startswith(own) for job in jobs)

    async def _build_scope(self, view: View) -> Scope:
        session = await self.store.get_session(view.session_id) if view.session_id else None
        scope = await self._find_scope(view, session)
        names = {agent.id: agent.display_name for agent in self.agents}
        hidden = await self.store.list_hidden(scope)
        return replace(scope, hidden=hidden, as_of=view.as_of, origin=view.origin, names=names)

    async def _find_scope(self, view: View, session: SessionRecord | None) -> Scope:
        session_id, turn = view.session_id, view.turn
        agent = next((agent for agent in self.agents if agent.id == view.agent_id), None)
        reader = view.agent_id or USER
        if session_id is None:
            memory = restrict_memory(self.config.memory, self.user) if agent is None else agent.memory
            scope = await extend_scope(self.store, Scope("", reader, 1, project=self.project), memory, self.user)
            if scope.all_sessions or scope.group:
                return scope
            # Each conversation remembers by itself: of all of them.
            if self.user == COMMAND_LINE_USER:
                return replace(scope, all_sessions=True)
            others = await list_own_sessions(self.store, self.user, _MOST_SESSIONS, self.project)
            return replace(scope, others=others)
        if turn is None:
            last = await self.store.get_last_turn(session_id)
            turn = 1 if last is None else last.turn + 1
        scope = Scope(session_id, reader, turn)
        if session is not None:
            scope = replace(scope, project=session.project, origins=session.origins)
        if agent is None or self.owner is EVERYBODY:
            return scope
        return await extend_scope(self.store, scope, agent.memory, self.user)

    async def list(self, selection: Selection, limit: int, offset: int = 0) -> tuple[Sequence[Memory], Backlog]:
        """Return memories, newest first. Its ids may be short forms. Raise UnknownMemoryError."""
        async with self.open_view() as (index, backlog):
            memories = await index.list(await self._select(index, selection), limit, offset)
        memories = await self._mark_withdrawn(memories)
        return await apply_queued_changes(self.store, memories) if backlog.waiting else memories, backlog

    async def _mark_withdrawn(self, memories: Sequence[Memory]) -> Sequence[Memory]:
        """Return the memories; those of turns that are withdrawn or undone, which no agent recalls, say so."""
        sessions = {memory.session_id for memory in memories}
        hidden = await self.store.list_hidden(Scope("", USER, 0, others=tuple(sessions)))
        return [
            replace(m, note=WITHDRAWN) if all((m.session_id, turn) in hidden for turn in m.turns or (m.turn,)) else m
            for m in memories
        ]

    async def find(self, name: str) -> Memory | None:
        """Return a memory of the owner by its id or a short form; None: there is none.

        Raises InputError: several memories begin so.
        """
        try:
            return next(iter((await self.list(Selection(ids=(name,)), 1))[0]), None)
        except UnknownMemoryError:
            return None

    async def read_sources(self, memory: Memory) -> Sequence[MessageRecord]:
        """Return the messages that the memory comes from."""
        return await self.store.get_messages(memory.message_ids)

    async def read_changes(self, memory: Memory) -> Sequence[MemoryChange]:
        """Return what the user changed of the memory, oldest first."""
        return [read_change(message) for message in await self.store.get_messages(memory.changes)]

    async def change(self, name: str, action: MemoryAction, text: str = "") -> Memory:
        """Change a memory of the owner in the log and, from there, in the index; return it as it is read back.

        Killed in between, or where the index cannot be written now, the change is queued, and carried out by whoever
        records next; the memory says so then, and is as it will be.

        name: its id, or a short form. text: of an edit.

        Raises:
            UnknownMemoryError
            InputError: several memories begin so; the text is empty, too long, or what the memory says already; its
                conversation is no longer in the store.
        """
        async with self.open_index() as index:
            memory = await self._read_back(index, await self._select(index, Selection(ids=(name,))), name)
            memory = await self._record_and_read(index, memory)  # with what was queued before
            is_done = {"pin": memory.is_pinned, "unpin": not memory.is_pinned, "demote": not memory.is_global}
            is_done["promote"] = not memory.project
            if is_done.get(action):
                return memory
            if action == "promote" and memory.group == HERE:
                raise InputError(
                    "this note is for its conversation only", "add it anew: massmem memory add --global TEXT"
                )
            new = _check_text(text) if action == "edit" else memory.text
            if action == "edit" and new == memory.text:
                if memory.is_queued:
                    return memory
                raise InputError("the memory has this text already", "nothing was changed")
            if action == "pin" and estimate_tokens(new) > PINNED_TOKENS:
                raise InputError(
                    f"the memory is too long to be pinned: agents are shown {PINNED_TOKENS} tokens of all pinned ones",
                    "add what counts as a memory of its own, and pin that",
                )
            await self._require_session(memory.session_id)
            event = MemoryChanged(
                action=action,
                kind=memory.kind,
                agent_id=memory.agent_id,
                turn=memory.turn,
                sources=tuple(map(read_seq, memory.message_ids)),
                old=memory.text,
                text=new,
                by=self.user.user_id or USER,
            )
            await self.store.append(memory.session_id, 0, [event])
            return await self._record_and_read(index, memory)

    async def _record_and_read(self, index: "IndexedMemory", memory: Memory) -> Memory:
        why = await self._record(index, memory.session_id)
        return await self._read_back(index, Selection(ids=(memory.id,)), memory.id, why)

    async def _read_back(self, index: "IndexedMemory", selection: Selection, name: str, why: str = "") -> Memory:
        """Return the memory as it is, or will be. why: see `apply_queued_changes`. Raise UnknownMemoryError."""
        for memory in await apply_queued_changes(self.store, await index.list(selection, 1), why):
            return memory
        raise unknown_memory(name)

    async def add(self, text: str, session_id: str | None = None, *, everywhere: bool = False) -> tuple[str, Memory]:
        """Store a note of the owner; return its session, and the memory, which says so when it is only queued.

        session_id: in this session; None: in one of its own, for notes, which the owner's conversations in the project
        recall. everywhere: and all others, also those with a session_name of their own.

        Raises:
            InputError: the text is empty or too long; the configuration remembers nothing, or each conversation by
                itself, and none was named.
        """
        text = _check_text(text)
        if not remembers(self.config.memory):
            raise InputError("this team remembers nothing", "set memory.persistent_memory.enabled: true")
        session_id = session_id or await self._open_notes(everywhere=everywhere)
        seqs = await self.store.append(session_id, 0, [NoteAdded(text=text)])
        message_ids = (make_message_id(session_id, seqs[-1]),)
        try:
            async with self.open_index() as index:
                why = await self._record(index, session_id)
                for memory in await index.list(Selection(message_ids=message_ids), 1):
                    return session_id, memory
        except MemoryUnavailable as e:
            why = e.message
        [(memory, _)] = await read_standing(self.store, message_ids)
        return session_id, replace(memory, note=f"{QUEUED}: {why}")

    @property
    def user(self) -> Owner:
        """Who writes."""
        return COMMAND_LINE_USER if isinstance(self.owner, Everybody) else self.owner

    async def _open_notes(self, *, everywhere: bool) -> str:
        """Return the id of the owner's session for notes, which is created when it is missing. everywhere: see add."""
        settings = self.config.memory.persistent_memory
        if not (settings.all_sessions or settings.session_name):
            raise InputError(
                "this team remembers each conversation by itself",
                "name the one that is meant: --session-id ID; or set memory.persistent_memory.session_name: null",
            )
        time, project = now(), "" if everywhere else self.project
        group = general_group(self.user) if everywhere else memory_group(self.config, self.user)
        notes = SessionRecord(
            session_id=to_stored_id(self.user, name_notes(self.user, group, project)),
            user_id=self.user.user_id,
            title=f"Notes on {name_project(project)}" if project else "Notes",
            status="completed",
            memory_group=group,
            project=project,
            created_at=time,
            updated_at=time,
        )
        with suppress(SessionExistsError):
            await self.store.create_session(notes)
            await register_sessions(self.home, self.config.store.url, [notes])
        return notes.session_id

    async def _require_session(self, session_id: str) -> None:
        session = await self.store.get_session(session_id)
        if session is None or session.status == "deleting" or self.owner not in (EVERYBODY, session.owner):
            raise InputError(
                "the conversation of this memory is not in the store, which notes what is changed",
                "forget it, and add what is right: massmem memory add TEXT; in a conversation: /remember TEXT",
            )

    async def _record(self, index: "IndexedMemory", session_id: str) -> str:
        """Record what is queued verbatim; return why that was not possible, "" when it was."""
        counts = await Recorder(self.store, index, session_id=session_id, leaves_facts=True).drain()
        return "; ".join(filter(None, (counts.unavailable, *counts.problems)))

    async def forget(self, selection: Selection) -> tuple[int, str]:
        """Delete memories of the owner for good; return how many entries those were, and a note when they are queued.

        selection: its ids may be short forms. Raises as `forget_memories`.
        """
        async with self.open_index() as index:
            selection = await self._select(index, selection)
            count, note = await forget_memories(self.store, index, selection, self.config.memory, self.home)
            if not note and await index.list(selection, 1):
                raise MemoryUnavailable("it was recorded again meanwhile", "run the command again")
            return count, note

    async def forget_messages(self, message_ids: tuple[str, ...]) -> None:
        """Delete what is remembered of these messages word for word for good. Raises as `forget_memories`."""
        selection = Selection(message_ids=message_ids, kind="episode")
        async with self.open_index() as index:
            await self.store.forget_recordings(Selection(), message_ids)
            await erase_from_indexes(index, selection, (), self.config.memory, self.home)

    async def withdraw(self, index: "IndexedMemory", session_id: str, first: int) -> None:
        """Delete the memories of turns that leave the log, from this one on, from every index.

        The queue stays: it leaves with the log.
        """
        memories = [m for m in await index.list(Selection(session_id), _MAX_OF_SESSION) if m.turn >= first]
        if not memories:
            return
        selection = Selection(ids=tuple(memory.id for memory in memories))
        # Once for all turns: the index is written anew.
        await erase_from_indexes(index, selection, memories, self.config.memory, self.home)

    @asynccontextmanager
    async def open_eraser(self) -> AsyncGenerator[Eraser]:
        """Yield what forgets statements in everything of the owner."""
        async with self.open_index() as index:
            yield Eraser(self.config, self.home, Path.cwd(), self.store, index, self.user)

    async def measure(self) -> int | None:
        """Return the bytes of the indexes on this machine's disk; None: a server has them."""
        config = self.config.memory
        if config.persistent_memory.qdrant.mode == "server":
            return None
        return await asyncio.to_thread(measure_disk_usage, index_root(config, self.home))

    async def _select(self, index: "IndexedMemory", selection: Selection) -> Selection:
        """Return the selection with whole ids, and without the sessions of other owners unless it names a session."""
        names = selection.ids
        if not selection.session_id:
            selection = await restrict_selection(self.store, selection, self.owner)
        elif selection.turn:
            selection = await self._add_origins(selection, selection.session_id, selection.turn)
        return replace(selection, ids=await resolve_ids(index, names, replace(selection, ids=())))

    async def _add_origins(self, selection: Selection, session_id: str, turn: int) -> Selection:
        """Return the selection of a turn with the memories of it that the session shares with those it was forked from.

        A fork shares whole turns.
        """
        session = await self.store.get_session(session_id)
        names = [session_id]
        for origin, last in session.origins if session else ():
            messages = await self.store.read_turn_messages(origin, turn)
            names += [origin] if messages and messages[0].seq <= last else []
        return replace(selection, session_id=None, session_ids=tuple(names))


def _check_text(text: str) -> str:
    """Return the text of a memory as it is stored. Raise InputError."""
    text = clean_text(text).strip()
    if not text:
        raise InputError("there is nothing to remember: the text is empty", "write what is to be remembered")
    if len(text) > MAX_MEMORY_LENGTH:
        raise InputError(
            f"the text has {len(text):,} characters; a memory has {MAX_MEMORY_LENGTH:,} at most", "shorten it"
        )
    return text
