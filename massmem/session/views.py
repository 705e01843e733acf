"""What each agent of a session is shown of it: read from the log for every turn, and made ready after one."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from massmem.config.models import AgentConfig
from massmem.errors import StoreError
from massmem.events import ContextCompressed, ContextMeasured, Event
from massmem.memory import tokens
from massmem.memory.conversation import View, Window, history_budget
from massmem.providers.base import ChatProvider
from massmem.records import MessageRecord
from massmem.session.heard import Heard, begin_a_log
from massmem.session.recall import SessionMemory, looks_further
from massmem.session.windows import Windows
from massmem.store.base import SessionStore
from massmem.turn.context import Context, Recall, Task
from massmem.turn.meter import Meter

log = logging.getLogger(__name__)

HISTORY_PAGE = 256
_SEARCHED = 50
_RELEVANT_SHARE = 4
"""One in so many tokens of the history may go to older messages that bear on the question."""


@dataclass(frozen=True, slots=True)
class Place:
    """A turn of a session, and what is asked in it.

    newest: number of the last event in the session's log, while nobody else may write; None: not known.
    """

    session_id: str
    turn: int
    question: str
    newest: int | None = None


class Views:
    """The contexts of a session's agents. What is learnt of their models (window, counting) is kept for the session."""

    def __init__(
        self, store: SessionStore, memory: SessionMemory, agents: Sequence[AgentConfig], windows: Windows
    ) -> None:
        self._store = store
        self._memory = memory
        self._agents = tuple(agents)
        self._windows = windows
        self._meters: dict[str, Meter] = {}
        self._contexts: dict[str, Context] = {}
        self._preparing: asyncio.Task[None] | None = None
        self._prepared: list[ContextCompressed] = []
        self._asked = ""
        self._heard: Heard | None = None

    @property
    def size(self) -> int:
        """Characters of what is known of the conversation."""
        return 0 if self._heard is None else self._heard.size

    def follow(self, session_id: str, turn: int, numbers: Sequence[int], events: Sequence[Event]) -> None:
        """This process has stored events of the session: they need not be read again. numbers: of them in the log."""
        if begin_a_log(numbers, events):
            remembered = any(agent.memory.recording.record_reasoning for agent in self._agents)
            self._heard = Heard.from_the_first([agent.id for agent in self._agents], reasoning=remembered)
        if self._heard is not None and not self._heard.follow(session_id, turn, numbers, events):
            self._heard = None

    async def contexts(self, place: Place, chat: Mapping[str, ChatProvider]) -> dict[str, Context]:
        """A context for each agent, by its id, for this turn. chat: the agents' models.

        Raises:
            StoreError: the log cannot be read.
        """
        await self.settle()
        self._asked = place.question
        self._contexts = await self._build(place, chat)
        return self._contexts

    def prepare(self, session_id: str, turn: int, answer: str, chat: Mapping[str, ChatProvider]) -> None:
        """The turn is complete: compress in the background what the next one would have to."""
        said = self._asked, answer
        if self._contexts and all(context.has_room_for(*said) for context in self._contexts.values()):
            return
        newest = None if self._heard is None else self._heard.seq
        self._preparing = asyncio.create_task(self._prepare(Place(session_id, turn + 1, "", newest), chat))

    async def compact(self, session_id: str, turn: int, chat: Mapping[str, ChatProvider]) -> list[ContextCompressed]:
        """Compress now what each agent would be shown after this turn, and store it; what became smaller.

        Raises:
            StoreError: the log cannot be read or written.
        """
        contexts = await self.contexts(Place(session_id, turn + 1, ""), chat)
        found = await asyncio.gather(*(context.compact(_USUAL) for context in contexts.values()))
        events = [event for event in found if event is not None]
        if events:
            self.follow(session_id, turn, await self._store.append(session_id, turn, events), events)
        return events

    async def sizes(self, session_id: str, turn: int, chat: Mapping[str, ChatProvider]) -> list[ContextMeasured]:
        """How full each agent's window would be after this turn, before its memories and the next question."""
        contexts = await self.contexts(Place(session_id, turn + 1, ""), chat)
        return [context.size(_USUAL) for context in contexts.values()]

    def take_prepared(self) -> list[ContextCompressed]:
        """What was compressed since the last turn; it is in the log already."""
        prepared, self._prepared = self._prepared, []
        return prepared

    async def close(self) -> None:
        """End what still runs: what was not prepared is done by the next turn."""
        if self._preparing is not None:
            self._preparing.cancel()
            with suppress(asyncio.CancelledError):
                await self._preparing

    async def settle(self) -> None:
        """Wait until what `prepare` began is done, or has failed."""
        preparing, self._preparing = self._preparing, None
        if preparing is not None:
            await asyncio.gather(preparing, return_exceptions=True)

    async def _build(self, place: Place, chat: Mapping[str, ChatProvider]) -> dict[str, Context]:
        meters = self._meters = self._meters or await self._windows.meters()
        views = await self._views(place, meters)
        return {
            agent.id: Context(agent, chat[agent.id], meters[agent.id], view, self._recall(agent, place))
            for agent, view in zip(self._agents, views, strict=True)
        }

    def _recall(self, agent: AgentConfig, place: Place) -> Recall | None:
        if not self._memory.enabled:
            return None

        async def recall(question: str, shown: frozenset[str], most: int) -> str:
            if self._heard is not None and not looks_further(agent) and self._heard.all_in(shown, place.turn):
                return ""
            return await self._memory.recall(agent, question, (place.session_id, place.turn), shown, most)

        return recall

    async def _views(self, place: Place, meters: Mapping[str, Meter]) -> list[View]:
        """Reads the log backwards, no further than the largest view needs, and only what is not known."""
        heard = self._known(place)
        if place.turn == 1:
            return [View() for _ in self._agents]
        cleared = await self._newest_summary(place, heard, "")
        start = 0 if cleared is None else _until(cleared)
        summaries = [await self._summary(place, heard, agent, start) for agent in self._agents]
        windows = [
            Window(history_budget(agent.memory, meters[agent.id].window), start if summary is None else _until(summary))
            for agent, summary in zip(self._agents, summaries, strict=True)
        ]
        await self._fill(windows, place, heard)
        older = [await self._relevant(place, window, start) for window in windows]
        texts = ["" if summary is None else summary.content for summary in summaries]
        return [window.view(text, more) for window, text, more in zip(windows, texts, older, strict=True)]

    def _known(self, place: Place) -> Heard:
        """What is known of the session, as it is now."""
        if self._heard is None or place.newest != self._heard.seq:
            self._heard = Heard(-1 if place.newest is None else place.newest)
        return self._heard

    async def _fill(self, windows: Sequence[Window], place: Place, heard: Heard) -> None:
        page, whole = heard.newest_first(), heard.whole
        while True:
            for record in page:
                if record.turn < place.turn and not _is_note(record):
                    for window in windows:
                        window.add(record)
            if whole or all(window.full for window in windows):
                return
            before = page[-1].seq if page else None
            page = await self._store.conversation(place.session_id, before, HISTORY_PAGE)
            whole = len(page) < HISTORY_PAGE
            heard.read(page, before, whole=whole)

    async def _newest_summary(self, place: Place, heard: Heard, agent_id: str) -> MessageRecord | None:
        """agent_id "": where the history was cleared."""
        if agent_id not in heard.summaries:
            heard.summaries[agent_id] = await self._store.latest_summary(place.session_id, agent_id)
        return heard.summaries[agent_id]

    async def _summary(self, place: Place, heard: Heard, agent: AgentConfig, start: int) -> MessageRecord | None:
        """start: where the history was cleared; a summary of what was before it does not count."""
        memory = agent.memory
        if not (memory.enabled and memory.conversation_memory.enabled):
            return None
        found = await self._newest_summary(place, heard, agent.id)
        return found if found is not None and _until(found) > start else None

    async def _relevant(self, place: Place, window: Window, start: int) -> list[MessageRecord]:
        """Older exchanges with words of the question, best first, in the room that is set aside for them.

        start: where the history was cleared.
        """
        most, oldest = window.budget.relevant, min((r.seq for r in window.records), default=0)
        if not most or not oldest:
            return []
        hits = await self._store.search_text(place.question, [place.session_id], _SEARCHED)
        fitting = [hit for hit in hits if start < hit.seq < oldest and not _is_note(hit)]
        turns = dict.fromkeys(hit.turn for hit in fitting if hit.kind == "user" or hit.final)
        chosen: list[MessageRecord] = []
        left = window.budget.tokens // _RELEVANT_SHARE
        for turn in turns:
            found = await self._store.turn_messages(place.session_id, turn)
            exchange = [r for r in found if (r.kind == "user" or r.final) and start < r.seq < oldest]
            cost = sum(tokens.estimate_tokens(r.content) for r in exchange)
            if cost <= left and len(chosen) + len(exchange) <= most:
                chosen += exchange
                left -= cost
        return chosen

    async def _prepare(self, place: Place, chat: Mapping[str, ChatProvider]) -> None:
        try:
            await self._windows.ask_again(self._meters)
            # The next question is not known yet; it is mostly about as long as this one.
            usual = Task("answer", "", lambda _: self._asked)
            for context in (await self._build(place, chat)).values():
                if event := await context.ahead(usual):
                    numbers = await self._store.append(place.session_id, place.turn - 1, [event])
                    self.follow(place.session_id, place.turn - 1, numbers, [event])
                    self._prepared.append(event)
        except StoreError as e:
            log.warning("nothing was compressed ahead of the next turn: %s", e.message)


_USUAL = Task("answer", "", lambda _: "")


def _until(summary: MessageRecord) -> int:
    return int(summary.metadata.get("until", 0))


def _is_note(message: MessageRecord) -> bool:
    """It is recalled where it bears on a question, and is no question itself."""
    return bool(message.metadata.get("note"))
