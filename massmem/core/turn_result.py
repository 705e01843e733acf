"""What a turn came to, in its one public form: a fold of its events, live or stored, whole or unfinished."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, PrivateAttr

from massmem.core import events as ev
from massmem.core.errors import LimitReached
from massmem.core.items import UnionItem, sort_items
from massmem.core.messages import AttachedFile, Citation, Usage
from massmem.core.outcome import TurnEnd
from massmem.core.report import CarriedOut, MeasuredConfidence, Report, VerdictCandidate
from massmem.core.reporting import report_votes
from massmem.core.voting import Dissent, Tally, build_plan

ResultStatus = Literal["running", "completed", "limit", "failed", "interrupted", "waiting", "abandoned", "undone"]


_OrNull = BeforeValidator(lambda text: text or None)


class _ResultPart(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class AgentAnswer(_ResultPart):
    """See `answer_submitted`."""

    round: int
    number: int
    content: str
    reason: str = ""
    truncated: bool
    work_cut: ev.WorkCut | None
    fallback: Annotated[str | None, _OrNull]
    """The model that wrote it in place of the agent's own, which had failed."""
    citations: tuple[Citation, ...]


class AgentBallot(_ResultPart):
    """See `ballot_cast`."""

    round: int
    choice: str
    reason: str
    truncated: bool
    fallback: Annotated[str | None, _OrNull]
    stands: bool = True
    """No new answer came in after it."""


class Failure(_ResultPart):
    agent: str | None
    """Null: the whole turn failed."""
    type: str
    step: ev.Step | None = None
    round: int | None = None
    error: str
    fix: str


class ToolUse(_ResultPart):
    name: str
    failed: bool


class AgentResult(_ResultPart):
    id: str
    name: str
    answers: list[AgentAnswer] = []
    ballots: list[AgentBallot] = []
    tools: list[ToolUse] = []
    """Calls that have a result, in the order in which they ended."""
    partial: str = ""
    """What it had written when it failed, or when the turn was stopped."""
    waiting_for: str | None = None
    """The value that it needs from the user."""
    error: Failure | None = None
    usage: Usage = Usage()
    """Of what it has finished; of the winner with the presentation."""
    seconds: float = 0.0
    """At work."""
    _began: datetime | None = None

    def begin(self, moment: datetime) -> None:
        self._began, self.partial = moment, ""

    def finish(self, moment: datetime, usage: Usage | None = None) -> None:
        """End its step."""
        if self._began is not None:
            self.seconds = round(self.seconds + max((moment - self._began).total_seconds(), 0.0), 3)
        self._began, self.usage = None, self.usage + (usage or Usage())


class Wait(_ResultPart):
    """The question to the user; the next message to the session is read as the reply."""

    param: str
    prompt: str
    asked: int
    """How often the user was asked for it."""
    agents: list[str]
    """Those that need it."""


class Exchange(_ResultPart):
    agent: str | None
    """Who asked; null: the user's reply, of which only the name of the value is shown."""
    content: str


class TurnSummary(_ResultPart):
    """What a turn came to, without what each agent did."""

    schema_version: int = ev.SCHEMA_VERSION
    is_whole: bool = False
    """False: the log has not, or no longer, the beginning of the turn, and what was there is missing here."""
    session_id: str = ""
    turn: int = 0
    versions: list[int] = []
    """Numbers of all versions of the turn, the oldest first, where there are several."""
    parent: int | None = None
    """See `turn_started`."""
    withdrawn: bool = False
    """Another version is shown in its place, or in that of a turn before it."""
    status: ResultStatus = "running"
    """limit: a limit ended the turn, or the winner's work with tools, with the answer it had or without one."""
    stopped_by: Literal["user", "signal"] | ev.ClearReason | None = None
    """Who stopped the turn, or why it was given up, see `turn_interrupted` and `turn_abandoned`."""
    question: str = ""
    files: tuple[AttachedFile, ...] = ()
    """That the question came with."""
    names: dict[str, str] = {}
    """Of agents for people, by id; some have none."""
    answer: str | None = None
    citations: tuple[Citation, ...] = ()
    """Sources of the answer: `[n]` in it names the n-th."""
    data: Any = None
    """The answer as a JSON value, when the question came with a schema."""
    form_error: str | None = None
    """Why `answer` is a text although the question came with a schema."""
    truncated: bool = False
    """The end of the answer is missing."""
    waiting_for: Wait | None = None
    asked: list[Exchange] = []
    """What the user was asked, and the replies."""
    plan: list[str] = []
    """What is left to do in an unfinished turn, a line each."""
    limit: ev.Limit | None = None
    """The limit that ended the turn with the answer it had."""
    work_cut: ev.WorkCut | None = None
    """What ended the winner's work with tools before it did so itself."""
    fallback: str | None = None
    """The model that wrote the answer in place of the winner's own, which had failed."""
    report: Report | None = None
    """Who says what, where the council was to report."""
    carried_out: CarriedOut | None = None
    """What an agent program did in the folder that the user allowed it to change; `answer` ends with it."""
    shape: ev.Shape = "vote"
    """How the turn comes to its end."""
    job: str = ""
    """The job that the team does; empty: it answers a question."""
    items: tuple[UnionItem, ...] | None = None
    """Of a union or a decision: what the agents found, first what most found and confirmed; contested ones last. Null:
    none yet."""
    revisions: tuple[UnionItem, ...] | None = None
    """Criticism of a draft, and in `checks` what its author did with it; null: none yet."""
    winner: str | None = None
    """Whose answer came first, also in an unsure turn."""
    decided_by: ev.Decision | None = None
    """See `winner_decided`."""
    votes: dict[str, int] = {}
    """Standing ballots per agent id."""
    not_asked: list[str] = []
    """Agents whose ballots could not change the winner, or that were not needed, see `depth`."""
    depth: ev.DepthReason | None = None
    """Why the agents that were asked first are enough, or not."""
    agreement: str | None = None
    """How far the agents agree, as far as it is known, one sentence; null for an agent alone."""
    dissent: Dissent | None = None
    """Who agreed with the winner's answer and who did not, with their answers and votes; null for an agent alone."""
    confidence: float | None = None
    """0 to 1; null for an agent alone and when nobody voted."""
    escalated: bool = False
    """The answer is unsure: a person should look at it."""
    verdict: ev.Verdict | None = None
    """unsure: the answer is less sure than the configuration wants; null: there is none."""
    measured_confidence: MeasuredConfidence | None = None
    """How often such answers of the team were right; null: it is not known."""
    candidates: tuple[VerdictCandidate, ...] = ()
    """With the verdict unsure: what the agents answered, the winner's first."""
    rounds: int = 0
    usage: Usage = Usage()
    """Of the turn, with the presentation, and with what was sent for it after its end."""
    spent: dict[str, Usage] = {}
    """`usage` by what it was for: answer, vote, present, report, compare, describe, reply (the user's was read),
    carry_out, summary, extract, embed. Of a run that was killed its steps."""
    seconds: float | None = None
    """How long the user waited, since the question or since the turn last went on; null: it has not ended."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    notices: list[str] = []
    errors: list[Failure] = []
    """The last failure of each agent that had one, and that of the turn."""


_PURPOSES = {
    "turn_started": "describe", "answer_submitted": "answer", "param_requested": "answer", "ballot_cast": "vote",
    "user_replied": "reply", "depth_decided": "compare", "items_given": "check", "items_merged": "compare",
}  # fmt: skip
"""Of steps, by the type of their event."""


_OF_ANSWER = tuple(TurnSummary.model_fields.keys() & set(ev.TurnCompleted.__struct_fields__))


class TurnResult(TurnSummary):
    """Feed it the events of a turn in order; after those of another turn it is the result of the last one."""

    agents: list[AgentResult] = []
    _end: TurnEnd | None = None
    _began: datetime | None = None
    _last_at: datetime = PrivateAttr(default_factory=ev.now)
    _tally: Tally = PrivateAttr(default_factory=Tally)
    _next_notices: list[str] = PrivateAttr(default_factory=list[str])
    _booked: dict[str, Usage] = PrivateAttr(default_factory=dict[str, Usage])
    _later: dict[str, Usage] = PrivateAttr(default_factory=dict[str, Usage])
    _is_metered: bool = False

    @classmethod
    def of(cls, events: Iterable[ev.Event]) -> Self:
        result = cls()
        for event in events:
            result.feed(event)
        if result._end is None:
            result._sum_up()
        return result

    @property
    def end(self) -> TurnEnd | None:
        """The event that ended the turn, or the last run of it; None while it runs."""
        return self._end

    def name(self, agent_id: str) -> str:
        """Return what people are shown for the agent."""
        return self.names.get(agent_id, agent_id)

    def find_agent(self, agent_id: str) -> AgentResult:
        for agent in self.agents:
            if agent.id == agent_id:
                return agent
        self.agents.append(AgentResult(id=agent_id, name=self.name(agent_id)))
        return self.agents[-1]

    @property
    def authors(self) -> list[str]:
        """Ids of the agents that have an answer."""
        return [agent.id for agent in self.agents if agent.answers]

    @property
    def sure_winner(self) -> str | None:
        """The winner of a turn that is sure of its answer."""
        return self.winner if self.answer is not None and self.verdict != "unsure" else None

    @property
    def speaker(self) -> str | None:
        """The agent that speaks to the user: the winner, or the first that waits for a value."""
        if self.waiting_for is not None:
            return next(iter(self.waiting_for.agents), None)
        return None if self.answer is None else self.winner

    @property
    def text(self) -> str | None:
        """What the user is shown: the answer, or what is asked for."""
        return self.answer if self.waiting_for is None else self.waiting_for.prompt

    def make_report(self) -> Report | None:
        """Return the report, made from the votes where no agent wrote one; None for an agent alone."""
        if self.report is not None or self.dissent is None or self.winner is None:
            return self.report
        citations = {agent.id: agent.answers[-1].citations for agent in self.agents if agent.answers}
        return report_votes(self.dissent, self.winner, citations)

    def feed(self, event: ev.Event) -> None:
        """Take one event in. Those that are not about a turn change nothing."""
        self._last_at = event.at
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self._begin(event)
            case ev.TurnUndone():
                self.status = "undone"
            case ev.Notice():
                (self.notices if self._end is None else self._next_notices).append(event.message)
            case ev.TurnCompleted() | ev.TurnFailed() | ev.TurnInterrupted() | ev.TurnWaiting() | ev.TurnAbandoned():
                self._count(event)
                self._finish(event)
                return
            case _:
                self._feed_step(event)
        self._count(event)
        if isinstance(event, ev.UsageBooked):
            self._sum_up()

    def _count(self, event: ev.Event) -> None:
        """Take an event into the count of votes, which needs the turn from its beginning."""
        if self.is_whole:
            self._tally.apply(event)
            if (items := self._tally.items) is not None and self.shape != "revise":
                self.items = sort_items(items)
            elif items is not None:
                self.revisions = items
        self._book(event)

    @property
    def of_steps(self) -> dict[str, Usage]:
        """As `spent`, without what was sent beside the steps: what the end of the turn tells."""
        return dict(self._booked)

    def _book(self, event: ev.Event) -> None:
        booked = self._booked
        match event:
            case ev.UsageBooked(purpose=purpose, usage=usage):
                booked = self._later
            case ev.AgentFailed(step=purpose, usage=usage):
                pass
            case _ if isinstance(event, TurnEnd):
                if event.spent:
                    self._booked, self._is_metered = dict(event.spent), True
                return
            case _:
                purpose, usage = _PURPOSES.get(event.type), getattr(event, "usage", Usage())
        if purpose is not None and usage != Usage():
            booked[purpose] = booked.get(purpose, Usage()) + usage

    def _begin(self, event: ev.TurnStarted | ev.TurnResumed) -> None:
        if self.turn and (self.session_id, self.turn) != (event.session_id, event.turn):
            self.__init__(notices=self._next_notices)
        self.session_id, self.turn, self.question = event.session_id, event.turn, event.question
        self.names |= event.names
        self.shape, self._began, self._end = event.shape, event.at, None
        if isinstance(event, ev.TurnStarted):
            self.is_whole, self.started_at, self.job = True, event.at, event.job
            self.parent, self.files = event.parent, event.attachments
        self.status, self.ended_at, self.seconds, self.stopped_by = "running", None, None, None
        self.waiting_for, self.errors, self.plan = None, [], []
        for agent_id in event.agents:
            agent = self.find_agent(agent_id)
            agent.name, agent.error, agent.partial = self.name(agent_id), None, ""

    def _feed_step(self, event: ev.Event) -> None:
        match event:
            case ev.RoundStarted():
                self.rounds = event.round
            case ev.DepthDecided():
                self.depth = event.reason
                self.find_agent(event.asked[0]).usage += event.usage
                self.not_asked = [] if event.next else [a.id for a in self.agents if a.id not in event.asked]
            case ev.ItemsMerged(by=agent) if agent:
                self.find_agent(agent).usage += event.usage
            case ev.BallotsVoided():
                for ballot in (b for agent in self.agents if agent.id in event.agents for b in agent.ballots):
                    ballot.stands = False
                self.votes = self._count_votes()
            case ev.WinnerDecided():
                self.winner, self.decided_by, self.votes = event.agent_id, event.by, dict(event.votes)
                self.not_asked = list(event.not_asked)
            case ev.UserReplied():
                self.asked.append(Exchange(agent=None, content=f"[{event.param}]" if event.is_value else event.text))
            case ev.ParamProvided() | ev.ParamCleared():
                for agent in self.agents:
                    agent.waiting_for = None if agent.waiting_for == event.param else agent.waiting_for
            case _:
                self._feed_agent(event)

    def _feed_agent(self, event: ev.Event) -> None:
        match event:
            case ev.ToolReturned() if event.call_id:
                self.find_agent(event.agent_id).tools.append(ToolUse(name=event.name, failed=event.failed))
            case ev.AgentStarted():
                self.find_agent(event.agent_id).begin(event.at)
            case ev.AnswerSubmitted() | ev.BallotCast() | ev.ParamRequested() | ev.AgentFailed():
                self._finish_step(event)
            case ev.ItemsGiven():
                self.find_agent(event.agent_id).finish(event.at, event.usage)
            case _:
                pass

    def _finish_step(self, event: ev.AnswerSubmitted | ev.BallotCast | ev.ParamRequested | ev.AgentFailed) -> None:
        agent = self.find_agent(event.agent_id)
        agent.finish(event.at, event.usage)
        match event:
            case ev.AnswerSubmitted():
                agent.answers.append(AgentAnswer.model_validate(event))
            case ev.BallotCast():
                for ballot in agent.ballots:
                    ballot.stands = False
                agent.ballots.append(AgentBallot.model_validate(event))
                self.votes = self._count_votes()
            case ev.ParamRequested():
                agent.waiting_for = event.param
            case ev.AgentFailed():
                agent.error = Failure(agent=agent.id, type=event.error, error=event.message, fix=event.hint)
                agent.error.step, agent.error.round = event.step, event.round
                agent.partial = event.partial
                self.errors = [*(error for error in self.errors if error.agent != agent.id), agent.error]

    def _count_votes(self) -> dict[str, int]:
        standing = [ballot.choice for agent in self.agents for ballot in agent.ballots if ballot.stands]
        return {choice: standing.count(choice) for choice in standing}

    def _finish(self, end: TurnEnd) -> None:
        self._end, self.ended_at = end, end.at
        self.seconds = None if self._began is None else round(max((end.at - self._began).total_seconds(), 0.0), 3)
        match end:
            case ev.TurnCompleted():
                self._complete(end)
            case ev.TurnFailed():
                self.status = "limit" if end.exit_code == LimitReached.exit_code else "failed"
                self.errors.append(Failure(agent=None, type="TurnError", error=end.message, fix=end.hint))
            case ev.TurnInterrupted():
                self.status, self.stopped_by = "interrupted", end.by
                for reply in end.partials:
                    self.find_agent(reply.agent_id).partial = reply.text
            case ev.TurnWaiting():
                self.status = "waiting"
                self.waiting_for = Wait(param=end.param, prompt=end.prompt, asked=end.asked, agents=list(end.agents))
                if not end.shown:
                    self.asked.append(Exchange(agent=end.agent_name or end.agents[0], content=end.prompt))
            case ev.TurnAbandoned():
                self.session_id, self.turn = end.session_id, end.turn
                self.status, self.stopped_by, self.waiting_for = "abandoned", end.why, None
        self._sum_up()

    def _complete(self, end: ev.TurnCompleted) -> None:
        self.status = "completed" if end.limit is None and end.work_cut is None else "limit"
        for name in _OF_ANSWER:
            setattr(self, name, getattr(end, name))
        self.fallback, self.agreement = end.fallback or None, end.agreement or None
        self.form_error = end.form_error or None
        if end.winner_name:
            self.names[end.winner] = end.winner_name
        if end.presented and self.is_whole:
            # No event reports the presentation alone.
            writing = [end.spent[purpose] for purpose in ("present", "report") if purpose in end.spent]
            writer = self.find_agent(end.winner)
            writer.usage += sum(writing, Usage()) if end.spent else end.usage - self._sum_usage()

    def _sum_up(self) -> None:
        """Take down what it took, who agrees, and what is left to do."""
        for agent in self.agents:
            agent.finish(self._last_at)
        end = self._end
        if self._is_metered:
            self.usage = sum(self._booked.values(), Usage())
        elif end is None or isinstance(end, ev.TurnInterrupted):
            self.usage = self._tally.usage if self.is_whole else self._sum_usage()
        else:
            self.usage = end.usage
        self.usage += sum(self._later.values(), Usage())
        both = (*self._booked, *self._later)
        self.spent = {key: self._booked.get(key, Usage()) + self._later.get(key, Usage()) for key in both}
        if not self.is_whole:
            return
        if self.winner is not None:
            self.dissent = self._tally.find_dissent(self.winner)
        if self.status not in ("completed", "abandoned", "undone") and self.answer is None:
            self.plan = build_plan(self._tally).describe()

    def _sum_usage(self) -> Usage:
        return sum((agent.usage for agent in self.agents), Usage())
