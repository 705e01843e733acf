"""A turn again from its log: what the agents did comes from its events, and what follows from that is decided anew."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any

from massmem.config.models import CoordinationConfig
from massmem.core import errors
from massmem.core.errors import LimitReached, MassmemError
from massmem.core.events import (
    EVENT,
    AgentBusy,
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerNowRequested,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    ContextCompressed,
    ContextMeasured,
    Event,
    Notice,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    RoundStarted,
    ToolCalled,
    ToolReturned,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    UserReplied,
    WinnerDecided,
)
from massmem.core.events import Step as StepName
from massmem.core.messages import Candidate, Usage
from massmem.core.params import ParamSpec
from massmem.core.voting import Tally
from massmem.turn.agent import Presentation, Result, Work
from massmem.turn.coordinator import Turn, run_turn
from massmem.turn.request import StepCost
from massmem.turn.sight import Description
from massmem.turn.stream import Checkpoint

StepKey = tuple[str, int, StepName]
"""Agent, round, step."""

_WORK = (AgentDelta, AgentBusy, AgentRetrying, ContextMeasured, ContextCompressed, ToolCalled, ToolReturned)
_RESULTS = (AnswerSubmitted, BallotCast, ParamRequested, AgentFailed)
_REPLIES = (UserReplied, ParamProvided, ParamCleared)
_ENDS = (TurnCompleted, TurnFailed, TurnWaiting)
_DECISIONS = (
    *(TurnStarted, TurnResumed, RoundStarted, AgentStarted, BallotsVoided, WinnerDecided, AnswerNowRequested),
    *_RESULTS,
    *_ENDS,
)

_FROM_OUTSIDE = {"at", "request", "remember", "imported"}
"""Fields that no replay can make again: the clock, the client's key, what is remembered and what was imported."""

_PASSES = 24
"""Passes of the event loop after which a turn that waits for nothing outside has gone as far as it can."""


@dataclass(slots=True)
class RecordedStep:
    """One step of an agent, as the log has it."""

    agent_id: str
    round: int
    step: StepName
    begin: int
    """The place of its first event."""
    candidates: tuple[Candidate, ...] = ()
    """The answers that it was shown."""
    items: list[tuple[int, Event]] = field(default_factory=list[tuple[int, Event]])
    """Work and result, each with its place among the events."""
    presentation: tuple[int, Presentation] | None = None
    """The final answer that it wrote, with the place of the turn's end."""

    @property
    def result(self) -> Event | None:
        """What the agent did; None for a final answer, and when the step was cut off."""
        last = self.items[-1][1] if self.items else None
        return last if isinstance(last, _RESULTS) else None

    @property
    def is_whole(self) -> bool:
        """Whether it has ended by itself."""
        return self.result is not None or self.presentation is not None


def read_steps(
    events: Sequence[Event], before: Sequence[Event] = (), orders: Mapping[str, str] | None = None
) -> dict[StepKey, RecordedStep]:
    """Return the steps in the events of a turn; the last one of those that were begun more than once.

    before: earlier events of the turn. orders: `Agent.order` by agent id, where it is not empty.
    """
    tally, orders = Tally(), orders or {}
    tally.apply_all(before)
    steps: dict[StepKey, RecordedStep] = {}
    current: dict[str, RecordedStep] = {}
    for place, event in enumerate(events):
        match event:
            case AgentStarted(agent_id=agent_id, round=number, step=name):
                answers = tally.answers if name == "present" else tally.visible_answers
                shown = () if name == "answer" else tally.build_candidates(agent_id, answers, orders.get(agent_id, ""))
                step = RecordedStep(agent_id, number, name, place, shown)
                current[agent_id] = steps[agent_id, number, name] = step
            case TurnCompleted(presented=True, winner=winner) if winner in current:
                # What it cost is in no event of its own.
                usage = event.usage - tally.usage
                presentation = Presentation(event.answer, event.reasoning, usage, event.truncated, event.data)
                current[winner].presentation = place, presentation
            case _:
                step = current.get(getattr(event, "agent_id", ""))
                if step is not None and not step.is_whole and _belongs(event, step):
                    step.items.append((place, event))
        tally.apply(event)
    return steps


def _belongs(event: Event, step: RecordedStep) -> bool:
    return isinstance(event, (*_WORK, *_RESULTS)) and event.round == step.round


async def play_step(
    step: RecordedStep, cost: StepCost, wait: Callable[[int], Awaitable[None]] | None = None
) -> AsyncGenerator[Work | Result | Presentation, None]:
    """Yield what an agent did in a step, or raise the error with which it ended.

    wait: called with the place of each item before it is yielded. A step that was cut off ends after its last item.
    """
    for place, item in step.items:
        if wait is not None:
            await wait(place)
        match item:
            case AgentFailed():
                cost.usage = item.usage
                raise _rebuild_error(item)
            case AnswerSubmitted():
                yield item.model_copy(update={"number": 0})  # the coordinator numbers answers
            case _:
                yield item  # pyright: ignore[reportReturnType] - read_steps takes nothing else in
    if step.presentation is not None:
        place, presentation = step.presentation
        if wait is not None:
            await wait(place)
        yield presentation


def _rebuild_error(event: AgentFailed) -> MassmemError:
    """Return the error that became this event."""
    kind = getattr(errors, event.error, None)
    if not (isinstance(kind, type) and issubclass(kind, MassmemError)):
        kind = type(event.error, (MassmemError,), {})  # of a version of massmem that is not this one
    error = kind.__new__(kind)
    MassmemError.__init__(error, event.message, event.hint)
    vars(error)["partial"] = event.partial
    return error


@dataclass(frozen=True, slots=True)
class Difference:
    """The first events that are not the same."""

    recorded: str
    """JSON; empty: the log has none here."""
    replayed: str
    """JSON; empty: the replay has none here."""


@dataclass(slots=True)
class Verdict:
    """How far a turn comes out the same when it is run again from its log."""

    events: int = 0
    """That are the same, byte for byte."""
    difference: Difference | None = None
    ended_by_limit: bool = False
    """What comes after a limit of time, cost or tokens was not compared."""

    @property
    def is_identical(self) -> bool:
        return self.difference is None


async def replay_as_recorded(
    events: Sequence[Event], settings: CoordinationConfig, params: Mapping[str, ParamSpec] | None = None
) -> Verdict:
    """Run a turn again with the recorded replies of its agents, and compare its events with those of the log.

    events: all of the turn. settings, params: of the team that ran it.

    Times, clients' keys and `remember` are not compared, nor the cost of requests that were cut off, which is in no
    event, nor notices that the turn itself does not make. The order counts for each agent and for the council.
    """
    verdict = Verdict()
    starts = [i for i, event in enumerate(events) if isinstance(event, TurnStarted | TurnResumed)]
    for start, end in zip(starts, [*starts[1:], len(events)], strict=True):
        run = _Run(events[:start], events[start:end], settings, params or {})
        await run.play(verdict)
        if verdict.difference is not None or verdict.ended_by_limit:
            break
    return verdict


class _Run:
    """One run of a turn: from its start, or from where it was resumed, to its end or its interruption."""

    def __init__(
        self,
        before: Sequence[Event],
        events: Sequence[Event],
        settings: CoordinationConfig,
        params: Mapping[str, ParamSpec],
    ) -> None:
        self._settings = settings
        self._events = events
        last = next((i for i, event in enumerate(events) if isinstance(event, _ENDS)), len(events) - 1)
        self._own = events[: last + 1]
        """Without what followed the end of the turn."""
        self._steps = read_steps(self._own, before)
        self._answer_now = asyncio.Event()
        self._hurry = next((i for i, event in enumerate(self._own) if isinstance(event, AnswerNowRequested)), None)
        """The place at which the user wanted the answer now."""
        self._has_answer = any(
            isinstance(event, AnswerSubmitted) for event in (*before, *self._own[: self._hurry or 0])
        )
        self._is_ending = False
        """The user wants the answer now, and there is one: what comes in at the same time still counts."""
        self._step_of = {place: step for step in self._steps.values() for place, _ in step.items}
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._turn = self._build_turn(before, params)
        end = self._own[-1]
        self._has_limit = (isinstance(end, TurnCompleted) and end.limit is not None) or (
            isinstance(end, TurnFailed) and end.exit_code == LimitReached.exit_code
        )
        self._skipped = {*_FROM_OUTSIDE, *(() if self._is_cost_known(before) else ("usage",))}

    async def play(self, verdict: Verdict) -> None:
        """Run it, compare it, and enter the result."""
        replayed = await self._collect()
        expected: dict[str, list[str]] = {}
        for event in self._own:
            if _is_compared(event):
                expected.setdefault(_stream_of(event), []).append(self._dump(event))
        notices = {event.message for event in self._own if isinstance(event, Notice)}
        for event in replayed:
            if isinstance(event, Notice) and event.message in notices:
                continue
            queue, text = expected.get(_stream_of(event), []), self._dump(event)
            if not queue and not isinstance(self._own[-1], _ENDS):
                continue  # the log ends before it: the run was interrupted
            if not queue or queue[0] != text:
                self._enter(verdict, Difference(queue[0] if queue else "", text))
                return
            queue.pop(0)
            verdict.events += 1
        if rest := next((queue[0] for queue in expected.values() if queue), None):
            self._enter(verdict, Difference(rest, ""))

    def _enter(self, verdict: Verdict, difference: Difference) -> None:
        if self._has_limit:
            verdict.ended_by_limit = True
        else:
            verdict.difference = difference

    def _build_turn(self, before: Sequence[Event], params: Mapping[str, ParamSpec]) -> Turn:
        started = next(event for event in (*before, *self._events) if isinstance(event, TurnStarted))
        opening = self._own[0]
        assert isinstance(opening, TurnStarted | TurnResumed)  # runs are cut there
        replies: list[Event] = []
        for event in self._own[1:]:
            if not isinstance(event, _REPLIES):
                break
            replies.append(event)
        return Turn(
            opening.session_id,
            opening.turn,
            started.question,
            started.seed,
            before,
            replies,
            params,
            started.answer_schema,
            started.attachments,
            Description(started.description, Usage() if before else started.usage),
        )

    def _is_cost_known(self, before: Sequence[Event]) -> bool:
        steps = [*self._steps.values(), *read_steps(before).values()]
        return all(step.is_whole for step in steps)

    async def _collect(self) -> list[Event]:
        """Return the events of the run. Items of the agents are let go in the order of the log."""
        items: list[Event | Checkpoint] = []
        source = run_turn(self._turn, dict(self._create_agents()), self._settings, answer_now=self._answer_now)

        async def read_source() -> None:
            async with aclosing(source):
                async for item in source:
                    items.append(item)

        reading, confirmed = asyncio.create_task(read_source()), 0
        try:
            while not reading.done():
                for _ in range(_PASSES):
                    await asyncio.sleep(0)
                checkpoints = [item for item in items[confirmed:] if isinstance(item, Checkpoint)]
                confirmed = len(items)
                for checkpoint in checkpoints:
                    checkpoint.confirm()
                if not checkpoints and not reading.done() and not self._release_next():
                    break  # what comes next was cut off
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
        return [item for item in items if not isinstance(item, Checkpoint)]

    def _create_agents(self) -> Iterator[tuple[str, "_RecordedAgent"]]:
        opening = self._own[0]
        assert isinstance(opening, TurnStarted | TurnResumed)  # runs are cut there
        for agent_id in opening.agents:
            yield agent_id, _RecordedAgent(agent_id, opening.names.get(agent_id, agent_id), self._steps, self._wait)

    def _wait(self, place: int) -> asyncio.Future[None]:
        """Return a future that is done once all before this place has happened. -1: never."""
        future = asyncio.get_running_loop().create_future()
        if place >= 0 and self._is_ending:
            future.set_result(None)
        elif place >= 0:
            self._waiting[place] = future
        return future

    def _release_next(self) -> bool:
        """Let the item with the first place go, or all that come in as the turn ends. Return whether there was one."""
        places = sorted(self._waiting)
        hurries = self._hurry is not None and (not places or self._hurry <= places[0] + 1)
        if not (places or hurries):
            return False
        if hurries:
            self._hurry = None
            self._answer_now.set()
        if self._answer_now.is_set():
            self._is_ending = self._has_answer or (bool(places) and self._gives_answer(places[0]))
        if self._is_ending:
            places.sort(key=self._find_end)
        else:
            places = [] if hurries else places[:1]
        for place in places:
            future = self._waiting.pop(place)
            if not future.done():
                future.set_result(None)
        return True

    def _gives_answer(self, place: int) -> bool:
        step = self._step_of.get(place)
        return step is not None and isinstance(step.result, AnswerSubmitted)

    def _find_end(self, place: int) -> int:
        """Return the place of the last item of the step to which this one belongs."""
        step = self._step_of.get(place)
        return place if step is None else step.items[-1][0]

    def _dump(self, event: Event) -> str:
        skipped = self._skipped if isinstance(event, _ENDS) else _FROM_OUTSIDE
        return EVENT.dump_json(event, exclude=skipped).decode()


def _is_compared(event: Event) -> bool:
    """Whether the turn makes this event itself; others may stand anywhere."""
    if isinstance(event, ContextCompressed | ContextMeasured):
        return event.round > 0
    if isinstance(event, ToolReturned):
        return bool(event.call_id)
    return isinstance(event, (*_WORK, *_DECISIONS, *_REPLIES))


def _stream_of(event: Event) -> str:
    """Return whose event it is: events of several agents may stand in any order. "": the council's."""
    return "" if isinstance(event, WinnerDecided) else getattr(event, "agent_id", "")


class _RecordedAgent:
    """An agent that does what it did."""

    order = ""

    def __init__(
        self,
        agent_id: str,
        name: str,
        steps: Mapping[StepKey, RecordedStep],
        wait: Callable[[int], asyncio.Future[None]],
    ) -> None:
        self.id = agent_id
        self.name = name
        self._steps = steps
        self._wait = wait

    def answer(self, question: str, round_: int, cost: StepCost) -> AsyncGenerator[Work | Result, None]:
        return self._play(round_, "answer", cost)

    def vote(
        self, question: str, round_: int, candidates: Sequence[Candidate], cost: StepCost, *, final: bool
    ) -> AsyncGenerator[Work | Result, None]:
        return self._play(round_, "vote", cost)

    def present(
        self,
        question: str,
        round_: int,
        candidates: Sequence[Candidate],
        cost: StepCost,
        schema: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[Work | Presentation, None]:
        return self._play(round_, "present", cost)

    async def _play(self, round_: int, name: StepName, cost: StepCost) -> AsyncGenerator[Any, None]:
        step = self._steps.get((self.id, round_, name))
        if step is not None:
            async for item in play_step(step, cost, self._wait):
                yield item
        if step is None or not step.is_whole:
            await self._wait(-1)


def describe_result(step: RecordedStep) -> str:
    """Return what an agent did in a step, in one text: its answer, whom it voted for and why, or what it failed of."""
    if step.presentation is not None:
        return step.presentation[1].text
    match step.result:
        case AnswerSubmitted(content=content):
            return content
        case BallotCast(choice=choice, reason=reason):
            return f"votes for {choice}: {reason}"
        case ParamRequested(param=param):
            return f"asks for {param}"
        case AgentFailed(message=message):
            return f"failed: {message}"
        case _:
            return "was cut off"
