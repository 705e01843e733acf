"""Numbers and events as short English text; a turn as lines of it, of JSON, and of the log."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TextIO, assert_never

from rich.cells import cell_len, set_cell_size

from massmem.core import events as ev
from massmem.core.calls import describe_call, shorten_tool_name
from massmem.core.messages import Usage
from massmem.core.params import show_name
from massmem.core.redact import redact_line
from massmem.core.text import escape_json, format_dollars, make_printable, one_line
from massmem.core.verdict import NO_VOTE, describe_share
from massmem.render import Renderer
from massmem.render.turn_view import AgentEvent, AgentView, TurnView

_DECISIONS = {
    "only_answer": "the only answer",
    "consensus": "consensus",
    "early_stop": "enough",
    "answer_now": "the answer so far",
    "plurality": "most votes",
    "tie_support": "a tie, more agents gave this answer",
    "tie": "a tie",
    "unanimous": "all answers are the same",
    "majority": "more than half of the voices gave this answer",
    "no_vote": "nobody could vote",
    "no_vote_held": "no vote was held",
}
_LIMITS = {"timeout": "time limit reached", "cost": "cost limit reached", "tokens": "token limit reached"}
_WORK_CUTS: Mapping[ev.WorkCut, str] = {
    "tool_rounds": "coordination.max_tool_rounds reached",
    "standstill": "no new call and no new text for several replies",
    "time": "time limit reached",
    "cost": "cost limit reached",
    "tokens": "token limit reached",
}
_APPROACHING = " - Approaching limit!"

MIN_LAST_COLUMN = 16
"""Columns of the terminal that the last column of a table has at least."""


def fit(text: str, width: int) -> str:
    """Return the text in exactly so many columns of the terminal: filled up with blanks, or cut."""
    if cell_len(text) <= width:
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1) + "…" if width > 0 else ""


def format_columns(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """Return a line per row, its cells in columns. width: of the terminal, to which the last cells are cut."""
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        room = width - sum(widths[:-1]) - 2 * len(widths[:-1])
        widths[-1] = min(widths[-1], max(room, MIN_LAST_COLUMN))
    return ["  ".join(map(fit, row, widths)).rstrip() for row in rows]


def format_duration(seconds: float) -> str:
    """Return `3.2s`, `48s`, `2m05s` or `1h02m`."""
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def format_count(number: int) -> str:
    """Return `980`, `1.2k`, `34k` or `1.2M`."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if number >= 0.9995 * limit:  # 999,500 is 1.0M, not 1000k
            scaled = number / limit
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return str(number)


def format_tokens(usage: Usage, about: str) -> str:
    """Return `34k tokens in (30k cached, saved $0.04), 2.1k out`. about: stands before numbers that are estimates."""
    cached = f" ({format_cached(usage.cached, usage.saved)})" if usage.cached else ""
    searches = f", {pluralize(usage.searches, 'search', 'searches')}" if usage.searches else ""
    tokens = f"{about}{format_count(usage.prompt)} tokens in{cached}, {about}{format_count(usage.completion)} out"
    return tokens + searches


def format_cached(tokens: int, saved: float) -> str:
    """Return `30k cached, saved $0.04`; the money only where it is known."""
    return f"{format_count(tokens)} cached" + (f", saved {format_dollars(saved)}" if saved > 0 else "")


def format_percent(share: float) -> str:
    """Return 0.667 as `67%`."""
    return f"{share:.0%}"


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return `1 vote` or `1,200 votes`. plural: where it is not the noun with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or f'{noun}s'}"


def describe_winner(event: ev.WinnerDecided, view: TurnView) -> str:
    """Return `critic wins: 2 of 3 votes, consensus`, or `2 of 2 votes, enough without a vote of writer`."""
    total = sum(event.votes.values())
    votes = f"{event.votes.get(event.agent_id, 0)} of {pluralize(total, 'vote')}, " if total else ""
    rest = f" without a vote of {', '.join(map(view.name, event.not_asked))}" if event.by == "early_stop" else ""
    decision = NO_VOTE[event.no_vote] if event.no_vote else _DECISIONS[event.by]
    return f"{view.name(event.agent_id)} wins: {votes}{decision}{rest}"


def describe_failure(event: ev.AgentFailed, view: TurnView) -> str:
    """Return `writer failed: 429 too many requests`, with what to do about it when that is known."""
    same = (other.agent for other in view.result.errors if other.error == event.message)
    if event.out and (first := next((agent for agent in same if agent not in (None, event.agent_id)), None)):
        return f"{view.name(event.agent_id)} failed as {view.name(first)} did"
    hint = f" ({one_line(event.hint)})" if event.hint else ""
    is_last = view.final_round or (view.result.shape != "vote" and (event.round or 0) > 1)
    rest = "" if event.out or is_last or event.step == "present" else "; it may act again in the next round"
    return f"{view.name(event.agent_id)} failed: {one_line(event.message)}{hint}{rest}"


def describe_work(agent: AgentView) -> str:
    """Return what the agent has done with tools so far: `call 14, 120k tokens, compressed 2 times`."""
    parts = [f"call {agent.tool_calls:,}"]
    if (
        used := agent.result.usage.prompt
        + agent.result.usage.completion
        + agent.step_usage.prompt
        + agent.step_usage.completion
    ):
        parts.append(f"{format_count(used)} tokens")
    if agent.compressions:
        parts.append(f"compressed {pluralize(agent.compressions, 'time')}")
    return ", ".join(parts)


def describe_limit(event: ev.TurnCompleted) -> str:
    """Return what ended the turn, or the winner's work with tools, before its end; "" when nothing did."""
    limit = "" if event.limit is None else f"{_LIMITS[event.limit]}; best answer so far"
    work = "" if event.work_cut is None else f"work cut short ({_WORK_CUTS[event.work_cut]}); answer from what was done"
    return "; ".join(filter(None, (limit, work)))


def summarize_turn(view: TurnView, now: datetime) -> str:
    """Return one line: rounds, agents, time, tokens, dollars, and how far the agents agree."""
    result = view.result
    parts = [pluralize(result.rounds, "round")] if result.rounds else []
    failures = sum(error.agent is not None for error in result.errors)
    asked = f"{len(view.agents) - len(view.not_needed)} of " if view.not_needed else ""
    parts.append(asked + pluralize(len(view.agents), "agent") + (f" ({failures} failed)" if failures else ""))
    parts.append(format_duration(view.seconds(now)))
    usage = result.usage
    about = "" if usage.reported else "~"
    parts.append(format_tokens(usage, about))
    if usage.cost or (usage.cost is None and usage.completion):  # a model on this machine costs nothing
        parts.append(f"{'' if usage.cost is None else about}{format_dollars(usage.cost)}")
    parts.append(describe_share(result.confidence, result.votes, escalated=result.escalated))
    return " · ".join(filter(None, parts))


def format_window_share(event: ev.ContextMeasured) -> str:
    """Return how full the window is, as `35%`."""
    return _format_share(event.tokens, event.window)


def is_near_limit(event: ev.ContextMeasured) -> bool:
    """Whether the window is as full as the configuration lets it become."""
    return event.threshold is not None and event.tokens >= event.threshold * event.window


def report_context(event: ev.ContextMeasured | ev.ContextCompressed, turn: int) -> list[str]:
    """Return the full report, a line each, without the agent's name."""
    match event:
        case ev.ContextMeasured():
            return [_report_measurement(event, turn)]
        case ev.ContextCompressed():
            number, freed = event.removed + event.removed_work, max(event.before - event.after, 0)
            removal = f"Removed {pluralize(number, 'message')}" if number else "Shortened what is sent"
            return [
                *_report_cause(event, turn),
                f"Attempting compression ({event.before:,} → {event.after:,} tokens)",
                f"Context compressed: {removal} ({freed:,} tokens).",
                f"Kept {pluralize(event.kept, 'recent message')} ({event.after:,} tokens).",
            ]
        case _:
            assert_never(event)


def summarize_context(event: ev.ContextMeasured | ev.ContextCompressed, view: TurnView) -> str | None:
    """Return what a user should notice, in one line; None for a window that has room."""
    agent = view.name(event.agent_id)
    match event:
        case ev.ContextMeasured():
            return f"{agent}: {_report_measurement(event, view.result.turn)}" if is_near_limit(event) else None
        case ev.ContextCompressed():
            number = event.removed + event.removed_work
            messages = f"{pluralize(number, 'message')}, " if number else ""
            return f"{agent}: context compressed: {messages}{event.before:,} tokens → {event.after:,}"
        case _:
            assert_never(event)


def _report_measurement(event: ev.ContextMeasured, turn: int) -> str:
    name, source = ("Window", "API actual") if event.source == "api" else ("Buffer", "buffer")
    warning = _APPROACHING if is_near_limit(event) else ""
    return f"Context {name} (Turn {turn}): {_format_fill(event.tokens, event.window)} [{source}]{warning}"


def _report_cause(event: ev.ContextCompressed, turn: int) -> list[str]:
    """Return why it was compressed: a prompt that is never sent, or was refused, is in no other event."""
    if event.window is None:
        return []
    warning = " - Refused by the provider!" if event.why == "overflow" else _APPROACHING
    return [f"Context Buffer (Turn {turn}): {_format_fill(event.before, event.window)} [buffer]{warning}"]


def _format_fill(tokens: int, window: int) -> str:
    return f"{tokens:,} / {window:,} tokens ({_format_share(tokens, window)})"


def _format_share(tokens: int, window: int) -> str:
    return format_percent(tokens / window) if window > 0 else "?"


_EXCERPT = 100
"""Characters of a text that are searched for secrets before it is cut."""


class PlainRenderer(Renderer):
    """Writes a line per event. `view` must have been fed the event first."""

    def __init__(self, view: TurnView, stream: TextIO, *, failures_only: bool = False) -> None:
        self._view = view
        self._stream = stream
        self._failures_only = failures_only

    def feed(self, event: ev.Event) -> None:
        is_failure = isinstance(event, ev.AgentFailed) or (isinstance(event, ev.AgentRetrying) and event.fallback)
        if self._failures_only and not is_failure:
            return
        text = describe_event(event, self._view)
        if text is not None:
            self._stream.write(f"{format_duration(self._view.seconds(event.at)):>6}  {make_printable(text)}\n")
            self._stream.flush()


class JsonlRenderer(Renderer):
    """Writes each event as one line of JSON, so that a reader gets it at once."""

    def __init__(self, write: Callable[[str], object]) -> None:
        """write: writes text and flushes it."""
        self._write = write

    def feed(self, event: ev.Event) -> None:
        self._write(escape_json(ev.hide_private_fields(event).model_dump_json()) + "\n")


def describe_event(event: ev.Event, view: TurnView) -> str | None:
    """Return one line about `event`; None for an event that is not worth one, or is reported at the end of the turn."""
    match event:
        case ev.ContextMeasured() | ev.ContextCompressed():
            return summarize_context(event, view)
        case ev.ToolCalled() | ev.ToolReturned():
            return _describe_tool(event, view)
        case ev.ParamProvided():
            return f"{show_name(event.param)} received"  # without its value, which may be private
        case ev.ParamCleared(why="gave_up"):
            return f"{show_name(event.param)} not received; the agents go on without it"
        case _ if isinstance(event, AgentEvent):
            return _describe_agent(event, view)
        case _:
            return _describe_turn(event, view)


def _describe_turn(event: ev.Event, view: TurnView) -> str | None:
    match event:
        case ev.TurnStarted():
            line = f"{event.session_id} turn {event.turn}, {pluralize(len(event.agents), 'agent')}"
        case ev.TurnResumed():
            line = f"{event.session_id} turn {event.turn} resumes: {redact_line(event.question, _EXCERPT)}"
        case ev.RoundStarted():
            line = f"{view.round_title}: {', '.join(map(view.name, event.agents))}"
        case ev.DepthDecided():
            line = event.text
        case ev.BallotsVoided():
            line = f"a new answer arrived; voting again: {', '.join(map(view.name, event.agents))}"
        case ev.AnswerNowRequested():
            line = "answering now" + ("" if view.result.authors else ", with the first answer that comes")
        case ev.WinnerDecided() if event.by in _DECISIONS:
            line = describe_winner(event, view)
        case ev.TurnCompleted():
            limit = describe_limit(event)
            line = f"{limit}{limit and ': '}{summarize_turn(view, event.at)}"
        case ev.Notice():
            line = one_line(event.message)
        case _:
            line = _describe_items(event, view) if isinstance(event, ev.ItemsMerged) else None
    return line


def _describe_agent(event: AgentEvent, view: TurnView) -> str | None:
    name = view.name(event.agent_id)
    match event:
        case ev.AgentStarted(step="present"):
            line = f"{name} writes the final answer"
        case ev.AgentStarted() | ev.AgentBusy() | ev.AgentDelta():
            line = f"{name} {event.what}" if isinstance(event, ev.AgentBusy) and event.what else None
        case ev.WebSearched():
            line = f"{name} is {describe_search(event.query)}"
        case ev.AgentRetrying(fallback=fallback) if fallback:
            line = f"{name} goes on with {one_line(fallback)}: {redact_line(event.error, _EXCERPT)}"
        case ev.AgentRetrying():
            line = f"{name} retries in {format_duration(event.delay)}: {redact_line(event.error, _EXCERPT)}"
        case ev.AnswerSubmitted():
            line = f"{name} answers{_format_effort(event, view)}: {redact_line(event.content, _EXCERPT)}"
        case ev.BallotCast():
            reason = redact_line(event.reason, _EXCERPT)
            line = f"{name} votes for {view.name(event.choice)}{_format_effort(event, view)}: {reason}"
        case ev.ParamRequested():
            line = f"{name} needs {show_name(event.param)} from you{_format_effort(event, view)}"
        case ev.AgentFailed() | ev.ItemsGiven():
            line = describe_failure(event, view) if isinstance(event, ev.AgentFailed) else _describe_items(event, view)
        case _:
            assert_never(event)
    return line


def _describe_items(event: ev.ItemsGiven | ev.ItemsMerged, view: TurnView) -> str:
    items = pluralize(len(event.items or ()), "item")
    if isinstance(event, ev.ItemsMerged):
        return f"{items}, {pluralize(event.compared, 'pair')} compared by {view.name(event.by)}" if event.by else items
    counts = Counter("scored" if check.points else f"{check.stand}ed" for check in event.checks)
    judged = ", ".join(f"{count} {stand}" for stand, count in counts.items()) or items
    return f"{view.name(event.agent_id)} has looked{_format_effort(event, view)}: {judged}"


def describe_search(query: str) -> str:
    """Return `searching: QUERY` on one line."""
    return f"searching: {redact_line(query, _EXCERPT)}" if query else "searching the web"


def _describe_tool(event: ev.ToolCalled | ev.ToolReturned, view: TurnView) -> str:
    """Return names, arguments and sizes: the result of a tool may fill screens."""
    agent, tool = view.name(event.agent_id), one_line(shorten_tool_name(event.name), _EXCERPT)
    match event:
        case ev.ToolCalled():
            call = one_line(describe_call(event.name, event.arguments), _EXCERPT)
            return f"{agent} calls {call} ({describe_work(view.agents[event.agent_id])})"
        case ev.ToolReturned(failed=True):
            return f"{agent}: {tool} failed: {redact_line(event.content, _EXCERPT)}"
        case ev.ToolReturned():
            return f"{agent} used {tool}: {pluralize(len(event.content), 'character')}"
        case _:
            assert_never(event)


def _format_effort(
    event: ev.AnswerSubmitted | ev.BallotCast | ev.ItemsGiven | ev.ParamRequested, view: TurnView
) -> str:
    agent = view.agents[event.agent_id]
    cost = f", {format_dollars(agent.result.usage.cost)}" if agent.result.usage.cost else ""
    model = "" if isinstance(event, ev.ParamRequested) or not event.fallback else f", by {one_line(event.fallback)}"
    return f" ({format_duration(agent.seconds(event.at))}, {format_count(agent.tokens)} tokens{cost}{model})"


log = logging.getLogger(__name__)

_PRIVATE_FIELDS = {
    "question", "content", "text", "reasoning", "reason", "partial", "arguments", "answer", "prompt", "summary",
    "metadata", "query", "citations", "report", "items", "unread", "checks", "replies", "completed", "carried_out",
}  # fmt: skip
_OMITTED_FIELDS = {"type", "at", "schema_version"}


class LogRenderer(Renderer):
    """Logs each event. `view` must have been fed the event first."""

    def __init__(self, view: TurnView) -> None:
        self._view = view

    def feed(self, event: ev.Event) -> None:
        if not isinstance(event, ev.ContextMeasured | ev.ContextCompressed):
            if not isinstance(event, ev.AgentDelta):
                log.debug("%s", outline_event(event))
            return
        has_room = isinstance(event, ev.ContextMeasured) and not is_near_limit(event)
        for line in report_context(event, self._view.result.turn):
            log.log(logging.INFO if has_room else logging.WARNING, "%s: %s", event.agent_id, line)


def outline_event(event: ev.Event) -> str:
    """Return the event in one line, with the length of each text in place of the text."""
    parts = [event.type]
    for name in event.__struct_fields__:
        value = getattr(event, name)
        if name in _PRIVATE_FIELDS:
            parts.append(f"{name}={len(str(value))} characters")
        elif name not in _OMITTED_FIELDS:
            parts.append(f"{name}={value!r}")
    return " ".join(parts)
