"""Sessions as people read them in a terminal."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size

from massmem.cli.session_actions import Found
from massmem.cli.times import moment
from massmem.export import figures
from massmem.messages import clean_text
from massmem.money import dollars
from massmem.records import ListedSession, SessionRecord
from massmem.render.figures import count, duration, percent, plural
from massmem.render.printable import one_line, printable
from massmem.transcript import Exchange, vote

_EXCERPT = 160
_LEAST_TITLE = 20
_INDENT = 2
_BOLD, _DIM = "1", "2"


def table(sessions: Sequence[ListedSession]) -> str:
    """A line per session; as wide as the terminal, or as it needs where there is none."""
    rows = [("ID", "STATUS", "TURNS", "LAST USED", "SURE", "TITLE"), *map(_row, sessions)]
    widths = [max(cell_len(row[i]) for row in rows) for i in range(5)]
    left = max(_width() - sum(widths) - 2 * len(widths), _LEAST_TITLE) if _on_terminal() else None
    return "".join(_line(row, widths, left, head=i == 0) for i, row in enumerate(rows))


def _row(listed: ListedSession) -> tuple[str, ...]:
    session = listed.session
    sure = "" if listed.confidence is None else percent(listed.confidence) + ("!" if listed.escalated else "")
    title = one_line(session.title or session.description)
    return session.session_id, session.status, str(listed.turns), moment(session.updated_at), sure, title


def _line(row: Sequence[str], widths: Sequence[int], left: int | None, *, head: bool) -> str:
    cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=False)]
    title = row[-1] if left is None or cell_len(row[-1]) <= left else set_cell_size(row[-1], left - 1) + "…"
    line = "  ".join([*cells, title]).rstrip()
    return (_styled(line, _BOLD) if head else line) + "\n"


def heading(session: SessionRecord) -> str:
    """What stands above a conversation."""
    title = one_line(session.title or session.session_id)
    used = f"{moment(session.created_at)} to {moment(session.updated_at)}"
    messages = plural(session.message_count, "message")
    about = f"{session.session_id} · {session.status} · {messages} · {one_line(session.model)} · {used}"
    return f"{_styled(title, _BOLD)}\n{_styled(about, _DIM)}\n"


def conversation(said: Exchange, *, everything: bool) -> str:
    """A turn: question and answer; with everything also rounds, votes and reasoning."""
    record, final = said.record, said.final
    rule = f"── {figures.heading(said)} · {moment(record.started_at)} "
    parts = [_styled(rule + "─" * max(min(_width(), 80) - len(rule), 0), _DIM)]
    if said.added:
        return "\n" + "\n".join([*parts, *(_speech(figures.speaker(m), m.content) for m in said.messages)]) + "\n"
    parts.append(_speech("You", record.question))
    if everything:
        parts += _steps(said)
    parts += [_speech(who or "You", text) for who, text in said.dialogue]
    if final is None:
        parts += [_styled(line, _DIM) for line in (f"No answer: the turn is {record.status}.", *said.plan)]
    else:
        parts.append(_speech(final.agent_id or "assistant", final.content))
        parts.append(_styled(figures.how_decided(said), _DIM))
    return "\n" + "\n".join(parts) + "\n"


def _steps(said: Exchange) -> list[str]:
    parts: list[str] = []
    round_ = 0
    standing = {(b.agent_id, b.round) for b in said.ballots if b.stands}
    for message in said.messages:
        if message.kind == "user" or message.final:
            continue
        if message.round > round_:
            round_ = message.round
            parts.append(_styled(f"Round {round_}", _DIM))
        agent = message.agent_id or message.role
        if (ballot := vote(message)) is not None:
            void = "" if (agent, message.round) in standing else ", void since a new answer came in"
            parts.append(_speech(f"{agent} votes for {ballot[0]}{void}", ballot[1]))
        else:
            what = "" if message.kind == "assistant" else f", {message.kind.replace('_', ' ')}"
            cut = ", cut off" if message.metadata.get("partial") else ""
            parts.append(_speech(f"{agent}{what}{cut}", message.content))
    return parts


def _speech(who: str, text: str) -> str:
    shown = printable(text) if _on_terminal() else clean_text(text)
    said = "\n".join(map(_indented, shown.splitlines()))
    return f"{_styled(one_line(who) + ':', _BOLD)}\n{said}\n"


def _indented(line: str) -> str:
    """Prose is wrapped between words on a terminal; what is indented already is left as it is."""
    indent = " " * _INDENT
    if line[:1].isspace() or not _on_terminal() or len(line) + _INDENT <= _width():
        return (indent + line).rstrip()
    wrapper = textwrap.TextWrapper(_width(), indent, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(line)


def matches(found: Iterable[Found], query: str) -> str:
    """Where each message stands, and the words around what was looked for."""
    words = re.findall(r"\w+", query)
    return "".join(_match(each, words) for each in found)


def _match(found: Found, words: Sequence[str]) -> str:
    message, session = found.message, found.session
    ballot = vote(message)
    text = ballot[1] if ballot else message.content
    who = "you" if message.agent_id is None else f"{message.agent_id}{', vote' if ballot else ''}"
    place = f"{message.session_id}  turn {message.turn}  {one_line(who, 40)}  {moment(message.created_at)}"
    return f"{_styled(place, _BOLD)}  {one_line(session.title, 60)}\n  {_marked(excerpt(text, words), words)}\n"


def excerpt(text: str, words: Sequence[str], width: int = _EXCERPT) -> str:
    """About `width` characters of the text on one line, around the first of the words that it has."""
    pattern = _any_of(words)
    hit = pattern.search(text) if pattern else None
    if hit is None:
        return one_line(text, width)
    start = max(hit.start() - width // 3, 0)
    start = text.find(" ", start, hit.start()) + 1 if start else 0
    return ("…" if start else "") + one_line(text[start:], width)


def _marked(text: str, words: Sequence[str]) -> str:
    pattern = _any_of(words)
    return pattern.sub(lambda hit: _styled(hit.group(), "1;33"), text) if pattern else text


def _any_of(words: Sequence[str]) -> re.Pattern[str] | None:
    return re.compile(rf"\b(?:{'|'.join(map(re.escape, words))})\b", re.IGNORECASE) if words else None


def insights(found: dict[str, Any]) -> str:
    tokens, sure = found["tokens"], found["confidence"]
    about = "" if tokens["reported"] else "about "
    states = ", ".join(f"{number} {status}" for status, number in found["turns_by_status"].items())
    mean = found["response_time"]
    escalated = f", {found['escalated']} escalated" if found["escalated"] else ""
    rows = [
        ("session", f"{found['session_id']}  {one_line(found['title'])}" if "session_id" in found else ""),
        ("sessions", "" if "session_id" in found else f"{found['sessions']:,}"),
        ("turns", f"{found['turns']:,} ({states})" if states else "0"),
        ("messages", f"{found['message_count']:,} in the log, {found['user_messages']:,} of yours"),
        ("time", f"{duration(found['duration'])} from first to last, {_seconds(mean)} for an answer"),
        ("topics", ", ".join(map(printable, found["topics"]))),
        ("confidence", "" if sure is None else f"{percent(sure)} on average{escalated}"),
        ("tools", _tools(found["tools"])),
        ("tokens", f"{about}{count(tokens['prompt'])} in, {count(tokens['completion'])} out"),
        ("cost", _cost(found)),
    ]
    text = "".join(f"{_styled(f'{name:<10}', _DIM)}  {value}\n" for name, value in rows if value)
    return text + _agents(found["agents"])


def _tools(tools: dict[str, dict[str, int]]) -> str:
    """`mcp__files__read 3 (1 failed), ...`"""
    told: list[str] = []
    for name, used in tools.items():
        failed = f" ({used['failed']:,} failed)" if used["failed"] else ""
        told.append(f"{one_line(name, 64)} {used['calls']:,}{failed}")
    return ", ".join(told)


def _cost(found: dict[str, Any]) -> str:
    if found["cost"] is not None:
        return dollars(found["cost"])
    unknown = plural(found["turns_without_price"], "turn")
    known = f"{dollars(found['known_cost'])}, and " if found["known_cost"] else ""
    return f"{known}{unknown} of which the price is not known"


def _agents(agents: dict[str, dict[str, Any]]) -> str:
    rows: list[tuple[str, ...]] = [("AGENT", "TURNS", "ANSWERS", "VOTES FOR IT", "WINS", "WIN RATE", "TOKENS", "COST")]
    for name, agent in agents.items():
        numbers = [f"{agent[key]:,}" for key in ("turns", "answers", "votes_received", "wins")]
        rate = "" if agent["win_rate"] is None else percent(agent["win_rate"])
        cost = "not known" if agent["cost"] is None else dollars(agent["cost"])
        rows.append((one_line(name, 40), *numbers, rate, count(agent["tokens"]), cost))
    if len(rows) == 1:
        return ""
    widths = [max(cell_len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(set_cell_size(c, w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n" + "\n".join([_styled(lines[0], _BOLD), *lines[1:]]) + "\n"


def stats(found: dict[str, Any]) -> str:
    states = ", ".join(f"{number:,} {status}" for status, number in found["by_status"].items())
    queue, store = found["recordings"], found["store"]
    rows = [
        ("sessions", f"{found['total_sessions']:,}{f' ({states})' if states else ''}"),
        ("messages", f"{found['total_messages']:,}, {found['avg_messages_per_session']:,.1f} per session"),
        ("recording", f"{queue['pending']:,} pending, {queue['done']:,} done, {queue['failed']:,} failed"),
        ("store", f"{store['kind']}{'' if store['durable'] else ', not kept'}, {printable(store['url'])}"),
    ]
    return "".join(f"{_styled(f'{name:<10}', _DIM)}  {value}\n" for name, value in rows)


def _seconds(mean: float | None) -> str:
    return "no time yet" if mean is None else duration(mean)


def _styled(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if _on_terminal() and "NO_COLOR" not in os.environ else text


def _on_terminal() -> bool:
    return sys.stdout.isatty()


def _width() -> int:
    return shutil.get_terminal_size().columns
