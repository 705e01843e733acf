"""Earlier turns, as each agent of a session is shown them: read from the log for every turn, compressed ahead of it."""

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial

from massmem.config.models import AgentConfig
from massmem.core.errors import StoreError
from massmem.core.events import ContextCompressed, ContextMeasured, UsageBooked
from massmem.core.messages import AttachedFile
from massmem.core.records import MessageRecord, Owner
from massmem.memory import tokens
from massmem.memory.budget import Budget
from massmem.memory.conversation import HistoryMessage, HistoryView, HistoryWindow, history_budget
from massmem.memory.persistent import RecallOptions, Scope
from massmem.providers.base import ChatProvider
from massmem.session.owners import extend_scope
from massmem.session.recall import SessionMemory
from massmem.session.team import Windows
from massmem.store.lookup import find_last_hidden, load_attachments
from massmem.store.ports import SessionStore
from massmem.turn.compressor import AgentContext, Compressor, Recall, TokenMeter
from massmem.turn.prompt_builder import Prompt
from massmem.turn.request import measure_context

log = logging.getLogger(__name__)

PAGE = 256
"""Messages that are read from the log at once."""

_MAX_HITS = 50
"""Older messages that a search for the question returns."""

_RELEVANT_SHARE = 4
"""One in so many tokens of the history may go to older messages that bear on the question."""


class History:
    """The history of one session, as its agents are shown it. All methods raise StoreError.

    What is learnt of the models (windows, how they count tokens) is kept from turn to turn.
    """

    def __init__(
        self,
        store: SessionStore,
        memory: SessionMemory,
        agents: Sequence[AgentConfig],
        windows: Windows,
        *,
        owner: Owner,
        max_attached: int = 0,
    ) -> None:
        """max_attached: bytes of earlier pictures in a request."""
        self.without: frozenset[str] = frozenset()
        """Ids of memories that no agent recalls."""
        self.as_of: datetime | None = None
        """Agents recall nothing that was said later."""
        self.replaced: frozenset[int] = frozenset()
        """Turns that the next one withdraws when it starts: agents see and recall nothing of them."""
        self.budget = Budget()
        """Books what is sent for the turn that runs."""
        self._max_attached = max_attached
        self._store = store
        self._memory = memory
        self._agents = tuple(agents)
        self._windows = windows
        self.owner = owner
        self._meters: dict[str, TokenMeter] = {}
        self._contexts: dict[str, AgentContext] = {}
        self._question = ""
        self._preparation: asyncio.Task[None] | None = None
        self._prepared: list[ContextCompressed] = []

    async def build_contexts(
        self, session_id: str, turn: int, question: str, providers: Mapping[str, ChatProvider]
    ) -> dict[str, AgentContext]:
        """Return what each agent begins this turn with, by agent id. providers: the agents' models."""
        await self.wait_for_preparation()
        self._question = question
        self._contexts = await self._build(session_id, turn, question, providers)
        return self._contexts

    def prepare_next(self, session_id: str, turn: int, answer: str, providers: Mapping[str, ChatProvider]) -> None:
        """Compress in the background what the turn after this one would have to, if anything."""
        contexts = self._contexts.values()
        if not self._memory.records:
            return
        if contexts and all(c.compressor.has_room_for(c.prompt, self._question, answer) for c in contexts):
            return
        self._preparation = asyncio.create_task(self._prepare(session_id, turn + 1, providers, self.budget))

    async def compress_ahead(
        self, session_id: str, turn: int, question: str, providers: Mapping[str, ChatProvider]
    ) -> list[ContextCompressed]:
        """Do what `prepare_next` does, now, and return what was stored. turn: the last one. question: of it."""
        self._question = question
        self._meters = self._meters or await self._windows.create_meters()
        await self._prepare(session_id, turn + 1, providers, self.budget)
        return self.take_prepared()

    async def compact(
        self, session_id: str, turn: int, providers: Mapping[str, ChatProvider]
    ) -> list[ContextCompressed]:
        """Compress now what each agent would be shown after this turn, and store it. Return what became smaller."""
        contexts = await self.build_contexts(session_id, turn + 1, "", providers)
        results = await asyncio.gather(*(context.compressor.compact(context.prompt) for context in contexts.values()))
        events = [result.event for result in results if result is not None]
        if stored := [*events, *list_booked(self.budget)]:
            await self._store.append(session_id, turn, stored)
        return events

    async def measure(self, session_id: str, turn: int, providers: Mapping[str, ChatProvider]) -> list[ContextMeasured]:
        """Return how full each agent's window would be after this turn, before memories and the next question."""
        contexts = await self.build_contexts(session_id, turn + 1, "", providers)
        measured: list[ContextMeasured] = []
        for context in contexts.values():
            compressor = context.compressor
            await compressor.meter.buffer.count_exactly()
            context.prompt.tokens(compressor.meter.buffer)
            measured.append(measure_context(compressor.config, compressor.meter, context.prompt))
        return measured

    async def preview(
        self, session_id: str, turn: int, question: str, providers: Mapping[str, ChatProvider]
    ) -> dict[str, AgentContext]:
        """Return what each agent would begin the turn after this one with, with what it recalls for the question."""
        contexts = await self.build_contexts(session_id, turn + 1, question, providers)
        for context in contexts.values():
            await context.compressor.meter.buffer.count_exactly()
        return {
            agent_id: replace(
                context, prompt=await context.compressor.recall(context.prompt.next_step("answer", question))
            )
            for agent_id, context in contexts.items()
        }

    def take_prepared(self) -> list[ContextCompressed]:
        """Return what was compressed in the background since the last turn; it is in the log already."""
        prepared, self._prepared = self._prepared, []
        return prepared

    async def wait_for_preparation(self) -> None:
        """Wait until what `prepare_next` began is done, or has failed."""
        preparation, self._preparation = self._preparation, None
        if preparation is not None:
            await asyncio.gather(preparation, return_exceptions=True)

    async def close(self) -> None:
        """End what still runs: the next turn does what was not prepared."""
        if self._preparation is not None:
            self._preparation.cancel()
            with suppress(asyncio.CancelledError):
                await self._preparation

    async def _show_attachments(
        self, session_id: str, messages: Sequence[HistoryMessage]
    ) -> tuple[HistoryMessage, ...]:
        """Return the messages with what they came with, as far as it is not too much for a request: the newest."""
        room, chosen = self._max_attached, list[AttachedFile]()
        for file in (file for message in reversed(messages) for file in message.files):
            room -= file.size
            if room < 0:
                break
            chosen.append(file)
        shown = {attachment.file: attachment for attachment in await load_attachments(self._store, session_id, chosen)}
        return tuple(
            replace(m, message=replace(m.message, attachments=tuple(shown[f] for f in m.files if f in shown)))
            if m.files
            else m
            for m in messages
        )

    async def _build(
        self, session_id: str, turn: int, question: str, providers: Mapping[str, ChatProvider]
    ) -> dict[str, AgentContext]:
        self._meters = self._meters or await self._windows.create_meters()
        sighted = {agent_id for agent_id, provider in providers.items() if provider.abilities.vision is not False}
        loading = self._load_views(session_id, turn, question, sighted)
        views, recalls = await asyncio.gather(loading, self._build_recalls(session_id, turn))
        contexts: dict[str, AgentContext] = {}
        for agent, view, recall in zip(self._agents, views, recalls, strict=True):
            messages: Sequence[HistoryMessage] = view.messages
            if agent.id in sighted:
                messages = await self._show_attachments(session_id, messages)
            prompt = Prompt(agent.id, agent.system_message, summary=view.summary, history=tuple(messages))
            log.debug("Including %d previous messages in context (agent=%s)", len(messages), agent.id)
            compressor = Compressor(agent, providers[agent.id], self._meters[agent.id], recall)
            contexts[agent.id] = AgentContext(prompt, compressor)
        return contexts

    async def _build_recalls(self, session_id: str, turn: int) -> Sequence[Recall | None]:
        """Return how each agent recalls, None without a memory."""
        if not self._memory.enabled:
            return [None] * len(self._agents)
        session = await self._store.get_session(session_id)
        project, origins = ("", ()) if session is None else (session.project, session.origins)
        scope = Scope(session_id, "", turn, project=project, origins=origins)
        return await asyncio.gather(*(self._build_recall(agent, scope) for agent in self._agents))

    async def _build_recall(self, agent: AgentConfig, scope: Scope) -> Recall:
        scope = await extend_scope(self._store, replace(scope, agent_id=agent.id), agent.memory, self.owner)
        replaced = ((scope.session_id, number) for number in self.replaced)
        hidden = (await self._store.list_hidden(scope)).union(replaced)
        names = {agent.id: agent.display_name for agent in self._agents}
        scope = replace(scope, hidden=hidden, without=self.without, as_of=self.as_of, names=names)

        budget = self.budget

        async def recall(question: str, options: RecallOptions) -> str:
            return await self._memory.recall(agent, question, scope, options, partial(budget.book, "embed"))

        return recall

    async def _load_views(
        self, session_id: str, turn: int, question: str, sighted: Collection[str]
    ) -> list[HistoryView]:
        """Read the log backwards, no further than the largest view needs. sighted: ids of agents that see pictures."""
        start, newest = await asyncio.gather(
            find_last_hidden(self._store, session_id),
            asyncio.gather(*(self._load_summary(session_id, agent) for agent in self._agents)),
        )
        # A summary of what was before the history was cleared does not count.
        summaries = [None if summary is None or _last_covered(summary) <= start else summary for summary in newest]
        windows: list[HistoryWindow] = []
        for agent, summary in zip(self._agents, summaries, strict=True):
            budget = history_budget(agent.memory, self._meters[agent.id].window)
            after = start if summary is None else _last_covered(summary)
            windows.append(HistoryWindow(budget, after, sees=agent.id in sighted))
        await self._fill(windows, session_id, turn)
        views: list[HistoryView] = []
        for agent, window, summary in zip(self._agents, windows, summaries, strict=True):
            log.info(
                "Retrieved %d conversation messages for agent (~%d tokens) from session %s (agent=%s)",
                len(window.records),
                window.used,
                session_id,
                agent.id,
            )
            relevant = await self._find_relevant(session_id, question, window, start)
            views.append(window.view("" if summary is None else summary.content, relevant))
        return views

    async def _fill(self, windows: Sequence[HistoryWindow], session_id: str, turn: int) -> None:
        before: int | None = None
        while not all(window.full for window in windows):
            page = await self._store.read_conversation(session_id, before, PAGE)
            for record in page:
                if record.turn < turn and record.turn not in self.replaced and not _is_note(record):
                    for window in windows:
                        window.add(record)
            if len(page) < PAGE:
                return
            before = page[-1].seq

    async def _load_summary(self, session_id: str, agent: AgentConfig) -> MessageRecord | None:
        memory = agent.memory
        if not (memory.enabled and memory.conversation_memory.enabled):
            return None
        summary = await self._store.get_latest_summary(session_id, agent.id)
        return None if summary is None or summary.turn in self.replaced else summary

    async def _find_relevant(
        self, session_id: str, question: str, window: HistoryWindow, start: int
    ) -> list[MessageRecord]:
        """Return older exchanges with words of the question, best first, as far as there is room for them.

        start: where the history was cleared.
        """
        max_messages, oldest = window.budget.relevant, min((record.seq for record in window.records), default=0)
        if not max_messages or not oldest:
            return []

        def belongs(record: MessageRecord) -> bool:
            is_shown = start < record.seq < oldest and record.turn not in self.replaced
            return is_shown and (record.kind == "user" or record.final)

        hits = await self._store.search_messages(question, [session_id], _MAX_HITS, owner=self.owner)
        turns = dict.fromkeys(hit.turn for hit in hits if belongs(hit) and not _is_note(hit))
        chosen: list[MessageRecord] = []
        room = window.budget.tokens // _RELEVANT_SHARE
        for turn in turns:
            records = await self._store.read_turn_messages(session_id, turn)
            exchange = [record for record in records if belongs(record)]
            cost = sum(tokens.estimate_tokens(record.content) for record in exchange)
            if cost <= room and len(chosen) + len(exchange) <= max_messages:
                chosen += exchange
                room -= cost
        return chosen

    async def _prepare(self, session_id: str, turn: int, providers: Mapping[str, ChatProvider], budget: Budget) -> None:
        """budget: the one that books the requests of `providers`."""
        try:
            await self._windows.ask_again(self._meters)
            question = self._question  # the next one is mostly about as long
            for context in (await self._build(session_id, turn, "", providers)).values():
                prompt = context.prompt.with_message(lambda _: question)
                if compression := await context.compressor.compress_ahead(prompt):
                    await self._store.append(session_id, turn - 1, [compression.event])
                    self._prepared.append(compression.event)
        except StoreError as e:
            log.warning("nothing was compressed ahead of the next turn: %s", e.message)
        finally:
            if booked := list_booked(budget):
                with suppress(StoreError):
                    await self._store.append(session_id, turn - 1, booked)


def list_booked(budget: Budget) -> list[UsageBooked]:
    """Return what was booked after the end of a turn."""
    return [UsageBooked(purpose=purpose, usage=usage) for purpose, usage in budget.take().items()]


def _last_covered(summary: MessageRecord) -> int:
    return int(summary.metadata.get("until", 0))


def _is_note(message: MessageRecord) -> bool:
    """A note is recalled where it bears on a question; it is no question itself."""
    return bool(message.metadata.get("note"))
