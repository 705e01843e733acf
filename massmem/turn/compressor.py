"""Compression of prompts: the oldest messages become a summary, and what the summary lost is recalled.

The log is never touched: a compressed prompt is another view of it. A summary is written by the agent's own model, or
made of sentences of the messages where the model cannot. A question larger than a model's window is read in parts, of
each of which the model takes notes.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from massmem.config.models import AgentConfig
from massmem.core import prompts
from massmem.core.calls import describe_call
from massmem.core.errors import ContextOverflow, DoesNotFit, LimitReached, ProviderError
from massmem.core.events import CompressionReason, ContextCompressed
from massmem.core.messages import ChatRequest, Reply, Usage, clean_text
from massmem.memory.compression import (
    Count,
    Utterance,
    abridge,
    select_sentences,
    split_text,
    split_utterances,
    to_utterances,
)
from massmem.memory.conversation import MAX_MESSAGES
from massmem.memory.persistent import RecallOptions
from massmem.memory.tokens import Buffer
from massmem.providers.base import ChatProvider, ask
from massmem.turn.journal import Journal
from massmem.turn.prompt_builder import (
    MIN_TOKENS,
    Prompt,
    PromptBudget,
    explain_too_long,
    has_older_work,
    remove_oldest,
    shrink,
)

log = logging.getLogger(__name__)

Recall = Callable[[str, RecallOptions], Awaitable[str]]
"""Returns the lines that an agent's memory has on a question, "" for none; it never fails."""

MIN_SUMMARY, MAX_SUMMARY = 48, 2_000
"""Tokens of a summary."""

_SUMMARY_SECONDS = 120.0
"""For the model to write a summary; code makes one of sentences where that is not enough."""

_SUMMARY_SHARE = 1 / 16
"""Part of the window that a summary may take."""

_SUMMARY_ROOM, _MAX_SUMMARY_PARTS = 3 / 4, 4
"""Part of the window that one request for a summary may fill; and how many requests one summary may take."""

_JOURNAL_SHARE = 1 / 12
"""Part of the window for the journal in a request for a summary."""

_RESULTS_SHARE, LISTS_SHARE = 6, 6
"""One in so many tokens of the window: results of one reply's calls have at least so much, lists of what is left to do
stay in the prompt up to so much."""

SMALL_WINDOW = 4_000
"""Tokens; a model with a smaller window has no room for more than a few memories."""

LEAST_WINDOW = 1_000
"""Tokens; a model with a smaller window has no room to write a summary."""

_PLAIN_MEMORIES, _PLAIN_TOKENS = 2, 120
"""Most memories of a small model, and their tokens: with more it answers them instead of the question."""

_MIN_WINDOW = 512
"""Tokens that every model reads."""

_UNSURE = 1.25
"""Our count of a prompt may be so many times too high, as long as the provider has not told its own."""

_WORDS_PER_TOKEN = 0.7


@dataclass(slots=True)
class TokenMeter:
    """How much a model reads and how it counts tokens, as far as a session has learnt it."""

    window: int
    """Tokens that it reads, prompt and reply together."""
    buffer: Buffer
    assumed: bool = False
    """Nobody has said how large the window is."""
    is_guess: bool = False
    """All that is known of the window is that its server refused a longer prompt."""
    few_weights: bool = False
    """The model is known to be small, whatever its window."""
    remember: Callable[[int], None] | None = None
    """Takes a window that the server named when it refused a prompt, for later processes."""
    ask_served: Callable[[], Awaitable[int | None]] | None = None
    """Asks the server for the window that it gives the model; None: there is no server."""
    short_counts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Of the last prompts of which the server counted much less than we did: our tokens, and the server's."""
    served_window: int | None = None
    """As the server said first."""

    @property
    def is_small(self) -> bool:
        """Whether the model can use a few memories in plain words at most."""
        return self.few_weights or self.window < SMALL_WINDOW

    def learn(self, estimated: int, overflow: ContextOverflow) -> None:
        """Take in that the server refused a prompt that we counted as `estimated` tokens."""
        size = overflow.prompt_tokens or max(estimated, self.buffer.tokens)
        # Without a number all that is known is that less must be sent.
        self.window = overflow.window or max(_MIN_WINDOW, min(self.window, int(0.9 * size)))
        self.assumed, self.is_guess = False, overflow.window is None
        if overflow.window and self.remember is not None:
            self.remember(overflow.window)
        if overflow.prompt_tokens or estimated <= self.window:
            self.buffer.calibrate(estimated, overflow.prompt_tokens or int(1.1 * self.window))


@dataclass(frozen=True, slots=True)
class Summary:
    text: str
    by: Literal["model", "extract"]
    usage: Usage
    truncated: bool = False
    """The model's text was cut at its limit of tokens."""


@dataclass(frozen=True, slots=True)
class Summariser:
    """Writes the summaries of one agent."""

    provider: ChatProvider | None
    """None: summaries are made without a model."""
    agent_id: str
    window: int
    """Tokens that the model reads."""
    count: Count

    @property
    def max_tokens(self) -> int:
        """Most tokens of a summary."""
        return max(MIN_SUMMARY, min(MAX_SUMMARY, int(self.window * _SUMMARY_SHARE)))

    async def summarise(
        self, texts: Sequence[Utterance], previous: str, question: str = "", journal: str = ""
    ) -> Summary:
        """Return one summary of `previous`, the summary so far, and of the texts since.

        The model reads the texts whole, in parts where they are too long for it. Never fails: where it writes none, the
        summary so far stays as it is, and sentences of the texts follow it.

        question: what the texts are work for, "" for a conversation. journal: of that work, kept beside the summary.
        """
        summary = Summary(previous, "extract", Usage())
        if self.provider is None or self.window < LEAST_WINDOW:
            text = await asyncio.to_thread(select_sentences, texts, self.max_tokens, self.count, previous, question)
            return replace(summary, text=text)
        words, most = int(self.max_tokens * _WORDS_PER_TOKEN), self.max_tokens
        beside = self.count("\n".join((previous, question, journal))) + most
        room = max(int(self.window * _SUMMARY_ROOM) - beside, most)
        parts = await asyncio.to_thread(self._split, texts, room, question)
        for number, part in enumerate(parts):
            removed = "\n".join(f"{one.speaker}: {one.text}" if one.speaker else one.text for one in part)
            messages = prompts.build_summary_request(summary.text, removed, words, question, journal)
            request = ChatRequest(messages, "summary", self.agent_id, max_tokens=most, deadline=_SUMMARY_SECONDS)
            try:
                reply = await ask(self.provider, request)
            except (ProviderError, LimitReached) as e:
                log.info("%s: the model wrote no summary, so it is made of sentences: %s", self.agent_id, e)
                reply = Reply()
            usage = summary.usage + reply.usage
            if not (text := clean_text(reply.text).strip()):
                rest = [one for part in parts[number:] for one in part]
                left = max(most - self.count(summary.text), MIN_SUMMARY)
                lines = await asyncio.to_thread(select_sentences, rest, left, self.count, "", question)
                return Summary("\n".join(filter(None, (summary.text, lines))), "extract", usage)
            text = abridge(text, 2 * most, self.count)
            summary = Summary(text, "model", usage, reply.is_truncated)
        return summary

    def _split(self, texts: Sequence[Utterance], room: int, question: str) -> list[list[Utterance]]:
        """Return the texts in a few parts that the model has room for, or their best sentences."""
        parts = split_utterances(texts, room, self.count)
        if len(parts) > _MAX_SUMMARY_PARTS:
            lines = select_sentences(texts, (_MAX_SUMMARY_PARTS - 1) * room, self.count, "", question)
            parts = split_utterances([Utterance("", lines)], room, self.count)
        return parts


@dataclass(frozen=True, slots=True)
class Compression:
    """A compressed prompt, and the event that says so."""

    prompt: Prompt
    event: ContextCompressed


class Compressor:
    """Compresses the prompts of one agent, and recalls its memories."""

    def __init__(
        self, config: AgentConfig, provider: ChatProvider, meter: TokenMeter, recall: Recall | None = None
    ) -> None:
        """recall None: the agent has no memory."""
        self.journal = Journal(config.id)
        """Of the agent's work in the turn."""
        self.config = config
        self.meter = meter
        self._settings = config.memory.compression
        self._provider = provider
        self._recall = recall

    def use_model(self, config: AgentConfig, provider: ChatProvider, meter: TokenMeter) -> None:
        """Go on with another model of the agent. config: with its backend."""
        self.config, self._provider, self.meter = config, provider, meter

    @property
    def budget(self) -> PromptBudget:
        return PromptBudget.of(self.config, self.meter.window)

    async def recall(self, prompt: Prompt, max_tokens: int | None = None, *, abstain: bool = True) -> Prompt:
        """Return the prompt with what the agent's memory has on the question.

        max_tokens: None: the usual room. abstain: recall nothing when nothing matters; not for what left the prompt.
        """
        most = self.budget.memories if max_tokens is None else max_tokens
        if self._recall is None or most < MIN_TOKENS:
            return replace(prompt, memories="")
        settings, plain = self.config.memory.retrieval, self.meter.is_small
        limit = settings.limit
        if plain:
            most, limit = min(most, _PLAIN_TOKENS), min(_PLAIN_MEMORIES, _PLAIN_MEMORIES if limit is None else limit)
        history = prompt.history if settings.exclude_recent else ()
        candidates = (candidate.content for candidate in prompt.candidates)
        texts = (prompt.question, *candidates, *prompt.replaced, *(m.message.content for m in history))
        ids = frozenset(message.id for message in history if message.id)
        options = RecallOptions(most, limit, exclude=ids, verbatim=texts, plain=plain, abstain=abstain)
        return replace(prompt, memories=await self._recall(prompt.question, options), plain=plain)

    def has_room_for(self, prompt: Prompt, question: str, answer: str) -> bool:
        """Return whether the next turn needs no compression, when it asks as much as this one did.

        prompt: of this turn. question, answer: what this turn adds to the history.
        """
        added = 2 * self.meter.buffer.cost_of_text(f"{question}\n{answer}")  # with the marks around the messages
        tokens = prompt.tokens(self.meter.buffer) + self.meter.buffer.cost_of_text(question)
        budget = self.budget
        return tokens + budget.memories + added < budget.threshold and len(prompt.history) < MAX_MESSAGES // 2

    async def compress_if_due(self, prompt: Prompt, round_: int) -> Compression | None:
        """Compress a prompt that is about to be sent, when it is longer than the threshold. Raises DoesNotFit."""
        buffer = self.meter.buffer
        tokens = await self._measure(prompt)
        # A local model counts in milliseconds; another one is asked nothing, and its first reply says how it counts.
        uncertain = self.config.backend.type == "local" and not (buffer.is_calibrated or prompt.tools or prompt.schema)
        if uncertain and (counted := await self._provider.count_prompt(prompt.request())):
            buffer.calibrate(tokens, counted)
            tokens = prompt.tokens(buffer)
        self.require_fit(prompt, tokens)  # no summary is paid for in vain
        return await self._compress_above_threshold(prompt, round_, "threshold", tokens)

    async def compress_ahead(self, prompt: Prompt) -> Compression | None:
        """Compress now what the next turn would have to. prompt: of a turn as long as the last one."""
        memories = self.budget.memories if self._recall is not None else 0
        tokens = await self._measure(prompt) + memories
        return await self._compress_above_threshold(prompt, 0, "background", tokens)

    async def compact(self, prompt: Prompt) -> Compression | None:
        """Compress whether it is due or not. Return None when nothing becomes smaller."""
        return await self._compress_if_smaller(prompt, 0, "asked") if prompt.history else None

    async def compress_overflow(
        self, prompt: Prompt, round_: int, error: ContextOverflow, reply: Reply, estimated: int
    ) -> Compression:
        """Compress a prompt that was refused, or whose reply did not fit. What was streamed goes into the summary.

        estimated: tokens of the prompt as we counted it.

        Raises DoesNotFit: it cannot be made smaller, or not small enough.
        """
        filled = max(estimated, self.meter.buffer.tokens)
        self.meter.learn(estimated, error)
        compression = await self._compress(prompt, round_, "overflow", _utterances_of(reply, error.partial))
        event = compression.event.model_copy(update={"before": max(filled, compression.event.before)})
        if event.after > self.budget.limit or event.after >= event.before:
            raise self.explain_too_long(compression.prompt, error) from error
        return Compression(compression.prompt, event)

    def require_fit(self, prompt: Prompt, tokens: int) -> None:
        """Refuse a prompt that the model surely cannot read however it is compressed, before it is paid for.

        tokens: of the prompt.

        Raises:
            DoesNotFit: its smallest form has more tokens than the window; the message names the part that is too long.
        """
        meter = self.meter
        window = meter.window if meter.buffer.is_calibrated else int(_UNSURE * meter.window)
        if tokens <= window or meter.assumed or meter.is_guess:
            return
        smallest = shrink(replace(prompt, memories="", summary="", history=()), self.budget, meter.buffer)
        if smallest.tokens(meter.buffer) > window:
            raise self.explain_too_long(smallest)
        prompt.tokens(meter.buffer)  # the buffer holds what is sent

    def explain_too_long(self, prompt: Prompt, refusal: ContextOverflow | None = None) -> DoesNotFit:
        reason = refusal.message if refusal is not None else ""
        window = None if self.meter.is_guess else self.meter.window
        return explain_too_long(prompt, self.config, window, self.meter.buffer, reason)

    async def _measure(self, prompt: Prompt) -> int:
        """Return the tokens of a prompt, exact where it comes near the end of the window."""
        prompt.tokens(self.meter.buffer)
        await self.meter.buffer.count_exactly(self.meter.window)
        return self.meter.buffer.prompt_tokens

    async def _compress_above_threshold(
        self, prompt: Prompt, round_: int, why: CompressionReason, tokens: int
    ) -> Compression | None:
        budget = self.budget
        due = tokens > budget.threshold or len(prompt.history) > MAX_MESSAGES
        if not due or not self._settings.proactive:
            return None
        if not prompt.history and not has_older_work(prompt) and tokens <= budget.limit:
            return None  # nothing to take out: the threshold is no limit
        return await self._compress_if_smaller(prompt, round_, why)

    async def _compress_if_smaller(self, prompt: Prompt, round_: int, why: CompressionReason) -> Compression | None:
        """The summary of a few short messages is longer than they are."""
        compression = await self._compress(prompt, round_, why)
        return compression if compression.event.after < compression.event.before else None

    async def write_journal(self, prompt: Prompt) -> Prompt:
        """Return the prompt with the entries of those calls that are not in it word for word."""
        text = await self._write_journal(prompt, prompt.verbatim_calls, self.budget.journal)
        return replace(prompt, journal=text)

    async def _write_journal(self, prompt: Prompt, verbatim: Collection[str], max_tokens: int) -> str:
        if not self.journal.has_other_calls(verbatim):
            return ""  # most turns have none: a thread would cost each of their steps something
        count = self.meter.buffer.cost_of_text
        return await asyncio.to_thread(self.journal.write, verbatim, prompt.question, max_tokens, count)

    async def find_room_for_results(self, prompt: Prompt) -> int:
        """Return how many tokens of results the next request has room for, when older work may be taken out."""
        buffer, budget = self.meter.buffer, self.budget
        least = budget.window // _RESULTS_SHARE
        tokens = await self._measure(prompt)
        if prompt.work and budget.threshold - tokens < budget.window // 2:
            journal = await self._write_journal(prompt, (), budget.journal)
            smallest = replace(prompt, work=(), summary="", journal=journal)
            summariser = Summariser(None, self.config.id, self.meter.window, buffer.cost_of_text)
            tokens = min(tokens, smallest.tokens(buffer) + summariser.max_tokens)
        return max(least, budget.threshold - tokens)

    async def _compress(
        self, prompt: Prompt, round_: int, why: CompressionReason, streamed: Sequence[Utterance] = ()
    ) -> Compression:
        """Put a summary in the place of the oldest messages, and shrink the rest where that is too little.

        streamed: what the agent has said of a reply that was broken off; it goes into the summary too.
        """
        await self.meter.buffer.count_exactly()
        buffer, budget, before = self.meter.buffer, self.budget, prompt.tokens(self.meter.buffer)
        writer = self._provider if self._settings.summary == "model" else None
        summariser = Summariser(writer, self.config.id, self.meter.window, buffer.cost_of_text)
        count, calls = buffer.cost_of_text, prompt.verbatim_calls
        pinned = self.journal.list_open_lists(calls, budget.window // LISTS_SHARE, count)
        removal = remove_oldest(prompt, budget, self._settings.target_ratio, summariser.max_tokens, buffer, pinned)
        summary, smaller = Summary(prompt.summary, "extract", Usage()), removal.prompt
        if removal.messages or streamed:
            texts = [*to_utterances(removal.messages), *streamed]
            gone = calls - smaller.verbatim_calls
            beside = [entry.called.call_id for entry in self.journal.entries if entry.called.call_id not in gone]
            journal = await self._write_journal(prompt, beside, int(budget.window * _JOURNAL_SHARE)) if gone else ""
            question = prompt.question if removal.work or streamed else ""
            summary = await summariser.summarise(texts, prompt.summary, question, journal)
        is_last = bool(removal.work) or prompt.summary_place == "work" or (why == "overflow" and not smaller.work)
        place = "work" if is_last else prompt.summary_place
        smaller = await self.write_journal(replace(smaller, summary=summary.text, summary_place=place))
        smaller = await self._refit_memories(smaller, prompt.memories, recall_again=bool(removal.history))
        shrunk = shrink(smaller, budget, buffer)
        if shrunk.verbatim_calls != smaller.verbatim_calls:
            shrunk = shrink(await self.write_journal(shrunk), budget, buffer)
        smaller = shrunk
        event = ContextCompressed(
            agent_id=self.config.id,
            round=round_,
            why=why,
            before=before,
            after=smaller.tokens(buffer),
            window=self.meter.window,
            kept=len(smaller.history) + len(smaller.work),
            removed=len(removal.history),
            removed_work=len(removal.work),
            work_until=self.journal.find_last_batch(round_, smaller.verbatim_calls),
            summary=summary.text,
            until=removal.history[-1].seq if removal.history else None,
            by=summary.by,
            usage=summary.usage,
            truncated=summary.truncated,
        )
        return Compression(smaller, event)

    async def _refit_memories(self, prompt: Prompt, memories: str, *, recall_again: bool) -> Prompt:
        """Recall what left the history, or keep the memories, in the room there is: answers are shortened for them."""
        bare = replace(prompt, memories="")
        buffer, budget = self.meter.buffer, self.budget
        room = min(budget.memories, budget.threshold - replace(bare, candidates=()).tokens(buffer))
        if recall_again and prompt.question and self._recall is not None:
            return await self.recall(bare, room, abstain=False)
        return replace(prompt, memories=memories) if memories and buffer.cost_of_text(memories) <= room else bare


@dataclass(frozen=True, slots=True)
class AgentContext:
    """Given to an agent when a turn begins."""

    prompt: Prompt
    """What it is sent in every step."""
    compressor: Compressor


def _utterances_of(reply: Reply, partial: str) -> list[Utterance]:
    """Return what a reply held when it was broken off."""
    calls = [f"I was about to call {describe_call(call.name, call.arguments)}." for call in reply.tool_calls]
    text = "\n".join(filter(None, (reply.text or partial, *calls)))
    utterances = [Utterance("You (thinking)", reply.reasoning), Utterance("You", text)]
    return [utterance for utterance in utterances if utterance.text.strip()]


MAX_PARTS = 40
"""Parts that a question may have; a longer one is refused."""

_FULL = 0.9
"""Part of the room for a prompt above which a question is read in parts."""

_PART_SHARE, _END_SHARE, _NOTES_SHARE = 1 / 3, 1 / 16, 1 / 4
"""Parts of the window: for one part of the question; for its beginning and for its end; for all notes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A question as its agent can read it."""

    text: str
    parts: int
    """In how many parts it was read; 1: it fits, and `text` is the question itself."""
    usage: Usage
    """Of the requests for notes."""


async def read_question(
    question: str, agent_id: str, provider: ChatProvider, meter: TokenMeter, budget: PromptBudget
) -> Reading:
    """Return the question, or its beginning, notes on all its parts, and its end, when it is too large.

    A part that the model takes no notes of is shortened by code.

    Raises LimitReached: the notes do not fit into what the turn may spend.
    """
    count = meter.buffer.cost_of_text
    tokens = await asyncio.to_thread(count, question, budget.limit / 2)
    parts = split_text(question, int(budget.window * _PART_SHARE), count)
    if meter.assumed or tokens <= _FULL * budget.limit or len(parts) > MAX_PARTS:
        return Reading(question, 1, Usage())
    size = len(question) * int(budget.window * _END_SHARE) // tokens
    beginning, end = question[:size], question[-size:]
    max_tokens = max(MIN_TOKENS, int(budget.window * _NOTES_SHARE) // len(parts))
    notes: list[str] = []
    usage = Usage()
    for number, part in enumerate(parts, start=1):
        text = ""
        if budget.window >= LEAST_WINDOW:
            messages = prompts.build_reading_request(
                part, f"{number} of {len(parts)}", (beginning, end), int(max_tokens * _WORDS_PER_TOKEN)
            )
            try:
                reply = await ask(provider, ChatRequest(messages, "summary", agent_id, max_tokens=max_tokens))
                text, usage = clean_text(reply.text).strip(), usage + reply.usage
            except ProviderError as e:
                log.info("%s: a part of the question is shortened by code: %s", agent_id, e)
        notes.append(abridge(text or part, max_tokens, count))
    return Reading(prompts.build_long_question(beginning, notes, end, tokens), len(parts), usage)
