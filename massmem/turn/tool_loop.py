"""The tools that an agent uses in one step: which calls its replies hold, running them, and what its model is told.

Calls and results are events. Each is in the log before the loop goes on, so a step that was cut off goes on from there:
no tool is called again whose result is in the log, nor one of which nobody knows how its call ended.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from massmem import prompts
from massmem.events import Event, ToolCalled, ToolReturned
from massmem.messages import ChatMessage, ToolCall, ToolSpec, clean_text
from massmem.replies import Reply
from massmem.tools.content import ToolResult, excerpt
from massmem.tools.toolbox import Toolbox
from massmem.tools.written import read_call, written_call
from massmem.turn.context import Context
from massmem.turn.sender import Spent

MOST_AT_ONCE = 16
"""Calls of one reply that are run."""

_MOST_UNUSABLE = 2
"""Replies in a row of which no call could be run: then the agent goes on without tools."""

_LONGEST_ARGUMENTS, _SHOWN = 200_000, 500
"""Characters that are kept, and of unusable ones those that the model is shown again."""

_CUT_OFF = "massmem was stopped while this call ran: it is not known whether the tool has done its work"


class Kept:
    """Which calls and results are in the log."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, str, str], asyncio.Event] = {}

    def confirm(self, events: Iterable[Event]) -> None:
        """These have been stored."""
        for event in events:
            if isinstance(event, ToolCalled | ToolReturned):
                self._of(event).set()

    async def wait(self, event: ToolCalled | ToolReturned) -> None:
        await self._of(event).wait()

    def _of(self, event: ToolCalled | ToolReturned) -> asyncio.Event:
        return self._events.setdefault((event.type, event.agent_id, event.call_id), asyncio.Event())


@dataclass(frozen=True, slots=True)
class Hand:
    """What an agent may use in a turn. past: the turn's events so far, as the log has them. kept None: nobody stores.

    most: replies with calls in a step. recorded: results are remembered as messages of their own.
    """

    box: Toolbox = field(default_factory=Toolbox)
    past: Sequence[Event] = ()
    kept: Kept | None = None
    most: int = 0
    recorded: bool = False


@dataclass(slots=True)
class _Batch:
    """The calls of one reply, with what has come back, by the ids of the calls."""

    calls: list[ToolCalled]
    results: dict[str, ToolReturned] = field(default_factory=dict[str, ToolReturned])


class ToolLoop:
    """One step of one agent. native: its model takes tool calls, else it writes them as JSON."""

    def __init__(self, agent_id: str, hand: Hand, round_: int, context: Context, *, native: bool) -> None:
        self._id = agent_id
        self._hand = hand
        self._round = round_
        self._context = context
        self._native = native
        self._batches = _batches(agent_id, round_, hand.past)
        self._unusable = 0
        self._closed = False

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What may be called next; empty when the agent has to act now."""
        used_up = len(self._batches) >= self._hand.most or self._unusable >= _MOST_UNUSABLE
        return () if self._closed or used_up else self._hand.box.specs

    @property
    def used(self) -> bool:
        """The messages hold calls."""
        return bool(self._batches)

    @property
    def all(self) -> tuple[ToolSpec, ...]:
        """Every tool of the agent, for requests that must name what earlier messages call."""
        return self._hand.box.specs

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """The calls so far with their results."""
        return tuple(message for batch in self._batches for message in self._told(batch))

    def close(self) -> None:
        """No further calls in this step."""
        self._closed = True

    def begin(self, spent: Spent) -> None:
        """Take over what the step has cost before it was cut off."""
        if self._batches:
            spent.usage += self._batches[-1].calls[0].usage

    def calls_in(self, reply: Reply) -> list[ToolCall]:
        """The calls of a reply that is no action of the workflow."""
        if not self.specs:
            return []
        if self._native:
            return reply.tool_calls
        call = read_call(reply.text, frozenset(spec.name for spec in self.specs))
        # Small models ask for the same thing again and again; what they asked for is there.
        known = {(made.name, made.arguments) for batch in self._batches for made in batch.calls}
        return [] if call is None or (call.name, call.arguments) in known else [call]

    async def settle(self) -> AsyncGenerator[ToolReturned, None]:
        """A result for each call that was cut off by the end of an earlier run."""
        for batch in self._batches:
            for call in batch.calls:
                if call.call_id not in batch.results:
                    yield self._returned(batch, call, ToolResult(_CUT_OFF, failed=True))

    async def run(
        self, calls: Sequence[ToolCall], reply: Reply, spent: Spent
    ) -> AsyncGenerator[ToolCalled | ToolReturned, None]:
        """Run the calls of one reply at once; results come in the order in which they end."""
        batch = _Batch([self._called(i, call, reply, spent) for i, call in enumerate(calls[:MOST_AT_ONCE])])
        self._batches.append(batch)
        for call in batch.calls:
            yield call
        for call in batch.calls:
            await self._wait(call)
        running = {asyncio.create_task(self._call(call)): call for call in batch.calls}
        try:
            while running:
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    returned = self._returned(batch, running.pop(task), task.result())
                    yield returned
                    await self._wait(returned)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        self._unusable = 0 if any(map(self._usable, batch.calls)) else self._unusable + 1

    def _usable(self, call: ToolCalled) -> bool:
        return call.name in self._hand.box.tools and _arguments(call.arguments) is not None

    def _called(self, index: int, call: ToolCall, reply: Reply, spent: Spent) -> ToolCalled:
        number, first = len(self._batches) + 1, index == 0
        return ToolCalled(
            agent_id=self._id,
            round=self._round,
            call_id=f"call_r{self._round}b{number}n{index + 1}",
            batch=number,
            name=clean_text(call.name)[:200],
            arguments=clean_text(call.arguments)[:_LONGEST_ARGUMENTS] or "{}",
            text=reply.text if first and self._native else "",
            reasoning=reply.reasoning if first else "",
            usage=spent.usage,
        )

    async def _call(self, call: ToolCalled) -> ToolResult:
        arguments = _arguments(call.arguments)
        if arguments is None:
            return ToolResult("the arguments are not one JSON object; call the tool again with valid ones", failed=True)
        return await self._hand.box.call(call.name, arguments)

    def _returned(self, batch: _Batch, call: ToolCalled, result: ToolResult) -> ToolReturned:
        returned = batch.results[call.call_id] = ToolReturned(
            agent_id=self._id,
            round=self._round,
            name=call.name,
            content=result.text,
            call_id=call.call_id,
            failed=result.failed,
            recorded=self._hand.recorded,
        )
        return returned

    async def _wait(self, event: ToolCalled | ToolReturned) -> None:
        if self._hand.kept is not None:
            await self._hand.kept.wait(event)

    def _told(self, batch: _Batch) -> list[ChatMessage]:
        calls = [ToolCall(call.call_id, call.name, _sendable(call.arguments)) for call in batch.calls]
        results = [self._result(batch, call) for call in batch.calls if call.call_id in batch.results]
        if self._native:
            said = ChatMessage("assistant", batch.calls[0].text, tool_calls=tuple(calls))
            pairs = zip(calls, results, strict=True)
            return [said, *(ChatMessage("tool", text, tool_call_id=call.id) for call, text in pairs)]
        written = "\n".join(map(written_call, calls))
        return [ChatMessage("assistant", written), ChatMessage("user", "\n".join(results))]

    def _result(self, batch: _Batch, call: ToolCalled) -> str:
        """As much of the result as the model has room for; the log has all of it."""
        returned, most = batch.results[call.call_id], self._context.most_results // len(batch.calls)
        text = excerpt(returned.content, min(most, self._hand.box.most_tokens(call.name)), self._context.cost_of_text)
        return prompts.tool_result(text, failed=returned.failed)


def _batches(agent_id: str, round_: int, past: Iterable[Event]) -> list[_Batch]:
    """What the log holds of the step."""
    found: dict[int, _Batch] = {}
    batch_of: dict[str, _Batch] = {}
    for event in past:
        match event:
            case ToolCalled(agent_id=agent, round=number) if (agent, number) == (agent_id, round_):
                batch = found.setdefault(event.batch, _Batch([]))
                batch.calls.append(event)
                batch_of[event.call_id] = batch
            case ToolReturned(agent_id=agent, call_id=call_id) if agent == agent_id and call_id in batch_of:
                batch_of[call_id].results[call_id] = event
            case _:
                pass
    return [found[number] for number in sorted(found)]


def _arguments(text: str) -> dict[str, Any] | None:
    """Models that call a tool without arguments also write nothing."""
    try:
        data = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", data) if isinstance(data, dict) else None


def _sendable(arguments: str) -> str:
    """Servers read the arguments of earlier calls again, and refuse the whole request over a bad one."""
    return json.dumps({"unusable": arguments[:_SHOWN]}) if _arguments(arguments) is None else arguments
