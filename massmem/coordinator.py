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
from massmem.agent import Agent, Spent
from massmem.config.models import CoordinationConfig, ParamConfig
from massmem.errors import LimitReached, NotAnActionError, ProviderError, ProviderUnavailable, TurnError
from massmem.events import (
    AgentFailed,
    AnswerSubmitted,
    BallotsVoided,
    Event,
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
from massmem.voting import Tally, confidence

log = logging.getLogger(__name__)

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
    tally: Tally = field(default_factory=Tally)
    failures: dict[str, ProviderError] = field(default_factory=dict[str, ProviderError])
    timed_out: bool = False


async def run_turn(
    turn: Turn, agents: Mapping[str, Agent], settings: CoordinationConfig
) -> AsyncGenerator[Event, None]:
    """Run a turn, or the rest of it, and yield its events in the order that massmem.events states.

    agents: by id, in configuration order. The generator always ends with turn_completed, turn_failed or turn_waiting;
    closing it cancels every request in flight. Time is limited by `settings.timeout`, in seconds from this call.
    """
    run = _Run(turn, agents, settings, asyncio.get_running_loop().time() + settings.timeout)
    run.tally.apply_all(turn.past)
    for stage in (_opening(run), _rounds(run), _ending(run)):
        async with aclosing(stage) as events:
            async for event in events:
                run.tally.apply(event)
                yield event


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
    """Rounds until the tally is decided, nobody is left, the rounds are used up, the time is, or the user is needed."""
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
        if run.timed_out:
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
    error: ProviderError
    try:
        async with aclosing(start()) as events:
            async for event in events:
                yield event
        return
    except ProviderError as e:
        error = e
    except Exception as e:  # one failing agent never ends the turn of the others; the log names the bug
        log.exception("agent %s failed in step %s", agent.id, step)
        error = ProviderError(f"internal error: {type(e).__name__}", "the log file has the details; please report it")
    run.failures[agent.id] = error
    yield AgentFailed(
        agent_id=agent.id,
        round=number,
        step=step,
        error=type(error).__name__,
        message=error.message,
        hint=error.hint,
        partial=error.partial,
        out=not isinstance(error, NotAnActionError),
        usage=spent.usage,
    )


async def _in_parallel(run: _Run, steps: Sequence[AsyncGenerator[Event, None]]) -> AsyncGenerator[Event, None]:
    """Merge the events of all steps as they come, `max_concurrency` steps at a time, until the deadline."""
    queue: asyncio.Queue[Event | None] = asyncio.Queue()
    gate = asyncio.Semaphore(run.settings.max_concurrency)

    async def pump(step: AsyncGenerator[Event, None]) -> None:
        try:
            async with gate, aclosing(step) as events:
                async for event in events:
                    queue.put_nowait(event)
        finally:
            queue.put_nowait(None)

    tasks: list[asyncio.Task[None]] = []

    async def start() -> None:
        for step in steps:
            tasks.append(asyncio.create_task(pump(step)))
            await asyncio.sleep(0)  # a request takes a millisecond to send; the loop is free between any two

    starter = asyncio.create_task(start())
    running = len(steps)
    try:
        while running:
            async with asyncio.timeout_at(run.deadline):
                event = await queue.get()
            if event is None:
                running -= 1
            else:
                yield event
    except TimeoutError:
        run.timed_out = True
    finally:
        starter.cancel()
        await asyncio.gather(starter, return_exceptions=True)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ending(run: _Run) -> AsyncGenerator[Event, None]:
    """The winner and its final answer, or why there is none, or what is waited for."""
    tally = run.tally
    if (request := tally.waiting.request) is not None:
        yield _waiting(run, request)
        return
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
        usage=run.tally.usage,
    )


def _wants_presentation(run: _Run) -> bool:
    """There are two answers at least to write from, and time is left."""
    return run.settings.presentation == "synthesize" and len(run.tally.answers) > 1 and not run.timed_out


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
    sure = confidence(winner.votes, winner.agent_id, len(run.tally.agents), run.tally.round)
    return TurnCompleted(
        winner=winner.agent_id,
        answer=reply.text.strip() if presented else run.tally.answers[winner.agent_id].content,
        reasoning=reply.reasoning if presented else "",
        presented=presented,
        usage=run.tally.usage + spent.usage if presented else run.tally.usage,
        limit="timeout" if run.timed_out else None,
        confidence=sure,
        escalated=sure is not None and bound is not None and sure < bound,
    )


def _turn_failed(run: _Run) -> TurnFailed:
    if run.timed_out:
        message = f"no agent answered within {run.settings.timeout:g} seconds"
        return TurnFailed(
            message=message, hint="raise coordination.timeout", exit_code=LimitReached.exit_code, usage=run.tally.usage
        )
    errors = list(run.failures.values())
    messages = {e.message for e in errors}
    message = messages.pop() if len(messages) == 1 else "; ".join(f"{a}: {e.message}" for a, e in run.failures.items())
    return TurnFailed(
        message=f"no agent could answer: {message}",
        hint=next((e.hint for e in errors if e.hint), ""),
        exit_code=_exit_code(errors),
        usage=run.tally.usage,
    )


def _exit_code(errors: Sequence[ProviderError]) -> int:
    """The agents' common code; when they differ, 3 (run it again) if that may help one of them, else 1."""
    codes = {e.exit_code for e in errors}
    if len(codes) == 1:
        return codes.pop()
    return ProviderUnavailable.exit_code if any(e.retryable for e in errors) else TurnError.exit_code
