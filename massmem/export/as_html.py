"""One HTML file that needs no other: no script, nothing is loaded, every text is escaped."""

from html import escape

from massmem.export.figures import about, heading, how_decided, moment, speaker
from massmem.records import MessageRecord, SessionRecord
from massmem.transcript import Exchange, vote

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1rem; margin-top: 2.5rem; } small, .how { color: #777; font-size: .85rem; }
.said { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate; border-left: 3px solid #8884;
  padding: .2rem 0 .2rem .8rem; margin: .3rem 0 1rem; }
.user { border-color: #37c; } .final { border-color: #2a2; } li { unicode-bidi: isolate; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def head(session: SessionRecord) -> str:
    title = escape(session.title or session.session_id)
    return (
        '<!DOCTYPE html>\n<html>\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{title}</h1>\n<small>{escape(about(session))}</small>\n"
    )


def turn(said: Exchange, first: bool, detailed: bool) -> str:
    record, final = said.record, said.final
    parts = [f"<h2>{heading(said)} <small>{moment(record.started_at)}</small></h2>"]
    if said.added:
        return "\n".join([*parts, *(_said(speaker(m), m.content, "step") for m in said.messages)]) + "\n"
    parts.append(_said("User", record.question, "user"))
    if detailed:
        parts += [_step(m) for m in said.messages if m.kind != "user" and not m.final]
    for who, text in said.dialogue:
        parts.append(_said(f"Assistant ({who})" if who else "User", text, "final" if who else "user"))
    if final is None:
        parts.append(f'<p class="how">No answer: the turn is {escape(record.status)}.</p>')
    else:
        parts.append(_said(f"Assistant ({final.agent_id})", final.content, "final"))
        parts.append(f'<p class="how">{escape(how_decided(said))}</p>')
        ballots = [(b.agent_id, b.choice, b.reason) for b in said.ballots if b.stands and not detailed]
        items = "".join(f"<li>{_ballot(*ballot)}</li>\n" for ballot in ballots)
        parts += [f"<ul>\n{items}</ul>"] if items else []
    return "\n".join(parts) + "\n"


def tail() -> str:
    return "</body>\n</html>\n"


def _step(message: MessageRecord) -> str:
    ballot = vote(message)
    if ballot is not None:
        return f"<p>Round {message.round}: {_ballot(message.agent_id or '', *ballot)}</p>"
    what = "" if message.kind == "assistant" else f", {message.kind.replace('_', ' ')}"
    return _said(f"{message.agent_id or message.role}, round {message.round}{what}", message.content, "step")


def _said(who: str, text: str, kind: str) -> str:
    return f'<strong>{escape(who)}</strong>\n<div class="said {kind}" dir="auto">{escape(text)}</div>'


def _ballot(agent: str, choice: str, reason: str) -> str:
    return f"{escape(agent)} voted for {escape(choice)}: {escape(reason)}"
