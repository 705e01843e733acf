"""Writes a session as a file, a turn at a time, in one of several formats, with secrets removed."""

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from massmem.core.citations import write_notes
from massmem.core.messages import Citation
from massmem.core.records import MessageRecord, SessionRecord
from massmem.core.redact import mask, mask_values, redact, redact_values
from massmem.core.reporting import Section
from massmem.core.text import dump_json, format_dollars, is_web_address, one_line
from massmem.core.transcript import LoggedTurn, parse_ballot
from massmem.core.turn_result import TurnResult
from massmem.core.verdict import describe_share

SCHEMA_VERSION = 1
"""Of the JSON."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin-top: 2.5rem; } small, .how { color: #777; font-size: .85rem; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; border-left: 3px solid #8884;
  padding: .2rem 0 .2rem .8rem; margin: .3rem 0 1rem; }
.user { border-color: #37c; } .final { border-color: #2a2; } li { unicode-bidi: isolate; }
.inner { margin-left: 1.5rem; }
img { max-width: 100%; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_BLOCK = re.compile(r"\s|[#>*+|`~<-]|[0-9]+[.)]|.*\n")
"""Beginning of a text that is more than one line of a paragraph."""
_END = "end of the text"
_HTML_ENDS = (
    ("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"), ("<script", "</script>"), ("<style", "</style>"),
    ("<pre", "</pre>"), ("<textarea", "</textarea>"), ("<!", ">"),
)  # fmt: skip
"""Beginnings and ends of blocks of HTML that blank lines do not end."""
_AUTOLINK = re.compile(r"https?://[^\s<>]+", re.IGNORECASE)
_MARKDOWN_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


@dataclass(frozen=True, slots=True)
class AgentStep:
    """A step of an agent in a turn before the final answer."""

    agent_id: str
    round: int
    text: str
    """Its text; the reason of a ballot."""
    choice: str | None
    """The agent that it voted for; None when it did not vote."""
    label: str
    """`, reasoning` or another kind of message; "" for an answer and a ballot."""
    message: MessageRecord


def agent_steps(turn: LoggedTurn) -> Iterator[AgentStep]:
    for message in turn.messages:
        if message.kind == "user" or message.final:
            continue
        choice, text = parse_ballot(message) or (None, message.content)
        label = "" if choice is not None or message.kind == "assistant" else f", {message.kind.replace('_', ' ')}"
        yield AgentStep(message.agent_id or message.role, message.round, text, choice, label, message)


def format_moment(moment: datetime) -> str:
    """Return `2026-11-21 22:53 UTC`: the reader of a file may live anywhere."""
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def describe_session(session: SessionRecord) -> str:
    return (
        f"{session.session_id} · {session.status} · {session.message_count} messages · {session.model} · "
        f"{format_moment(session.created_at)} to {format_moment(session.updated_at)}"
    )


def title_turn(turn: LoggedTurn) -> str:
    """Return `Turn 3`, `Turn 3, version 1 of 2, withdrawn` or `Outside of turns`."""
    if turn.is_between_turns:
        return "Outside of turns"
    result, versions = turn.result, turn.result.versions
    place = f", version {versions.index(result.turn) + 1} of {len(versions)}" if versions else ""
    state = ", undone" if result.status == "undone" else ", withdrawn" if result.withdrawn else ""
    state += "" if result.is_whole else ", without its beginning"
    return f"Turn {result.turn}{place}{state}"


def describe_status(result: TurnResult) -> str:
    """Return `failed`, or `interrupted (user)` with who stopped the turn, or why it was given up."""
    return f"{result.status} ({result.stopped_by})" if result.stopped_by else result.status


def name_speaker(message: MessageRecord) -> str:
    """Return who wrote a message outside of turns: `User`, `Assistant (ann)`, `ann, tool result`."""
    if message.metadata.get("note"):
        return "User, to be remembered"
    if message.metadata.get("cleared"):
        return "massmem"
    match message.kind:
        case "user":
            return "User"
        case "assistant":
            return f"Assistant ({message.agent_name})" if message.agent_name else "Assistant"
        case kind:
            return f"{message.agent_name or message.role}, {kind.replace('_', ' ')}"


def describe_decision(result: TurnResult) -> str:
    """Return `2 of 3 votes, 2 rounds, agreement 67%, 12.0 s, 1,234 tokens`, without the parts that are unknown."""
    votes, usage = result.votes, result.usage
    parts: list[str] = []
    if votes:
        parts.append(f"{votes.get(result.winner or '', 0)} of {sum(votes.values())} votes")
    parts.append(f"{result.rounds} round{'' if result.rounds == 1 else 's'}")
    if share := describe_share(result.confidence, votes, escalated=result.escalated):
        parts.append(share)
    if result.seconds is not None:
        parts.append(f"{result.seconds:,.1f} s")
    if tokens := usage.prompt + usage.completion:
        parts.append(f"{'' if usage.reported else 'about '}{tokens:,} tokens")
        if usage.cost:
            parts.append(format_dollars(usage.cost))
    return ", ".join(parts)


def list_flaws(result: TurnResult) -> Iterator[str]:
    """Yield what a reader of the answer should know: who wrote it in place of the winner, and what of it is missing."""
    if result.fallback:
        yield f"written by {result.fallback}, in place of the agent's own model, which had failed"
    if result.truncated:
        yield "the end of the answer is missing: the model reached its limit of tokens"
    if result.form_error:
        yield result.form_error
    if result.limit:
        yield f"the turn reached a limit ({result.limit}): the best answer so far"
    if result.work_cut:
        yield f"the work with tools was cut short ({result.work_cut}): the answer is from what was done"


def list_rest(result: TurnResult, detailed: bool) -> Iterator[tuple[str, str]]:
    """Yield what each agent has of a turn without an answer, with its name. detailed: its answers are shown already."""
    for agent in result.agents:
        if agent.answers and not detailed:
            yield agent.name, agent.answers[-1].content
        if agent.partial and (agent.error is None or not detailed):
            yield f"{agent.name}, not finished", agent.partial
        if agent.error is not None:
            yield f"{agent.name} failed", agent.error.error


class Format:
    """Writes plain text. A file is the start, then each turn in order, then the end; other formats replace parts."""

    suffix = "txt"
    end = ""
    has_log = False
    """A file of a whole session ends with its log, see `massmem.session.portable`, and not with `end`."""
    separator = "\n\n"
    """Between the parts of a turn."""
    heading = "\n--- {}, {} ---"
    note = "[{}]"
    no_answer = "(no answer: the turn is {})"

    def write_start(self, session: SessionRecord) -> str:
        return f"{session.display_title or session.session_id}\n{describe_session(session)}\n"

    def write_turn(self, turn: LoggedTurn, first: bool, detailed: bool) -> str:
        """Return a turn as text. first: of the file; detailed: with every step of the agents."""
        return self.separator.join(self._write_parts(turn, detailed)).rstrip("\n") + "\n"

    def _write_parts(self, turn: LoggedTurn, detailed: bool) -> Iterator[str]:
        result = turn.result
        began = "" if result.started_at is None else format_moment(result.started_at)
        yield self.heading.format(title_turn(turn), began)
        if turn.is_between_turns:
            yield from (self._write_speech(name_speaker(m), m.content) for m in turn.messages)
            return
        yield self._write_speech("User", result.question, kind="user")
        yield from self._write_pictures(turn)
        yield from self._write_steps(turn) if detailed else ()
        for exchange in result.asked:
            speaker, kind = ("User", "user") if exchange.agent is None else ("Assistant", "final")
            yield self._write_speech(speaker, exchange.content, exchange.agent, kind)
        if result.answer is None:
            yield self.no_answer.format(describe_status(result))
            yield from self._write_rest(turn, detailed)
            return
        yield from map(self._write_section, turn.list_report(result.report))
        yield self._write_speech("Assistant", result.answer, result.name(result.winner or ""), "final")
        yield from self._write_sources(result.citations)
        for line in (describe_decision(result), *list_flaws(result)):
            yield self.note.format(self._escape(line))
        if not detailed:
            yield from self._write_votes(turn)

    def _write_rest(self, turn: LoggedTurn, detailed: bool) -> Iterator[str]:
        """Yield what there is of a turn without an answer."""
        for name, text in list_rest(turn.result, detailed):
            yield self._write_speech(name, text)
        for line in turn.result.plan:
            yield self.note.format(self._escape(line))

    def _write_votes(self, turn: LoggedTurn) -> Iterator[str]:
        result = turn.result
        if result.agreement:
            yield self.note.format(self._escape(result.agreement))
        yield from self._write_ballots(turn)
        for position in () if result.dissent is None else result.dissent.others:
            if position.answer:
                yield self._write_other_answer(result.name(position.agent), position.answer)

    def _write_section(self, section: Section) -> str:
        """Return a part of the council's report."""
        return "\n".join((f"{section.heading}:", *(f"  {line}" for line in section.lines)))

    def _write_speech(self, speaker: str, text: str, agent: str | None = None, kind: str = "step") -> str:
        """Return what somebody said. agent: behind the speaker; kind: user, final or step, for the looks."""
        return f"{speaker}{'' if agent is None else f' ({agent})'}: {text}"

    def _write_pictures(self, turn: LoggedTurn) -> Iterable[str]:
        return ()

    def _write_steps(self, turn: LoggedTurn) -> Iterator[str]:
        for step in agent_steps(turn):
            name = turn.result.name
            action = "" if step.choice is None else f", voted for {name(step.choice)}"
            yield self._write_speech(f"{name(step.agent_id)}, round {step.round}{step.label}{action}", step.text)

    def _write_sources(self, citations: Sequence[Citation]) -> Iterable[str]:
        return ["\n".join(write_notes(citations))] if citations else []

    def _write_ballots(self, turn: LoggedTurn) -> Iterable[str]:
        agents = turn.result.agents
        return [self._write_ballot(turn, a.id, b.choice, b.reason) for a in agents for b in a.ballots if b.stands]

    def _write_ballot(self, turn: LoggedTurn, agent: str, choice: str, reason: str) -> str:
        return self._escape(f"{turn.result.name(agent)} voted for {turn.result.name(choice)}: {reason}")

    def _write_other_answer(self, name: str, answer: str) -> str:
        return self._write_speech(f"{name} answered", answer)

    def _escape(self, text: str) -> str:
        return text


class Markdown(Format):
    """Writes a heading per turn, speakers in bold, and the votes as a list."""

    suffix, separator = "md", "\n"
    heading = "\n## {}, {}\n"
    note = "*{}*\n"
    no_answer = "*No answer: the turn is {}.*\n"

    def write_start(self, session: SessionRecord) -> str:
        title = self._escape(session.display_title or session.session_id)
        return f"# {title}\n\n{self._escape(describe_session(session))}\n"

    def _write_speech(self, speaker: str, text: str, agent: str | None = None, kind: str = "step") -> str:
        label = f"**{self._escape(speaker)}**{'' if agent is None else f' ({self._escape(agent)})'}:"
        return label + ("\n\n" if _BLOCK.match(text) else " ") + _close_block(text) + "\n"

    def _write_steps(self, turn: LoggedTurn) -> Iterator[str]:
        round_ = 0
        for step in agent_steps(turn):
            if step.round > round_:
                round_ = step.round
                yield f"### Round {round_}\n"
            if step.choice is not None:
                yield self._write_ballot(turn, step.agent_id, step.choice, step.text) + "\n"
            else:
                yield f"**{self._escape(turn.result.name(step.agent_id))}**{step.label}:\n\n{_quote(step.text)}\n"

    def _write_section(self, section: Section) -> str:
        marks = ("  - " if line.startswith("  ") else "- " for line in section.lines)
        rows = [mark + self._escape(one_line(line)) for mark, line in zip(marks, section.lines, strict=True)]
        return "\n".join((f"**{section.heading}**\n", *rows)) + "\n"

    def _write_ballot(self, turn: LoggedTurn, agent: str, choice: str, reason: str) -> str:
        return f"- {super()._write_ballot(turn, agent, choice, ' '.join(reason.split()))}"

    def _write_sources(self, citations: Sequence[Citation]) -> Iterable[str]:
        """Return a line each that Markdown does not take for a list of its own, or for a definition."""
        notes = [note.removesuffix(c.url) for note, c in zip(write_notes(citations), citations, strict=True)]
        urls = [f"<{c.url}>" if _AUTOLINK.fullmatch(c.url) else self._escape(c.url) for c in citations]
        lines = [f"{self._escape(note)}{url}  " for note, url in zip(notes, urls, strict=True)]
        return ["\n".join(lines) + "\n"] if lines else []

    def _write_other_answer(self, name: str, answer: str) -> str:
        return f"\n**{self._escape(name)}** answered:\n\n{_quote(answer)}"

    def _escape(self, text: str) -> str:
        return _MARKDOWN_SPECIAL.sub(r"\\\1", text)


class Html(Format):
    """Writes one self-contained page without scripts or external resources; every text is escaped."""

    suffix, separator, end = "html", "\n", "</body>\n</html>\n"
    heading = "<h2>{} <small>{}</small></h2>"
    note = '<p class="how">{}</p>'
    no_answer = '<p class="how">No answer: the turn is {}.</p>'

    def write_start(self, session: SessionRecord) -> str:
        title = escape(session.display_title or session.session_id)
        return (
            '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
            f"<h1>{title}</h1>\n<small>{escape(describe_session(session))}</small>\n"
        )

    def _write_speech(self, speaker: str, text: str, agent: str | None = None, kind: str = "step") -> str:
        name = escape(speaker if agent is None else f"{speaker} ({agent})")
        return f'<strong>{name}</strong>\n<div class="message {kind}" dir="auto">{escape(text)}</div>'

    def _write_pictures(self, turn: LoggedTurn) -> Iterable[str]:
        for file, data in ((a.file, b64encode(a.data).decode()) for a in turn.attachments):
            if file.media_type.startswith("image/"):
                yield f'<img alt="{escape(file.name)}" src="data:{escape(file.media_type)};base64,{data}">'

    def _write_steps(self, turn: LoggedTurn) -> Iterator[str]:
        for step in agent_steps(turn):
            if step.choice is not None:
                ballot = self._write_ballot(turn, step.agent_id, step.choice, step.text)
                yield f"<p>Round {step.round}: {ballot}</p>"
            else:
                name = turn.result.name(step.agent_id)
                yield self._write_speech(f"{name}, round {step.round}{step.label}", step.text)

    def _write_section(self, section: Section) -> str:
        rows = (("inner" if line.startswith("  ") else "", escape(line.strip())) for line in section.lines)
        items = "".join(f'<li class="{place}">{row}</li>\n' for place, row in rows)
        return f'<strong>{section.heading}</strong>\n<ul dir="auto">\n{items}</ul>'

    def _write_ballots(self, turn: LoggedTurn) -> Iterable[str]:
        items = "".join(f"<li>{ballot}</li>\n" for ballot in super()._write_ballots(turn))
        return [f"<ul>\n{items}</ul>"] if items else []

    def _write_sources(self, citations: Sequence[Citation]) -> Iterable[str]:
        items = "".join(f"<li>{_link(citation)}</li>\n" for citation in citations)
        return [f'<ol class="sources">\n{items}</ol>'] if items else []

    def _escape(self, text: str) -> str:
        return escape(text)


class Json(Format):
    """Writes one JSON object, {"schema_version", "session", "turns": [...], "log"}, with a turn per line, all steps."""

    suffix, end, has_log = "json", "\n]}\n", True

    def write_start(self, session: SessionRecord) -> str:
        about = dump_json(session.model_dump(mode="json"))
        return f'{{"schema_version": {SCHEMA_VERSION}, "session": {about}, "turns": ['

    def write_turn(self, turn: LoggedTurn, first: bool, detailed: bool) -> str:
        return ("" if first else ",") + "\n" + dump_json(dump_turn(turn))


FORMATS: dict[str, Format] = {"json": Json(), "markdown": Markdown(), "text": Format(), "html": Html()}


def _link(citation: Citation) -> str:
    label, url = escape(citation.title or citation.url), escape(citation.url)
    if not is_web_address(citation.url):
        return f"{label} ({url})"
    return f'<a href="{url}" rel="noopener noreferrer nofollow">{label}</a> <small>{url}</small>'


def _close_block(text: str) -> str:
    """Return the Markdown with an end for a block of code or HTML that it leaves open: what follows would be in it."""
    if not any(mark in text for mark in ("```", "~~~", "<")):
        return text
    from markdown_it import MarkdownIt

    last = MarkdownIt("commonmark").parse(f"{text}\n\n{_END}")[-1]
    if last.type == "fence":
        return f"{text.rstrip()}\n{last.markup}"
    if last.type != "html_block":
        return text
    beginning = last.content.lstrip().lower()
    return text + next((end for begin, end in _HTML_ENDS if beginning.startswith(begin.lower())), "")


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def dump_turn(turn: LoggedTurn) -> dict[str, Any]:
    """Return a turn as JSON: its result, and `messages` with the fields of a chat history: role, content, timestamp,
    agent_type. `files` have their `data` where they were loaded."""
    files = [{**asdict(a.file), "data": b64encode(a.data).decode()} for a in turn.attachments]
    messages = [_message_to_dict(message, turn) for message in turn.messages]
    return turn.result.model_dump(mode="json") | ({"files": files} if files else {}) | {"messages": messages}


def _message_to_dict(message: MessageRecord, turn: LoggedTurn) -> dict[str, Any]:
    return {
        "id": message.id,
        "role": message.role,
        "kind": message.kind,
        "agent_type": turn.result.name(message.agent_id) if message.agent_id else message.agent_name or None,
        "agent_id": message.agent_id,
        "round": message.round,
        "final": message.final,
        "content": message.content,
        "timestamp": message.created_at.isoformat(),
        "metadata": message.metadata,
    }


def redact_messages(messages: Sequence[MessageRecord], values: Mapping[str, object]) -> tuple[MessageRecord, ...]:
    """Return the messages with `[redacted]` for what looks like a secret and the name of a param for its value.

    values: of the session's params, by name. A reply to a request for a param is left out whole.
    """
    return tuple(
        message.model_copy(
            update={
                "content": redact(message.hide_values(message.public_text, values)),
                "metadata": redact_values(mask_values(message.metadata, values)),
            }
        )
        for message in messages
    )


def redact_session(session: SessionRecord, params: Mapping[str, object] | None = None) -> SessionRecord:
    """Return the session with its texts redacted, as `redact_turn` does."""
    texts = ("title", "last_message", "description", "config_path", "model")
    return session.model_copy(update={name: redact(mask(getattr(session, name), params or {})) for name in texts})
