"""A turn on the screen while it runs: a pure fold over its events, beside the result that it comes to."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from massmem.core import events as ev
from massmem.core.calls import describe_call
from massmem.core.messages import Usage
from massmem.core.text import one_line
from massmem.core.turn_result import AgentResult, TurnResult

AgentEvent = (
    ev.AgentStarted
    | ev.AgentBusy
    | ev.WebSearched
    | ev.AgentDelta
    | ev.AgentRetrying
    | ev.AnswerSubmitted
    | ev.BallotCast
    | ev.ItemsGiven
    | ev.ParamRequested
    | ev.AgentFailed
)
Phase = Literal["waiting", "working", "retrying", "answered", "voted", "asking", "failed", "not asked"]
_PHASES: dict[str, Phase] = {
    "answer_submitted": "answered", "ballot_cast": "voted", "param_requested": "asking", "agent_failed": "failed",
    "items_given": "answered",
}  # fmt: skip

_ROUNDS = {
    "union": ("items", "items of others"),
    "decide": ("options and criteria", "scores"),
    "revise": ("draft", "criticism", "revision"),
}

CHARACTERS_PER_TOKEN = 4
_TAIL = 1_200


@dataclass(slots=True)
class AgentView:
    result: AgentResult
    phase: Phase = "waiting"
    step: ev.Step | None = None
    """The last one that was begun."""
    started_at: datetime | None = None
    """When it started what it does now; None while it does nothing."""
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
    def id(self) -> str:
        return self.result.id

    @property
    def tokens(self) -> int:
        """Output tokens; estimated from the streamed characters until the provider reports them."""
        return self.result.usage.completion + self.step_usage.completion + self.streamed // CHARACTERS_PER_TOKEN

    def seconds(self, now: datetime) -> float:
        """Return the time at work in this turn up to `now`."""
        running = (now - self.started_at).total_seconds() if self.started_at else 0.0
        return self.result.seconds + max(running, 0.0)

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
            case _:
                self.finish(_PHASES[event.type])

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

    def finish(self, phase: Phase) -> None:
        self.phase, self.started_at, self.step_usage = phase, None, Usage()
        self.running_tools.clear()
        self.last_call = ""
        self._reset_reply()

    def _reset_reply(self) -> None:
        self.tail, self.streamed, self.thinking, self.busy, self.search = "", 0, False, None, None


@dataclass(slots=True)
class TurnView:
    """The last turn among the events that were fed in."""

    result: TurnResult = field(default_factory=TurnResult)
    began_at: datetime | None = None
    """When the turn was begun, or last went on."""
    max_rounds: int | None = None
    """As configured; None when it is not known."""
    shows_reasoning: bool = True
    """The live view shows what agents think."""
    final_round: bool = False
    """Only votes are taken."""
    agents: dict[str, AgentView] = field(default_factory=dict[str, AgentView])

    def feed(self, event: ev.Event) -> None:
        self.result.feed(event)
        match event:
            case ev.TurnStarted() | ev.TurnResumed():
                self.began_at, self.final_round = event.at, False
                self.agents = {agent_id: AgentView(self.result.find_agent(agent_id)) for agent_id in event.agents}
            case ev.RoundStarted():
                self.final_round = event.final
                self._set_waiting(event.agents)
            case ev.BallotsVoided():
                self._set_waiting(event.agents)
            case ev.WinnerDecided(not_asked=not_asked):
                for agent_id in not_asked:
                    self._agent(agent_id).phase = "not asked" if agent_id in self.not_needed else "answered"
            case ev.TurnCompleted() | ev.TurnFailed() | ev.TurnInterrupted() | ev.TurnWaiting() | ev.TurnAbandoned():
                for agent_id, agent in self.agents.items():
                    if agent.started_at is not None:
                        has_answered = isinstance(event, ev.TurnCompleted) or self.result.find_agent(agent_id).answers
                        agent.finish("answered" if has_answered else "waiting")
            case _:
                self._feed_agent(event)

    def name(self, agent_id: str) -> str:
        """Return what people are shown for the agent, on one printable line."""
        return one_line(self.result.name(agent_id), 64)

    @property
    def round_title(self) -> str:
        """`round 1 of 3, answers`, `round 2 of 3, improve or vote` or `round 3 of 3, last votes`."""
        number = self.result.rounds
        if self.result.shape != "vote":
            return f"round {number}, {_ROUNDS[self.result.shape][number - 1 if number < 4 else number % 2 + 1]}"
        task = "answers" if number == 1 else "last votes" if self.final_round else "improve or vote"
        total = f" of {self.max_rounds}" if self.max_rounds and len(self.agents) > 1 else ""
        return f"round {number}{total}, {task}"

    def seconds(self, now: datetime) -> float:
        """Return the time from the start of the turn to its end, or to `now` while it runs."""
        if self.began_at is None:
            return 0.0
        return max(((self.result.ended_at or now) - self.began_at).total_seconds(), 0.0)

    @property
    def not_needed(self) -> list[str]:
        """Agents that were not asked, since the others were enough."""
        if self.result.depth is None:
            return []
        return [agent_id for agent_id in self.result.not_asked if not self.result.find_agent(agent_id).answers]

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
                self._agent(event.agent_id).feed(event)
            case _:
                pass

    def _agent(self, agent_id: str) -> AgentView:
        return self.agents.setdefault(agent_id, AgentView(self.result.find_agent(agent_id)))
