"""Numbers and events as short English text."""

from collections.abc import Mapping
from datetime import datetime
from typing import assert_never

from massmem.core.events import AgentFailed, ContextCompressed, ContextMeasured, TurnCompleted, WinnerDecided, WorkCut
from massmem.core.messages import Usage
from massmem.core.text import format_dollars, one_line
from massmem.render.turn_view import AgentView, TurnView

_DECISIONS = {
    "only_answer": "the only answer",
    "consensus": "consensus",
    "early_stop": "enough",
    "answer_now": "the answer so far",
    "plurality": "most votes",
    "tie_support": "a tie, more agents gave this answer",
    "tie": "a tie",
    "unanimous": "all answers are the same",
    "majority": "most agents gave this answer",
    "no_vote": "nobody could vote",
    "no_vote_held": "no vote was held",
}
_LIMITS = {"timeout": "time limit reached", "cost": "cost limit reached", "tokens": "token limit reached"}
_WORK_CUTS: Mapping[WorkCut, str] = {
    "tool_rounds": "coordination.max_tool_rounds reached",
    "standstill": "no new call and no new text for several replies",
    "time": "time limit reached",
    "cost": "cost limit reached",
    "tokens": "token limit reached",
}
_APPROACHING = " - Approaching limit!"


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
    return f"{about}{format_count(usage.prompt)} tokens in{cached}, {about}{format_count(usage.completion)} out"


def format_cached(tokens: int, saved: float) -> str:
    """Return `30k cached, saved $0.04`; the money only where it is known."""
    return f"{format_count(tokens)} cached" + (f", saved {format_dollars(saved)}" if saved > 0 else "")


def format_percent(share: float) -> str:
    """Return 0.667 as `67%`."""
    return f"{share:.0%}"


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return `1 vote` or `1,200 votes`. plural: where it is not the noun with an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {plural or f'{noun}s'}"


def describe_winner(event: WinnerDecided, view: TurnView) -> str:
    """Return `critic wins: 2 of 3 votes, consensus`, or `2 of 2 votes, enough without a vote of writer`."""
    total = sum(event.votes.values())
    votes = f"{event.votes.get(event.agent_id, 0)} of {pluralize(total, 'vote')}, " if total else ""
    rest = f" without a vote of {', '.join(map(view.name, event.not_asked))}" if event.by == "early_stop" else ""
    return f"{view.name(event.agent_id)} wins: {votes}{_DECISIONS[event.by]}{rest}"


def describe_failure(event: AgentFailed, view: TurnView) -> str:
    """Return `writer failed: 429 too many requests`, with what to do about it when that is known."""
    hint = f" ({one_line(event.hint)})" if event.hint else ""
    rest = "" if event.out or event.step == "present" else "; it may act again in the next round"
    return f"{view.name(event.agent_id)} failed: {one_line(event.message)}{hint}{rest}"


def describe_work(agent: AgentView) -> str:
    """Return what the agent has done with tools so far: `call 14, 120k tokens, compressed 2 times`."""
    parts = [f"call {agent.tool_calls:,}"]
    if used := agent.usage.prompt + agent.usage.completion + agent.step_usage.prompt + agent.step_usage.completion:
        parts.append(f"{format_count(used)} tokens")
    if agent.compressions:
        parts.append(f"compressed {pluralize(agent.compressions, 'time')}")
    return ", ".join(parts)


def describe_limit(event: TurnCompleted) -> str:
    """Return what ended the turn, or the winner's work with tools, before its end; "" when nothing did."""
    limit = "" if event.limit is None else f"{_LIMITS[event.limit]}; best answer so far"
    work = "" if event.work_cut is None else f"work cut short ({_WORK_CUTS[event.work_cut]}); answer from what was done"
    return "; ".join(filter(None, (limit, work)))


def summarize_turn(view: TurnView, now: datetime) -> str:
    """Return one line: rounds, agents, time, tokens, dollars, and how far the agents agree."""
    parts = [pluralize(view.round, "round")] if view.round else []
    failures = len(view.agent_failures)
    parts.append(pluralize(len(view.agents), "agent") + (f" ({failures} failed)" if failures else ""))
    parts.append(format_duration(view.seconds(now)))
    usage = view.usage
    about = "" if usage.reported else "~"
    parts.append(format_tokens(usage, about))
    if usage.cost or (usage.cost is None and usage.completion):  # a model on this machine costs nothing
        parts.append(f"{'' if usage.cost is None else about}{format_dollars(usage.cost)}")
    if view.outcome.confidence is not None:
        low = ", low: check the answer" if view.outcome.escalated else ""
        parts.append(f"agreement {format_percent(view.outcome.confidence)}{low}")
    return " · ".join(parts)


def format_window_share(event: ContextMeasured) -> str:
    """Return how full the window is, as `35%`."""
    return _format_share(event.tokens, event.window)


def is_near_limit(event: ContextMeasured) -> bool:
    """Whether the window is as full as the configuration lets it become."""
    return event.threshold is not None and event.tokens >= event.threshold * event.window


def report_context(event: ContextMeasured | ContextCompressed, turn: int) -> list[str]:
    """Return the full report, a line each, without the agent's name."""
    match event:
        case ContextMeasured():
            return [_report_measurement(event, turn)]
        case ContextCompressed():
            return [
                *_report_cause(event, turn),
                f"Attempting compression ({event.before:,} → {event.after:,} tokens)",
                f"Context compressed: {_describe_removal(event)} ({_freed_tokens(event):,} tokens).",
                f"Kept {pluralize(event.kept, 'recent message')} ({event.after:,} tokens).",
            ]
        case _:
            assert_never(event)


def summarize_context(event: ContextMeasured | ContextCompressed, view: TurnView) -> str | None:
    """Return what a user should notice, in one line; None for a window that has room."""
    agent = view.name(event.agent_id)
    match event:
        case ContextMeasured():
            return f"{agent}: {_report_measurement(event, view.outcome.turn)}" if is_near_limit(event) else None
        case ContextCompressed():
            number = event.removed + event.removed_work
            messages = f"{pluralize(number, 'message')}, " if number else ""
            return f"{agent}: context compressed: {messages}{event.before:,} tokens → {event.after:,}"
        case _:
            assert_never(event)


def _report_measurement(event: ContextMeasured, turn: int) -> str:
    name, source = ("Window", "API actual") if event.source == "api" else ("Buffer", "buffer")
    warning = _APPROACHING if is_near_limit(event) else ""
    return f"Context {name} (Turn {turn}): {_format_fill(event.tokens, event.window)} [{source}]{warning}"


def _report_cause(event: ContextCompressed, turn: int) -> list[str]:
    """Return why it was compressed: a prompt that is never sent, or was refused, is in no other event."""
    if event.window is None:
        return []
    warning = " - Refused by the provider!" if event.why == "overflow" else _APPROACHING
    return [f"Context Buffer (Turn {turn}): {_format_fill(event.before, event.window)} [buffer]{warning}"]


def _format_fill(tokens: int, window: int) -> str:
    return f"{tokens:,} / {window:,} tokens ({_format_share(tokens, window)})"


def _format_share(tokens: int, window: int) -> str:
    return format_percent(tokens / window) if window > 0 else "?"


def _describe_removal(event: ContextCompressed) -> str:
    number = event.removed + event.removed_work
    return f"Removed {pluralize(number, 'message')}" if number else "Shortened what is sent"


def _freed_tokens(event: ContextCompressed) -> int:
    return max(event.before - event.after, 0)
