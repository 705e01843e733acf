"""One request of an agent: made to fit, sent, streamed, ended or continued where its reply breaks off, and its cost."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from massmem.config.models import AgentConfig
from massmem.core import events as ev
from massmem.core.citations import Sources, clean_citations, join
from massmem.core.errors import ContextOverflow, LimitReached, ProviderError
from massmem.core.messages import (
    FORMS,
    ActivityChunk,
    Candidate,
    ChatRequest,
    Citation,
    NoticeChunk,
    Purpose,
    ReasoningChunk,
    Reply,
    RetryChunk,
    SearchChunk,
    TextChunk,
    Usage,
    clean_text,
)
from massmem.core.text import one_line
from massmem.memory.budget import MeteredProvider
from massmem.providers.pricing import Price
from massmem.providers.windows import find_cut, is_short_count
from massmem.turn.compressor import Compressor, TokenMeter
from massmem.turn.outbox import Outbox
from massmem.turn.prompt_builder import MIN_TOKENS, Prompt, continue_reply, keep_end, room_to_wrap_up, wrap_up

log = logging.getLogger(__name__)

_NEARLY_FULL = 0.93
"""Part of the window from which a reply is wrapped up."""

_MIN_WORDS = 30
"""Words that a reply may have at least to be wrapped up."""

_LONGEST_QUERY = 300
"""Characters of a search that are told."""

EndOfWork = ev.WorkCut | Literal["answer_now"]


@dataclass(slots=True)
class StepCost:
    """The cost of one step of an agent so far; also right when the step fails."""

    usage: Usage = field(default_factory=Usage)
    find_end: Callable[[Price, int, float], EndOfWork | None] = lambda _price, _tokens, _seconds: None
    """Returns why the agent has to answer now: a limit of the turn leaves room for one more request only (see
    `Budget.find_near_limit`), or the user wants the answer."""


@dataclass(frozen=True, slots=True)
class Task:
    """What an agent is given to do in one step."""

    question: str
    round: int
    cost: StepCost
    outbox: Outbox
    candidates: Sequence[Candidate] = ()
    """Answers that the agent is shown, whole."""
    criticism: Sequence[str] = ()
    """Of the others, a line each."""
    answer_schema: Mapping[str, Any] | None = None
    """The JSON Schema that the final answer has to fit."""


@dataclass(frozen=True, slots=True)
class Form:
    """What an agent fills in, in a step of a turn that is no vote."""

    purpose: Purpose
    write: Callable[[str], str]
    """Returns the step's message for the question."""
    read: Callable[[str], Any]
    """Returns what a reply says. Raises ActionError, which the agent is told once: the reply does not have the form."""
    schema: Mapping[str, Any] | None = None
    tools: bool = True
    """The agent may look with its tools first."""


@dataclass(slots=True)
class Step:
    """One step of an agent while it is under way."""

    round: int
    prompt: Prompt
    """As it was sent last: compression replaces it."""
    cost: StepCost
    outbox: Outbox
    reply: Reply = field(default_factory=Reply)
    """To the last request."""
    slowest: float = 0.0
    """Seconds of its slowest request."""
    value: Any = None
    """What a filled in form says."""
    work_cut: ev.WorkCut | None = None
    """Why the agent's work with tools has ended."""
    candidates: Sequence[Candidate] = ()
    earlier_citations: list[Sequence[Citation]] = field(default_factory=list[Sequence[Citation]])
    """Of each earlier reply of the step that called tools, oldest first."""

    @property
    def sources(self) -> Sources:
        """What the agent may name in a text that is not part of its reply as it stands."""
        return Sources(self.reply.citations, self.earlier_citations, self.candidates, is_written=True)


class RequestSender:
    """Sends the requests of one agent, for one turn."""

    def __init__(self, config: AgentConfig, provider: MeteredProvider, compressor: Compressor) -> None:
        self._id = config.id
        self._config = config
        self._provider = provider
        self._compressor = compressor
        self._meter = compressor.meter

    async def send(self, step: Step) -> None:
        """Send the step's prompt and fill in its reply; compress the prompt before, when it is too long.

        When it is refused nevertheless, it is compressed and sent once more.

        Raises:
            DoesNotFit: the prompt cannot be made small enough; nothing was sent.
            ProviderError: see there.
        """
        step.reply = Reply()
        # Before the prompt is counted: that needs the model, and what is not shown looks like a standstill.
        async with aclosing(self._provider.prepare()) as chunks:
            async for chunk in chunks:
                step.outbox.emit(report_chunk(self._config, step.round, chunk))
        compressor, round_, emit = self._compressor, step.round, step.outbox.emit
        overflow: ContextOverflow | None = None
        compression = await compressor.compress_if_due(step.prompt, round_)
        while True:
            if compression is not None:
                step.prompt, step.reply = compression.prompt, Reply()
                step.cost.usage += compression.event.usage
                emit(compression.event)
                if overflow is not None:
                    error = overflow.message
                    emit(ev.AgentRetrying(agent_id=self._id, round=round_, error=error, delay=0.0, attempt=2))
                # The request rests on the summary: a kill while it runs must not cost the summary once more.
                await step.outbox.wait_until_stored()
            estimated = step.prompt.tokens(self._meter.buffer)
            if overflow is None:
                compressor.require_fit(step.prompt, estimated)
            try:
                await self._receive(step)
                return
            except ContextOverflow as e:
                if overflow is not None:
                    raise compressor.explain_too_long(step.prompt, e) from e
                overflow = e
            compression = await compressor.compress_overflow(step.prompt, round_, overflow, step.reply, estimated)

    async def _receive(self, step: Step) -> None:
        """Send one request, and a second one when its reply nears the end of the window or was cut at its limit."""
        room = room_to_wrap_up(step.prompt, self._compressor.budget, self._meter.buffer) - 2 * _MIN_WORDS
        # Half of a ballot is none, nor half of a report.
        may_wrap_up = step.prompt.purpose not in ("vote", *FORMS) and room >= MIN_TOKENS
        await self._stream(step, step.prompt.request(), may_break_off=may_wrap_up)
        if step.reply.finish is not None:
            await self._continue(step)
            return
        first, step.reply = step.reply, Reply()
        request, compressed = self._wrap_up(step, first.text, room)
        step.outbox.emit(compressed)
        try:
            await self._stream(step, request)
        finally:
            rest = step.reply
            rest.text, rest.citations = join(first.text, first.citations, rest.text, rest.citations)
            rest.reasoning, rest.tool_calls = first.reasoning, first.tool_calls

    async def _continue(self, step: Step) -> None:
        """Ask once for the rest of a text that the provider cut at its limit of tokens.

        Whatever happens, the step keeps what it has; the reply stays truncated when its end is still missing.
        """
        first, prompt = step.reply, continue_reply(step.prompt, step.reply.text)
        is_text = step.prompt.purpose != "vote" and step.prompt.schema is None and not first.tool_calls
        if not (first.is_truncated and is_text and first.text.strip()):
            return
        if prompt.tokens(self._meter.buffer) > self._compressor.budget.limit:
            return
        step.reply = Reply()
        try:
            await self._stream(step, prompt.request())
        except (ProviderError, LimitReached) as e:
            log.info("%s: its cut reply could not be continued: %s", self._id, e)
        finally:
            rest = step.reply
            text, citations = join(first.text, first.citations, rest.text, rest.citations)
            step.reply = replace(
                first,
                text=text,
                citations=citations,
                finish=first.finish if rest.finish is None or rest.tool_calls or not rest.text.strip() else rest.finish,
                usage=rest.usage,
            )

    def _wrap_up(self, step: Step, text: str, room: int) -> tuple[ChatRequest, ev.ContextCompressed]:
        """Return a request to end the reply that began with `text`, without the history."""
        buffer, budget = self._meter.buffer, self._compressor.budget
        before = buffer.tokens
        beginning = keep_end(text, room, buffer.cost_of_text)
        words = max(_MIN_WORDS, (budget.window - budget.threshold) // 3)
        prompt = wrap_up(step.prompt, beginning, words)
        event = ev.ContextCompressed(
            agent_id=self._id,
            round=step.round,
            why="threshold",
            before=before,
            after=prompt.tokens(buffer),
            window=budget.window,
            kept=0,
            removed=len(step.prompt.history),
            removed_work=len(step.prompt.work),
            summary="" if beginning == text else beginning,
            by="extract",
            usage=Usage(),
        )
        return prompt.request(), event

    async def _stream(self, step: Step, request: ChatRequest, *, may_break_off: bool = False) -> None:
        """Stream one reply to the request that was measured last into the step, and add what it cost.

        may_break_off: leave the reply without a finish when the window is nearly full.
        """
        reply, emit, round_ = step.reply, step.outbox.emit, step.round
        # An answer is never JSON: with a schema, a model without tool calls decides on a tool before it answers.
        quiet = request.purpose in FORMS or (request.purpose == "answer" and request.schema is not None)
        may_call = request.purpose == "answer" and self._provider.abilities.writes_calls
        try:
            async with aclosing(self._provider.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.feed(chunk)
                    match chunk:
                        case TextChunk(text) if text:
                            if not (quiet or (may_call and reply.text.lstrip().startswith("{"))):
                                emit(self._delta(step.round, "text", text))
                            if await self._is_nearly_full(text) and may_break_off:
                                break
                        case ReasoningChunk(text) if text:
                            self._meter.buffer.stream(text, "reasoning")
                            emit(self._delta(step.round, "reasoning", text))
                        case RetryChunk(error, delay, attempt):
                            emit(
                                ev.AgentRetrying(
                                    agent_id=self._id, round=round_, error=error, delay=delay, attempt=attempt
                                )
                            )
                        case ActivityChunk() | SearchChunk() | NoticeChunk():
                            emit(report_chunk(self._config, step.round, chunk))
                        case _:
                            pass
        finally:
            step.cost.usage += self._provider.last
        usage = reply.usage if reply.finish else self._provider.last
        texts = clean_text(reply.text), clean_text(reply.reasoning)
        (reply.text, reply.reasoning), reply.citations = texts, clean_citations(reply.citations)
        is_short = await self._check_whole(usage)
        measured = measure_context(self._config, self._meter, step.prompt, step.round, None if is_short else usage)
        if usage.reported and usage.prompt and not is_short:
            self._meter.buffer.calibrate(self._meter.buffer.prompt_tokens, usage.prompt)
        emit(measured)

    async def _check_whole(self, usage: Usage) -> bool:
        """Return whether the count says nothing of the prompt: the server counts much less than it was sent.

        Raises PromptTruncated: it has cut it.
        """
        if self._config.backend.is_program:  # it counts its own prompts, and all its requests
            return True
        estimated = self._meter.buffer.at_least
        # Models in this process refuse a prompt that is too long, and never cut it.
        is_remote = not self._config.backend.is_in_process
        is_short = usage.reported and is_remote and is_short_count(estimated, usage)
        if is_short:
            await self._meter.buffer.count_exactly()
            estimated = self._meter.buffer.at_least
            is_short = is_short_count(estimated, usage)
        if is_short:
            meter, backend = self._meter, self._config.backend
            if not meter.short_counts and meter.ask_served is not None:
                meter.served_window = await meter.ask_served()
            meter.short_counts = [*meter.short_counts[-2:], (estimated, usage.prompt)]
            if cut := find_cut(backend, meter.served_window, meter.short_counts):
                raise cut
        return is_short

    async def _is_nearly_full(self, text: str) -> bool:
        self._meter.buffer.stream(text)
        await self._meter.buffer.count_exactly(self._meter.window)
        tokens = self._meter.buffer.tokens
        return self._config.memory.compression.mid_stream and tokens >= _NEARLY_FULL * self._meter.window

    def _delta(self, round_: int, channel: ev.Channel, text: str) -> ev.AgentDelta:
        return ev.AgentDelta(agent_id=self._id, round=round_, channel=channel, text=clean_text(text))


def report_chunk(
    config: AgentConfig, round_: int, chunk: ActivityChunk | SearchChunk | NoticeChunk
) -> ev.AgentBusy | ev.WebSearched | ev.Notice:
    match chunk:
        case ActivityChunk(activity, share, what):
            what = one_line(what, _LONGEST_QUERY)
            return ev.AgentBusy(agent_id=config.id, round=round_, activity=activity, share=share, what=what)
        case SearchChunk(query):
            return ev.WebSearched(agent_id=config.id, round=round_, query=one_line(query, _LONGEST_QUERY))
        case NoticeChunk(text):
            return ev.Notice(message=f"{config.name or config.id}: {text}")


def measure_context(
    config: AgentConfig, meter: TokenMeter, prompt: Prompt, round_: int = 0, usage: Usage | None = None
) -> ev.ContextMeasured:
    """Return how full the window is with the prompt that was counted last. usage: of its reply, if there was one."""
    compression, counted = config.memory.compression, usage is not None and usage.reported and usage.prompt > 0
    return ev.ContextMeasured(
        agent_id=config.id,
        round=round_,
        tokens=usage.prompt + usage.completion if usage is not None and counted else meter.buffer.tokens,
        window=meter.window,
        source="api" if counted else "buffer",
        entries=meter.buffer.entries,
        threshold=compression.trigger_threshold if compression.proactive else None,
        recalled=meter.buffer.cost_of_text(prompt.memories),
    )
