"""Sessions as text on a terminal: lists, conversations, search hits and figures."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len

from massmem.cli.options import format_time
from massmem.core.calls import shorten_tool_name
from massmem.core.citations import write_notes
from massmem.core.events import BallotCast, Event
from massmem.core.records import ListedSession, SessionRecord
from massmem.core.text import cut_excerpt, format_dollars, make_printable, match_any, one_line
from massmem.core.transcript import LoggedTurn
from massmem.export import (
    agent_steps,
    describe_decision,
    describe_status,
    list_flaws,
    list_rest,
    name_speaker,
    title_turn,
)
from massmem.render.text import (
    MIN_LAST_COLUMN,
    format_cached,
    format_columns,
    format_count,
    format_duration,
    format_percent,
    pluralize,
)
from massmem.session.sessions import SessionHit

_INDENT = "  "
_EVENT_TEXTS = ("question", "answer", "content", "reason", "prompt", "param", "summary", "name", "message")
"""Fields that say what an event is about, the first one that it has."""
_BOLD, _DIM, _HIGHLIGHT = "1", "2", "1;33"


def format_table(sessions: Sequence[ListedSession]) -> str:
    """Return a line per session, cut to the width of the terminal; a narrow one has fewer columns."""
    rows = [("ID", "STATUS", "TURNS", "LAST USED", "AGREE", "TITLE"), *map(_list_cells, sessions)]
    width = max(map(cell_len, format_columns([row[:-1] for row in rows])))
    if _on_terminal() and width + 2 + MIN_LAST_COLUMN > _terminal_width():
        rows = [(id_, status, used, title) for id_, status, _, used, _, title in rows]
    return _format_with_head(rows)


def format_heading(session: SessionRecord) -> str:
    """Return what stands above a conversation."""
    title = one_line(session.display_title or session.session_id)
    period = f"{format_time(session.created_at)} to {format_time(session.updated_at)}"
    messages = pluralize(session.message_count, "message")
    about = f"{session.session_id} · {session.status} · {messages} · {one_line(session.model)} · {period}"
    return f"{_style(title, _BOLD)}\n{_style(about, _DIM)}\n"


def format_events(log: Iterable[tuple[int, Event]]) -> str:
    """Return a line per event: its number in the log, type, round, agent, and the beginning of its text."""
    return _format_with_head([("NUMBER", "EVENT", "ROUND", "AGENT", "TEXT"), *(_list_event(*row) for row in log)])


def format_turn(turn: LoggedTurn, *, detailed: bool, makes_report: bool = False) -> str:
    """Return question and answer of a turn; detailed, also rounds, votes and reasoning.

    makes_report: with a report of the council, made from the votes where none is stored.
    """
    result = turn.result
    rule = f"── {title_turn(turn)}{f' · {format_time(result.started_at)}' if result.started_at else ''} "
    parts = [_style(rule + "─" * max(min(_terminal_width(), 80) - len(rule), 0), _DIM)]
    if turn.is_between_turns:
        return "\n" + "\n".join([*parts, *(_format_speech(name_speaker(m), m.content) for m in turn.messages)]) + "\n"
    parts.append(_format_speech("You", result.question))
    if detailed:
        parts += _format_steps(turn)
    parts += [_format_speech(exchange.agent or "You", exchange.content) for exchange in result.asked]
    if result.answer is None:
        parts += [_format_speech(name, text) for name, text in list_rest(result, detailed)]
        parts += [_style(line, _DIM) for line in (f"No answer: the turn is {describe_status(result)}.", *result.plan)]
    else:
        sections = list(turn.list_report(result.make_report() if makes_report else result.report))
        parts += [_format_speech(section.heading, "\n".join(section.lines)) for section in sections]
        if makes_report and not sections:
            parts.append(_style("No report: there is one agent's answer and no other.", _DIM))
        parts.append(_format_speech(result.name(result.winner or "assistant"), result.answer))
        parts += [_INDENT + note for note in write_notes(result.citations)]
        lines = (*list_flaws(result), describe_decision(result), result.agreement or "")
        parts += [_style(line, _DIM) for line in lines if line]
    return "\n" + "\n".join(parts) + "\n"


def format_hits(hits: Iterable[SessionHit], query: str) -> str:
    """Return where each message is, and an excerpt around the words of the query."""
    words = re.findall(r"\w+", query)
    return "".join(_format_hit(hit, words) for hit in hits)


def format_insights(insights: dict[str, Any]) -> str:
    tokens, confidence, mean = insights["tokens"], insights["confidence"], insights["response_time"]
    answers = "no answer yet" if mean is None else f"{format_duration(mean)} per answer"
    about = "" if tokens["reported"] else "about "
    cached = f" ({format_cached(tokens['cached'], insights['saved'])})" if tokens["cached"] else ""
    states = ", ".join(f"{number} {status}" for status, number in insights["turns_by_status"].items())
    escalated = f", {insights['escalated']} not sure" if insights["escalated"] else ""
    is_one = "session_id" in insights
    text = _format_rows(
        ("session", f"{insights['session_id']}  {one_line(insights['title'])}" if is_one else ""),
        ("sessions", "" if is_one else f"{insights['sessions']:,}"),
        ("turns", f"{insights['turns']:,} ({states})" if states else "0"),
        ("messages", f"{insights['message_count']:,} in the log, {insights['user_messages']:,} from you"),
        ("time", f"{format_duration(insights['duration'])} from first to last message, {answers}"),
        ("topics", ", ".join(insights["topics"])),
        ("agreement", "" if confidence is None else f"{format_percent(confidence)} on average{escalated}"),
        ("tools", _format_tools(insights["tools"])),
        ("sequences", _format_sequences(insights["tool_sequences"])),
        ("tokens", f"{about}{format_count(tokens['prompt'])} in{cached}, {format_count(tokens['completion'])} out"),
        ("for", ", ".join(f"{key} {format_count(part['tokens'])}" for key, part in insights["spent"].items())),
        ("cost", _format_cost(insights)),
    )
    return text + _format_agents(insights["agents"])


def format_stats(stats: dict[str, Any]) -> str:
    states = ", ".join(f"{number:,} {status}" for status, number in stats["by_status"].items())
    queue, store = stats["recordings"], stats["store"]
    return _format_rows(
        ("sessions", f"{stats['total_sessions']:,}{f' ({states})' if states else ''}"),
        ("messages", f"{stats['total_messages']:,}, {stats['avg_messages_per_session']:,.1f} per session"),
        ("recording", f"{queue['pending']:,} pending, {queue['done']:,} done, {queue['failed']:,} failed"),
        ("store", f"{store['kind']}{'' if store['durable'] else ', not durable'}, {store['url']}"),
    )


def _list_cells(listed: ListedSession) -> tuple[str, ...]:
    session = listed.session
    confidence = "" if listed.confidence is None else format_percent(listed.confidence)
    confidence += "!" if listed.escalated else ""
    title = one_line(session.display_title or session.description)
    return session.session_id, session.status, str(listed.turns), format_time(session.updated_at), confidence, title


def _list_event(number: int, event: Event) -> tuple[str, ...]:
    values = event.model_dump()
    text = next((text for name in _EVENT_TEXTS if isinstance(text := values.get(name), str) and text), "")
    vote = f"for {event.choice}: " if isinstance(event, BallotCast) else ""
    agent = values.get("agent_id") or values.get("winner") or ""
    return str(number), event.type, str(values.get("round", "")), agent, vote + one_line(text, 80)


def _format_with_head(rows: Sequence[Sequence[str]]) -> str:
    """Return a line per row, cut to the width of the terminal. rows: the first one is the heading."""
    head, *lines = format_columns(rows, _terminal_width() if _on_terminal() else None)
    return "".join(f"{line}\n" for line in (_style(head, _BOLD), *map(make_printable, lines)))


def _format_rows(*rows: tuple[str, str]) -> str:
    """Return a line per name and value, without the empty values."""
    return "".join(f"{_style(f'{name:<10}', _DIM)}  {make_printable(value)}\n" for name, value in rows if value)


def _format_steps(turn: LoggedTurn) -> list[str]:
    parts: list[str] = []
    round_ = 0
    standing = {(agent.id, b.round) for agent in turn.result.agents for b in agent.ballots if b.stands}
    for step in agent_steps(turn):
        name = turn.result.name(step.agent_id)
        if step.round > round_:
            round_ = step.round
            parts.append(_style(f"Round {round_}", _DIM))
        if step.choice is not None:
            void = "" if (step.agent_id, step.round) in standing else ", void because a new answer arrived"
            parts.append(_format_speech(f"{name} votes for {turn.result.name(step.choice)}{void}", step.text))
        else:
            cut = ", cut off" if step.message.metadata.get("partial") else ""
            parts.append(_format_speech(f"{name}{step.label}{cut}", step.text))
    return parts


def _format_speech(speaker: str, text: str) -> str:
    lines = "\n".join(map(_indent, make_printable(text).splitlines()))
    return f"{_style(one_line(speaker) + ':', _BOLD)}\n{lines}\n"


def _indent(line: str) -> str:
    """Indent a line; on a terminal also wrap it between words, unless it is indented already, such as code."""
    if line[:1].isspace() or not _on_terminal() or len(line) + len(_INDENT) <= _terminal_width():
        return (_INDENT + line).rstrip()
    wrapper = textwrap.TextWrapper(_terminal_width(), _INDENT, _INDENT, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(line)


def _format_hit(hit: SessionHit, words: Sequence[str]) -> str:
    message = hit.message
    speaker = "you" if message.agent_id is None else f"{message.agent_name}{', vote' if hit.is_ballot else ''}"
    location = f"{message.session_id}  turn {message.turn}  {one_line(speaker, 40)}  {format_time(message.created_at)}"
    excerpt, pattern = cut_excerpt(hit.text, words), match_any(words)
    if pattern:
        excerpt = pattern.sub(lambda match: _style(match.group(), _HIGHLIGHT), excerpt)
    return f"{_style(location, _BOLD)}  {one_line(hit.session.display_title, 60)}\n  {excerpt}\n"


def _format_tools(tools: dict[str, dict[str, int]]) -> str:
    """Return `mcp__files__read 3 (1 failed), ...`."""
    return ", ".join(
        f"{one_line(name, 64)} {calls['calls']:,}{f' ({n:,} failed)' if (n := calls['failed']) else ''}"
        for name, calls in tools.items()
    )


def _format_sequences(sequences: Sequence[dict[str, Any]]) -> str:
    """Return `list_directory, read_file 3 times (67% without a failure); ...`."""
    return "; ".join(
        f"{', '.join(one_line(shorten_tool_name(name), 32) for name in s['tools'])} {pluralize(s['times'], 'time')}"
        f" ({format_percent(s['succeeded'] / s['times'])} without a failure)"
        for s in sequences
    )


def _format_cost(insights: dict[str, Any]) -> str:
    if insights["cost"] is not None:
        return format_dollars(insights["cost"])
    unknown = pluralize(insights["turns_without_price"], "turn")
    known = f"{format_dollars(insights['known_cost'])}, and " if insights["known_cost"] else ""
    return f"{known}{unknown} without a known price"


def _format_agents(agents: dict[str, dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [("AGENT", "TURNS", "ANSWERS", "VOTES FOR IT", "WINS", "WIN RATE", "TOKENS", "COST")]
    for agent in agents.values():
        numbers = [f"{agent[key]:,}" for key in ("turns", "answers", "votes_received", "wins")]
        rate = "" if agent["win_rate"] is None else format_percent(agent["win_rate"])
        cost = "not known" if agent["cost"] is None else format_dollars(agent["cost"])
        rows.append((one_line(agent["name"], 40), *numbers, rate, format_count(agent["tokens"]), cost))
    return "\n" + _format_with_head(rows) if agents else ""


def _style(text: str, code: str) -> str:
    text = make_printable(text)
    return f"\x1b[{code}m{text}\x1b[0m" if _on_terminal() and "NO_COLOR" not in os.environ else text


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _terminal_width() -> int:
    return shutil.get_terminal_size().columns
