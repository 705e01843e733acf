"""One plain line per thing worth knowing: for logs, pipes and terminals without cursor control."""

from typing import TYPE_CHECKING, TextIO, assert_never

from massmem.events import (
    AgentDelta,
    AgentFailed,
    AgentRetrying,
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    BallotsVoided,
    Event,
    HistoryCleared,
    MessageAdded,
    NoteAdded,
    Notice,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    RoundStarted,
    ToolCalled,
    ToolReturned,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnInterrupted,
    TurnResumed,
    TurnStarted,
    TurnUndone,
    TurnWaiting,
    UserReplied,
    WinnerDecided,
)
from massmem.money import dollars
from massmem.redact import redact
from massmem.render.board import AgentEvent, Board, ContextEvent, ToolEvent, TurnEvent, UserEvent
from massmem.render.context import short_line
from massmem.render.figures import count, duration, failure, plural, printable_id, summary, verdict
from massmem.render.printable import one_line

if TYPE_CHECKING:
    from massmem.render.base import Renderer

_EXCERPT, _READ = 100, 2_000
_EARLY = {"timeout": "time is up", "cost": "the limit of costs is reached", "tokens": "the limit of tokens is reached"}


class PlainRenderer:
    """board: must have been fed each event before this is. failures_only: says nothing but who failed."""

    def __init__(self, board: Board, stream: TextIO, *, failures_only: bool = False) -> None:
        self._board = board
        self._stream = stream
        self._failures_only = failures_only

    def feed(self, event: Event) -> None:
        if self._failures_only and not isinstance(event, AgentFailed):
            return
        text = describe(event, self._board)
        if text is not None:
            self._stream.write(f"{duration(self._board.seconds(event.at)):>6}  {text}\n")
            self._stream.flush()

    def close(self) -> None:
        pass


def describe(event: Event, board: Board) -> str | None:
    """What to say about `event`, one line, or None when it is not worth one."""
    if isinstance(event, TurnEvent):
        text = _turn_line(event, board)
    elif isinstance(event, AgentEvent):
        text = _agent_line(event, board)
    elif isinstance(event, ContextEvent):
        text = short_line(event, board.turn)
    elif isinstance(event, ToolEvent):
        text = _tool_line(event)
    else:
        text = _user_line(event)
    return text


def _turn_line(event: TurnEvent, board: Board) -> str | None:
    match event:
        case TurnStarted():
            text = f"{event.session_id} turn {event.turn}, {plural(len(event.agents), 'agent')}"
        case TurnResumed():
            text = f"{event.session_id} turn {event.turn} goes on: {_excerpt(event.question)}"
        case RoundStarted():
            text = f"{round_title(event.round, final=event.final)}: {', '.join(event.agents)}"
        case BallotsVoided():
            text = f"a new answer came in, these vote again: {', '.join(event.agents)}"
        case WinnerDecided():
            text = verdict(event)
        case TurnCompleted():
            text = _completed(event, board)
        case TurnFailed() | TurnInterrupted() | TurnWaiting() | TurnAbandoned():
            text = None  # said at the end, with what to do next
        case Notice():
            text = one_line(event.message)
        case _:
            assert_never(event)
    return text


def _agent_line(event: AgentEvent, board: Board) -> str | None:
    match event:
        case AgentStarted():
            text = f"{event.agent_id} writes the final answer" if event.step == "present" else None
        case AgentDelta():
            text = None
        case AgentRetrying():
            text = f"{event.agent_id} tries again in {duration(event.delay)}: {_excerpt(event.error)}"
        case AnswerSubmitted():
            text = f"{event.agent_id} answers{_cost(event, board)}: {_excerpt(event.content)}"
        case BallotCast():
            reason = _excerpt(event.reason)
            text = f"{event.agent_id} votes for {event.choice}{_cost(event, board)}: {reason}"
        case ParamRequested():
            text = f"{event.agent_id} needs {event.param} from you{_cost(event, board)}"
        case AgentFailed():
            text = failure(event)
        case _:
            assert_never(event)
    return text


def _tool_line(event: ToolEvent) -> str:
    """Names, arguments and sizes: what a tool gave back may fill screens."""
    who, name = printable_id(event.agent_id), one_line(event.name, _EXCERPT)
    match event:
        case ToolCalled():
            return f"{who} calls {name} {_excerpt(event.arguments)}"
        case ToolReturned(failed=True):
            return f"{who}: {name} failed: {_excerpt(event.content)}"
        case ToolReturned():
            return f"{who} used {name}: {plural(len(event.content), 'character')}"
        case _:
            assert_never(event)


def _user_line(event: UserEvent) -> str | None:
    """Names only: what the user said may be a value."""
    match event:
        case ParamProvided():
            return f"{event.param} is given"
        case ParamCleared(why="gave_up"):
            return f"{event.param} is not given; the agents go on without it"
        case UserReplied() | ParamCleared() | MessageAdded() | NoteAdded() | HistoryCleared() | TurnUndone():
            return None
        case _:
            assert_never(event)


def _excerpt(text: str) -> str:
    """Its beginning, without secrets: these lines end up in the logs of others."""
    return one_line(redact(text[:_READ]), _EXCERPT)


def round_title(number: int, *, final: bool) -> str:
    """`round 1, answers`, `round 2, improve or vote`, `round 3, last votes`."""
    what = "answers" if number == 1 else "last votes" if final else "improve or vote"
    return f"round {number}, {what}"


def _cost(event: AnswerSubmitted | BallotCast | ParamRequested, board: Board) -> str:
    agent = board.agents[event.agent_id]
    cost = f", {dollars(agent.usage.cost)}" if agent.usage.cost else ""
    return f" ({duration(agent.seconds(event.at))}, {count(agent.tokens)} tokens{cost})"


def _completed(event: TurnCompleted, board: Board) -> str:
    early = "" if event.limit is None else f"{_EARLY[event.limit]}; ended with what there is: "
    return f"{early}{summary(board, event.at)}"


if TYPE_CHECKING:
    _: type[Renderer] = PlainRenderer
