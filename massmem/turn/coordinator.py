"""A turn: rounds of answers and ballots until a winner is found and its final answer written.

One async generator of events. It knows neither store nor screen; it is handed what the log already holds of the turn
and goes on from there, so a turn that was cut off and one that was not take the same path.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from massmem import params
from massmem.config.models import CoordinationConfig, ParamConfig
from massmem.errors import (
    InternalError,
    LimitReached,
    MassmemError,
    NotAnActionError,
    ProviderError,
    ProviderUnavailable,
    TurnError,
)
from massmem.events import (
    AgentFailed,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    Limit,
    Notice,
    ParamRequested,
    RoundStarted,
    Step,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
    WinnerDecided,
)
from massmem.messages import Usage
from massmem.replies import Reply
from massmem.turn.agent import Agent, Spent
from massmem.turn.budget import Budget
from massmem.turn.parallel import in_parallel
from massmem.voting import Tally, confidence

log = logging.getLogger(__name__)

_REPORT = "this is a bug in massmem: please report it, with the traceback from its log (there is none with --no-store)"

Act = AsyncGenerator[Event, None]


@dataclass(slots=True)
class Turn:
    """What a turn needs: its place in the session, the question, and what the log holds of it already (`past`).

    news: what the user has said to it beside the question. params: what agents may ask for, as far as it is configured.
    """

    session_id: str
    number: int
    question: str
    seed: int
    past: Sequence[Event] = ()
    news: Sequence[Event] = ()
    params: Mapping[str, ParamConfig] = field(default_factory=dict[str, ParamConfig])


@dataclass(slots=True)
class _Run:
    turn: Turn
    agents: Mapping[str, Agent]
    settings: CoordinationConfig
    deadline: float
    budget: Budget
    tally: Tally = field(default_factory=Tally)
    failures: dict[str, MassmemError] = field(default_factory=dict[str, MassmemError])
    timed_out: bool = False
    cut: dict[str, tuple[str, Usage]] = field(default_factory=dict[str, tuple[str, Usage]])
    """What agents had said of an answer when a limit ended it, and what that cost."""
    lost: Usage = field(default_factory=Usage)
    """What steps cost that came to nothing, and are in no event."""

    @property
    def limit(self) -> Limit | None:
        """Why the turn ends before its time."""
        return "timeout" if self.timed_out else self.budget.reached


async def run_turn(
    turn: Turn, agents: Mapping[str, Agent], settings: CoordinationConfig, budget: Budget | None = None
) -> AsyncGenerator[Event, None]:
    """Run a turn, or the rest of it, and yield its events in the order that massmem.events states.

    agents: by id, in configuration order. The generator always ends with turn_completed, turn_failed or turn_waiting;
    closing it cancels every request in flight. Time is limited by `settings.timeout`, in seconds from this call;
    budget: knows prices, and ends the turn when the agents' requests, which it weighs, come to a limit.
    """
    run = _Run(turn, agents, settings, asyncio.get_running_loop().time() + settings.timeout, budget or Budget())
    run.tally.apply_all(turn.past)
    run.budget.begin(run.tally.usage)
    for stage in (_opening(run), _rounds(run), _ending(run)):
        async with aclosing(stage) as events:
            async for told in events:
                event = _priced(run, told)
                run.tally.apply(event)
                yield event


def _priced(run: _Run, event: Event) -> Event:
    match event:
        case AnswerSubmitted() | BallotCast() | ParamRequested() | AgentFailed():
            return event.model_copy(update={"usage": run.budget.priced(event.agent_id, event.usage)})
        case _:
            return event


async def _opening(run: _Run) -> AsyncGenerator[Event, None]:
    turn, ids = run.turn, tuple(run.agents)
    if turn.past:
        yield TurnResumed(session_id=turn.session_id, turn=turn.number, question=turn.question, agents=ids)
    else:
        yield TurnStarted(
            session_id=turn.session_id, turn=turn.number, question=turn.question, agents=ids, seed=turn.seed
        )
    for event in turn.news:
        yield event


async def _rounds(run: _Run) -> AsyncGenerator[Event, None]:
    """Rounds until the tally is decided, nobody is left, the rounds or a limit are used up, or the user is needed."""
    tally, last = run.tally, run.settings.max_rounds
    if tally.winner is not None:
        return
    unfinished = tally.round > 0
    while True:
        if not unfinished and (tally.round >= last or _over(run)):
            return
        actors = tally.remaining() if unfinished else tally.next_actors()
        number = tally.round if unfinished else tally.round + 1
        unfinished = False
        if actors:
            async with aclosing(_round(run, number, actors)) as events:
                async for event in events:
                    yield event
        if tally.waiting.request is not None:
            return  # the round goes on when the user has replied
        if voided := tally.voided():
            yield BallotsVoided(round=number, agents=voided)
        if run.limit is not None:
            return


def _over(run: _Run) -> bool:
    tally = run.tally
    if tally.round == 0:
        return not tally.agents
    return not tally.answers or not tally.live() or tally.decided()


async def _round(run: _Run, number: int, actors: tuple[str, ...]) -> AsyncGenerator[Event, None]:
    final = 1 < number == run.settings.max_rounds
    yield RoundStarted(round=number, agents=actors, final=final)
    steps = [_act(run, run.agents[agent_id], number, final=final) for agent_id in actors]
    async with aclosing(_in_parallel(run, steps)) as events:
        async for event in events:
            yield _numbered(run.tally, event)


def _numbered(tally: Tally, event: Event) -> Event:
    """Give an answer its place among all answers of the turn."""
    if isinstance(event, AnswerSubmitted):
        return event.model_copy(update={"number": tally.number + 1})
    return event


async def _act(run: _Run, agent: Agent, number: int, *, final: bool) -> AsyncGenerator[Event, None]:
    """One agent's step in a round; a failure of the agent becomes an event and harms nobody else."""
    spent = Spent(Usage())
    step: Step = "answer" if number == 1 else "vote"

    def start() -> Act:
        if step == "answer":
            return agent.answer(run.turn.question, number, spent)
        candidates = run.tally.candidates(agent.id, list(run.tally.visible.values()))
        return agent.act(run.turn.question, number, candidates, spent, final=final)

    async for event in _guarded(run, agent, number, step, spent, start):
        yield event


async def _guarded(
    run: _Run, agent: Agent, number: int, step: Step, spent: Spent, start: Callable[[], Act]
) -> AsyncGenerator[Event, None]:
    error: MassmemError
    try:
        async with aclosing(start()) as events:
            async for event in events:
                yield event
        return
    except LimitReached as e:
        _cut_off(run, agent.id, step, spent, e.partial)
        return
    except asyncio.CancelledError:
        _cut_off(run, agent.id, step, spent, "")
        raise
    except MassmemError as e:
        error = e
    except Exception as e:  # one agent's bug never ends the turn of the others; it is told, its traceback logged
        log.exception("agent %s failed in step %s", agent.id, step)
        error = InternalError(f"internal error: {type(e).__name__}", _REPORT)
    run.failures[agent.id] = error
    yield AgentFailed(
        agent_id=agent.id,
        round=number,
        step=step,
        error=type(error).__name__,
        message=error.message,
        hint=error.hint,
        partial=error.partial if isinstance(error, ProviderError) else "",
        out=not isinstance(error, NotAnActionError),
        usage=spent.usage,
    )


def _cut_off(run: _Run, agent_id: str, step: Step, spent: Spent, partial: str) -> None:
    used = run.budget.priced(agent_id, spent.usage)
    if step == "answer" and partial.strip():
        run.cut[agent_id] = partial.strip(), used
    else:
        run.lost += used


async def _in_parallel(run: _Run, steps: Sequence[AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
    """Merge the events of all steps until the time is up, or a limit passed."""
    merged = in_parallel(steps, run.settings.max_concurrency, run.deadline, lambda: run.budget.exhausted)
    try:
        async with aclosing(merged) as events:
            async for event in events:
                yield event
    except TimeoutError:
        run.timed_out = True


async def _ending(run: _Run) -> AsyncGenerator[Event, None]:
    """The winner and its final answer, or why there is none, or what is waited for."""
    tally = run.tally
    if (request := tally.waiting.request) is not None:
        yield _waiting(run, request)
        return
    for event in _cut_answer(run):
        yield event
    if not tally.answers:
        yield _turn_failed(run)
        return
    if tally.winner is None:
        yield tally.decide()
    winner = tally.winner
    assert winner is not None  # the event just yielded was applied to the tally
    reply, spent = Reply(), Spent(Usage())
    presenter = run.agents.get(winner.agent_id)
    if presenter is not None and _wants_presentation(run):
        async with aclosing(_presentation(run, presenter, reply, spent)) as events:
            async for event in events:
                yield event
    yield _completed(run, winner, reply, spent)


def _cut_answer(run: _Run) -> list[Event]:
    """When a limit left no answer, the longest beginning of one is it: it has been paid for."""
    longest = max(run.cut, key=lambda agent_id: len(run.cut[agent_id][0]), default=None)
    told: list[Event] = []
    if longest is not None and not run.tally.answers:
        text, used = run.cut.pop(longest)
        number = run.tally.number + 1
        told = [
            Notice(message=f"the answer of {longest} is cut off: {run.budget.failure()[0]}"),
            AnswerSubmitted(agent_id=longest, round=run.tally.round, number=number, content=text, usage=used),
        ]
    for _, used in run.cut.values():
        run.lost += used
    return told


def _waiting(run: _Run, request: ParamRequested) -> TurnWaiting:
    waiting, name = run.tally.waiting, request.param
    asked = waiting.asked(name)
    prompt = params.question(name, run.turn.params.get(name, ParamConfig()), request.prompt, asked)
    last = waiting.last
    return TurnWaiting(
        param=name,
        prompt=prompt,
        agents=waiting.needing(name),
        asked=asked,
        shown=last is not None and (last.param, last.asked) == (name, asked),
        usage=run.tally.usage + run.lost,
    )


def _wants_presentation(run: _Run) -> bool:
    """There are two answers at least to write from, and no limit is reached."""
    return run.settings.presentation == "synthesize" and len(run.tally.answers) > 1 and run.limit is None


async def _presentation(run: _Run, agent: Agent, reply: Reply, spent: Spent) -> AsyncGenerator[Event, None]:
    number, tally = run.tally.round, run.tally
    candidates = tally.candidates(agent.id, list(tally.answers.values()))

    def start() -> Act:
        return agent.present(run.turn.question, number, candidates, reply, spent)

    async with aclosing(_in_parallel(run, [_guarded(run, agent, number, "present", spent, start)])) as events:
        async for event in events:
            yield event
            if isinstance(event, AgentFailed):
                reply.finish = None
    if reply.finish is None:
        yield Notice(message=f"{agent.id} could not write the final answer; its answer is shown as it is")


def _completed(run: _Run, winner: WinnerDecided, reply: Reply, spent: Spent) -> TurnCompleted:
    presented, bound = reply.finish is not None, run.settings.escalate_below
    used = run.tally.usage + run.lost
    sure = confidence(winner.votes, winner.agent_id, len(run.tally.agents), run.tally.round)
    return TurnCompleted(
        winner=winner.agent_id,
        answer=reply.text.strip() if presented else run.tally.answers[winner.agent_id].content,
        reasoning=reply.reasoning if presented else "",
        presented=presented,
        usage=used + run.budget.priced(winner.agent_id, spent.usage) if presented else used,
        limit=run.limit,
        confidence=sure,
        escalated=sure is not None and bound is not None and sure < bound,
    )


def _turn_failed(run: _Run) -> TurnFailed:
    used = run.tally.usage + run.lost
    if run.limit is not None:
        message, hint = f"no agent answered within {run.settings.timeout:g} seconds", "raise coordination.timeout"
        if not run.timed_out:
            message, hint = run.budget.failure()
        return TurnFailed(message=message, hint=hint, exit_code=LimitReached.exit_code, usage=used)
    errors = list(run.failures.values())
    messages = {e.message for e in errors}
    message = messages.pop() if len(messages) == 1 else "; ".join(f"{a}: {e.message}" for a, e in run.failures.items())
    return TurnFailed(
        message=f"no agent could answer: {message}",
        hint=next((e.hint for e in errors if e.hint), ""),
        exit_code=_exit_code(errors),
        usage=used,
    )


def _exit_code(errors: Sequence[MassmemError]) -> int:
    """The agents' common code; when they differ, 3 (run it again) if that may help one of them, else 1."""
    codes = {e.exit_code for e in errors}
    if len(codes) == 1:
        return codes.pop()
    return (
        ProviderUnavailable.exit_code
        if any(isinstance(e, ProviderError) and e.retryable for e in errors)
        else TurnError.exit_code
    )
