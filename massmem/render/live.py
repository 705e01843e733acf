"""The live view: one line per agent on stderr while a turn runs, erased when it ends; then the answer, laid out."""

import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from threading import Event as ThreadEvent
from threading import Lock, Thread
from typing import ClassVar, TextIO, cast

from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from massmem.core import events as ev
from massmem.core.events import now
from massmem.core.params import show_name
from massmem.core.text import format_dollars, make_printable, one_line
from massmem.render import Renderer
from massmem.render.text import (
    describe_event,
    describe_search,
    describe_work,
    fit,
    format_count,
    format_duration,
    format_percent,
    format_window_share,
    is_near_limit,
    pluralize,
)
from massmem.render.turn_view import AgentView, Phase, TurnView

_FRAMES_PER_SECOND = 8
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_PRIORITY: Mapping[Phase, int] = {
    "working": 0, "retrying": 1, "failed": 2, "waiting": 3, "voted": 4, "answered": 5, "asking": 6, "not asked": 7,
}  # fmt: skip
"""Which agents are shown when there is no room for all: the lowest number first."""
_MARKS: Mapping[Phase, str] = {
    "retrying": "↻", "failed": "✗", "waiting": "·", "voted": "✓", "answered": "✓", "asking": "?", "not asked": "·",
}  # fmt: skip
_STYLES = {
    "working": "cyan",
    "retrying": "yellow",
    "failed": "red",
    "waiting": "dim",
    "voted": "green",
    "answered": "green",
    "asking": "yellow",
    "not asked": "dim",
}
_WORK = {"answer": "answering", "vote": "voting", "present": "writing", "items": "judging", None: "working"}
_NAME_WIDTH = 20
_WIDE = 60
_VERY_WIDE = 100
_ANSWER_NOW = "Ctrl-N: answer now · "
_PREVIEW_LINES = 6
_MIN_AGENT_LINES = 5
_MIN_TEXT_WIDTH = 30
"""With fewer cells left after the other columns, the column of recalled memories is left out."""


class LiveRenderer(Renderer):
    """Draws the view on `console`, a terminal on stderr. `view` must have been fed each event first.

    A thread redraws it several times a second; it only reads the view.
    """

    def __init__(self, view: TurnView, console: Console) -> None:
        self._view = view
        self._console = console
        self._screen = Screen(console)
        self._screen_lock = Lock()
        self._stopped = ThreadEvent()
        self._winner: ev.WinnerDecided | None = None
        self._redraw_thread: Thread | None = None

    def feed(self, event: ev.Event) -> None:
        if self._view.result.end is not None:
            self.close()
        elif self._redraw_thread is None:
            self._start()
        elif isinstance(event, ev.RoundStarted | ev.WinnerDecided | ev.AgentBusy | ev.WebSearched):
            self._draw()  # shows the step even when it is shorter than the redraw interval
        if isinstance(event, ev.WinnerDecided):
            self._winner = event
        if isinstance(event, ev.TurnCompleted) and self._winner is not None:
            self._print_above(self._winner, "green")
        if isinstance(event, ev.DepthDecided | ev.AgentFailed | ev.ContextCompressed | ev.Notice | ev.TurnCompleted):
            self._print_above(event, "red" if isinstance(event, ev.AgentFailed) else "dim")
        if isinstance(event, ev.AgentRetrying) and event.fallback:
            self._print_above(event, "yellow")

    def resume(self) -> None:
        """Show the view again after `close`, when the turn still runs."""
        if self._redraw_thread is None and self._view.result.end is None and self._view.began_at is not None:
            self._start()

    def close(self) -> None:
        thread, self._redraw_thread = self._redraw_thread, None
        if thread is not None:
            self._stopped.set()
            thread.join()
            self._draw()  # shows the last events
        with self._screen_lock:
            self._screen.clear()

    def _start(self) -> None:
        self._stopped.clear()
        self._draw()
        self._redraw_thread = Thread(target=self._run, name="live view", daemon=True)
        self._redraw_thread.start()

    def _run(self) -> None:
        while not self._stopped.wait(1 / _FRAMES_PER_SECOND):
            self._draw()

    def _draw(self) -> None:
        lines = build_frame(self._view, now(), self._console.width, self._console.height)
        with self._screen_lock:
            self._screen.draw(lines)

    def write_line(self, text: str, style: str = "dim") -> None:
        """Print a line that stays after the view is erased."""
        with self._screen_lock:
            self._screen.print_above(Text(text, style=style))

    def _print_above(self, event: ev.Event, style: str) -> None:
        if text := describe_event(event, self._view):
            self.write_line(text, style)


def build_frame(view: TurnView, now: datetime, width: int, height: int) -> list[Text]:
    """Return the view as lines that fit `width` x `height` cells, whatever the number of agents."""
    room = max(height - 1, 2)
    lines = [_headline(view, now, width)]
    alone = len(view.agents) == 1
    most = room if alone else _PREVIEW_LINES
    preview = _preview_reply(view, width, min(most, room - 1 - min(len(view.agents), _MIN_AGENT_LINES)))
    lines += _agent_lines(view, now, width, room - 1 - len(preview))
    return lines + preview


def _headline(view: TurnView, now: datetime, width: int) -> Text:
    if view.result.winner is not None:
        title = "final answer"
    elif view.result.rounds:
        title = view.round_title
    else:
        title = "starting"
    hint = _ANSWER_NOW if width >= _VERY_WIDE and len(view.agents) > 1 and view.result.authors else ""
    right = f"{hint}{_format_effort(view) if width >= _WIDE else ''}{format_duration(view.seconds(now))}"
    left = f"turn {view.result.turn} · {title} · {one_line(view.result.question, width)}"
    return Text(fit(left, width - len(right) - 2) + "  " + right, style="bold")


def _format_effort(view: TurnView) -> str:
    """Return `34k tok · $0.12 · `, without the parts that are zero."""
    agents = view.agents.values()
    tokens, cost = sum(agent.tokens for agent in agents), sum(agent.result.usage.cost or 0.0 for agent in agents)
    return (f"{format_count(tokens)} tok · " if tokens else "") + (f"{format_dollars(cost)} · " if cost else "")


def _agent_lines(view: TurnView, now: datetime, width: int, room: int) -> list[Text]:
    agents = list(view.agents.values())
    visible = agents
    if len(agents) > room:
        busiest = sorted(agents, key=lambda agent: _PRIORITY[agent.phase])[: max(room - 1, 0)]
        visible = [agent for agent in agents if agent in busiest]
    name_width = min(max((cell_len(view.name(agent.id)) for agent in agents), default=0), _NAME_WIDTH, width // 4)
    lines = [_agent_line(agent, view, now, width, name_width) for agent in visible]
    if len(visible) < len(agents) and room > 0:
        phases = Counter(agent.phase for agent in agents if agent not in visible)
        states = ", ".join(f"{number} {phase}" for phase, number in phases.items())
        hidden = pluralize(len(agents) - len(visible), "more agent")
        lines.append(Text(fit(f"  and {hidden}: {states}", width), style="dim"))
    return lines


def _agent_line(agent: AgentView, view: TurnView, now: datetime, width: int, name_width: int) -> Text:
    spinner = _SPINNER[int(now.timestamp() * _FRAMES_PER_SECOND) % len(_SPINNER)]
    left = f"{_MARKS.get(agent.phase, spinner)} {fit(view.name(agent.id), name_width)}  {fit(_state(agent), 9)}"
    work = f" {format_duration(agent.seconds(now)):>6} {format_count(agent.tokens):>5} tok"
    window = _cost_column(agent, view) + _window_column(agent, view)
    text_width = width - cell_len(left) - len(work) - len(window) - 2
    recalled = _recall_column(agent, view) if text_width >= _MIN_TEXT_WIDTH else ""
    text_width -= len(recalled)
    line = Text(left, style=_STYLES[agent.phase])
    line.append(work, style="dim")
    line.append(window, style="yellow" if agent.context and is_near_limit(agent.context) else "dim")
    line.append(recalled, style="dim")
    if text_width > 0:
        line.append("  " + _agent_text(agent, view, text_width), style="dim" if agent.phase == "working" else "")
    line.truncate(width)
    return line


def _window_column(agent: AgentView, view: TurnView) -> str:
    """Return how full the context window is; the column appears once that is known of any agent."""
    if all(a.context is None for a in view.agents.values()):
        return ""
    return f" {format_window_share(agent.context):>4} ctx" if agent.context else " " * 9


def _recall_column(agent: AgentView, view: TurnView) -> str:
    """Return the tokens of recalled memories; the column appears once there are any for any agent."""
    if not any(a.context and a.context.recalled for a in view.agents.values()):
        return ""
    return f" {format_count(agent.context.recalled):>5} mem" if agent.context else " " * 10


def _cost_column(agent: AgentView, view: TurnView) -> str:
    """Return the cost; the column appears once any agent has cost something."""
    if not any(a.result.usage.cost for a in view.agents.values()):
        return ""
    return f" {format_dollars(agent.result.usage.cost) if agent.result.usage.cost else '':>8}"


def _state(agent: AgentView) -> str:
    if agent.phase != "working":
        return agent.phase
    if agent.running_tools:
        return "tools"
    if agent.busy is not None:
        return agent.busy.activity
    if agent.search is not None:
        return "searching"
    if agent.thinking or not agent.streamed:
        return "thinking"
    return _WORK[agent.step]


def _agent_text(agent: AgentView, view: TurnView, width: int) -> str:
    """Return the end of its stream, its vote or its trouble, on one line."""
    if agent.thinking and not view.shows_reasoning:
        return ""
    if agent.busy is not None:
        return one_line(_describe_activity(agent.busy), width)
    if agent.search is not None and agent.phase == "working":
        return one_line(describe_search(agent.search), width)
    is_streaming = agent.phase == "working" and not agent.running_tools and (agent.retry is None or agent.streamed)
    if is_streaming and agent.last_call and not agent.tail.strip():
        return one_line(f"{describe_work(agent)}: {agent.last_call}", width)
    return _fold_tail(agent.tail, width) if is_streaming else one_line(_describe_state(agent, view), width)


def _describe_activity(busy: ev.AgentBusy) -> str:
    """Return `reading the prompt, 45%`."""
    what = busy.what or ("loading the model" if busy.activity == "loading" else "reading the prompt")
    return what if busy.share is None else f"{what}, {format_percent(busy.share)}"


def _describe_state(agent: AgentView, view: TurnView) -> str:
    result = agent.result
    match agent.phase:
        case "working" | "retrying" if agent.retry is not None and not agent.streamed:
            retry = agent.retry
            text = f"try {retry.attempt}: {retry.error}" if retry.attempt else retry.error
            text = f"goes on with {agent.fallback}" if retry.fallback else text
        case "working":
            text = f"{describe_work(agent)}: {', '.join(agent.running_tools.values())}"
        case "failed" if result.error is not None:
            text = result.error.error
        case "asking" if result.waiting_for is not None:
            text = f"needs {show_name(result.waiting_for)} from you"
        case "voted" if result.ballots:
            text = f"for {view.name(result.ballots[-1].choice)}: {result.ballots[-1].reason}"
        case "answered" | "voted" | "waiting" if result.answers:
            votes = view.result.votes.get(agent.id, 0)
            last = result.answers[-1]
            model = f" by {last.fallback}" if last.fallback else ""
            answer = f"answer {last.number}{model}: {last.content}"
            text = f"({pluralize(votes, 'vote')}) {answer}" if votes else answer
        case _:
            text = ""
    return text


def _preview_reply(view: TurnView, width: int, lines: int) -> list[Text]:
    """Return the end of the final answer while the winner, or a single agent, writes it; dimmed, what it thinks."""
    steps = ("answer", "present") if len(view.agents) == 1 else ("present",)
    writer = next((agent for agent in view.agents.values() if agent.step in steps and agent.streamed), None)
    if writer is None or lines < 2 or (writer.thinking and not view.shows_reasoning):
        return []
    wrapped = [
        line for paragraph in make_printable(writer.tail).rstrip().split("\n") for line in _wrap(paragraph, width)
    ]
    style = "dim" if writer.thinking else ""
    return [Text(""), *(Text(line, style=style) for line in wrapped[-(lines - 1) :])]


def _wrap(paragraph: str, width: int) -> list[str]:
    lines = textwrap.wrap(paragraph, width) or [""]
    return [piece for line in lines for piece in (chop_cells(line, width) if cell_len(line) > width else [line])]


def _fold_tail(text: str, width: int) -> str:
    """Return the last `width` cells of `text` on one line."""
    folded = " ".join(make_printable(text).split())
    if cell_len(folded) <= width:
        return folded
    folded = folded[-width:]
    while cell_len(folded) >= width:
        folded = folded[1:]
    return "…" + folded


_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
# "Synchronized output": terminals that support it show the text between these at once, others ignore them.
_BEGIN_UPDATE, _END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
_ERASE_BELOW, _ERASE_LINE = "\x1b[J", "\x1b[K"
_NEXT_LINE = f"\x1b[B{_ERASE_LINE}"


class Screen:
    """A block of lines at the bottom of a terminal, updated in place.

    rich.live redraws the whole block 8 times a second, which flickers over slow connections; this sends only
    differences. Each line must fit the width of the terminal. The hidden cursor stays on the last line.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: list[Text] = []
        self._width = 0
        self._open = False

    def draw(self, lines: Sequence[Text]) -> None:
        width = self._console.width
        parts = [_BEGIN_UPDATE]
        if not self._open:
            self._open = True
            parts.append(_HIDE_CURSOR)
        if width != self._width and self._lines:
            parts.append(self._erase(width))
        self._width = width
        parts += self._update(lines)
        self._lines = list(lines)
        if len(parts) > 1:
            self._send("".join((*parts, _END_UPDATE)))

    def print_above(self, text: Text) -> None:
        """Print text that stays, above the block."""
        with self._console.capture() as capture:
            self._console.print(text, highlight=False)
        output, lines = capture.get(), self._lines
        if self._open and lines:
            erase = self._erase(self._console.width)
            redraw, self._lines = "".join(self._update(lines)), lines
            output = f"{_BEGIN_UPDATE}{erase}{output}{redraw}{_END_UPDATE}"
        self._send(output)

    def clear(self) -> None:
        """Erase the block and show the cursor where its first line was."""
        if self._open:
            self._send(self._erase(self._console.width) + _SHOW_CURSOR)
        self._open, self._lines = False, []

    def _erase(self, width: int) -> str:
        """Return what erases the block; a terminal that became narrower has wrapped its lines.

        Line by line: a terminal whose whole screen is erased at once may keep a copy above it (tmux does), which
        stays in the history.
        """
        rows = sum(max(-(-cell_len(line.plain.rstrip()) // max(width, 1)), 1) for line in self._lines)
        self._lines = []
        return f"\r{_move_up(rows - 1)}{_ERASE_LINE}{_NEXT_LINE * (rows - 1)}{_move_up(rows - 1)}"

    def _update(self, lines: Sequence[Text]) -> list[str]:
        """Return what turns the block into these lines, with the cursor from its last line to theirs."""
        row, parts = max(len(self._lines) - 1, 0), list[str]()
        for i, line in enumerate(lines):
            if i < len(self._lines) and _equal(line, self._lines[i]):
                continue
            parts.append(_move(row, i, len(self._lines)))
            parts.append(self._draw_line(line))
            row = i
        if len(lines) < len(self._lines):
            parts.append(f"{_move(row, len(lines), len(self._lines))}{_ERASE_BELOW}")
            row = len(lines)
        last = max(len(lines) - 1, 0)
        return [*parts, _move(row, last, len(lines))] if row != last else parts

    def _draw_line(self, line: Text) -> str:
        with self._console.capture() as capture:
            self._console.print(line, end="", soft_wrap=True, highlight=False)
        return capture.get() + _ERASE_LINE

    def _send(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def _equal(one: Text, other: Text) -> bool:
    return one.plain == other.plain and one.style == other.style and one.spans == other.spans


def _move(row: int, target: int, rows: int) -> str:
    """Return what moves from one row to the start of another; a line break creates a row beyond the last."""
    if target <= row:
        return "\r" + _move_up(row - target)
    down = min(target, max(rows - 1, row)) - row
    return ("\r" + f"\x1b[{down}B" if down else "\r") + "\n" * (target - row - down)


def _move_up(rows: int) -> str:
    return f"\x1b[{rows}A" if rows > 0 else ""


_MAX_MARKDOWN = 100_000
"""Characters that are laid out, which takes up to half a second. A longer answer is returned as it is."""

_HIDING_RULES = ["entity", "escape", "html_block", "html_inline", "image", "reference"]
"""They hide text: without them it stays complete."""

_PADDING = re.compile(r"(?<! ) +((?:\x1b\[0m)*)$", re.MULTILINE)
"""rich fills every line with blanks, which would be copied with the line."""


def render_markdown(answer: str, terminal: TextIO) -> str:
    """Return the answer as text to write to this terminal, without control sequences of the model."""
    from markdown_it import MarkdownIt
    from rich.markdown import Markdown, TableElement

    class FoldingTable(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            [table] = cast("Iterable[Table]", super().__rich_console__(console, options))
            for column in table.columns:
                column.overflow = "fold"  # rich would cut long words
            yield table

    class Page(Markdown):
        elements: ClassVar = {**Markdown.elements, "table_open": FoldingTable}

    text = make_printable(answer).rstrip("\n") + "\n"
    if len(text) > _MAX_MARKDOWN:
        return text
    # Links show their address: link text may claim another destination.
    markdown = Page("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = MarkdownIt().enable(["strikethrough", "table"]).disable(_HIDING_RULES).parse(text)
    for token in markdown.parsed:
        for child in token.children or ():
            if child.type == "softbreak":  # models break lines on purpose
                child.type = "hardbreak"
    console = Console(file=terminal, highlight=False)
    with console.capture() as capture:
        console.print(markdown)
    return _PADDING.sub(r"\1", capture.get())
