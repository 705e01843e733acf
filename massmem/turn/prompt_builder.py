"""The prompt of a request as a value: its parts, its messages, and how it is made smaller. Pure.

A prompt is never changed: each function returns a new one. What stays the same from request to request comes first, so
that providers find it in their caches: the system prompt, the summary, the history, the message of the step, which
begins with the question; what the agent has done in the step comes last.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Literal

from massmem.config.models import AgentConfig
from massmem.core import prompts
from massmem.core.citations import strip_sources
from massmem.core.errors import DoesNotFit
from massmem.core.messages import Attachment, Candidate, ChatMessage, ChatRequest, Purpose, ToolChoice, ToolSpec
from massmem.memory.compression import abridge, condense, find_cut
from massmem.memory.conversation import HistoryMessage
from massmem.memory.tokens import Buffer

MIN_TOKENS = 24
"""Of a text that is cut to fit: with less it says nothing."""

_TARGET = 0.75
"""Part of the threshold that a compressed prompt aims at: the next messages should not bring another compression."""

_MEMORIES_SHARE = 1 / 8
"""Part of the window that recalled memories may take."""

_JOURNAL_SHARE = 1 / 4
"""Part of the window that the journal of the agent's work may take."""

_HINTS = {
    "the system prompt": "shorten the agent's system_message, or use a model with a larger window",
    "the question": "ask in smaller parts, or use a model with a larger window",
    "the answers to judge": "use fewer agents, or a model with a larger window",
    "one message of this step": "let the tool return less, or use a model with a larger window",
    "the tools": "offer fewer tools, or use a model with a larger window",
}


@dataclass(frozen=True, slots=True)
class PromptBudget:
    """How many tokens a prompt may have."""

    window: int
    """Tokens of prompt and reply together."""
    limit: int
    """Most tokens of a prompt: the window without the longest reply."""
    threshold: int
    """A longer prompt is compressed before it is sent."""
    memories: int
    """Most tokens of recalled memories."""
    journal: int
    """Most tokens of the journal."""

    @classmethod
    def of(cls, config: AgentConfig, window: int) -> "PromptBudget":
        limit = window - min(config.backend.max_tokens or 0, window // 2)
        threshold = min(int(config.memory.compression.trigger_threshold * window), limit)
        memories = min(config.memory.retrieval.max_tokens, int(_MEMORIES_SHARE * window))
        return cls(window, limit, threshold, memories, int(_JOURNAL_SHARE * window))


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt of one step of an agent."""

    agent_id: str
    system: str = ""
    """The agent's own system message."""
    memories: str = ""
    """Lines that its memory has on the question."""
    plain: bool = False
    """They are plain sentences, without a frame: the model is small."""
    summary: str = ""
    """Stands for the oldest part of the history, and for work that was taken out."""
    summary_place: Literal["history", "question", "work"] = "history"
    """Where it stands: before the history; behind the question, when it covers work of earlier steps; after the step's
    message, as one of the agent, when it covers work of this step."""
    journal: str = ""
    """The calls of the agent in this turn that are not in `work`, and their findings. It stands with the summary, or
    behind the question."""
    history: tuple[HistoryMessage, ...] = ()
    """The newest part of the earlier turns, word for word."""
    question: str = ""
    """The user's question. It is part of the step's message, and never shortened."""
    attachments: tuple[Attachment, ...] = ()
    """Shown with the question. They stand before the text, so that they are in the prefix that steps share."""
    purpose: Purpose = "answer"
    compose: Callable[[Sequence[Candidate]], str] = lambda _: ""
    """Returns the step's message for the candidates, which may have been shortened."""
    candidates: tuple[Candidate, ...] = ()
    """The answers to judge."""
    replaced: tuple[str, ...] = ()
    """Earlier answers of the agent in this turn: they are no memories."""
    work: tuple[ChatMessage, ...] = ()
    """Of the agent in this step: tool calls and results, a reply that could not be used."""
    note: str = ""
    """Stands below the last message of the work, in this request only."""
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    tool_choice: ToolChoice = "required"
    max_tokens: int | None = None
    """Of the reply; None: as many as configured."""

    def next_step(self, purpose: Purpose, question: str, candidates: Sequence[Candidate] = ()) -> "Prompt":
        """Return the prompt with which the agent begins another step."""
        place = self.summary_place
        if place == "work":
            place = "question" if self.work or self.journal else "history"
        return replace(
            self,
            question=question,
            purpose=purpose,
            candidates=tuple(candidates),
            work=(),
            note="",
            tools=(),
            schema=None,
            tool_choice="required",
            max_tokens=None,
            summary_place=place,
        )

    def add_work(self, messages: Sequence[ChatMessage]) -> "Prompt":
        """Return the prompt with more of what the agent has done in this step."""
        return replace(self, work=(*self.work, *messages))

    def with_message(self, compose: Callable[[Sequence[Candidate]], str], note: str = "") -> "Prompt":
        """Return the prompt with another message of the step, and another note below the work."""
        return replace(self, compose=compose, note=note)

    @property
    def verbatim_calls(self) -> frozenset[str]:
        """Ids of the calls whose results stand in the work."""
        return frozenset(call for message in self.work for call in message.calls)

    @property
    def step_message(self) -> str:
        last, place = self.summary_place == "work", self.summary_place
        return prompts.add_notes(
            self.compose(self.candidates),
            self.question,
            memories=self.memories,
            plain=self.plain,
            summary=self.summary if place == "question" else "",
            journal="" if last else self.journal,
        )

    def messages(self) -> tuple[ChatMessage, ...]:
        """Return all messages in the order in which they are sent."""
        system = ChatMessage("system", prompts.build_system_prompt(self.system))
        history = tuple(message.message for message in self.history)
        before = prompts.build_history_summary(self.summary) if self.summary_place == "history" else ()
        text = self.step_message
        head = len(self.question) if text.startswith(self.question) else 0
        step = ChatMessage("user", text, attachments=self.attachments, head=head)
        work = self.work
        if work and self.note:
            work = (*work[:-1], replace(work[-1], content=f"{work[-1].content}\n\n{self.note}"))
        if self.summary_place == "work" and (self.summary or self.journal):
            work = _prepend(prompts.build_progress_summary(self.summary, self.journal), work)
        return (system, *before, *history, step, *work)

    def request(self) -> ChatRequest:
        return ChatRequest(
            self.messages(),
            self.purpose,
            self.agent_id,
            tools=self.tools,
            schema=self.schema,
            tool_choice=self.tool_choice,
            max_tokens=self.max_tokens,
        )

    def tokens(self, buffer: Buffer) -> int:
        """Count the prompt; the buffer holds this prompt from then on."""
        before = (1,) if self.summary and self.summary_place == "history" else ()
        last = (len(self.history) + 2,) if self.summary_place == "work" and (self.summary or self.journal) else ()
        return buffer.measure(self.request(), (*before, *last))


@dataclass(frozen=True, slots=True)
class Removal:
    """A prompt without its oldest messages, and these messages."""

    prompt: Prompt
    history: tuple[HistoryMessage, ...]
    work: tuple[ChatMessage, ...]

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        return (*(message.message for message in self.history), *self.work)


def remove_oldest(
    prompt: Prompt,
    budget: PromptBudget,
    target_ratio: float,
    summary_tokens: int,
    buffer: Buffer,
    pinned: Collection[str] = (),
) -> Removal:
    """Take the oldest messages of the history and of the work out, to make room for a summary of them.

    target_ratio: about this part of the history, and of the work, stays. summary_tokens: most tokens of the summary.
    pinned: ids of calls that stay although they are older.
    """
    messages = [message.message for message in prompt.history]
    history_costs = [buffer.cost(message) for message in messages]
    work_cost = sum(map(buffer.cost, prompt.work))
    fixed = prompt.tokens(buffer) - sum(history_costs) - work_cost
    fixed -= sum(map(buffer.cost_of_text, (prompt.summary, prompt.journal)))
    room = int(_TARGET * budget.threshold) - fixed - summary_tokens
    first = find_cut(messages, history_costs, target_ratio, room - work_cost)
    room_for_work = room - sum(history_costs[first:]) - (budget.journal if prompt.verbatim_calls else 0)
    removed, verbatim = _split_work(prompt.work, buffer.cost, target_ratio, room_for_work, pinned)
    smaller = replace(prompt, history=prompt.history[first:], work=_show_targets(verbatim, removed))
    return Removal(smaller, prompt.history[:first], removed)


def has_older_work(prompt: Prompt) -> bool:
    """Return whether part of the work can be taken out: its last unit always stays."""
    return len(_split_units(prompt.work)) > 1


def shrink(prompt: Prompt, budget: PromptBudget, buffer: Buffer) -> Prompt:
    """Cut other parts as far as the limit demands: candidates, then memories, work, the journal and the summary.

    The question is never cut, so the prompt may still be too long.
    """
    for cut in (_shorten_candidates, _drop_memories, _shorten_work, _shorten_journal, _shorten_summary):
        tokens = prompt.tokens(buffer)
        if tokens <= budget.limit:
            break
        prompt = cut(prompt, tokens, budget, buffer)
    return prompt


def room_to_wrap_up(prompt: Prompt, budget: PromptBudget, buffer: Buffer) -> int:
    """Return how many tokens of a reply fit below the question when everything else is left out."""
    bare = replace(prompt, memories="", summary="", journal="", history=(), work=())
    return budget.threshold - sum(map(buffer.cost, bare.messages()))


def continue_reply(prompt: Prompt, reply: str) -> Prompt:
    """Return the prompt of a second request, in which the agent goes on with a reply that was cut off.

    reply: how it begins.
    """
    work = (*prompt.work, ChatMessage("assistant", reply), prompts.build_continue_message())
    # Messages that call tools need the tools, also when none may be called.
    return replace(prompt, work=work, note="", tool_choice="none" if prompt.tools else "required")


def wrap_up(prompt: Prompt, reply: str, words: int) -> Prompt:
    """Return the prompt of a second request, in which the agent ends its reply, without the history.

    reply: how it begins. words: most of the rest.
    """
    work = (ChatMessage("assistant", reply), prompts.build_wrap_up_message(words))
    bare = prompt.next_step(prompt.purpose, prompt.question, prompt.candidates)
    return replace(bare, memories="", summary="", journal="", history=(), work=work)


def explain_too_long(
    prompt: Prompt, config: AgentConfig, window: int | None, buffer: Buffer, refusal: str = ""
) -> DoesNotFit:
    """Return the error for a prompt that cannot be made small enough; it names the longest part that must stay.

    window: tokens that the model reads, None where its server did not say it. refusal: the server's words, where it
    has refused the prompt.
    """
    system = prompts.build_system_prompt(prompt.system)
    question, whole = buffer.cost_of_text(prompt.question), prompt.tokens(buffer)
    parts = {
        "the system prompt": buffer.cost(ChatMessage("system", system)),
        "the question": question + sum(attachment.tokens for attachment in prompt.attachments),
        "the answers to judge": buffer.cost_of_text(prompt.step_message) - question,
        "one message of this step": max(map(buffer.cost, prompt.work), default=0),
        "the tools": whole - replace(prompt, tools=(), schema=None).tokens(buffer),
    }
    name = max(parts, key=lambda part: parts[part])
    reason = f"; {refusal}" if refusal else ""
    size = "an unknown number of" if window is None else f"{window:,}"
    return DoesNotFit(
        f"{config.backend.model or config.backend.type} reads {size} tokens, and the smallest prompt has "
        f"{whole:,}: {name} alone takes {parts[name]:,} tokens{reason}",
        _HINTS[name],
        prompt_tokens=whole,
        window=window,
    )


def keep_end(text: str, room: int, cost: Callable[[str], int]) -> str:
    """Return the text in `room` tokens: its end word for word, and the best sentences of the rest."""
    size = cost(text)
    if size <= room:
        return text
    start = len(text) - len(text) * room // (2 * size)
    return f"{abridge(text[:start], room // 2, cost)}\n{text[start:]}"


def _prepend(text: str, work: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Return the work with a text of the agent before it: in its first message, since templates want roles in turn."""
    if work and work[0].role == "assistant":
        return (replace(work[0], content=f"{text}\n\n{work[0].content}".rstrip()), *work[1:])
    return (ChatMessage("assistant", text), *work)


def _split_units(work: Sequence[ChatMessage]) -> list[tuple[ChatMessage, ...]]:
    """Return the units of work: a message of the agent, with the results of its calls."""
    starts = [i for i, message in enumerate(work) if i == 0 or message.role == "assistant"]
    return [tuple(work[start:end]) for start, end in pairwise([*starts, len(work)])]


def _split_work(
    work: Sequence[ChatMessage],
    cost: Callable[[ChatMessage], int],
    ratio: float,
    room: int,
    pinned: Collection[str],
) -> tuple[tuple[ChatMessage, ...], tuple[ChatMessage, ...]]:
    """Return the messages that go and those that stay: the newest units, and those of pinned calls alone.

    About `ratio` of the units stays, at most `room` tokens of them, and always the last one.
    """
    units = _split_units(work)
    first, used, most = len(units), 0, math.ceil(ratio * len(units))
    for number in reversed(range(len(units))):
        used += sum(map(cost, units[number]))
        if first < len(units) and (used > room or len(units) - first >= most):
            break
        first = number
    older = [(unit, {call for message in unit for call in message.calls}) for unit in units[:first]]
    removed = [message for unit, calls in older if not calls or calls - set(pinned) for message in unit]
    stay = [message for unit, calls in older if calls and not calls - set(pinned) for message in unit]
    return tuple(removed), (*stay, *(message for unit in units[first:] for message in unit))


def _show_targets(verbatim: Sequence[ChatMessage], removed: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """Show each result whole that points to an equal one which is no longer sent."""
    results = {call: message.content for message in removed for call in message.calls}
    return tuple(
        replace(message, content=results[message.same_as], same_as="") if message.same_as in results else message
        for message in verbatim
    )


def _drop_memories(prompt: Prompt, tokens: int, budget: PromptBudget, buffer: Buffer) -> Prompt:
    return replace(prompt, memories="")


def _shorten_candidates(prompt: Prompt, tokens: int, budget: PromptBudget, buffer: Buffer) -> Prompt:
    """Titles and quotations of sources go first. Short answers stay as they are, long ones shrink to the same size."""
    if any(candidate.citations for candidate in prompt.candidates):
        bare = [replace(c, citations=strip_sources(c.citations)) for c in prompt.candidates]
        prompt = replace(prompt, candidates=tuple(bare))
        if (tokens := prompt.tokens(buffer)) <= budget.limit:
            return prompt
    texts = [candidate.content for candidate in prompt.candidates]
    room = sum(map(buffer.cost_of_text, texts)) - (tokens - budget.threshold)
    shorter = condense(texts, max(MIN_TOKENS * len(texts), room), buffer.cost_of_text)
    pairs = zip(prompt.candidates, shorter, strict=True)
    return replace(prompt, candidates=tuple(replace(candidate, content=text) for candidate, text in pairs))


def _shorten_work(prompt: Prompt, tokens: int, budget: PromptBudget, buffer: Buffer) -> Prompt:
    """Results of tools stay within their frames, and calls as they are. What is shortened is not word for word."""
    cost = buffer.cost_of_text
    texts = [message.content for message in prompt.work]
    room = sum(map(cost, texts)) - (tokens - budget.threshold)
    shorter = condense(texts, max(MIN_TOKENS * len(texts), room), cost)
    work = list(prompt.work)
    for i, (message, text) in enumerate(zip(prompt.work, shorter, strict=True)):
        if text != message.content:
            shrink_to = partial(abridge, budget=cost(text), count=cost)
            work[i] = replace(message, content=prompts.shrink_tool_result(message.content, shrink_to), calls=())
    return replace(prompt, work=tuple(work))


def _shorten_journal(prompt: Prompt, tokens: int, budget: PromptBudget, buffer: Buffer) -> Prompt:
    """The oldest lines go first."""
    room = max(0, buffer.cost_of_text(prompt.journal) - (tokens - budget.limit))
    lines = prompt.journal.splitlines()
    while lines and buffer.cost_of_text("\n".join(lines)) > room:
        del lines[: max(1, len(lines) // 8)]
    return replace(prompt, journal="\n".join(lines))


def _shorten_summary(prompt: Prompt, tokens: int, budget: PromptBudget, buffer: Buffer) -> Prompt:
    room = buffer.cost_of_text(prompt.summary) - (tokens - budget.limit)
    summary = abridge(prompt.summary, max(0, room), buffer.cost_of_text)
    return replace(prompt, summary=summary)
