"""A line of text for each event worth reporting: for pipes, logs and terminals without cursor control."""

from typing import TextIO, assert_never

from massmem.core.calls import describe_call, shorten_tool_name
from massmem.core.events import (
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
    TurnResumed,
    TurnStarted,
    WinnerDecided,
)
from massmem.core.redact import redact
from massmem.core.text import format_dollars, one_line
from massmem.render import Renderer
from massmem.render.text import (
    describe_failure,
    describe_limit,
    describe_winner,
    describe_work,
    format_count,
    format_duration,
    pluralize,
    summarize_context,
    summarize_turn,
)
from massmem.render.turn_view import AgentEvent, TurnView

_EXCERPT = 100
_REDACTED_PREFIX = 2_000
"""Characters of a text that are searched for secrets before it is cut."""


class PlainRenderer(Renderer):
    """Writes a line per event. `view` must have been fed the event first."""

    def __init__(self, view: TurnView, stream: TextIO, *, failures_only: bool = False) -> None:
        self._view = view
        self._stream = stream
        self._failures_only = failures_only

    def feed(self, event: Event) -> None:
        if self._failures_only and not isinstance(event, AgentFailed):
            return
        text = describe_event(event, self._view)
        if text is not None:
            self._stream.write(f"{format_duration(self._view.seconds(event.at)):>6}  {text}\n")
            self._stream.flush()


def describe_event(event: Event, view: TurnView) -> str | None:
    """Return one line about `event`; None for an event that is not worth one, or is reported at the end of the turn."""
    match event:
        case ContextMeasured() | ContextCompressed():
            return summarize_context(event, view)
        case ToolCalled() | ToolReturned():
            return _describe_tool(event, view)
        case ParamProvided() | ParamCleared():
            return _describe_param(event)
        case _ if isinstance(event, AgentEvent):
            return _describe_agent(event, view)
        case _:
            return _describe_turn(event, view)


def _describe_turn(event: Event, view: TurnView) -> str | None:
    match event:
        case TurnStarted():
            line = f"{event.session_id} turn {event.turn}, {pluralize(len(event.agents), 'agent')}"
        case TurnResumed():
            line = f"{event.session_id} turn {event.turn} resumes: {_excerpt(event.question)}"
        case RoundStarted():
            line = f"{view.round_title}: {', '.join(map(view.name, event.agents))}"
        case BallotsVoided():
            line = f"a new answer arrived; voting again: {', '.join(map(view.name, event.agents))}"
        case AnswerNowRequested():
            line = "answering now" + ("" if view.outcome.answered else ", with the first answer that comes")
        case WinnerDecided():
            line = describe_winner(event, view)
        case TurnCompleted():
            limit = describe_limit(event)
            line = f"{limit}{limit and ': '}{summarize_turn(view, event.at)}"
        case Notice():
            line = one_line(event.message)
        case _:
            line = None
    return line


def _describe_agent(event: AgentEvent, view: TurnView) -> str | None:
    name = view.name(event.agent_id)
    match event:
        case AgentStarted(step="present"):
            line = f"{name} writes the final answer"
        case AgentStarted() | AgentBusy() | AgentDelta():
            line = None
        case AgentRetrying():
            line = f"{name} retries in {format_duration(event.delay)}: {_excerpt(event.error)}"
        case AnswerSubmitted():
            line = f"{name} answers{_format_effort(event, view)}: {_excerpt(event.content)}"
        case BallotCast():
            reason = _excerpt(event.reason)
            line = f"{name} votes for {view.name(event.choice)}{_format_effort(event, view)}: {reason}"
        case ParamRequested():
            line = f"{name} needs {event.param} from you{_format_effort(event, view)}"
        case AgentFailed():
            line = describe_failure(event, view)
        case _:
            assert_never(event)
    return line


def _describe_param(event: ParamProvided | ParamCleared) -> str | None:
    """Return the param's name only: its value may be private."""
    match event:
        case ParamProvided():
            return f"{event.param} received"
        case ParamCleared(why="gave_up"):
            return f"{event.param} not received; the agents go on without it"
        case _:
            return None


def _describe_tool(event: ToolCalled | ToolReturned, view: TurnView) -> str:
    """Return names, arguments and sizes: the result of a tool may fill screens."""
    agent, tool = view.name(event.agent_id), one_line(shorten_tool_name(event.name), _EXCERPT)
    match event:
        case ToolCalled():
            call = one_line(describe_call(event.name, event.arguments), _EXCERPT)
            return f"{agent} calls {call} ({describe_work(view.agents[event.agent_id])})"
        case ToolReturned(failed=True):
            return f"{agent}: {tool} failed: {_excerpt(event.content)}"
        case ToolReturned():
            return f"{agent} used {tool}: {pluralize(len(event.content), 'character')}"
        case _:
            assert_never(event)


def _format_effort(event: AnswerSubmitted | BallotCast | ParamRequested, view: TurnView) -> str:
    """Return ` (3.2s, 250 tokens, $0.01)`."""
    agent = view.agents[event.agent_id]
    cost = f", {format_dollars(agent.usage.cost)}" if agent.usage.cost else ""
    return f" ({format_duration(agent.seconds(event.at))}, {format_count(agent.tokens)} tokens{cost})"


def _excerpt(text: str) -> str:
    """Return the beginning without secrets: other programs may log these lines."""
    return one_line(redact(text[:_REDACTED_PREFIX]), _EXCERPT)
