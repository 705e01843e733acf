"""A turn as renderers show it: a pure fold over its events, without input, output or clock; and that as JSON."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Literal, assert_never

from massmem.core import events as ev
from massmem.core.calls import describe_call
from massmem.core.messages import Usage
from massmem.core.outcome import TurnEnd, TurnOutcome
from massmem.core.report import Report
from massmem.core.reporting import report_votes
from massmem.core.text import one_line
from massmem.core.voting import Dissent, find_dissent

AgentEvent = (
    ev.AgentStarted
    | ev.AgentBusy
    | ev.WebSearched
    | ev.AgentDelta
    | ev.AgentRetrying
    | ev.AnswerSubmitted
    | ev.BallotCast
    | ev.ParamRequested
    | ev.AgentFailed
)
Phase = Literal["waiting", "working", "retrying", "answered", "voted", "asking", "failed", "not asked"]

CHARACTERS_PER_TOKEN = 4
_TAIL = 1_200


@dataclass(slots=True)
class AgentView:
    id: str
    phase: Phase = "waiting"
    step: ev.Step | None = None
    """The last one that was begun."""
    started_at: datetime | None = None
    """When it started what it does now; None while it does nothing."""
    spent: float = 0.0
    """Seconds of finished work in this turn."""
    usage: Usage = field(default_factory=Usage)
    """Of finished steps."""
    step_usage: Usage = field(default_factory=Usage)
    """Of the requests of the current step, as far as calls of tools report it."""
    streamed: int = 0
    """Characters of the current reply, which no usage counts yet."""
    tail: str = ""
    """The end of the current reply, or of the reasoning before it."""
    thinking: bool = False
    """The current reply is still reasoning."""
    busy: ev.AgentBusy | None = None
    """The work of its model before the first word of the reply."""
    search: str | None = None
    """What it searches the web for; "" when that is not known."""
    answers: list[ev.AnswerSubmitted] = field(default_factory=list[ev.AnswerSubmitted])
    ballots: list[ev.BallotCast] = field(default_factory=list[ev.BallotCast])
    request: ev.ParamRequested | None = None
    """To the user."""
    failure: ev.AgentFailed | None = None
    retry: ev.AgentRetrying | None = None
    fallback: str = ""
    """The model that stands in for its own; "": its own is asked."""
    context: ev.ContextMeasured | None = None
    """How full its window was when it was last measured or compressed."""
    running_tools: dict[str, str] = field(default_factory=dict[str, str])
    """The calls that run for it now, in one line each, by call id."""
    tool_calls: int = 0
    last_call: str = ""
    """Its last call in this step, in one line."""
    compressions: int = 0

    @property
    def tokens(self) -> int:
        """Output tokens; estimated from the streamed characters until the provider reports them."""
        return self.usage.completion + self.step_usage.completion + self.streamed // CHARACTERS_PER_TOKEN

    def seconds(self, now: datetime) -> float:
        """Return the time at work in this turn up to `now`."""
        running = (now - self.started_at).total_seconds() if self.started_at else 0.0
        return self.spent + max(running, 0.0)

    def feed(self, event: AgentEvent) -> None:
        match event:
            case ev.AgentStarted():
                self.phase, self.step, self.started_at, self.retry = "working", event.step, event.at, None
                self._reset_reply()
            case ev.AgentBusy():
                self.phase, self.busy = "working", event
            case ev.WebSearched():
                self.phase, self.busy, self.search = "working", None, event.query
            case ev.AgentDelta():
                self.busy = self.search = None
                is_thinking = event.channel == "reasoning"
                before = self.tail if self.thinking == is_thinking else ""
                self.phase, self.thinking = "working", is_thinking
                self.streamed += len(event.text)
                self.tail = (before + event.text)[-_TAIL:]
            case ev.AgentRetrying():
                self.phase, self.retry = "retrying", event
                self.fallback = event.fallback or self.fallback
                self._reset_reply()
            case ev.AnswerSubmitted():
                self.answers.append(event)
                self.finish("answered", event.at, event.usage)
            case ev.BallotCast():
                self.ballots.append(event)
                self.finish("voted", event.at, event.usage)
            case ev.ParamRequested():
                self.request = event
                self.finish("asking", event.at, event.usage)
            case ev.AgentFailed():
                self.failure = event
                self.finish("failed", event.at, event.usage)
            case _:
                assert_never(event)

    def compress_context(self, tokens: int) -> None:
        """Count a compression, and show the window as filled with `tokens` until it is measured again."""
        self.compressions += 1
        if self.context is not None:
            self.context = self.context.model_copy(update={"tokens": tokens, "source": "buffer"})

    def call_tool(self, call: ev.ToolCalled) -> None:
        self.last_call = self.running_tools[call.call_id] = describe_call(call.name, call.arguments)
        self.tool_calls += 1
        self.step_usage = call.usage
        self._reset_reply()

    def finish(self, phase: Phase, moment: datetime, usage: Usage) -> None:
        self.phase, self.spent, self.started_at = phase, self.seconds(moment), None
        self.usage, self.step_usage = self.usage + usage, Usage()
        self.running_tools.clear()
        self.last_call = ""
        self._reset_reply()

    def _reset_reply(self) -> None:
        self.tail, self.streamed, self.thinking, self.busy, self.search = "", 0, False, None, None


@dataclass(slots=True)
class TurnView:
    """The last turn among the events that were fed in."""

    outcome: TurnOutcome = field(default_factory=TurnOutcome)
    started_at: datetime | None = None
    resumed: bool = False
    max_rounds: int | None = None
    """As configured; None when it is not known."""
    shows_reasoning: bool = True
    """The live view shows what agents think."""
    round: int = 0
    final_round: bool = False
    """Only votes are taken."""
    agents: dict[str, AgentView] = field(default_factory=dict[str, AgentView])
    depth: ev.DepthDecided | None = None
    """Whether the agents that were asked first are enough; None: that is not decided, or all were asked at once."""
    ballots: dict[str, ev.BallotCast] = field(default_factory=dict[str, ev.BallotCast])
    """Those that stand, by voter."""
    notices: list[str] = field(default_factory=list[str])
    """Of all turns."""

    def feed(self, event: ev.Event) -> None:
        self.outcome.feed(event)
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self.started_at, self.resumed = event.at, isinstance(event, ev.TurnResumed)
                self.round, self.final_round = 0, False
                self.ballots, self.depth = {}, None
                self.agents = {agent_id: AgentView(agent_id) for agent_id in event.agents}
            case ev.RoundStarted():
                self.round, self.final_round = event.round, event.final
                self._set_waiting(event.agents)
            case ev.DepthDecided():
                self.depth = event
                self._agent(event.asked[0]).usage += event.usage
            case ev.BallotsVoided():
                self.ballots = {voter: b for voter, b in self.ballots.items() if voter not in event.agents}
                self._set_waiting(event.agents)
            case ev.WinnerDecided(not_asked=not_asked):
                for agent_id in not_asked:
                    self._agent(agent_id).phase = "not asked" if agent_id in self.not_needed else "answered"
            case ev.Notice():
                self.notices.append(event.message)
            case ev.TurnCompleted() | ev.TurnFailed() | ev.TurnInterrupted() | ev.TurnWaiting() | ev.TurnAbandoned():
                self._finish(event)
            case _:
                self._feed_agent(event)

    def name(self, agent_id: str) -> str:
        """Return what people are shown for the agent, on one printable line."""
        return one_line(self.outcome.name(agent_id), 64)

    @property
    def round_title(self) -> str:
        """`round 1 of 3, answers`, `round 2 of 3, improve or vote` or `round 3 of 3, last votes`."""
        task = "answers" if self.round == 1 else "last votes" if self.final_round else "improve or vote"
        total = f" of {self.max_rounds}" if self.max_rounds and len(self.agents) > 1 else ""
        return f"round {self.round}{total}, {task}"

    @property
    def agent_failures(self) -> list[ev.AgentFailed]:
        """The last failure of each agent that had one."""
        return [agent.failure for agent in self.agents.values() if agent.failure is not None]

    @property
    def votes(self) -> dict[str, int]:
        """Standing ballots per agent id: those that decided the turn, or those so far."""
        if self.outcome.winner is not None:
            return dict(self.outcome.winner.votes)
        return dict(Counter(ballot.choice for ballot in self.ballots.values()))

    @property
    def dissent(self) -> Dissent | None:
        """Who agrees with the answer; None when that is not known, as of a turn whose beginning was not seen."""
        if self.outcome.winner is None or self.resumed:
            return None
        last = sorted((agent.answers[-1] for agent in self.agents.values() if agent.answers), key=lambda a: a.number)
        ballots = {voter: (ballot.choice, ballot.reason) for voter, ballot in self.ballots.items()}
        answers, citations = {a.agent_id: a.content for a in last}, {a.agent_id: a.citations for a in last}
        same = self.outcome.end.same if isinstance(self.outcome.end, ev.TurnCompleted) else ()
        return find_dissent(self.outcome.winner.agent_id, answers, ballots, citations, same)

    def make_report(self) -> Report | None:
        """Return the report of the turn, made from the votes where no agent wrote one; None for an agent alone."""
        if self.outcome.report is not None or (dissent := self.dissent) is None or self.outcome.winner is None:
            return self.outcome.report
        citations = {agent.id: agent.answers[-1].citations for agent in self.agents.values() if agent.answers}
        return report_votes(dissent, self.outcome.winner.agent_id, citations)

    @property
    def usage(self) -> Usage:
        return self.outcome.usage or self._agents_usage()

    def seconds(self, now: datetime) -> float:
        """Return the time from the start of the turn to its end, or to `now` while it runs."""
        if self.started_at is None:
            return 0.0
        end = self.outcome.end
        return max(((end.at if end else now) - self.started_at).total_seconds(), 0.0)

    @property
    def not_needed(self) -> list[str]:
        """Agents that were not asked, since the others were enough."""
        if self.depth is None or self.depth.next:
            return []
        return [agent_id for agent_id in self.agents if agent_id not in self.depth.asked]

    def _set_waiting(self, agent_ids: tuple[str, ...]) -> None:
        for agent_id in agent_ids:
            self._agent(agent_id).phase = "waiting"

    def _feed_agent(self, event: ev.Event) -> None:
        match event:
            case ev.ContextMeasured():
                self._agent(event.agent_id).context = event
            case ev.ContextCompressed():
                self._agent(event.agent_id).compress_context(event.after)
            case ev.ToolCalled():
                self._agent(event.agent_id).call_tool(event)
            case ev.ToolReturned():
                self._agent(event.agent_id).running_tools.pop(event.call_id, None)
            case _ if isinstance(event, AgentEvent):
                if isinstance(event, ev.BallotCast):
                    self.ballots[event.agent_id] = event
                self._agent(event.agent_id).feed(event)
            case _:
                pass

    def _agent(self, agent_id: str) -> AgentView:
        return self.agents.setdefault(agent_id, AgentView(agent_id))

    def _finish(self, event: TurnEnd) -> None:
        for agent in self.agents.values():
            if agent.started_at is not None:
                agent.finish("answered", event.at, self._presentation_usage(event))

    def _presentation_usage(self, event: TurnEnd) -> Usage:
        """Return the turn's usage less that of the agents' events: no event reports the presentation alone."""
        if self.resumed or not isinstance(event, ev.TurnCompleted) or not event.presented:
            return Usage()
        return event.usage - self._agents_usage()

    def _agents_usage(self) -> Usage:
        return sum((agent.usage for agent in self.agents.values()), Usage())


def turn_to_dict(view: TurnView, *, makes_report: bool = False) -> dict[str, Any]:
    """Return what `--output json` prints. makes_report: from the votes, where no agent wrote one.

    Times are in seconds. `citations` are the sources of the answer: `[n]` in it names the n-th.
    `data` is the answer as a JSON value, when the question came with a schema. `truncated` tells
    whether the end of the answer is missing, `work_cut` what ended an agent's work with tools before it did itself.
    `fallback` names the model that wrote the answer, or voted, in place of the agent's own, which had failed; null: its
    own. `report` is that of the council, where it was asked for. `votes` are the standing ballots per agent id; the
    ballots of `not_asked` could not change the winner, or those agents were not needed: `depth` tells why the agents
    that were asked first are enough, or not. `agreement` says in one sentence what is known of how far the
    agents agree. `dissent` has who `agreed` with the answer, the `minority`, and whose answers are `uncompared`, with
    their own answers, votes and reasons; null for an agent alone, and when this run did not see the turn from its
    beginning. `confidence` is from 0 to 1, null for an agent alone and
    when nobody voted (see massmem.core.verdict). `verdict` is answered, or unsure when the answer is less sure than the
    configuration wants: `escalated` is true then, and `candidates` has what the agents answered. `measured_confidence`
    tells how often such answers of the team were right; null: it is not known. `usage` is
    the whole turn's, with the presentation, which no event of an agent reports.
    """
    outcome = view.outcome
    report = view.make_report() if makes_report else outcome.report
    end, moment = outcome.end, outcome.end.at if outcome.end is not None else view.started_at
    # The next message to the session is read as the reply.
    waiting = (
        {"param": end.param, "prompt": end.prompt, "asked": end.asked} if isinstance(end, ev.TurnWaiting) else None
    )
    errors = [{"agent": failure.agent_id, **_failure_to_dict(failure)} for failure in view.agent_failures]
    if isinstance(end, ev.TurnFailed):
        errors.append({"agent": None, "type": "TurnError", "error": end.message, "fix": end.hint})
    return {
        "schema_version": ev.SCHEMA_VERSION,
        "status": outcome.status,
        "session_id": outcome.session_id,
        "turn": outcome.turn,
        "question": outcome.question,
        "answer": outcome.answer,
        "citations": [asdict(citation) for citation in outcome.citations],
        "data": outcome.data,
        "truncated": outcome.is_truncated,
        "waiting_for": waiting,
        "limit": outcome.limit,
        "work_cut": outcome.work_cut,
        "fallback": outcome.fallback or None,
        "report": None if report is None else report.model_dump(mode="json"),
        "winner": outcome.winner.agent_id if outcome.winner else None,
        "decided_by": outcome.winner.by if outcome.winner else None,
        "votes": view.votes,
        "not_asked": list(outcome.winner.not_asked) if outcome.winner else [],
        "depth": None if view.depth is None else view.depth.reason,
        "agreement": outcome.agreement or None,
        "dissent": None if (dissent := view.dissent) is None else dissent.to_json(),
        "confidence": outcome.confidence,
        "escalated": outcome.escalated,
        **outcome.dump_verdict(),
        "rounds": view.round,
        "agents": [_agent_to_dict(agent, outcome.name(agent.id)) for agent in view.agents.values()],
        "usage": usage_to_dict(view.usage),
        "seconds": round(view.seconds(moment), 3) if moment is not None else 0.0,
        "notices": list(view.notices),
        "errors": errors,
    }


def usage_to_dict(usage: Usage) -> dict[str, Any]:
    """Return tokens, requests, searches of the web, and in US dollars `cost`, null when a price is not known, and what
    caching `saved`."""
    names = ("prompt", "completion", "cached", "reasoning", "requests", "searches", "reported", "cost", "saved")
    return {name: getattr(usage, name) for name in names}


def _agent_to_dict(agent: AgentView, name: str) -> dict[str, Any]:
    return {
        "id": agent.id,
        "name": name,
        "answers": [
            {
                "round": e.round,
                "number": e.number,
                "content": e.content,
                "work_cut": e.work_cut,
                "fallback": e.fallback or None,
                "citations": [asdict(citation) for citation in e.citations],
            }
            for e in agent.answers
        ],
        "ballots": [
            {"round": e.round, "choice": e.choice, "reason": e.reason, "fallback": e.fallback or None}
            for e in agent.ballots
        ],
        "usage": usage_to_dict(agent.usage),
        "error": _failure_to_dict(agent.failure) if agent.failure is not None else None,
        "seconds": round(agent.spent, 3),
    }


def _failure_to_dict(event: ev.AgentFailed) -> dict[str, Any]:
    return {"type": event.error, "step": event.step, "round": event.round, "error": event.message, "fix": event.hint}
