"""The live view: one line per agent on stderr while a turn runs, gone when it is over."""

import textwrap
from collections import Counter
from datetime import datetime
from threading import Event as ThreadEvent
from threading import Lock, Thread
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console
from rich.text import Text

from massmem.events import (
    AgentFailed,
    ContextCompressed,
    Event,
    Notice,
    RoundStarted,
    TurnCompleted,
    WinnerDecided,
    now,
)
from massmem.money import dollars
from massmem.render.board import AgentState, Board
from massmem.render.context import near_limit, share
from massmem.render.figures import count, duration, plural
from massmem.render.plain import describe, round_title
from massmem.render.printable import one_line, printable
from massmem.render.screen import Screen

if TYPE_CHECKING:
    from massmem.render.base import Renderer

_REFRESH_PER_SECOND = 8
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_INTEREST = {"working": 0, "retrying": 1, "failed": 2, "waiting": 3, "voted": 4, "answered": 5, "asking": 6}
_ID_WIDTH = 20
_WIDE = 60
_PREVIEW_LINES = 6
_LEAST_AGENTS = 5
_LEAST_SAID = 30
"""Cells after the other columns; with fewer, memory's column gives way to what the agent says."""
_STYLES = {
    "working": "cyan",
    "retrying": "yellow",
    "failed": "red",
    "waiting": "dim",
    "voted": "green",
    "answered": "green",
    "asking": "yellow",
}


class LiveRenderer:
    """board: must have been fed each event before this is. console: a terminal on stderr.

    The view is drawn again and again from a thread of its own; it only reads the board.
    """

    def __init__(self, board: Board, console: Console) -> None:
        self._board = board
        self._console = console
        self._screen = Screen(console)
        self._drawing = Lock()
        self._over = ThreadEvent()
        self._clock: Thread | None = None

    def feed(self, event: Event) -> None:
        if self._board.end is not None:
            self.close()
        elif self._clock is None:
            self._start()
        elif isinstance(event, RoundStarted | WinnerDecided):
            self._draw()  # however short the next step is, it is seen
        if isinstance(event, TurnCompleted) and self._board.winner is not None:
            self._say(self._board.winner, "green")
        if isinstance(event, AgentFailed | ContextCompressed | Notice | TurnCompleted):
            self._say(event, "red" if isinstance(event, AgentFailed) else "dim")

    def close(self) -> None:
        clock, self._clock = self._clock, None
        if clock is not None:
            self._over.set()
            clock.join()
            self._draw()  # what has just happened is seen, too
        with self._drawing:
            self._screen.clear()

    def _start(self) -> None:
        self._over.clear()
        self._draw()
        self._clock = Thread(target=self._run, name="live view", daemon=True)
        self._clock.start()

    def _run(self) -> None:
        while not self._over.wait(1 / _REFRESH_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        lines = frame(self._board, now(), self._console.width, self._console.height)
        with self._drawing:
            self._screen.draw(lines)

    def _say(self, event: Event, style: str) -> None:
        """Print what outlasts the view, above it."""
        if text := describe(event, self._board):
            with self._drawing:
                self._screen.say(Text(text, style=style))


def frame(board: Board, at: datetime, width: int, height: int) -> list[Text]:
    """The view as lines that fit `width` x `height` cells, whatever the number of agents."""
    room = max(height - 1, 2)
    lines = [_headline(board, at, width)]
    preview = _preview(board, width, min(_PREVIEW_LINES, room - 1 - min(len(board.agents), _LEAST_AGENTS)))
    lines += _agent_lines(board, at, width, room - 1 - len(preview))
    return lines + preview


def _headline(board: Board, at: datetime, width: int) -> Text:
    if board.winner is not None:
        title = "final answer"
    elif board.round:
        title = round_title(board.round, final=board.final_round)
    else:
        title = "starting"
    right = f"{_spent(board) if width >= _WIDE else ''}{duration(board.seconds(at))}"
    left = f"turn {board.turn} · {title} · {one_line(board.question, width)}"
    return Text(_fit(left, width - len(right) - 2) + "  " + right, style="bold")


def _spent(board: Board) -> str:
    """`34k tok · $0.12 · `, as far as there is anything to say."""
    agents = board.agents.values()
    tokens, cost = sum(agent.tokens for agent in agents), sum(agent.usage.cost or 0.0 for agent in agents)
    return (f"{count(tokens)} tok · " if tokens else "") + (f"{dollars(cost)} · " if cost else "")


def _agent_lines(board: Board, at: datetime, width: int, room: int) -> list[Text]:
    agents = list(board.agents.values())
    shown, chosen = agents, {agent.id for agent in agents}
    if len(agents) > room:
        busiest = sorted(agents, key=lambda agent: _INTEREST[agent.phase])[: max(room - 1, 0)]
        chosen = {agent.id for agent in busiest}
        shown = [agent for agent in agents if agent.id in chosen]
    id_width = min(max((cell_len(agent.id) for agent in agents), default=0), _ID_WIDTH, width // 4)
    lines = [_agent_line(agent, board, at, width, id_width) for agent in shown]
    if len(shown) < len(agents) and room > 0:
        lines.append(_rest([agent for agent in agents if agent.id not in chosen], width))
    return lines


def _rest(hidden: list[AgentState], width: int) -> Text:
    phases = Counter(agent.phase for agent in hidden)
    states = ", ".join(f"{number} {phase}" for phase, number in phases.items())
    return Text(_fit(f"  and {plural(len(hidden), 'agent')} more: {states}", width), style="dim")


def _agent_line(agent: AgentState, board: Board, at: datetime, width: int, id_width: int) -> Text:
    left = f"{_mark(agent, at)} {_fit(agent.id, id_width)}  {_fit(_state(agent), 9)}"
    figures = f" {duration(agent.seconds(at)):>6} {count(agent.tokens):>5} tok"
    window = _price(agent, board) + _window(agent, board)
    rest = width - cell_len(left) - len(figures) - len(window) - 2
    recalled = _recalled(agent, board) if rest >= _LEAST_SAID else ""
    rest -= len(recalled)
    line = Text(left, style=_STYLES[agent.phase])
    line.append(figures, style="dim")
    line.append(window, style="yellow" if agent.context and near_limit(agent.context) else "dim")
    line.append(recalled, style="dim")
    if rest > 0:
        line.append("  " + _said(agent, board, rest), style="dim" if agent.phase == "working" else "")
    line.truncate(width)
    return line


def _window(agent: AgentState, board: Board) -> str:
    """How full its context window is; a column only once that is known of any agent."""
    if all(each.context is None for each in board.agents.values()):
        return ""
    return f" {share(agent.context):>4} ctx" if agent.context else " " * 9


def _recalled(agent: AgentState, board: Board) -> str:
    """Tokens of what memory had on the question; a column only once it had anything for any agent."""
    if not any(each.context and each.context.recalled for each in board.agents.values()):
        return ""
    return f" {count(agent.context.recalled):>5} mem" if agent.context else " " * 10


def _price(agent: AgentState, board: Board) -> str:
    """What it has cost; a column only once there is something to pay."""
    if not any(each.usage.cost for each in board.agents.values()):
        return ""
    return f" {dollars(agent.usage.cost) if agent.usage.cost else '':>8}"


def _mark(agent: AgentState, at: datetime) -> str:
    match agent.phase:
        case "working":
            return _SPINNER[int(at.timestamp() * _REFRESH_PER_SECOND) % len(_SPINNER)]
        case "retrying":
            return "↻"
        case "failed":
            return "✗"
        case "waiting":
            return "·"
        case "voted" | "answered":
            return "✓"
        case "asking":
            return "?"


def _state(agent: AgentState) -> str:
    if agent.phase != "working":
        return agent.phase
    if agent.using:
        return "tools"
    if agent.thinking or not agent.streamed:
        return "thinking"
    return {"answer": "answering", "vote": "voting", "present": "writing", None: "working"}[agent.step]


def _said(agent: AgentState, board: Board, width: int) -> str:
    """What there is to read about the agent now: the end of its stream, its vote, its trouble."""
    if agent.phase == "working" and not (agent.using or (agent.retry is not None and not agent.streamed)):
        return _end(agent.tail, width)
    return one_line(_told(agent, board), width)


def _told(agent: AgentState, board: Board) -> str:
    match agent.phase:
        case "working" | "retrying" if agent.retry is not None and not agent.streamed:
            return f"try {agent.retry.attempt + 1}: {agent.retry.error}"
        case "working":
            return f"waits for {', '.join(agent.using.values())}"
        case "failed" | "asking":
            return _trouble(agent)
        case "voted" if agent.ballots:
            return f"for {agent.ballots[-1].choice}: {agent.ballots[-1].reason}"
        case "answered" | "voted" | "waiting" if agent.answers:
            votes = board.votes.get(agent.id, 0)
            said = f"answer {agent.answers[-1].number}: {agent.answers[-1].content}"
            return f"({plural(votes, 'vote')}) {said}" if votes else said
        case _:
            return ""


def _trouble(agent: AgentState) -> str:
    """Why the agent does not go on."""
    if agent.phase == "asking":
        return f"needs {agent.request.param} from you" if agent.request is not None else ""
    return agent.failure.message if agent.failure is not None else ""


def _preview(board: Board, width: int, lines: int) -> list[Text]:
    """The end of the final answer while the winner writes it."""
    writer = next((a for a in board.agents.values() if a.step == "present" and a.streamed and not a.thinking), None)
    if writer is None or lines < 2:
        return []
    wrapped = [line for paragraph in printable(writer.tail).rstrip().split("\n") for line in _wrap(paragraph, width)]
    return [Text(""), *(Text(line) for line in wrapped[-(lines - 1) :])]


def _wrap(paragraph: str, width: int) -> list[str]:
    lines = textwrap.wrap(paragraph, width) or [""]
    return [piece for line in lines for piece in (chop_cells(line, width) if cell_len(line) > width else [line])]


def _end(text: str, width: int) -> str:
    """The last `width` cells of `text` on one line."""
    folded = " ".join(printable(text).split())
    if cell_len(folded) <= width:
        return folded
    folded = folded[-width:]
    while cell_len(folded) >= width:
        folded = folded[1:]
    return "…" + folded


def _fit(text: str, width: int) -> str:
    """`text` in exactly `width` cells."""
    if width <= 0:
        return ""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…"


if TYPE_CHECKING:
    _: type[Renderer] = LiveRenderer
