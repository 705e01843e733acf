"""One self-contained HTML file without scripts or external resources; every text is escaped."""

from base64 import b64encode
from html import escape

from massmem.core.attachments import Attachment
from massmem.core.records import SessionRecord
from massmem.core.transcript import TurnTranscript
from massmem.export.as_text import (
    AgentStep,
    agent_steps,
    describe_decision,
    describe_session,
    format_moment,
    list_minority,
    name_speaker,
    title_turn,
)

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin-top: 2.5rem; } small, .how { color: #777; font-size: .85rem; }
.message { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; border-left: 3px solid #8884;
  padding: .2rem 0 .2rem .8rem; margin: .3rem 0 1rem; }
.user { border-color: #37c; } .final { border-color: #2a2; } li { unicode-bidi: isolate; }
img { max-width: 100%; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


END = "</body>\n</html>\n"


def write_start(session: SessionRecord) -> str:
    title = escape(session.title or session.session_id)
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<small>{escape(describe_session(session))}</small>\n"
    )


def write_turn(turn: TurnTranscript, first: bool, detailed: bool) -> str:
    record, final = turn.record, turn.final
    parts = [f"<h2>{title_turn(turn)} <small>{format_moment(record.started_at)}</small></h2>"]
    if turn.is_between_turns:
        return "\n".join([*parts, *(_write_message(name_speaker(m), m.content, "step") for m in turn.messages)]) + "\n"
    parts.append(_write_message("User", record.question, "user"))
    parts += [_write_picture(a) for a in turn.attachments if a.file.media_type.startswith("image/")]
    if detailed:
        parts += [_write_step(step, turn) for step in agent_steps(turn)]
    for agent, text in turn.dialogue:
        parts.append(_write_message(f"Assistant ({agent})" if agent else "User", text, "final" if agent else "user"))
    if final is None:
        parts.append(f'<p class="how">No answer: the turn is {escape(record.status)}.</p>')
    else:
        parts.append(_write_message(f"Assistant ({final.agent_name})", final.content, "final"))
        parts.append(f'<p class="how">{escape(describe_decision(turn))}</p>')
        ballots = [
            (turn.name(b.agent_id), turn.name(b.choice), b.reason) for b in turn.ballots if b.stands and not detailed
        ]
        items = "".join(f"<li>{_write_ballot(*ballot)}</li>\n" for ballot in ballots)
        agreement, minority = ("", []) if detailed else list_minority(turn)
        parts += [f'<p class="how">{escape(agreement)}</p>'] if agreement else []
        parts += [f"<ul>\n{items}</ul>"] if items else []
        parts += [_write_message(f"{name} answered", answer, "step") for name, answer in minority]
    return "\n".join(parts) + "\n"


def _write_step(step: AgentStep, turn: TurnTranscript) -> str:
    name = turn.name(step.agent_id)
    if step.choice is not None:
        return f"<p>Round {step.round}: {_write_ballot(name, turn.name(step.choice), step.text)}</p>"
    return _write_message(f"{name}, round {step.round}{step.label}", step.text, "step")


def _write_message(speaker: str, text: str, kind: str) -> str:
    return f'<strong>{escape(speaker)}</strong>\n<div class="message {kind}" dir="auto">{escape(text)}</div>'


def _write_picture(attachment: Attachment) -> str:
    file, data = attachment.file, b64encode(attachment.data).decode()
    return f'<img alt="{escape(file.name)}" src="data:{escape(file.media_type)};base64,{data}">'


def _write_ballot(agent: str, choice: str, reason: str) -> str:
    return f"{escape(agent)} voted for {escape(choice)}: {escape(reason)}"
