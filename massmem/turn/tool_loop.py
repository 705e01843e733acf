"""Tool use in one step of an agent: the calls in its replies, running them, and what its model is told.

Calls and results are events. A call is in the log before its tool runs, and its result before the model is told of it.
So a step that was cut off goes on from there: no tool is called again whose result is in the log, nor one of which
nobody knows how its call ended.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from massmem.core import prompts
from massmem.core.events import Event, ToolCalled, ToolReturned
from massmem.core.messages import ChatMessage, Reply, ToolCall, ToolSpec, clean_text
from massmem.memory.origins import ToolText
from massmem.tools.ask_user import AskUser
from massmem.tools.json_calls import format_call, parse_object, read_call
from massmem.tools.results import ToolResult, excerpt
from massmem.tools.toolbox import Toolbox
from massmem.turn.confirmation import Confirmations
from massmem.turn.request import Step
from massmem.turn.stream import Checkpoint

MAX_CALLS = 16
"""Calls of one reply that are run."""

_MAX_UNUSABLE = 2
"""Replies in a row without a usable call, after which the agent goes on without tools."""

_MAX_ARGUMENTS, _MAX_BAD_ARGUMENTS = 200_000, 500
"""Characters of arguments that the log keeps, and of unusable ones that the model is shown again."""

_MAX_NAME = 200
"""Characters of a tool's name that the log keeps."""

_RESULTS_SHARE = 4
"""One in so many tokens of the window may go to the results of one reply's calls."""

_CUT_OFF = "massmem was stopped while this call ran: it is not known whether the tool has done its work"


@dataclass(frozen=True, slots=True)
class AgentTools:
    """What an agent may use in a turn."""

    toolbox: Toolbox = field(default_factory=Toolbox)
    events: Sequence[Event] = ()
    """The turn's events so far, as the log has them."""
    max_rounds: int = 0
    """Most replies with calls in one step."""
    recorded: bool = False
    """Results are remembered as messages of their own."""
    votes: bool = False
    """The agent is one of several, who vote."""
    confirmations: Confirmations | None = None
    """Which calls the user allows; None: any may run."""


@dataclass(slots=True)
class _Batch:
    """The calls of one reply, and their results by the ids of the calls."""

    calls: list[ToolCalled]
    results: dict[str, ToolReturned] = field(default_factory=dict[str, ToolReturned])


class ToolLoop:
    """The tool calls of one step."""

    def __init__(self, tools: AgentTools, step: Step, *, native: bool, count: Callable[[str], int]) -> None:
        """native: the model takes tool calls; else it writes them as JSON. count: tokens of a text.

        What the step has cost before it was cut off is added to its cost.
        """
        self._id = step.prompt.agent_id
        self._tools = tools
        self._step = step
        self._native = native
        self._count = count
        self._batches = _read_batches(self._id, step.round, tools.events)
        self._shown = 0
        self._unusable = 0
        self._closed = False
        if self._batches:
            step.cost.usage += self._batches[-1].calls[0].usage

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that may be called next; empty when the agent has to act now."""
        used_up = len(self._batches) >= self._tools.max_rounds or self._unusable >= _MAX_UNUSABLE
        return () if self._closed or used_up else self._tools.toolbox.specs

    @property
    def request_specs(self) -> tuple[ToolSpec, ...]:
        """The tools that a request has to name: those that may be called, or those that earlier messages call."""
        return self.specs or (self._tools.toolbox.specs if self._batches else ())

    def write_as_text(self) -> None:
        """Show calls and results as text from now on: the model has refused tools."""
        self._native = False

    def close(self) -> None:
        """Allow no further calls in this step."""
        self._closed = True

    def take_messages(self, max_tokens: int) -> list[ChatMessage]:
        """Return the calls and results since the last time, as the model is told of them.

        max_tokens: of the model's window.
        """
        new, self._shown = self._batches[self._shown :], len(self._batches)
        return [message for batch in new for message in self._messages(batch, max_tokens // _RESULTS_SHARE)]

    def find_calls(self, reply: Reply) -> list[ToolCall]:
        """Return the tool calls in a reply that is no action of the workflow."""
        if not self.specs:
            return []
        if self._native:
            return reply.tool_calls
        call = read_call(reply.text, frozenset(spec.name for spec in self.specs))
        # Small models ask for the same thing again and again, although they have the result.
        earlier = {(call.name, call.arguments) for batch in self._batches for call in batch.calls}
        return [] if call is None or (call.name, call.arguments) in earlier else [call]

    def request_permission(self, calls: Sequence[ToolCall], *, may_ask: bool) -> AskUser | None:
        """Return the question to the user without which these calls may not run; None: they may, or are refused."""
        confirmations = self._tools.confirmations if may_ask else None
        return confirmations and confirmations.request_permission(calls[:MAX_CALLS], self._step.prompt)

    async def settle(self) -> AsyncGenerator[ToolReturned | Checkpoint, None]:
        """Yield a result for each call that was cut off by the end of an earlier run."""
        cut_off = [
            (batch, call) for batch in self._batches for call in batch.calls if call.call_id not in batch.results
        ]
        for batch, call in cut_off:
            yield self._return(batch, call, ToolResult(_CUT_OFF, failed=True))
        if cut_off:
            results_stored = Checkpoint()
            yield results_stored
            await results_stored.wait()

    async def run(self, calls: Sequence[ToolCall]) -> AsyncGenerator[ToolCalled | ToolReturned | Checkpoint, None]:
        """Run the calls of the step's reply at once; results come in the order in which they end."""
        batch = _Batch([self._call_event(i, call) for i, call in enumerate(calls[:MAX_CALLS])])
        self._batches.append(batch)
        for call in batch.calls:
            yield call
        calls_stored = Checkpoint()
        yield calls_stored
        await calls_stored.wait()
        running = {asyncio.create_task(self._call(call)): call for call in batch.calls}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield self._return(batch, running.pop(task), task.result())
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        results_stored = Checkpoint()
        yield results_stored
        await results_stored.wait()
        self._unusable = 0 if any(map(self._is_usable, batch.calls)) else self._unusable + 1

    def _is_usable(self, call: ToolCalled) -> bool:
        return call.name in self._tools.toolbox.tools and parse_object(call.arguments or "{}") is not None

    def _call_event(self, index: int, call: ToolCall) -> ToolCalled:
        number, is_first, reply = len(self._batches) + 1, index == 0, self._step.reply
        return ToolCalled(
            agent_id=self._id,
            round=self._step.round,
            call_id=f"call_r{self._step.round}b{number}n{index + 1}",
            batch=number,
            name=clean_text(call.name)[:_MAX_NAME],
            arguments=clean_text(call.arguments)[:_MAX_ARGUMENTS] or "{}",
            text=reply.text if is_first and self._native else "",
            reasoning=reply.reasoning if is_first else "",
            usage=self._step.cost.usage,
        )

    async def _call(self, call: ToolCalled) -> ToolResult:
        arguments = parse_object(call.arguments or "{}")
        if arguments is None:
            return ToolResult("the arguments are not one JSON object; call the tool again with valid ones", failed=True)
        if self._tools.confirmations is not None:
            asked = ToolCall(call.call_id, call.name, call.arguments)
            if refusal := self._tools.confirmations.explain_refusal(asked, self._step.prompt):
                return ToolResult(refusal, failed=True)
        return await self._tools.toolbox.call(call.name, arguments)

    def _return(self, batch: _Batch, call: ToolCalled, result: ToolResult) -> ToolReturned:
        if self._tools.confirmations is not None:
            self._tools.confirmations.results.append(ToolText(call.name, result.text, call.arguments))
        returned = batch.results[call.call_id] = ToolReturned(
            agent_id=self._id,
            round=self._step.round,
            name=call.name,
            content=result.text,
            call_id=call.call_id,
            failed=result.failed,
            recorded=self._tools.recorded,
        )
        return returned

    def _messages(self, batch: _Batch, max_tokens: int) -> list[ChatMessage]:
        """max_tokens: of all results of the batch."""
        calls = [ToolCall(call.call_id, call.name, _sendable_arguments(call.arguments)) for call in batch.calls]
        share = max_tokens // len(batch.calls)
        results = [self._result(batch, call, share) for call in batch.calls if call.call_id in batch.results]
        if self._native:
            message = ChatMessage("assistant", batch.calls[0].text, tool_calls=tuple(calls))
            pairs = zip(calls, results, strict=True)
            return [message, *(ChatMessage("tool", text, tool_call_id=c.id, tool=c.name) for c, text in pairs)]
        written = "\n".join(map(format_call, calls))
        tools = ", ".join(dict.fromkeys(call.name for call in calls))
        return [ChatMessage("assistant", written), ChatMessage("user", "\n".join(results), tool=tools)]

    def _result(self, batch: _Batch, call: ToolCalled, max_tokens: int) -> str:
        """Return as much of the result as the model has room for; the log has all of it."""
        returned = batch.results[call.call_id]
        most = min(max_tokens, self._tools.toolbox.max_tokens(call.name))
        return prompts.frame_tool_result(excerpt(returned.content, most, self._count), failed=returned.failed)


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


def _sendable_arguments(arguments: str) -> str:
    """Servers read the arguments of earlier calls again, and refuse the whole request over a bad one."""
    if parse_object(arguments or "{}") is None:
        return json.dumps({"unusable": arguments[:_MAX_BAD_ARGUMENTS]})
    return arguments
