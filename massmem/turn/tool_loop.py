"""Tool use in one step of an agent: the calls in its replies, running them, and what its model is told.

Calls and results are events. A call is in the log before its tool runs, and its result before the model is told of it.
So a step that was cut off goes on from there: no tool is called again whose result is in the log, nor one of which
nobody knows how its call ended.

The user has to allow calls with an argument whose words are from results of tools alone. The question to the user is
that of a param, whose name stands for this very call; the answer holds until the turn ends.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, cast

from massmem.core import prompts
from massmem.core.calls import describe_call, find_tool_name
from massmem.core.events import ContextCompressed, Event, Notice, ToolCalled, ToolReturned
from massmem.core.messages import ChatMessage, Reply, ToolCall, ToolResult, ToolSpec, clean_text
from massmem.core.params import CONFIRMATION, Value
from massmem.core.text import one_line
from massmem.memory.compression import list_stems, select_lines
from massmem.memory.origins import ToolText, ToolWords, label_tool
from massmem.memory.quoting import list_tool_lines
from massmem.memory.tokens import PER_MESSAGE
from massmem.tools.actions import AskUser, format_call, parse_object, read_call, write_calls
from massmem.tools.toolbox import FILE_TOOLS, Tool, Toolbox
from massmem.turn.compressor import LISTS_SHARE, TokenMeter
from massmem.turn.journal import CUT_OFF, READ_EARLIER, Journal, count_part_characters, format_size
from massmem.turn.prompt_builder import Prompt
from massmem.turn.request import EndOfWork, Step

MAX_CALLS = 16
"""Calls of one reply that are run."""

_MAX_UNUSABLE, _MAX_IDLE = 2, 8
"""Replies in a row after which the work stands still: without a usable call; without a new call and new text."""

_MAX_ARGUMENTS = 200_000
"""Characters of arguments that the log keeps."""

_MAX_NAME = 200
"""Characters of a tool's name that the log keeps."""

_RESULT_SHARE, _PART_SHARE = 4, 8
"""One in so many tokens of the window may go to one result; to a part of it that is read again."""

_GAP_LINES, _GAP_TOKENS = 3, 200
"""Lines of the left out part of a result that carry words of the question, and the tokens that are kept for them."""

_HEAD_SHARE = 3 / 4
"""Part of an excerpt that its beginning gets: lists and files mostly say at the beginning what they are."""

_CHARACTERS_PER_TOKEN = 8
"""Most characters of a token. A text that must have too many tokens is cut before it is counted."""

_MIN_TARGET = 60
"""Tokens of a result to which an equal one points; a shorter one is shown again."""

_MAX_REPEATS = 3
"""Equal calls with equal results in a row, from which they are named."""


@dataclass(frozen=True, slots=True)
class AgentTools:
    """The tools of an agent in a turn."""

    toolbox: Toolbox = field(default_factory=Toolbox)
    name: str = ""
    """Of the agent."""
    events: Sequence[Event] = ()
    """The turn's events so far, as the log has them."""
    max_rounds: int | None = None
    """Most replies with calls in one step; None: as many as it takes."""
    recorded: bool = False
    """Results are remembered as messages of their own."""
    votes: bool = False
    """The agent is one of several, who vote."""
    confirmations: "Confirmations | None" = None
    """Which calls the user allows; None: any may run."""


@dataclass(slots=True)
class _Batch:
    """The calls of one reply, and their results by the ids of the calls."""

    calls: list[ToolCalled]
    results: dict[str, ToolReturned] = field(default_factory=dict[str, ToolReturned])


class ToolLoop:
    """The tool calls of one step."""

    def __init__(self, tools: AgentTools, step: Step, journal: Journal, meter: TokenMeter, *, native: bool) -> None:
        """journal: of the agent's turn, with the events of `tools`.

        What the step has cost before it was cut off is added to its cost.
        """
        self.cut: EndOfWork | None = None
        """Why the work has ended."""
        self._id = step.prompt.agent_id
        self._tools = tools
        self._step = step
        self._emit = step.outbox.emit
        self._journal = journal
        self.native = native
        """The model takes tool calls; else calls and results are shown to it, and written by it, as text."""
        self._meter = meter
        self._count = meter.buffer.cost_of_text
        self._batches = _read_batches(self._id, step.round, tools.events)
        self._unshown = self._find_unshown()
        self._unusable = 0
        self._closed = tools.max_rounds == 0
        self._cut_results: set[str] = set()
        self._not_run: list[str] = []
        if self._batches:
            step.cost.usage += self._batches[-1].calls[0].usage
        step.earlier_citations = [batch.calls[0].citations for batch in self._batches]

    def use_model(self, meter: TokenMeter, *, native: bool) -> None:
        """Go on with another model."""
        self._meter, self._count, self.native = meter, meter.buffer.cost_of_text, native

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called next; empty when the agent has to act now."""
        return () if self._closed else self.all_specs

    @property
    def all_specs(self) -> tuple[ToolSpec, ...]:
        """The tools of the step, also when it may call none: earlier messages call them."""
        specs = self._tools.toolbox.specs
        has_gaps = bool(self._cut_results) or self._journal.has_other_calls(self._step.prompt.verbatim_calls)
        return (*specs, READ_EARLIER) if specs and has_gaps else specs

    @property
    def request_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that a request has to name: those that may be called, or those that earlier messages call."""
        return self.specs or (self.all_specs if self._batches else ())

    @property
    def end_note(self) -> str:
        """For the model, once its work has been ended; "" before."""
        return prompts.build_work_end_note(self._explain_cut()[0], self._not_run) if self.cut else ""

    def close(self) -> None:
        """Allow no further calls in this step."""
        self._closed = True

    def end_if_due(self, end: EndOfWork | None) -> Notice | None:
        """End the work when it has to end or stands still. Return what the user is told of it.

        end: why the turn wants the answer now, see `StepCost.find_end`.
        """
        if self._closed or not self._batches:
            return None
        if self._tools.max_rounds is not None and len(self._batches) >= self._tools.max_rounds:
            self.cut = "tool_rounds"
        elif self._unusable >= _MAX_UNUSABLE or self._count_idle() >= _MAX_IDLE:
            self.cut = "standstill"
        else:
            self.cut = end
        if self.cut is None:
            return None
        self.close()
        why, hint = self._explain_cut()
        return Notice(message=f"{self._tools.name} had to answer before its work was done: {why}{hint}")

    @property
    def unshown_tokens(self) -> int:
        """About the tokens of the results that the model was not told of."""
        results = (result for batch in self._unshown for result in batch.results.values())
        most = self._meter.window // _RESULT_SHARE
        return sum(min(self._count(result.content), most) + PER_MESSAGE for result in results)

    async def take_messages(self, room: int) -> list[ChatMessage]:
        """Return the calls and results since the last time, as the model is told of them.

        room: tokens for the results of one reply's calls.
        """
        new, self._unshown = self._unshown, []
        # In a thread: a result may have a million characters.
        return [message for batch in new for message in await asyncio.to_thread(self._messages, batch, room)]

    def find_calls(self, reply: Reply, actions: Collection[str] = ()) -> list[ToolCall]:
        """Return the tool calls in a reply that is no action of the workflow. actions: tools that are one."""
        if not self.specs or any(find_tool_name(call.name, actions) in actions for call in reply.tool_calls):
            return []
        if self.native:
            return reply.tool_calls
        call = read_call(reply.text, frozenset(spec.name for spec in self.specs))
        # Small models ask for the same thing again and again, although they have the result before them.
        shown = self._step.prompt.verbatim_calls
        earlier = {(c.name, c.arguments) for batch in self._batches for c in batch.calls if c.call_id in shown}
        return [] if call is None or (call.name, call.arguments) in earlier else [call]

    def request_permission(self, calls: Sequence[ToolCall], *, may_ask: bool) -> AskUser | None:
        """Return the question to the user without which these calls may not run; None: they may, or are refused."""
        confirmations = self._tools.confirmations if may_ask else None
        return confirmations and confirmations.request_permission(calls[:MAX_CALLS], self._step.prompt)

    async def finish_calls(self) -> None:
        """Emit a result for each call that was cut off by the end of an earlier run."""
        cut_off = [
            (batch, call) for batch in self._batches for call in batch.calls if call.call_id not in batch.results
        ]
        for batch, call in cut_off:
            is_read = call.name in (READ_EARLIER.name, *FILE_TOOLS)  # which have no effects
            self._emit(
                self._return(batch, call, await self._call(call) if is_read else ToolResult(CUT_OFF, failed=True))
            )
        if cut_off:
            await self._step.outbox.wait_until_stored()

    async def run(self, calls: Sequence[ToolCall]) -> None:
        """Run the calls of the step's reply at once; results come in the order in which they end."""
        batch = _Batch([self._call_event(i, call) for i, call in enumerate(calls[:MAX_CALLS])])
        self._not_run = [describe_call(call.name, call.arguments) for call in calls[MAX_CALLS:]]
        self._batches.append(batch)
        self._unshown.append(batch)
        self._step.earlier_citations.append(batch.calls[0].citations)
        for call in batch.calls:
            self._journal.feed(call)
            self._emit(call)
        await self._step.outbox.wait_until_stored()
        running = {asyncio.create_task(self._call(call)): call for call in batch.calls}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    self._emit(self._return(batch, running.pop(task), task.result()))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        await self._step.outbox.wait_until_stored()
        known = (*self._tools.toolbox.names, READ_EARLIER.name)
        usable = (call.name in known and parse_object(call.arguments or "{}") is not None for call in batch.calls)
        self._unusable = 0 if any(usable) else self._unusable + 1
        for call in batch.calls:
            if self._journal.count_repeats(call.call_id) == _MAX_REPEATS:
                what = describe_call(call.name, call.arguments)
                repeats = f"{self._tools.name} has called {what} {_MAX_REPEATS} times with the same result"
                self._emit(Notice(message=repeats))

    def _call_event(self, index: int, call: ToolCall) -> ToolCalled:
        number, is_first, reply = len(self._batches) + 1, index == 0, self._step.reply
        return ToolCalled(
            agent_id=self._id,
            round=self._step.round,
            call_id=f"call_r{self._step.round}b{number}n{index + 1}",
            batch=number,
            name=clean_text(call.name)[:_MAX_NAME],
            arguments=clean_text(call.arguments)[:_MAX_ARGUMENTS] or "{}",
            text=reply.text if is_first and self.native else "",
            reasoning=reply.reasoning if is_first else "",
            citations=tuple(reply.citations) if is_first else (),
            usage=self._step.cost.usage,
            state=call.state,
        )

    async def _call(self, call: ToolCalled) -> ToolResult:
        arguments = parse_object(call.arguments or "{}")
        if arguments is None:
            return ToolResult("the arguments are not one JSON object; call the tool again with valid ones", failed=True)
        if call.name == READ_EARLIER.name:
            return self._read_earlier(arguments)
        if self._tools.confirmations is not None:
            asked = ToolCall(call.call_id, call.name, call.arguments)
            if refusal := self._tools.confirmations.explain_refusal(asked, self._step.prompt):
                return ToolResult(refusal, failed=True)
        return await self._tools.toolbox.call(call.name, arguments)

    def _return(self, batch: _Batch, call: ToolCalled, result: ToolResult) -> ToolReturned:
        is_new = call.name != READ_EARLIER.name
        if self._tools.confirmations is not None and is_new:
            self._tools.confirmations.results.append(ToolText(call.name, result.text, call.arguments))
        returned = batch.results[call.call_id] = ToolReturned(
            agent_id=self._id,
            round=self._step.round,
            name=call.name,
            content=result.text,
            call_id=call.call_id,
            failed=result.failed,
            recorded=self._tools.recorded and is_new,
        )
        self._journal.feed(returned)
        return returned

    def _read_earlier(self, arguments: Mapping[str, Any]) -> ToolResult:
        number, part = arguments.get("message"), arguments.get("part", 1)
        if not (isinstance(number, int) and isinstance(part, int)):
            return ToolResult("message and part are whole numbers", failed=True)
        try:
            return ToolResult(self._journal.read(number, part, self._meter.window // _PART_SHARE))
        except ValueError as e:
            return ToolResult(str(e), failed=True)

    def _messages(self, batch: _Batch, room: int) -> list[ChatMessage]:
        """room: tokens of all results of the batch."""
        calls = [ToolCall(call.call_id, call.name, call.arguments, call.state) for call in batch.calls]
        done = [call for call in batch.calls if call.call_id in batch.results]
        shares = self._allot(batch, room)
        results = [self._show_result(batch, call, shares[call.call_id]) for call in done]
        if self._not_run and not self.cut:
            left = f"Not run, since a reply may have {MAX_CALLS} calls: {'; '.join(self._not_run)}."
            results[-1] = replace(results[-1], content=f"{results[-1].content}\n{left}")
        if self.native:
            return [ChatMessage("assistant", batch.calls[0].text, tool_calls=tuple(calls)), *results]
        written = "\n".join(map(format_call, calls))
        return [*write_calls([ChatMessage("assistant", written), *results])]

    def _allot(self, batch: _Batch, room: int) -> dict[str, int]:
        """Return the tokens that each result may have: short ones stay whole, long ones share what is left."""
        names = {call.call_id: call.name for call in batch.calls}
        most = self._meter.window // _RESULT_SHARE
        sizes: dict[str, int] = {}
        for call_id, result in batch.results.items():
            limit = most if names[call_id] == READ_EARLIER.name else self._tools.toolbox.max_tokens(names[call_id])
            sizes[call_id] = min(self._count(result.content, min(most, limit, room // 2)), most, limit)
        shares: dict[str, int] = {}
        for place, (call_id, size) in enumerate(sorted(sizes.items(), key=lambda item: item[1])):
            is_part = names[call_id] == READ_EARLIER.name  # it is as short as a part can be
            shares[call_id] = size if is_part else min(size, max(0, room) // (len(sizes) - place))
            room -= shares[call_id]
        return shares

    def _show_result(self, batch: _Batch, call: ToolCalled, max_tokens: int) -> ChatMessage:
        """Return as much of the result as the model has room for; the log has all of it."""
        returned = batch.results[call.call_id]
        text, target = returned.content, self._find_equal(call, returned)
        if target is not None:
            text = f"[word for word the result of {describe_call(target.name, target.arguments)} above]"
        elif self._count(text) > max_tokens:
            text = self._excerpt(call, text, max_tokens - min(_GAP_TOKENS, max_tokens // 4))
        content = prompts.frame_tool_result(text, failed=returned.failed)
        if (times := self._journal.count_repeats(call.call_id)) >= _MAX_REPEATS:
            content += f"\nYou have made this call {times} times in a row, each time with this result."
        same_as = "" if target is None else target.call_id
        return ChatMessage(
            "tool", content, tool_call_id=call.call_id, tool=call.name, calls=(call.call_id,), same_as=same_as
        )

    def _excerpt(self, call: ToolCalled, text: str, max_tokens: int) -> str:
        number = self._journal.get_number(call.call_id)

        def describe_gap(start: int, end: int) -> str:
            part = start // count_part_characters(text, self._meter.window // _PART_SHARE) + 1
            lines = select_lines(text[start:end], list_stems(self._step.prompt.question), _GAP_LINES)
            return prompts.build_gap_note(format_size(text[start:end]), number, part, lines)

        self._cut_results.add(call.call_id)
        return excerpt(text, max_tokens, self._count, describe_gap)

    def _find_equal(self, call: ToolCalled, returned: ToolReturned) -> ToolCalled | None:
        """Return the call whose result is the same and stands in the prompt whole."""
        whole = {call_id for m in self._step.prompt.work if not m.same_as for call_id in m.calls} - self._cut_results
        if not (self.native and whole) or self._count(returned.content) < _MIN_TARGET:
            return None
        for batch in self._batches:
            for other in batch.calls:
                result = batch.results.get(other.call_id)
                if other.call_id in whole and result is not None and result.content == returned.content:
                    return other
        return None

    def _count_idle(self) -> int:
        """Return how many replies in a row had no new call and no new text."""
        calls, texts, idle = set[tuple[str, str]](), {""}, 0
        for batch in self._batches:
            in_batch, text = {(call.name, call.arguments) for call in batch.calls}, batch.calls[0].text.strip()
            idle = idle + 1 if in_batch <= calls and text in texts else 0
            calls |= in_batch
            texts.add(text)
        return idle

    def _explain_cut(self) -> tuple[str, str]:
        match self.cut:
            case "tool_rounds":
                why = f"the limit of {self._tools.max_rounds} rounds of calls is reached"
                return why, "; raise coordination.max_tool_rounds"
            case "answer_now":
                return "the user wants the answer now", ""
            case "standstill" if self._unusable >= _MAX_UNUSABLE:
                return f"{self._unusable} replies in a row called nothing that can be run", ""
            case "standstill":
                return f"{_MAX_IDLE} rounds of calls brought no new call and no new text", ""
            case limit:
                setting = {"time": "timeout", "cost": "max_cost"}.get(limit or "", "max_tokens")
                why = f"the turn's limit of {limit} leaves room for the answer alone"
                return why, f"; raise coordination.{setting}"

    def _find_unshown(self) -> list[_Batch]:
        """Return the replies with calls that a step which was cut off had in its prompt word for word."""
        until = 0
        for event in self._tools.events:
            if isinstance(event, ContextCompressed) and (event.agent_id, event.round) == (self._id, self._step.round):
                until = until if event.work_until is None else event.work_until
        older = {call.call_id for batch in self._batches if batch.calls[0].batch <= until for call in batch.calls}
        lists = self._journal.list_open_lists(older, self._meter.window // LISTS_SHARE, self._count)
        hidden = older - lists
        return [batch for batch in self._batches if not any(call.call_id in hidden for call in batch.calls)]


def _read_batches(agent_id: str, round_: int, events: Iterable[Event]) -> list[_Batch]:
    """Return the calls of an agent's step that the log holds, with their results."""
    batches: dict[int, _Batch] = {}
    batch_of: dict[str, _Batch] = {}
    for event in events:
        match event:
            case ToolCalled(agent_id=agent, round=number) if (agent, number) == (agent_id, round_):
                batch = batches.setdefault(event.batch, _Batch([]))
                batch.calls.append(event)
                batch_of[event.call_id] = batch
            case ToolReturned(agent_id=agent, call_id=call_id) if agent == agent_id and call_id in batch_of:
                batch_of[call_id].results[call_id] = event
            case _:
                pass
    return [batches[number] for number in sorted(batches)]


def excerpt(text: str, max_tokens: int, count: Callable[[str], int], gap: Callable[[int, int], str]) -> str:
    """Return the text in about `max_tokens` tokens: its beginning, its end, and what `gap` returns between.

    gap: is given where in the text the left out part begins and ends, in characters.
    """
    if len(text) <= max_tokens:
        return text  # a token has one character at least
    sample = text[: _CHARACTERS_PER_TOKEN * max_tokens]
    tokens = count(sample)
    if len(sample) == len(text) and tokens <= max_tokens:
        return text
    room = len(sample) * max_tokens // max(tokens, 1)
    head = int(_HEAD_SHARE * room)
    end = len(text) - (room - head)
    return f"{text[:head]}\n{gap(head, end)}\n{text[end:]}"


_MAX_SHOWN_ARGUMENTS = 300
"""Characters of the arguments in the question to the user."""
_DEEPEST = 20


@dataclass(slots=True)
class Confirmations:
    """The calls that the user has allowed and refused in a turn. All agents of the turn share it."""

    known: Mapping[str, Value] = field(default_factory=dict[str, Value])
    """Values that the user has given, by name."""
    given_up: frozenset[str] = frozenset()
    """Names for which the user was asked in vain."""
    results: list[ToolText] = field(default_factory=list[ToolText])
    """Of this turn and of those of the history."""
    by_origin: bool = True
    """The user is asked about words that are from tools alone."""
    changed: Mapping[str, Tool] = field(default_factory=dict[str, Tool])
    """Tools that are described differently than when the user allowed them, by the names that models are told."""
    allow: Callable[[str], None] | None = None
    """Called with the name of such a tool once the user has allowed it anew, for good; None: for this turn."""

    def request_permission(self, calls: Sequence[ToolCall], prompt: Prompt) -> AskUser | None:
        """Return the question to the user about the first call that needs one and that was not decided yet."""
        for call in calls:
            if (changed := self.changed.get(call.name)) is not None:
                name = _name_change(changed)
                if name not in self.known and name not in self.given_up:
                    return AskUser(name, _write_change(changed))
            name = name_confirmation(call)
            if name not in self.known and name not in self.given_up and (tool := self._find_tool(call, prompt)):
                arguments = one_line(call.arguments, _MAX_SHOWN_ARGUMENTS)
                asked = f"May {call.name} be called with {arguments}?"
                return AskUser(name, f"{asked} Part of that is from the tool {tool} alone. (yes or no)")
        return None

    def explain_refusal(self, call: ToolCall, prompt: Prompt) -> str:
        """Return why a call may not run, for its agent; "": it may."""
        if (changed := self.changed.get(call.name)) is not None:
            name = _name_change(changed)
            if self.known.get(name) is not True:
                return self._refuse(name, "the tool has changed since the user allowed it")
            if self.allow is not None:
                self.allow(call.name)
        name = name_confirmation(call)
        if self.known.get(name) is True or not (tool := self._find_tool(call, prompt)):
            return ""
        return self._refuse(name, f"an argument is from the tool {tool} alone")

    def _refuse(self, name: str, reason: str) -> str:
        why = "has refused it" if name in self.known else "has not allowed it"
        return (
            f"not called: {reason}, so the user has to allow this call, and {why}. "
            "Go on without it, and say so in your answer."
        )

    def _find_tool(self, call: ToolCall, prompt: Prompt) -> str:
        """Return the tool that an argument has its words from; "": from none."""
        if not self.by_origin or call.name in FILE_TOOLS:  # which change nothing, and send nothing away
            return ""
        results = [*self.results, *(ToolText(tool, text) for tool, text in list_tool_lines(prompt.memories))]
        user_texts = [prompt.question, *(m.message.content for m in prompt.history if m.message.role == "user")]
        user_texts += [str(value) for value in self.known.values()]
        words = ToolWords(results, user_texts)
        tools = (words.find_tool(text) for text in _list_texts(parse_object(call.arguments or "{}") or {}))
        return next(filter(None, tools), "")


def name_confirmation(call: ToolCall) -> str:
    """Return the name of the param that stands for the user's permission of this call."""
    arguments = json.dumps(parse_object(call.arguments or "{}"), sort_keys=True)
    return _name_param(call.name, sha256(f"{call.name}\0{arguments}".encode()).hexdigest())


def _name_change(tool: Tool) -> str:
    return _name_param(tool.spec.name, tool.mark)


def _name_param(tool: str, mark: str) -> str:
    name = re.sub(r"\W", "_", label_tool(tool).removeprefix("tool "), flags=re.ASCII)
    return f"{CONFIRMATION}{name}_{mark[:8]}"


def _write_change(tool: Tool) -> str:
    described = one_line(tool.spec.description, _MAX_SHOWN_ARGUMENTS) or "nothing"
    return (
        f"The tool {tool.spec.name} has changed since you allowed it. It says of itself now: {described} "
        "May it be called? (yes or no)"
    )


def _list_texts(value: object, depth: int = 0) -> Iterator[str]:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)
    elif isinstance(value, Mapping | list) and depth < _DEEPEST:
        parts = cast("list[Any]", value) if isinstance(value, list) else cast("Mapping[str, Any]", value).values()
        for part in parts:
            yield from _list_texts(part, depth + 1)
