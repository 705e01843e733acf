"""The searchable memory of a team at work: opens beside the first answers, records in the background, recalls."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.models import AgentConfig, MemoryConfig
from massmem.core.errors import MassmemError, MemoryUnavailable, StoreError
from massmem.core.events import now
from massmem.core.ids import make_message_id, read_seq
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, Owner, SessionFilter, is_remembered
from massmem.memory import open_memory
from massmem.memory.access import HERE, may_see
from massmem.memory.extraction.extractor import (
    Extractor,
    failing_extractor,
    open_extractor,
    with_debug_files,
    write_debug,
)
from massmem.memory.origins import AGENT, find_tool_name, is_from, name_tool_origin
from massmem.memory.persistent import (
    PINNED_TOKENS,
    USER,
    Decision,
    Memory,
    PersistentMemory,
    RecallOptions,
    RecallResult,
    Scope,
    Selection,
)
from massmem.memory.quoting import NOT_CHOSEN, Quote, render
from massmem.memory.retrieval.query import analyse, explain_asking, find_least_share, share_words
from massmem.memory.retrieval.repeats import PromptTexts, is_echo
from massmem.memory.tokens import estimate_tokens
from massmem.memory.words import is_question
from massmem.providers.retry import Pauses
from massmem.recording.rules import (
    TurnWords,
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
from massmem.recording.worker import Recorder, describe_missing, requeue_missing
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.core.records import MessageRecord, MessageToRecord
    from massmem.memory.indexed import IndexedMemory

log = logging.getLogger(__name__)

CATCH_UP_SECONDS = 2.0
"""Most seconds that a question waits until the messages before it are searchable."""

_MOST_OPENING_SECONDS = 2.0
"""How long the end of a turn waits for the memory to open, so that the turn says when it cannot."""

_REOPEN_SECONDS = 10.0
"""Time after which a memory that could not be opened is opened again: its lock or its disk may be free by then."""

_MAX_HITS = 50
"""Messages that a search of the log returns."""


class SessionMemory:
    """Recalls and records for all sessions of a team.

    Never fails a turn: what cannot be recalled or recorded now is left for a later run, and `take_notices` says so.
    """

    def __init__(
        self,
        config: MemoryConfig,
        home: Path,
        store: SessionStore,
        agents: tuple[AgentConfig, ...],
        debug: Path | None = None,
        *,
        records: bool = True,
    ) -> None:
        """debug: the folder of this run's debug files; None: none are written.

        records: False: workers do (`massmem.session.background`); this process writes only what a question needs now.
        """
        self.enabled = remembers(config)
        self.records = records
        self._config = config
        self._home = home
        self._store = store
        self._agents = agents
        self._debug = debug
        self._opening: asyncio.Task[IndexedMemory | None] | None = None
        self._recorder: Recorder | None = None
        self._extractor: Extractor | None = None
        self._reopen_time = 0.0
        """When to open again, by the monotonic clock, after that has failed."""
        self._pauses: Pauses | None = None
        self._stack = AsyncExitStack()
        self._notices: list[str] = []
        self._past_notices: set[str] = set()

    def start(self, pauses: Pauses | None = None) -> None:
        """Begin to open the memory and to record what is queued; return at once.

        pauses: of models that want no requests; None: those of the model that extracts facts alone.
        """
        self._pauses = pauses
        if self.enabled:
            self._opening = asyncio.create_task(self._open())

    def wake(self) -> None:
        """Start recording: something new is in the queue. Open the memory again when that failed a while ago."""
        if self._opening is not None and self.trouble and time.monotonic() >= self._reopen_time:
            self._opening = asyncio.create_task(self._open())
        if self._recorder is not None:
            self._recorder.wake()

    async def recall(self, agent: AgentConfig, question: str, scope: Scope, options: RecallOptions) -> str:
        """Return the lines that this agent's memory has on the question, "" when nothing in it matters.

        scope: see massmem.session.owners.extend_scope.
        """
        if self._opening is None or not remembers(agent.memory):
            return ""
        where = (agent.id, scope.session_id, scope.turn, options.limit)
        log.debug("Searching memories (agent=%s, session=%s, turn=%d, limit=%s)", *where)
        try:
            if await self._is_empty(scope):
                log.debug("No relevant memories found (agent=%s): this is the first turn", agent.id)
                return ""
            memory = await asyncio.shield(self._opening)
            # An answer that was presented as it is stands in the log a second time, under another id.
            repeated = await self._store.find_repeated_answers([*options.exclude])
            exclude = options.exclude.union(repeated)
            shown = [*map(read_seq, exclude)]
            copies = {make_message_id(origin, seq) for origin, last in scope.origins for seq in shown if seq <= last}
            options = replace(options, exclude=exclude | copies)
            result = await self._search(memory, question, scope, options)
            await self._explain(question, scope, result)
            if result.pins_left_out:
                self._notify(
                    f"agents are shown {PINNED_TOKENS} tokens of pinned memories, those that were pinned first; "
                    f"{result.pins_left_out} more are left out: see `massmem memory list --pinned`, and unpin some"
                )
            with suppress(MemoryUnavailable):  # it is for statistics
                if memory is not None:
                    await memory.note_use(result.memories)
            return result.text
        except MassmemError as e:
            self._notify(f"nothing could be recalled: {e.message}")
            return ""

    async def forget(self, session_id: str) -> None:
        """Delete the memories of a session.

        Raises MemoryUnavailable: the memory is not open in this process; the memories may still be there.
        """
        if self._opening is None:
            return
        memory = await asyncio.shield(self._opening)
        if memory is None:
            raise MemoryUnavailable("the memory is not open in this process")
        await memory.forget(Selection(session_id=session_id))

    async def wait_for_notices(self) -> None:
        """Wait a moment for the memory to open, so that `take_notices` says when it cannot be used."""
        if self._opening is not None and not self._opening.done():
            await asyncio.wait({self._opening}, timeout=_MOST_OPENING_SECONDS)

    async def catch_up(self, session_id: str) -> None:
        """Make what the session holds searchable, in some seconds at most, when the memory is open."""
        await self.wait_until_open()
        if self._recorder is not None:
            await self._recorder.catch_up(session_id, sys.maxsize, CATCH_UP_SECONDS)

    async def wait_until_open(self) -> "IndexedMemory | None":
        """Return the open memory; None when it is off, or could not be opened."""
        return None if self._opening is None else await asyncio.shield(self._opening)

    @property
    def trouble(self) -> str:
        """Why nothing is remembered now; "" when the memory works or is off."""
        if self._opening is None or not self._opening.done() or self._opening.result() is not None:
            return ""
        return "the memory could not be opened"

    def take_notices(self) -> list[str]:
        """Return what the user should know and has not been told yet."""
        for problem in self._recorder.take_problems() if self._recorder is not None else ():
            if not any(problem in notice for notice in self._past_notices):
                self._notify(f"not everything is remembered yet: {problem}")
        notices, self._notices = self._notices, []
        return notices

    async def close(self, seconds: float) -> None:
        """Record what is queued for `seconds` at most; the rest stays queued for the next run.

        Loading libraries is no work: the seconds count from its end.
        """
        if self._opening is None:
            return
        memory = await self._opening
        if self._recorder is not None:
            if self._extractor is not None and await self._has_facts_to_extract(self._recorder):
                await self._extractor.load()
            await self._recorder.stop(seconds)
        await self._stack.aclose()
        if memory is not None:
            await memory.close()

    async def _has_facts_to_extract(self, recorder: Recorder) -> bool:
        try:
            return recorder.is_busy or bool(await self._store.list_due_recordings("extract", 1))
        except StoreError:
            return False

    async def _is_empty(self, scope: Scope) -> bool:
        """Return whether nothing can be recalled: in a first turn no agent has acted yet, and there is no note.

        After a restart in that turn, agents recall what they did before it.
        """
        if scope.turn > 1 or scope.all_sessions or scope.group is not None:
            return False
        first = await self._store.read_messages(scope.session_id, limit=2)
        return not first or (len(first) == 1 and first[0].turn == scope.turn)

    async def _explain(self, question: str, scope: Scope, result: RecallResult) -> None:
        """Say in the log, and in a debug file, what was found and why it is shown or not."""
        outcome = f"Found {len(result.memories)} memories" if result.memories else "No relevant memories found"
        why = result.decision.reason
        log.debug("%s (agent=%s, %d tokens; %s)", outcome, scope.agent_id, result.tokens, why)
        if self._debug is None:
            return
        place = {"agent_id": scope.agent_id, "session_id": scope.session_id, "turn": scope.turn, "question": question}
        record = {"timestamp": now().isoformat(), **place, **explain_recall(result)}
        try:
            await asyncio.to_thread(write_debug, self._debug, 1, record, "recall_")
        except MassmemError as e:
            log.warning("no debug file of this recall: %s", e.message)

    async def _search(
        self, memory: PersistentMemory | None, question: str, scope: Scope, options: RecallOptions
    ) -> RecallResult:
        try:
            if memory is not None and self._recorder is not None:
                of_origins = [(origin, sys.maxsize) for origin, _ in scope.origins]
                await asyncio.gather(
                    *(
                        self._recorder.catch_up(name, turn, CATCH_UP_SECONDS)
                        for name, turn in ((scope.session_id, scope.turn), *of_origins)
                    )
                )
                return await memory.recall(question, scope, options)
        except MemoryUnavailable as e:
            self._notify(f"{e.message}; memories are found by words alone for now")
        return await recall_by_words(self._store, question, scope, options)

    async def _open(self) -> "IndexedMemory | None":
        try:
            memory = await open_memory(self._config, self._home, os.environ)
        except MassmemError as e:
            self._notify(f"{e.message}; what is said now is remembered later")
            self._reopen_time = time.monotonic() + _REOPEN_SECONDS
            return None
        if memory.note:
            self._notify(memory.note)
        with suppress(StoreError, MemoryUnavailable):  # the first recall tells
            if missing := await requeue_missing(self._store, memory):
                self._notify(f"{describe_missing(missing)}; until then they are recorded in the background")
        if not self.records:
            self._recorder = Recorder(self._store, memory, leaves_facts=True)
            return memory
        llm, known = self._config.persistent_memory.llm, memory.get_known_facts()
        opening = open_extractor(llm, self._home, known, pauses=self._pauses)
        try:
            extractor = await self._stack.enter_async_context(opening)
        except MassmemError as e:
            todo = f" ({e.hint})" if e.hint else ""
            self._notify(
                f"{e.message.rstrip('.')}{todo}; until then messages are remembered word for word, and no facts"
            )
            extractor = failing_extractor(e)
        if extractor is not None and self._debug is not None:
            extractor = with_debug_files(extractor, self._debug)
        self._extractor = extractor
        settings = {agent.id: agent.memory.recording for agent in self._agents}
        self._recorder = Recorder(self._store, memory, extractor, settings)
        self._recorder.start()
        return memory

    def _notify(self, text: str) -> None:
        if text not in self._past_notices:
            log.warning("%s", text.partition(": ")[0])  # the rest may quote a user
            self._past_notices.add(text)
            self._notices.append(text)


def explain_recall(result: RecallResult) -> dict[str, Any]:
    """Return what a recall shows and leaves out, with the relevance of each memory, and why."""

    def describe(memories: Iterable[Memory]) -> list[dict[str, Any]]:
        return [{"id": m.id, "relevance": round(m.relevance, 4), "text": m.text} for m in memories]

    decision = result.decision
    return {
        "score": decision.score,
        "threshold": decision.threshold,
        "reason": decision.reason,
        "shown": describe(result.memories),
        "silenced": describe(result.silenced),
    }


def remembers(config: MemoryConfig) -> bool:
    """Return whether what is written under this configuration becomes memories, for a team or for an agent."""
    return config.enabled and config.persistent_memory.enabled


async def recall_by_words(store: SessionStore, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
    """Recall from the log itself when the index cannot be used: best word matches first, until the budget is full.

    Raises StoreError: the log cannot be read.
    """
    sessions = None if scope.all_sessions else [scope.session_id, *scope.others]
    # Only the user of the command line searches all sessions: those of HTTP users are not among them.
    owner = COMMAND_LINE_USER if scope.all_sessions else EVERYBODY
    hits = await find_originals(store, await store.search_messages(query, sessions, _MAX_HITS, owner=owner))
    by_id = {entry.message.id: entry for entry in await store.get_messages_to_record(hits)}
    messages = mask_params(by_id[hit] for hit in hits if hit in by_id)
    origins = await _find_origins(store, messages)
    return await asyncio.to_thread(_choose_messages, query, scope, options, messages, origins, by_id)


def _choose_messages(
    query: str,
    scope: Scope,
    options: RecallOptions,
    messages: "Sequence[MessageRecord]",
    origins: Mapping[str, tuple[str, str]],
    entries: "Mapping[str, MessageToRecord]",
) -> RecallResult:
    """Return those of the messages, best first, that an agent is shown."""
    question = analyse(query)
    chosen: list[Memory] = []
    room, prompt = options.max_tokens, PromptTexts(options, scope.session_id)
    for message in messages:
        if is_tool_use(message) or is_ballot(message) or not is_remembered(message):
            continue
        memory = _to_memory(message, origins[message.id], entries[message.id].project)
        memory = replace(memory, relevance=share_words(question, memory.text))
        winner = entries[message.id].winner
        shared = winner == memory.agent_id
        if is_lost(message, winner):
            memory = replace(memory, note=NOT_CHOSEN)
        repeats = is_question(memory.text) and is_echo(memory.text, question.terms)
        allowed = may_see(scope, memory, won=shared) and not repeats
        cost = estimate_tokens(render([Quote(memory)], scope.agent_id, scope.names, plain=options.plain))
        if not allowed or prompt.have(memory) or cost > room:
            continue
        chosen.append(memory)
        room -= cost
        if len(chosen) == options.limit:
            break
    if not chosen:
        return RecallResult(lexical_only=True)
    score = max(memory.relevance for memory in chosen)
    decision = Decision.of(score, find_least_share(question), explain_asking(question, options))
    if decision.is_silent:
        return RecallResult(lexical_only=True, silenced=tuple(chosen), decision=decision)
    in_order = sorted(chosen, key=lambda m: (m.created_at, m.id))
    text = render([Quote(m) for m in in_order], scope.agent_id, scope.names, plain=options.plain)
    return RecallResult(text, tuple(chosen), options.max_tokens - room, lexical_only=True, decision=decision)


async def list_conversations(
    store: SessionStore, selection: Selection, owner: Owner | Everybody, limit: int
) -> Sequence[Memory]:
    """Return what was said in the selected sessions, newest first, when the index cannot be used.

    Facts, and what agents said to one another, are in the index alone.

    Raises StoreError: the log cannot be read.
    """
    memories: list[Memory] = []
    for listed in await store.find_sessions(SessionFilter(owner=owner, prefix=selection.session_id or "")):
        session = listed.session
        is_older = len(memories) == limit and session.updated_at < memories[-1].created_at
        if selection.kind == "fact" or is_older:
            break
        if selection.session_id in (None, session.session_id):
            conversation = await store.read_conversation(session.session_id, None, limit)
            memories += await to_memories(store, [message.id for message in conversation])
        memories = [m for m in memories if selection.agent_id in (None, m.agent_id)]
        memories = [m for m in memories if selection.turn in (None, m.turn) and not selection.is_pinned]
        memories = [m for m in memories if selection.origin is None or is_from(m.origin, m.rests_on, selection.origin)]
        memories = sorted(memories, key=lambda m: (m.created_at, m.id), reverse=True)[:limit]
    return memories


async def to_memories(store: SessionStore, message_ids: Sequence[str]) -> list[Memory]:
    """Return messages as memories, without values of params."""
    message_ids = await find_originals(store, await store.get_messages(message_ids))
    entries = await store.get_messages_to_record(message_ids)
    projects = {entry.message.id: entry.project for entry in entries}
    messages = [m for m in mask_params(entries) if is_remembered(m)]
    origins = await _find_origins(store, messages)
    return [_to_memory(message, origins[message.id], projects[message.id]) for message in messages]


async def _find_origins(store: SessionStore, messages: Sequence["MessageRecord"]) -> dict[str, tuple[str, str]]:
    """Return by id who said a message, and which tool's words it rests on, as far as its own turn tells it."""
    turns: dict[tuple[str, int], TurnWords] = {}
    origins: dict[str, tuple[str, str]] = {}
    for m in messages:
        origin = find_message_origin(m) or (AGENT if m.agent_id else USER)
        rests_on = origin if find_tool_name(origin) else ""
        if origin == AGENT:
            place = (m.session_id, m.turn)
            turns[place] = turns.get(place) or await read_tool_words(store, *place)
            words = turns[place].list_before(m.agent_id, m.round, m.seq)
            tool = await asyncio.to_thread(words.find_tool, write_out(m))
            rests_on = name_tool_origin(tool) or find_web_origin(m)
        origins[m.id] = origin, rests_on
    return origins


def _to_memory(m: "MessageRecord", origins: tuple[str, str], project: str) -> Memory:
    author, group = m.agent_id or USER, HERE if is_for_session_only(m) else ""
    place = m.session_id, m.turn, author
    origin, rests_on = origins
    text = write_out(m)
    memory = Memory(m.id, "episode", *place, text, (m.id,), m.created_at, origin=origin, rests_on=rests_on)
    return replace(memory, group=group, project=project)


async def complete_scope(store: SessionStore, scope: Scope) -> Scope:
    """Return the scope with what the store knows: whose memories its session shares, and which turns do not stand."""
    session = await store.get_session(scope.session_id) if scope.session_id else None
    return replace(scope, hidden=await store.list_hidden(scope), origins=() if session is None else session.origins)


async def find_originals(store: SessionStore, messages: Sequence["MessageRecord"]) -> list[str]:
    """Return the ids of messages; of those that a fork has copied, the ids that they have where they were said."""
    sessions = {name: await store.get_session(name) for name in {message.session_id for message in messages}}
    ids: dict[str, None] = {}
    for message in messages:
        session = sessions[message.session_id]
        shared = (origin for origin, last in (session.origins if session else ()) if message.seq <= last)
        ids[make_message_id(next(shared, message.session_id), message.seq)] = None
    return [*ids]
