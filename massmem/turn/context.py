"""What one agent is sent in one turn, and that it fits: system prompt, memories, summary, history, the step's prompt.

A request is counted before it is sent. What does not fit is compressed: the oldest messages become a summary, the
newest stay word for word, and what the summary lost is recalled. The log is never touched.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from massmem import prompts
from massmem.config.models import AgentConfig
from massmem.errors import ContextOverflow, DoesNotFit
from massmem.events import CompressionReason, ContextCompressed, ContextMeasured
from massmem.memory.compression import Said, condensed, cut, said, shortened
from massmem.memory.conversation import MOST_SHOWN, View
from massmem.messages import Candidate, ChatMessage, ChatRequest, Purpose, ToolSpec, Usage
from massmem.providers.base import ChatProvider
from massmem.replies import Reply
from massmem.turn import extras
from massmem.turn.meter import Meter
from massmem.turn.summary import Summariser, Summary

Recall = Callable[[str, frozenset[str], int], Awaitable[str]]
"""From the question, the ids of messages that are shown anyway and the most tokens to the lines that the agent's
memory has on it, "" for none. Never fails: it says so elsewhere."""

_AIM = 0.75
"""Of the threshold, after a compression: the next messages shall not bring another one."""
_NEARLY_FULL = 0.93
_MEMORIES_SHARE = 1 / 8
_RESULTS_SHARE = 4
"""One in so many tokens of the window."""

_FEWEST_WORDS = 30
_FEWEST_TOKENS = 24
"""Of a text that is cut to fit: with less it says nothing."""

_HINTS = {
    "the system prompt": "shorten the agent's system_message, or use a model with a larger window",
    "the question": "ask in smaller parts, or use a model with a larger window",
    "the answers to judge": "use fewer agents, or a model with a larger window",
    "one message of this step": "let the tool return less, or use a model with a larger window",
    "the tools": "offer fewer tools, or use a model with a larger window",
}


@dataclass(frozen=True, slots=True)
class Task:
    """What one step of a turn asks.

    prompt: the last user message, made of the candidates as they are shown. extra: what follows it. optional: the tools
    need not be used. closed: they must not be.
    """

    purpose: Purpose
    question: str
    prompt: Callable[[Sequence[Candidate]], str]
    candidates: tuple[Candidate, ...] = ()
    extra: tuple[ChatMessage, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    optional: bool = False
    closed: bool = False


class Context:
    """One agent's context in one turn; for one step at a time."""

    def __init__(
        self,
        config: AgentConfig,
        provider: ChatProvider,
        meter: Meter,
        view: View | None = None,
        recall: Recall | None = None,
    ) -> None:
        """view: what is shown of earlier turns. recall None: the agent has no memory."""
        view = view or View()
        self._config = config
        self._settings = config.memory.compression
        self._writer = provider if self._settings.summary == "model" else None
        # A local model counts in milliseconds; another is asked nothing, and its first reply says how it counts.
        self._counter = provider if config.backend.type == "local" else None
        self._meter = meter
        self._recall = recall
        self._shown, self._summary = view.shown, view.summary
        self._memories: str | None = None
        self._summary_last = False
        self._room_for_candidates: int | None = None
        self._room_for_extra: int | None = None
        self._folded: int = 0
        self._sent = 0

    @property
    def at_least(self) -> int:
        """Tokens of the last request in any vocabulary, see Buffer."""
        return self._meter.buffer.at_least

    def cost_of_text(self, text: str) -> int:
        """Tokens of a text alone."""
        return self._meter.buffer.cost_of_text(text)

    def has_room_for(self, question: str, answer: str) -> bool:
        """Nothing is to be compressed for a turn that asks as much as this one did, with both before it."""
        said = 2 * self.cost_of_text(f"{question}\n{answer}")  # with what is put around it
        return self._sent + self._most_memories + said < self._threshold and len(self._shown) < MOST_SHOWN // 2

    @property
    def most_results(self) -> int:
        """Tokens that the results of one reply's tool calls may take, together."""
        return self._meter.window // _RESULTS_SHARE

    async def begin(self, question: str, *, again: bool = False) -> None:
        """A step begins: recall what the memory has on the question.

        Done once and kept, because a prompt that stays the same is read from the provider's cache; `again` to bring
        back what was written since.
        """
        self._summary_last, self._room_for_candidates, self._room_for_extra = False, None, None
        self._folded = 0
        if self._memories is None or again:
            await self._fill(question, self._most_memories)

    def request(self, task: Task) -> ChatRequest:
        """The whole request of a step; what is the same in every step comes first."""
        messages, _ = self._messages(task)
        return ChatRequest(
            messages,
            task.purpose,
            self._config.id,
            tools=task.tools,
            schema=task.schema,
            optional=task.optional,
            closed=task.closed,
        )

    async def fit(self, task: Task, round_: int) -> ContextCompressed | None:
        """To be called before a request: compresses when it would pass the threshold."""
        tokens, buffer = self._measure(task), self._meter.buffer
        doubtful = not (buffer.calibrated or task.tools or task.schema)
        if self._counter and doubtful and (counted := await self._counter.count_prompt(self.request(task))):
            buffer.calibrate(tokens, counted)
            tokens = self._measure(task)
        return await self._when_due(task, round_, "threshold", tokens)

    async def ahead(self, task: Task) -> ContextCompressed | None:
        """Compress now what the next turn would have to. task: what that turn may ask, at its usual size."""
        memories = self._most_memories if self._recall is not None else 0
        return await self._when_due(task, 0, "background", self._measure(task) + memories)

    async def compact(self, task: Task) -> ContextCompressed | None:
        """As `ahead`, but whether it is due or not. None: there is nothing that would become smaller."""
        return await self._if_smaller(task, 0, "asked") if self._shown else None

    def size(self, task: Task) -> ContextMeasured:
        """How full the window would be, by our own count."""
        self._measure(task)
        return self.measured(0, Usage())

    async def overflowed(self, task: Task, round_: int, error: ContextOverflow, reply: Reply) -> ContextCompressed:
        """The prompt was refused, or its reply did not fit: make it smaller. What was streamed goes into the summary.

        Raises:
            DoesNotFit: it cannot be made smaller, or not small enough.
        """
        filled = max(self._sent, self._meter.buffer.tokens)
        self._meter.learn(self._sent, error)
        event = await self._compress(task, round_, "overflow", extras.work(reply, error.partial))
        event = event.model_copy(update={"before": max(filled, event.before)})
        if event.after > self._limit or event.after >= event.before:
            raise self.too_large(task) from error
        return event

    def too_large(self, task: Task) -> DoesNotFit:
        """Why the request cannot be sent: the largest part of it that must stay."""
        buffer = self._meter.buffer
        question, whole = buffer.cost_of_text(task.question), self._measure(task)
        parts = {
            "the system prompt": buffer.cost(ChatMessage("system", self._system(""))),
            "the question": question,
            "the answers to judge": buffer.cost_of_text(self._prompt(task)) - question,
            "one message of this step": max((buffer.cost(message) for message in task.extra), default=0),
            "the tools": whole - self._measure(replace(task, tools=(), schema=None)),
        }
        name = max(parts, key=lambda part: parts[part])
        model = self._config.backend.model or self._config.backend.type
        return DoesNotFit(
            f"{model} reads {self._meter.window:,} tokens, and the smallest prompt has {whole:,}: "
            f"{name} alone takes {parts[name]:,}",
            _HINTS[name],
            prompt_tokens=whole,
            window=self._meter.window,
        )

    def streamed(self, text: str, *, reasoning: bool = False) -> bool:
        """A piece of the reply has come. True when the window is nearly full, and the reply should come to its end."""
        tokens = self._meter.buffer.stream(text, "reasoning" if reasoning else "text")
        return self._settings.mid_stream and tokens >= _NEARLY_FULL * self._meter.window

    def can_wrap_up(self, task: Task) -> bool:
        """Without the history there would be room to end a reply in a second request; half of an action is none."""
        return task.purpose != "vote" and self._room_to_wrap_up(task) >= _FEWEST_TOKENS

    def _room_to_wrap_up(self, task: Task) -> int:
        return self._threshold - sum(map(self._meter.buffer.cost, self._bare(task))) - 2 * _FEWEST_WORDS

    def _bare(self, task: Task) -> tuple[ChatMessage, ...]:
        return (ChatMessage("system", self._system("")), ChatMessage("user", self._prompt(task)))

    def wrap_up(self, task: Task, round_: int, text: str) -> tuple[ChatRequest, ContextCompressed]:
        """A request to end the reply that began with `text`, without the history."""
        buffer, before = self._meter.buffer, self._meter.buffer.tokens
        begun = extras.begun(text, self._room_to_wrap_up(task), buffer.cost_of_text)
        words = max(_FEWEST_WORDS, (self._meter.window - self._threshold) // 3)
        messages = (*self._bare(task), ChatMessage("assistant", begun), prompts.wrap_up_prompt(words))
        request = ChatRequest(messages, task.purpose, self._config.id)
        self._sent = buffer.measure(request)
        taken = Summary("" if begun == text else begun, "extract", Usage())
        change = _Change(before, self._sent, removed=len(self._shown), kept=0)
        return request, self._event(round_, "threshold", change, taken)

    def measured(self, round_: int, usage: Usage) -> ContextMeasured:
        """How full the window is after a reply. What the provider counted corrects our own counting from then on."""
        buffer = self._meter.buffer
        entries, counted = buffer.entries, usage.reported and usage.prompt > 0
        tokens = usage.prompt + usage.completion if counted else buffer.tokens
        if counted:
            buffer.calibrate(self._sent, usage.prompt)
        return ContextMeasured(
            agent_id=self._config.id,
            round=round_,
            tokens=tokens,
            window=self._meter.window,
            source="api" if counted else "buffer",
            entries=entries,
            threshold=self._settings.trigger_threshold if self._settings.proactive else None,
            recalled=buffer.cost_of_text(self._memories or ""),
        )

    @property
    def _limit(self) -> int:
        """Most tokens of a prompt: the window without what the reply may take."""
        window = self._meter.window
        return window - min(self._config.backend.max_tokens or 0, window // 2)

    @property
    def _threshold(self) -> int:
        return min(int(self._settings.trigger_threshold * self._meter.window), self._limit)

    @property
    def _most_memories(self) -> int:
        return min(self._config.memory.retrieval.max_tokens, int(_MEMORIES_SHARE * self._meter.window))

    def _system(self, memories: str) -> str:
        return prompts.system_prompt(self._config.system_message, memories)

    def _prompt(self, task: Task) -> str:
        room = self._room_for_candidates
        if room is None or not task.candidates:
            return task.prompt(task.candidates)
        texts = condensed([c.content for c in task.candidates], room, self._meter.buffer.cost_of_text)
        return task.prompt([replace(c, content=text) for c, text in zip(task.candidates, texts, strict=True)])

    def _extra(self, task: Task) -> tuple[ChatMessage, ...]:
        room, extra = self._room_for_extra, task.extra[self._folded :]
        if room is None or not extra:
            return extra
        return extras.smaller(extra, room, self._meter.buffer.cost_of_text)

    def _messages(self, task: Task) -> tuple[tuple[ChatMessage, ...], list[int]]:
        """All messages in their order, and the indexes of those that neither the user nor the agent wrote."""
        system = ChatMessage("system", self._system(self._memories or ""))
        history = tuple(shown.message for shown in self._shown)
        last = ChatMessage("user", self._prompt(task))
        if self._summary_last and self._summary and (self._folded or not task.extra):
            so_far = prompts.so_far(self._summary)
            return (system, *history, last, so_far, *self._extra(task)), [len(history) + 2]
        summary = prompts.earlier(self._summary)
        return (system, *summary, *history, last, *self._extra(task)), [1] if summary else []

    def _measure(self, task: Task) -> int:
        messages, injected = self._messages(task)
        request = ChatRequest(messages, task.purpose, self._config.id, tools=task.tools, schema=task.schema)
        self._sent = self._meter.buffer.measure(request, injected)
        return self._sent

    async def _fill(self, question: str, tokens: int) -> None:
        shown = frozenset(shown.id for shown in self._shown if shown.id)
        self._memories = ""
        if self._recall is not None and tokens >= _FEWEST_TOKENS:
            self._memories = await self._recall(question, shown, tokens)

    async def _when_due(self, task: Task, round_: int, why: CompressionReason, tokens: int) -> ContextCompressed | None:
        due = tokens > self._threshold or len(self._shown) > MOST_SHOWN
        if not due or not self._settings.proactive:
            return None
        more = len(extras.units(task.extra[self._folded :])) > 1
        if not self._shown and not more and tokens <= self._limit:
            return None  # nothing to take out: the threshold is no limit
        return await self._if_smaller(task, round_, why)

    async def _if_smaller(self, task: Task, round_: int, why: CompressionReason) -> ContextCompressed | None:
        state = self._shown, self._summary, self._memories, self._folded
        event = await self._compress(task, round_, why, ())
        if event.after < event.before:
            return event
        # A few short messages: their summary is longer.
        self._shown, self._summary, self._memories, self._folded = state
        return None

    async def _compress(
        self, task: Task, round_: int, why: CompressionReason, work: Sequence[Said]
    ) -> ContextCompressed:
        """Put a summary in the place of the oldest messages and of `work`; if that is too little, see what else can go.

        It need not become smaller: the caller looks at `after` and `before`.
        """
        buffer, before = self._meter.buffer, self._measure(task)
        messages = [shown.message for shown in self._shown]
        costs = [buffer.cost(message) for message in messages]
        summariser = Summariser(self._writer, self._config.id, self._meter.window, buffer.cost_of_text)
        fixed = before - sum(costs) - buffer.cost_of_text(self._summary)
        room = int(_AIM * self._threshold) - fixed - summariser.budget
        first = cut(messages, costs, self._settings.target_ratio, room)
        removed, self._shown = self._shown[:first], self._shown[first:]
        work = [*self._fold(task, room - sum(map(buffer.cost, messages[first:]))), *work]
        summary = Summary(self._summary, "extract", Usage())
        if removed or work:
            summary = await summariser.summarise([*said(m.message for m in removed), *work], self._summary)
        self._summary, self._summary_last = summary.text, why == "overflow" or self._folded > 0
        await self._refill(task, removed=bool(removed))
        after = self._shrink(task)
        until = removed[-1].seq if removed else None
        change = _Change(before, after, len(removed), len(self._shown), until)
        return self._event(round_, why, change, summary)

    def _fold(self, task: Task, room: int) -> list[Said]:
        """Take the older tool calls and results of this step out when they do not fit, for the summary."""
        extra, cost = task.extra[self._folded :], self._meter.buffer.cost
        first = extras.first_kept(extra, cost, room + sum(map(cost, extra)))
        self._folded += first
        return said(extra[:first])

    async def _refill(self, task: Task, *, removed: bool) -> None:
        """Recall again what is no longer shown, in the room that there is now."""
        known, self._memories = self._memories, ""
        room = min(self._most_memories, self._threshold - self._measure(task))
        if removed and task.question and known is not None:
            await self._fill(task.question, room)
        elif known and self._meter.buffer.cost_of_text(known) <= room:
            self._memories = known

    def _shrink(self, task: Task) -> int:
        """As a last resort, cut the answers of others, then what tools returned; the question is never touched."""
        after = self._measure(task)
        cost = self._meter.buffer.cost_of_text
        if after > self._limit and self._memories:
            self._memories = ""
            after = self._measure(task)
        if after > self._limit and task.candidates:
            room = sum(cost(c.content) for c in task.candidates) - (after - self._threshold)
            self._room_for_candidates = max(_FEWEST_TOKENS * len(task.candidates), room)
            after = self._measure(task)
        if after > self._limit and (extra := task.extra[self._folded :]):
            room = sum(cost(m.content) for m in extra) - (after - self._threshold)
            self._room_for_extra = max(_FEWEST_TOKENS * len(extra), room)
            after = self._measure(task)
        if after > self._limit and self._summary:
            room = cost(self._summary) - (after - self._limit)
            self._summary = shortened(self._summary, max(0, room), cost)
            after = self._measure(task)
        return after

    def _event(self, round_: int, why: CompressionReason, change: "_Change", summary: Summary) -> ContextCompressed:
        return ContextCompressed(
            agent_id=self._config.id,
            round=round_,
            why=why,
            before=change.before,
            after=change.after,
            window=self._meter.window,
            kept=change.kept,
            removed=change.removed,
            summary=summary.text,
            until=change.until,
            by=summary.by,
            usage=summary.usage,
        )


@dataclass(frozen=True, slots=True)
class _Change:
    """The numbers of a ContextCompressed."""

    before: int
    after: int
    removed: int
    kept: int
    until: int | None = None
