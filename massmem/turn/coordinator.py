"""A turn: rounds of answers and ballots until there is a winner, and its final answer.

It knows neither store nor screen: it emits events. It is given what the log already holds of the turn and goes on from
there, so that a turn that was cut off and one that was not take the same path.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from massmem.config.models import CoordinationConfig
from massmem.core import events as ev
from massmem.core import params
from massmem.core.criticism import name_labels
from massmem.core.errors import (
    InternalError,
    LimitReached,
    MassmemError,
    NotAnActionError,
    ProviderError,
    ProviderUnavailable,
    TurnError,
)
from massmem.core.messages import AttachedFile, Usage, split_question
from massmem.core.params import ParamSpec
from massmem.core.report import CarriedOut
from massmem.core.reporting import Authors, report_votes
from massmem.core.turn_result import TurnResult
from massmem.core.verdict import (
    NO_VOTE,
    Calibration,
    Judgement,
    Policy,
    describe_agreement,
    describe_depth,
    describe_measured_confidence,
    read_pattern,
    write_unsure,
)
from massmem.core.voting import Answer, Dissent, Tally
from massmem.memory.budget import Budget
from massmem.providers.pricing import Price
from massmem.turn.agent import Agent, Presentation, StepResult
from massmem.turn.carry_out import add_outcome, carry_out
from massmem.turn.depth import Comparison, asks_for_text, choose_first_agents, compare_answers, is_worth_comparing
from massmem.turn.fallback import OUTAGES
from massmem.turn.outbox import Outbox, run_until
from massmem.turn.request import EndOfWork, StepCost, Task
from massmem.turn.vision import Description

log = logging.getLogger(__name__)

R = TypeVar("R", StepResult, Presentation)
_Work = Callable[[], Coroutine[Any, Any, R]]

_REPORT = "this is a bug in massmem: please report it, with the traceback from its log (there is none with --no-store)"


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn before it runs."""

    session_id: str
    number: int
    question: str
    seed: int
    events: Sequence[ev.Event] = ()
    """Those in the log already; empty for a new turn."""
    replies: Sequence[ev.Event] = ()
    """Of the user since then, and of the values of params that came in."""
    params: Mapping[str, ParamSpec] = field(default_factory=dict[str, ParamSpec])
    """Those that are configured: the agents may ask the user for them."""
    answer_schema: Mapping[str, Any] | None = None
    """The JSON Schema that the final answer has to fit."""
    attachments: Sequence[AttachedFile] = ()
    description: Description = field(default_factory=Description)
    """How it was described, at the end of `question`."""
    calibration: Calibration | None = None
    """Of the team as it is; None: there is none."""
    full: bool = False
    """See `TurnStarted`; the next two as well."""
    parent: int | None = None
    withdraws: tuple[int, ...] = ()
    kind: "type[TurnRun] | None" = None
    """Of its shape; None: a vote."""
    job: str = ""
    variation: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Both: see `TurnStarted`."""
    is_own: bool = False
    """The user of this machine asks: what the question names in this network may be read."""
    write_folder: str = ""
    """An agent program carries the answer out in it; "": nobody does."""


async def run_turn(
    turn: Turn,
    agents: Mapping[str, Agent],
    settings: CoordinationConfig,
    outbox: Outbox,
    budget: Budget | None = None,
    answer_now: asyncio.Event | None = None,
) -> None:
    """Run a turn, or the rest of it, and emit its events in the order that massmem.core.events states.

    The last event is turn_completed, turn_failed or turn_waiting. Cancelling it cancels all requests.

    agents: by id, in configuration order. settings.timeout counts from this call. budget: ends the turn when its
    requests come to a limit. answer_now: once it is set, the turn ends with its answers so far, or with the first one.
    """
    deadline = asyncio.get_running_loop().time() + settings.timeout
    is_adaptive = settings.depth == "adaptive" and not turn.full
    policy = Policy(turn.calibration, settings.max_error, settings.escalate_below, adaptive=is_adaptive)
    limits = deadline, budget or Budget(), answer_now or asyncio.Event()
    run = (turn.kind or TurnRun)(turn, agents, settings, outbox, *limits, policy)
    run.tally.apply_all(turn.events)
    earlier = TurnResult.of([*turn.events, *turn.replies])
    run.names = earlier.names | {agent.id: agent.name for agent in agents.values() if agent.name != agent.id}
    run.budget.begin(earlier.usage, deadline, earlier.of_steps)
    outbox.on_event = run.apply
    run.open()
    await run.run_rounds()
    run.decide()
    await run.conclude()


@dataclass(slots=True)
class TurnRun:
    """A turn under way, of shape vote."""

    shape: ClassVar[ev.Shape] = "vote"
    turn: Turn
    agents: Mapping[str, Agent]
    settings: CoordinationConfig
    outbox: Outbox
    deadline: float
    budget: Budget
    answer_now: asyncio.Event
    """The user wants the answer now."""
    policy: Policy
    tally: Tally = field(default_factory=Tally)
    failures: dict[str, MassmemError] = field(default_factory=dict[str, MassmemError])
    timed_out: bool = False
    cut_answers: dict[str, tuple[str, Usage]] = field(default_factory=dict[str, tuple[str, Usage]])
    """Beginnings of answers that a limit cut off, and their cost, by agent."""
    names: dict[str, str] = field(default_factory=dict[str, str])
    """Of the agents that have one, by id."""
    presentation: Presentation | None = None
    """The final answer, once the winner has written it."""
    is_cut: asyncio.Event = field(default_factory=asyncio.Event)
    """The steps under way are to end: a limit is passed, or the user has the answer that is wanted now."""

    def apply(self, event: ev.Event) -> None:
        self.tally.apply(event)
        self._cut_if_over()

    @property
    def limit(self) -> ev.Limit | None:
        """The limit that ends the turn early."""
        return "timeout" if self.timed_out else self.budget.reached

    def open(self) -> None:
        turn, ids = self.turn, tuple(self.agents)
        if not turn.events:
            started = ev.TurnStarted(
                session_id=turn.session_id,
                turn=turn.number,
                question=turn.question,
                agents=ids,
                names=self.names,
                seed=turn.seed,
                weights=self._find_weights(),
                full=turn.full,
                shape=self.shape,
                job=turn.job,
                variation=dict(turn.variation),
                answer_schema=None if turn.answer_schema is None else dict(turn.answer_schema),
                attachments=tuple(turn.attachments),
                description=turn.description.text,
                usage=turn.description.usage,
                parent=turn.parent,
                withdraws=turn.withdraws,
            )
            self.outbox.emit(started)
            if started.weights:
                voices = ", ".join(f"{self._name(agent)} {weight:.2g}" for agent, weight in started.weights.items())
                self._notify(f"voices count by how often each agent was right: {voices}")
        for event in turn.replies:
            self.outbox.emit(event)

    def _find_weights(self) -> dict[str, float]:
        calibration = self.policy.calibration if self.settings.weights == "measured" else None
        weights = {} if calibration is None else calibration.voices
        return weights if weights.keys() >= self.agents.keys() and any(weights.values()) else {}

    async def run_rounds(self) -> None:
        """Run rounds until the votes are decided, the rounds or a limit are used up, or the user is needed."""
        tally = self.tally
        if tally.winner is not None:
            return
        unfinished = tally.round > 0
        if unfinished:
            await self._end_wave()
        while not self._ends_now:
            actors = tally.remaining_actors() if unfinished else self._next_actors()
            if not actors and not unfinished:
                return
            number = tally.round if unfinished else tally.round + 1
            unfinished = False
            if actors:
                await self._run_round(number, actors)
            if tally.waiting.next_request is not None:
                return  # the round goes on when the user has replied
            if voided := tally.list_voided_voters():
                self.outbox.emit(ev.BallotsVoided(round=number, agents=voided))
            if self.limit is not None:
                if late := self._name_late_agents(tally.acting):
                    self._notify(f"{late} did not finish within {self.settings.timeout:g} seconds")
                return

    def _name_late_agents(self, actors: Sequence[str]) -> str:
        """Name those of a round whose time was up before they had acted, when there is an answer without them."""
        unfinished = self.tally.remaining_actors() if self.timed_out and self.tally.answers else ()
        return ", ".join(self._name(agent) for agent in actors if agent in unfinished and agent not in self.failures)

    def _notify(self, message: str) -> None:
        self.outbox.emit(ev.Notice(message=message))

    def _name(self, agent_id: str) -> str:
        return self.names.get(agent_id, agent_id)

    @property
    def _ends_now(self) -> bool:
        """Whether the user wants the answer now and there is one."""
        return (self.tally.answer_now or self.answer_now.is_set()) and bool(self.tally.answers)

    @property
    def _asks_no_more(self) -> bool:
        """Whether no further request is sent for an answer or a vote."""
        return self.limit is not None or self._ends_now

    def _next_actors(self) -> tuple[str, ...]:
        tally = self.tally
        is_over = tally.round > 0 and (not tally.answers or tally.is_decided())
        if is_over or tally.round >= self.settings.max_rounds:
            return ()
        final = self._is_final(tally.round + 1)
        actors = tally.next_actors(
            final=final,
            early_stop=final and self.settings.early_stop,
            majority_wins=final and self.settings.majority_wins,
        )
        # Who wants a report wants to know what each agent says.
        is_adaptive = self.policy.adaptive and self.settings.presentation != "report"
        if tally.round > 0 or not is_adaptive:
            return actors
        if self._asks_for_text:
            return actors[:1]
        two = self.policy.calibration.first if self.policy.calibration else ()
        return two if two and {*two} <= {*actors} else choose_first_agents([self.agents[a].config for a in actors])

    @property
    def _asks_for_text(self) -> bool:
        return asks_for_text(split_question(self.turn.question, self.turn.attachments)[0])

    async def _end_wave(self) -> None:
        """Do what follows once agents have acted, also when the turn was cut off before that."""
        await self._decide_depth()

    async def _decide_depth(self) -> None:
        """Decide whether the agents that were asked first are enough; else the others act in the same round."""
        tally = self.tally
        if not tally.awaits_depth:
            return
        asked, rest = tally.acting, tuple(agent for agent in tally.agents if agent not in tally.acting)
        reason = self._find_reason()
        comparison = await self._compare(asked[0], rest) if reason == "not_compared" else None
        if comparison is not None:
            reason = "said_same" if comparison.same else "differ"
        difference, usage = ("", Usage()) if comparison is None else (comparison.difference, comparison.usage)
        enough = reason in ("asks_for_text", "same", "said_same")
        if not enough and self._asks_no_more:
            return
        others = rest[:1] if self._asks_for_text and not enough else rest
        names, other_names = list(map(self._name, asked)), list(map(self._name, others))
        text = describe_depth(reason, names, other_names, enough=enough, difference=difference)
        next_agents = () if enough else others
        self.outbox.emit(
            ev.DepthDecided(round=tally.round, asked=asked, next=next_agents, reason=reason, text=text, usage=usage)
        )

    def _find_reason(self) -> ev.DepthReason:
        """Return why the agents that were asked are enough, or not, as far as code can tell."""
        tally, authors = self.tally, [agent for agent in self.tally.acting if agent in self.tally.answers]
        if self._asks_for_text and authors:
            return "asks_for_text"
        if len(authors) < 2:
            return "failed"
        pattern = read_pattern(tally, authors[0])
        if pattern.against:
            return "differ"
        agreeing = replace(pattern, behind=tuple(sorted(authors)), uncompared=0)
        if not self.policy.is_sure(agreeing, None, 1.0):  # then it need not be known whether they agree
            return "not_sure"
        return "same" if tally.has_one_answer else "not_compared"

    async def _compare(self, agent_id: str, others: Sequence[str]) -> Comparison | None:
        """Let the agent compare the answers; None: that is not worth its price, or failed."""
        tally, agent, comparisons = self.tally, self.agents[agent_id], list[Comparison]()
        if self._asks_no_more or any(answer.truncated for answer in tally.answers.values()):
            return None
        candidates = tally.build_candidates(agent_id, tally.answers, agent.order)
        prices, votes = [self.agents[other].price for other in others], self.settings.max_rounds > 1
        if not is_worth_comparing(self.turn.question, candidates, tally.usage, agent.price, prices, votes=votes):
            return None

        async def compare() -> None:
            await self.outbox.wait_until_stored()
            try:
                comparisons.append(await compare_answers(agent, self.turn.question, candidates))
            except LimitReached as e:
                log.info("%s: the answers are not compared: %s", agent_id, e)  # the end of the turn says why
            except MassmemError as e:
                self._notify(f"{agent.name} could not compare the answers: {e.message}")

        await self._run_together([compare])
        return comparisons[0] if comparisons else None

    def _is_final(self, number: int) -> bool:
        return 1 < number == self.settings.max_rounds

    async def _run_round(self, number: int, actors: tuple[str, ...]) -> None:
        """Run a round, or the rest of it: all agents at the same time, in early stop in two waves at most."""
        final, tally = self._is_final(number), self.tally
        early_stop = final and self.settings.early_stop if number > tally.round else bool(tally.first_wave)
        self.outbox.emit(ev.RoundStarted(round=number, agents=actors, final=final, early_stop=early_stop))
        asked: set[str] = set()  # a limit leaves agents without an event
        while wave := [agent for agent in tally.choose_actors() if agent not in asked]:
            if self._asks_no_more:
                return
            asked.update(wave)
            await self._run_together([self._prepare_step(self.agents[agent], number, final=final) for agent in wave])
            await self._end_wave()

    def _prepare_step(self, agent: Agent, number: int, *, final: bool) -> Callable[[], Coroutine[Any, Any, None]]:
        cost, question = StepCost(find_end=self._find_end_of_work), self.turn.question
        if number == 1:
            task = Task(question, number, cost, self.outbox, answer_schema=self.turn.answer_schema)
            return partial(self._run_step, agent, task, "answer", partial(agent.answer, task))
        task = self._build_task(agent, number, cost, self.tally.visible_answers)
        return partial(self._run_step, agent, task, "vote", partial(agent.vote, task, final=final))

    def _build_task(self, agent: Agent, number: int, cost: StepCost, answers: Mapping[str, Answer]) -> Task:
        """Return the task to judge answers, or to write the final one from them."""
        tally = self.tally
        candidates = tally.build_candidates(agent.id, answers, agent.order)
        criticism, schema = tally.list_criticism(agent.id, candidates), self.turn.answer_schema
        return Task(self.turn.question, number, cost, self.outbox, candidates, criticism, schema)

    async def _run_step(self, agent: Agent, task: Task, step: ev.Step, work: _Work[StepResult]) -> None:
        result = await self._guard(agent, task.round, step, task.cost, work)
        if isinstance(result, ev.BallotCast | ev.AnswerSubmitted) and result.reason:
            # Its letters are those of this agent: every other reader has other ones.
            names = {c.label: self.tally.name_answer(c.agent_id) for c in task.candidates}
            reason = name_labels(result.reason, names, task.question, [c.content for c in task.candidates])
            result = result.model_copy(update={"reason": reason})
        if isinstance(result, ev.AnswerSubmitted):
            result = result.model_copy(update={"number": self.tally.answer_count + 1})
        if result is not None:
            self.outbox.emit(result)

    def _find_end_of_work(self, price: Price, tokens: int, seconds: float) -> EndOfWork | None:
        """See `StepCost.find_end`."""
        return "answer_now" if self.answer_now.is_set() else self.budget.find_near_limit(price, tokens, seconds)

    async def _guard(self, agent: Agent, number: int, step: ev.Step, cost: StepCost, work: _Work[R]) -> R | None:
        """Return the result of a step. A failure of the agent becomes an event and harms nobody else.

        The step begins once everything that it rests on is stored, the event of its beginning included.
        """
        self.outbox.emit(ev.AgentStarted(agent_id=agent.id, round=number, step=step))
        await self.outbox.wait_until_stored()
        error: MassmemError
        try:
            return await work()
        except LimitReached as e:
            if step == "answer" and e.partial.strip():
                self.cut_answers[agent.id] = e.partial.strip(), cost.usage
            return None
        except MassmemError as e:
            error = e
        except Exception as e:  # a bug in one agent's step does not end the turn of the others
            log.exception("agent %s failed in step %s", agent.id, step)
            error = InternalError(f"internal error: {type(e).__name__}", _REPORT)
        self.failures[agent.id] = error
        failed = ev.AgentFailed(
            agent_id=agent.id,
            round=number,
            step=step,
            error=type(error).__name__,
            message=error.message,
            hint=error.hint,
            partial=error.partial if isinstance(error, ProviderError) else "",
            out=not isinstance(error, NotAnActionError),
            usage=cost.usage,
        )
        self.outbox.emit(failed)
        return None

    async def _run_together(self, steps: Sequence[Callable[[], Coroutine[Any, Any, None]]]) -> None:
        """Run steps until all have ended, the time is up, a limit is passed or the user wants the answer now."""
        gate = asyncio.Semaphore(self.settings.max_concurrency)

        async def run(step: Callable[[], Coroutine[Any, Any, None]]) -> None:
            async with gate:
                await step()
            self._cut_if_over()

        async def run_all() -> None:
            async with asyncio.TaskGroup() as group:
                for step in steps:
                    group.create_task(run(step))

        self.is_cut.clear()
        self._cut_if_over()
        announcing = asyncio.create_task(self._announce_answer_now())
        try:
            async with asyncio.timeout_at(self.deadline):
                await run_until(self.is_cut, run_all())
        except TimeoutError:
            self.timed_out = True
        finally:
            announcing.cancel()

    async def _announce_answer_now(self) -> None:
        await self.answer_now.wait()
        if not self.tally.answer_now:
            self.outbox.emit(ev.AnswerNowRequested())

    def _cut_if_over(self) -> None:
        # An answer that has to fit a schema is none before it is presented.
        presents_form = self.tally.winner is not None and self.turn.answer_schema is not None
        if self.budget.exhausted or (self._ends_now and not presents_form):
            self.is_cut.set()

    def decide(self) -> None:
        """Emit the winner, or why there is none, or what is waited for."""
        tally = self.tally
        if (request := tally.waiting.next_request) is not None:
            self.outbox.emit(self._build_waiting(request))
            return
        self._use_cut_answer()
        if self.answer_now.is_set() and not tally.answer_now:
            self.outbox.emit(ev.AnswerNowRequested())  # it came between two steps
        if not tally.answers:
            self.outbox.emit(self._build_failure())
        elif tally.winner is None:
            self.outbox.emit(self._decide_winner())

    def _decide_winner(self) -> ev.WinnerDecided:
        return self.tally.decide_winner(self.limit, self.settings.max_rounds)

    async def conclude(self) -> None:
        """Let the winner write the final answer, where that is wanted, and end the turn."""
        winner = self.tally.winner
        if winner is None:
            return
        judgement = self.policy.judge(self.tally)
        presenter = self.agents.get(winner.agent_id) if self._needs_presentation(winner, judgement) else None
        if presenter is not None and self._wants_report:
            await self._run_together([partial(self._present, presenter, report=True)])
            error = self.failures.get(presenter.id)
            if self.presentation is None and self.limit is None and not self._ends_now:
                self._notify(f"{self._name(presenter.id)} could not write the report; it is made from the votes")
                presenter = presenter if isinstance(error, NotAnActionError) else None
        if presenter is not None and self.presentation is None and self.limit is None:
            await self._run_together([partial(self._present, presenter)])
        form_error, error = "", self.failures.get(winner.agent_id)
        if self.presentation is None and self.turn.answer_schema is not None:
            without = self._build_without_form(winner.agent_id)
            if self.limit is None and isinstance(error, ProviderError) and not isinstance(error, NotAnActionError):
                self.outbox.emit(without)  # the next run asks for the form alone
                return
            form_error = without.message
            self._notify(f"{form_error}; the text is shown")
        elif self.presentation is None and presenter is not None and not self._ends_now:
            self._notify(f"{self._name(presenter.id)} could not write the final answer; its answer is shown as it is")
        completed = self._build_completion(winner, judgement, form_error)
        for flaw in self._list_flaws(winner, completed):
            self._notify(flaw)
        if self.turn.write_folder:
            done = await self._carry_out(self.turn.write_folder, completed)
            completed = add_outcome(completed, done, self._name(done.agent_id))
            completed = completed.model_copy(update={"usage": self.budget.usage, "limit": self.limit})
        self.outbox.emit(completed)

    async def _carry_out(self, folder: str, completed: ev.TurnCompleted) -> CarriedOut:
        """Have the answer carried out by the winner, else by the first agent program; return what was done."""
        programs = [agent for agent in self.agents.values() if agent.config.backend.is_program]
        error = "the agents are not sure of the answer" if completed.verdict == "unsure" else ""
        error = error or ("the turn had to end before" if self._asks_no_more else "")
        if error or not programs:
            return CarriedOut(folder, error=error or "no agent of the team is an agent program")
        agent = next((agent for agent in programs if agent.id == completed.winner), programs[0])
        task = Task(self.turn.question, self.tally.round, StepCost(), self.outbox)
        done = await carry_out(agent, folder, completed, task, self.budget, self._run_together)
        if done.error and self.limit is not None:
            done = replace(done, error=self._explain_limit(f"{self.settings.timeout:g} seconds were over")[0])
        return done

    def _list_flaws(self, winner: ev.WinnerDecided, completed: ev.TurnCompleted) -> Iterator[str]:
        """Yield what the user should know of the answer."""
        name = self._name(winner.agent_id)
        if winner.by == "no_vote":
            why = NO_VOTE[winner.no_vote or "failed"]
            yield f"{why}: the answer of {name} is shown, and no other agent has confirmed it"
        if completed.truncated and self.limit is None:
            hint = "raise its backend.max_tokens and ask again"
            yield f"the answer is cut off: {name} reached the limit of tokens for a reply; {hint}"

    def _needs_presentation(self, winner: ev.WinnerDecided, judgement: Judgement) -> bool:
        """There are two answers to write from and the user waits, or there is a form; and no limit is reached.

        Nobody writes down an answer that is not sure.
        """
        tally, kind, has_form = self.tally, self.settings.presentation, self.turn.answer_schema is not None
        if has_form or self.limit is not None:
            return self.limit is None
        if kind == "as_is" or tally.has_one_answer or self._ends_now or judgement.verdict == "unsure":
            return False
        return kind in ("synthesize", "report") or not tally.answers[winner.agent_id].short.is_bare

    @property
    def _wants_report(self) -> bool:
        return self.settings.presentation == "report" and self.turn.answer_schema is None

    async def _present(self, agent: Agent, *, report: bool = False) -> None:
        number, tally, cost = self.tally.round, self.tally, StepCost()
        task = self._build_task(agent, number, cost, tally.answers)
        if report:
            labels = {c.label: tally.list_authors(c.agent_id) for c in task.candidates}
            authors = Authors(labels, self._name, list(dict.fromkeys((*self.agents, *tally.answers))))
            work = partial(agent.report, task, authors)
        else:
            work = partial(agent.present, task)
        self.presentation = await self._guard(agent, number, "present", cost, work)

    def _use_cut_answer(self) -> None:
        """When a limit left no answer, the longest beginning of one is it: it has been paid for."""
        longest = max(self.cut_answers, key=lambda agent_id: len(self.cut_answers[agent_id][0]), default=None)
        if longest is not None and not self.tally.answers:
            text, usage = self.cut_answers.pop(longest)
            self._notify(f"the answer of {self._name(longest)} is cut off: {self.budget.explain_limit()[0]}")
            number = self.tally.answer_count + 1
            cited = self.agents[longest].cite(text)
            answer = ev.AnswerSubmitted(
                agent_id=longest,
                round=self.tally.round,
                number=number,
                content=cited.text,
                usage=usage,
                truncated=True,
                citations=cited.citations,
            )
            self.outbox.emit(answer)

    def _build_waiting(self, request: ev.ParamRequested) -> ev.TurnWaiting:
        waiting, name = self.tally.waiting, request.param
        agents = tuple(open_request.agent_id for open_request in waiting.open_requests if open_request.param == name)
        asked = waiting.ask_number(name)
        prompt = params.build_question(name, self.turn.params.get(name, ParamSpec()), request.prompt, asked)
        last = waiting.last_shown
        return ev.TurnWaiting(
            param=name,
            prompt=prompt,
            agents=agents,
            agent_name=self.names.get(agents[0], ""),
            asked=asked,
            shown=last is not None and (last.param, last.asked) == (name, asked),
            usage=self.budget.usage,
        )

    def _describe_agreement(
        self, winner: ev.WinnerDecided, dissent: Dissent | None, judgement: Judgement, *, presented: bool
    ) -> str:
        """Return how far the agents agree, and how often answers with such agreement were right."""
        tally, measured = self.tally, judgement.measured
        agreement = describe_agreement(
            winner,
            dissent,
            len(tally.council),
            self._name(winner.agent_id),
            presented=presented,
            not_needed=[self._name(agent) for agent in winner.not_asked] if tally.is_enough else (),
        )
        if tally.depth is not None and not agreement:
            agreement = tally.depth.text  # one agent was enough
        return "; ".join(filter(None, (agreement, measured and describe_measured_confidence(measured))))

    def _build_completion(self, winner: ev.WinnerDecided, judgement: Judgement, form_error: str) -> ev.TurnCompleted:
        tally, answer, presentation = self.tally, self.tally.answers[winner.agent_id], self.presentation
        dissent = tally.find_dissent(winner.agent_id)
        report = None if presentation is None else presentation.report
        if report is None and self.settings.presentation == "report" and dissent is not None:
            citations = {answer.agent_id: answer.citations for answer in tally.answers.values()}
            report = report_votes(dissent, winner.agent_id, citations)
        text, sources = answer.content, answer.citations
        if presentation is not None:
            text, sources = presentation.text, presentation.citations
        elif judgement.verdict == "unsure":
            text, sources = write_unsure(judgement.candidates, answer.citations, self._name)
        return ev.TurnCompleted(
            winner=winner.agent_id,
            winner_name=self.names.get(winner.agent_id, ""),
            answer=text,
            reasoning="" if presentation is None else presentation.reasoning,
            presented=presentation is not None,
            usage=self.budget.usage,
            limit=self.limit,
            confidence=judgement.confidence,
            agreement=self._describe_agreement(
                winner, dissent, judgement, presented=presentation is not None and not tally.has_one_answer
            ),
            escalated=judgement.verdict == "unsure",
            verdict=judgement.verdict,
            measured_confidence=judgement.measured,
            candidates=judgement.candidates,
            truncated=answer.truncated if presentation is None else presentation.truncated,
            same=tally.same,
            data=None if presentation is None else presentation.data,
            form_error=form_error,
            work_cut=answer.work_cut,
            citations=sources,
            fallback=answer.fallback if presentation is None else presentation.fallback,
            report=report,
        )

    def _build_failure(self) -> ev.TurnFailed:
        usage = self.budget.usage
        if self.limit is not None:
            message, hint = self._explain_limit(f"no agent answered within {self.settings.timeout:g} seconds")
            return ev.TurnFailed(message=message, hint=hint, exit_code=LimitReached.exit_code, usage=usage)
        errors = list(self.failures.values())
        agents_by_message: dict[str, list[str]] = {}
        for agent_id, error in self.failures.items():
            agents_by_message.setdefault(error.message, []).append(self._name(agent_id))
        by_agent = (f"{', '.join(agents)}: {text}" for text, agents in agents_by_message.items())
        message = next(iter(agents_by_message)) if len(agents_by_message) == 1 else "; ".join(by_agent)
        places = {place for agent in self.agents.values() for place in agent.fallbacks.places}
        if len(self.agents) > 1 and len(places) == 1 and all(isinstance(e, OUTAGES) for e in errors):
            message = f"all models of the team are at one provider, which failed: {errors[0].message}"
        return ev.TurnFailed(
            message=f"no agent could answer: {message}",
            hint=next((e.hint for e in errors if e.hint), ""),
            exit_code=_exit_code(errors),
            usage=usage,
        )

    def _explain_limit(self, timeout_message: str) -> tuple[str, str]:
        return (timeout_message, "raise coordination.timeout") if self.timed_out else self.budget.explain_limit()

    def _build_without_form(self, agent_id: str) -> ev.TurnFailed:
        """There is an answer, and it could not be brought into the form that was asked for."""
        error = self.failures.get(agent_id)
        if self.limit is not None:
            message, hint = self._explain_limit(f"{self.settings.timeout:g} seconds are over")
            exit_code = LimitReached.exit_code
        elif error is not None:
            message, hint, exit_code = error.message, error.hint, error.exit_code
        else:
            message, hint = f"{self._name(agent_id)} is not in the team any more", "ask again with a team that has it"
            exit_code = TurnError.exit_code
        return ev.TurnFailed(
            message=f"there is an answer, but not in the form of the schema: {message}",
            hint=hint,
            exit_code=exit_code,
            usage=self.budget.usage,
        )


def _exit_code(errors: Sequence[MassmemError]) -> int:
    """Return the agents' common code; when they differ, 3 (run it again) if that may help one of them, else 1."""
    codes = {e.exit_code for e in errors}
    if len(codes) == 1:
        return codes.pop()
    if any(isinstance(e, ProviderError) and e.retryable for e in errors):
        return ProviderUnavailable.exit_code
    return TurnError.exit_code
