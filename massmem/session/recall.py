"""The searchable memory of a team at work: opens beside the first answers, records in the background, recalls."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.models import AgentConfig, CoordinationConfig, MemoryConfig
from massmem.core.errors import MassmemError, MemoryUnavailable, StoreError
from massmem.core.events import now
from massmem.core.ids import make_message_id, read_seq
from massmem.core.messages import Usage
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY
from massmem.memory import open_memory
from massmem.memory.access import may_see
from massmem.memory.budget import Budget
from massmem.memory.opening import index_root
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
from massmem.memory.quoting import Quote, render, write_date
from massmem.memory.retrieval.query import analyse, explain_asking, find_least_share, share_words
from massmem.memory.retrieval.repeats import PromptTexts, drop_copies, is_echo
from massmem.memory.tokens import estimate_tokens
from massmem.memory.words import is_question
from massmem.providers.retry import Pauses
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.extraction.extractor import Extractor
    from massmem.memory.indexed import IndexedMemory
    from massmem.recording.worker import Recorder

log = logging.getLogger(__name__)

CATCH_UP_SECONDS = 2.0
"""Most seconds that a question waits until the messages before it are searchable."""

_MOST_OPENING_SECONDS = 2.0
"""How long the end of a turn waits for the memory to open, so that the turn says when it cannot."""

_MOST_FIRST_SECONDS = 10.0
"""How long a question waits until the messages of earlier ones are searchable that had no index yet."""

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
        self.limits: CoordinationConfig | None = None
        """Of the turns that are recorded."""
        self.report_usage: Callable[[Usage], None] = lambda _: None
        """Is told what recording has used."""
        self._debug = debug
        self._opening: asyncio.Task[IndexedMemory | None] | None = None
        self._needed = asyncio.Event()
        """Something is to be found: until then a home without memories needs no index, embedder or vocabulary."""
        self._is_waiting = False
        self._recorder: Recorder | None = None
        self._reopen_time = 0.0
        """When to open again, by the monotonic clock, after that has failed."""
        self._pauses: Pauses | None = None
        self._stack = AsyncExitStack()
        self.fault = ""  # see Session.memory_fault
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

    async def open_if_due(self) -> None:
        """Open a memory that waits for its first use, once there is something to record: a service has the time."""
        if self._is_waiting and await self._store.read_recording_marks():
            self._needed.set()

    async def recall(
        self,
        agent: AgentConfig,
        question: str,
        scope: Scope,
        options: RecallOptions,
        book: Callable[[Usage], None] = lambda _: None,
    ) -> str:
        """Return the lines that this agent's memory has on the question, "" when nothing in it matters.

        scope: see massmem.session.owners.extend_scope. book: counts what embedding the question used.
        """
        if self._opening is None or not remembers(agent.memory):
            return ""
        where = (agent.id, scope.session_id, scope.turn, options.limit)
        log.debug("Searching memories (agent=%s, session=%s, turn=%d, limit=%s)", *where)
        try:
            if await self._is_empty(scope, options):
                log.debug("No relevant memories found (agent=%s): this is the first turn", agent.id)
                return ""
            memory = await self.wait_until_open()
            # An answer that was presented as it is stands in the log a second time, under another id.
            repeated = await self._store.find_repeated_answers([*options.exclude])
            exclude = options.exclude.union(repeated)
            shown = [*map(read_seq, exclude)]
            copies = {make_message_id(origin, seq) for origin, last in scope.origins for seq in shown if seq <= last}
            options = replace(options, exclude=exclude | copies)
            result = await self._search(memory, question, scope, options)
            if result.usage.requests:
                book(result.usage)
            await self._explain(question, scope, result)
            if result.pins_left_out:
                self._notify(
                    f"agents are shown {PINNED_TOKENS} tokens of pinned memories, those that were pinned first; "
                    f"{result.pins_left_out} more are left out: see `massmem memory list --pinned`, and unpin some"
                )
            with suppress(MemoryUnavailable):  # it is for statistics
                if memory is not None:
                    await memory.note_use(result.memories)
            time = (scope.as_of or now()).astimezone()
            today = f"\n[Now it is {time:%A}, {write_date(time)}, {time:%H:%M}]"
            return result.text + today if result.text and not options.plain else result.text
        except MassmemError as e:
            self._notify(f"nothing could be recalled: {e.message}")
            return ""

    async def forget(self, session_ids: Sequence[str]) -> int:
        """Delete the memories of sessions; return how many there were.

        Raises MemoryUnavailable: the memory is not open in this process; the memories may still be there.
        """
        if self._opening is None or not session_ids:
            return 0
        memory = await self.wait_until_open()
        if memory is None:
            raise MemoryUnavailable("the memory is not open in this process")
        return await memory.forget(Selection(session_ids=tuple(session_ids)))

    async def wait_for_notices(self) -> None:
        """Wait a moment for the memory to open, so that `take_notices` says when it cannot be used."""
        if self._opening is not None and not (self._opening.done() or self._is_waiting):
            await asyncio.wait({self._opening}, timeout=_MOST_OPENING_SECONDS)

    async def catch_up(self, session_id: str) -> None:
        """Make what the session holds searchable, in some seconds at most, when the memory is open."""
        await self.wait_until_open()
        if self._recorder is not None:
            await self._recorder.catch_up(session_id, sys.maxsize, CATCH_UP_SECONDS)

    async def wait_until_open(self) -> "IndexedMemory | None":
        """Return the open memory; None when it is off, or could not be opened."""
        self._needed.set()
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
        """Record what is queued for `seconds` at most, once the memory is open; leave the rest to the next run."""
        if self._opening is None:
            return
        if self._is_waiting:
            self._opening.cancel()
            self._opening = None  # the next run records what this one leaves in the queue
            return
        memory = await self._opening
        if self._recorder is not None:
            await self._recorder.stop(seconds)
        await self._stack.aclose()
        if memory is not None:
            await memory.close()

    async def _is_empty(self, scope: Scope, options: RecallOptions) -> bool:
        """Return whether nothing can be recalled: in a first turn no agent has acted yet, and there is no note.

        After a restart in that turn, agents recall what they did before it. Of other sessions, nothing was recorded.
        """
        is_wide = scope.all_sessions or scope.group is not None
        if scope.turn > 1 or (is_wide and not (options.abstain and await self._is_new(scope.session_id))):
            return False
        first = await self._store.read_messages(scope.session_id, limit=2)
        return not first or (first[0].turn == scope.turn and (len(first) == 1 or is_wide))

    async def _is_new(self, session_id: str = "") -> bool:
        """Return whether there is no index yet, nor anything to record but of this session."""
        settings = self._config.persistent_memory
        is_plain = settings.on_disk and settings.qdrant.mode != "server" and not settings.llm
        is_plain = is_plain and not settings.embedding.model_fields_set  # else what cannot work is to be said now
        if self._needed.is_set() or not is_plain or index_root(self._config, self._home).exists():
            return False
        return {*await self._store.read_recording_marks()} <= {session_id}

    async def _explain(self, question: str, scope: Scope, result: RecallResult) -> None:
        """Say in the log, and in a debug file, what was found and why it is shown or not."""
        outcome = f"Found {len(result.memories)} memories" if result.memories else "No relevant memories found"
        why = result.decision.reason
        winners = sum(memory.agent_id not in (USER, scope.agent_id) for memory in result.memories)
        log.debug("%s (agent=%s, %d of winners, %d tokens; %s)", outcome, scope.agent_id, winners, result.tokens, why)
        if self._debug is None:
            return
        place = {"agent_id": scope.agent_id, "session_id": scope.session_id, "turn": scope.turn, "question": question}
        record = {"timestamp": now().isoformat(), **place, **explain_recall(result)}
        from massmem.memory.extraction.extractor import write_debug

        try:
            await asyncio.to_thread(write_debug, self._debug, 1, record, "recall_")
        except MassmemError as e:
            log.warning("no debug file of this recall: %s", e.message)

    async def _search(
        self, memory: PersistentMemory | None, question: str, scope: Scope, options: RecallOptions
    ) -> RecallResult:
        usage = Usage()
        try:
            if memory is not None and self._recorder is not None:
                of_origins = [(origin, sys.maxsize) for origin, _ in scope.origins]
                await asyncio.gather(
                    *(
                        self._recorder.catch_up(name, turn, CATCH_UP_SECONDS)
                        for name, turn in ((scope.session_id, scope.turn), *of_origins)
                    )
                )
                result = await memory.recall(question, scope, options)
                from massmem.recording.standing import apply_queued_changes  # a recall of nothing does not need it

                applied = await apply_queued_changes(self._store, (*result.memories, *result.pinned))
                if not any(one.is_queued for one in applied):
                    return result  # else the log has what the user has changed
                usage = result.usage
        except MemoryUnavailable as e:
            self._notify(f"{e.message}; memories are found by words alone for now")
        return replace(await recall_by_words(self._store, question, scope, options), usage=usage)

    async def _open(self) -> "IndexedMemory | None":
        try:
            self._is_waiting = await self._is_new()
            if self._is_waiting:
                await self._needed.wait()
                self._is_waiting = False
            from massmem.recording.comparison import mend  # loaded only where there is something to record
            from massmem.recording.worker import Recorder

            is_first = not index_root(self._config, self._home).exists()
            memory = await open_memory(self._config, self._home, os.environ)
        except MassmemError as e:
            self.fault = f"{e.message}; what is said now is remembered later"
            self._notify(self.fault)
            self._reopen_time = time.monotonic() + _REOPEN_SECONDS
            return None
        memory.report_usage = self.report_usage
        if memory.note:
            self._notify(memory.note)
        with suppress(StoreError, MemoryUnavailable):  # the first recall tells
            for line in (await mend(self._store, memory)).describe():
                self._notify(line)
        if not self.records:
            self._recorder = Recorder(self._store, memory, leaves_facts=True)
            return memory
        by_agent = {agent.id: agent.memory.recording for agent in self._agents}
        self._recorder = Recorder(self._store, memory, await self._open_extractor(memory), by_agent)
        self._recorder.start()
        if is_first and self._config.persistent_memory.llm is None:  # what was left in the queue, see _is_new
            await asyncio.wait({asyncio.create_task(self._recorder.drain())}, timeout=_MOST_FIRST_SECONDS)
        return memory

    async def _open_extractor(self, memory: "IndexedMemory") -> "Extractor | None":
        """Return what extracts facts, and says why not where it cannot; None where no model is to."""
        from massmem.memory.extraction import extractor as facts

        settings, known = self._config.persistent_memory, memory.get_known_facts()
        opening = facts.open_extractor(
            settings, self._home, known, pauses=self._pauses, budget=Budget(self.limits, self.report_usage)
        )
        try:
            extractor = await self._stack.enter_async_context(opening)
        except MassmemError as e:
            todo = f" ({e.hint})" if e.hint else ""
            self.fault = (
                f"{e.message.rstrip('.')}{todo}; until then messages are remembered word for word, and no facts"
            )
            self._notify(self.fault)
            extractor = facts.failing_extractor(e)
        if self._debug is None:
            return extractor
        llm = settings.llm
        name = f"{llm.provider}/{llm.model or 'default'}" if llm else ""
        return facts.with_debug_files(extractor, self._debug, name, memory.list_ids)

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

    Each has the share of the question's words that matters, unless it is pinned.

    Raises StoreError: the log cannot be read.
    """
    from massmem.recording.standing import find_originals, read_standing

    sessions = None if scope.all_sessions else [scope.session_id, *scope.others]
    # Only the user of the command line searches all sessions: those of HTTP users are not among them.
    owner = COMMAND_LINE_USER if scope.all_sessions else EVERYBODY
    hits = await find_originals(store, await store.search_messages(query, sessions, _MAX_HITS, owner=owner))
    visible = [memory for memory, won in await read_standing(store, hits) if may_see(scope, memory, won=won)]
    best_first = sorted(visible, key=lambda memory: (not memory.is_pinned, hits.index(memory.id)))
    return await asyncio.to_thread(_choose, query, scope, options, best_first)


def _choose(query: str, scope: Scope, options: RecallOptions, memories: Iterable[Memory]) -> RecallResult:
    """Return those of the memories, best first, that an agent is shown."""
    question, prompt, room = analyse(query), PromptTexts(options, scope.session_id), options.max_tokens
    least, why = find_least_share(question), explain_asking(question, options)
    chosen: list[Memory] = []
    silenced: list[Memory] = []
    for memory in drop_copies(replace(m, relevance=share_words(question, m.text)) for m in memories):
        if prompt.have(memory) or (is_question(memory.text) and is_echo(memory.text, question.terms)):
            continue
        cost = estimate_tokens(render([Quote(memory)], scope.agent_id, scope.names, plain=options.plain))
        if memory.relevance < least and not (why or memory.is_pinned):
            silenced.append(memory)
        elif cost <= room and len(chosen) != options.limit:
            chosen.append(memory)
            room -= cost
    score = max((memory.relevance for memory in (*chosen, *silenced)), default=None)
    decision = Decision() if score is None else Decision.of(score, least, why)
    in_order = sorted(chosen, key=lambda m: (m.created_at, m.id))
    text = render(map(Quote, in_order), scope.agent_id, scope.names, plain=options.plain, here=scope.session_id)
    return RecallResult(
        text, tuple(chosen), options.max_tokens - room, True, silenced=tuple(silenced), decision=decision
    )
