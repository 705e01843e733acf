"""Markdown: a heading per turn, who said what, and how the council voted."""

import re

from massmem.export.figures import about, heading, how_decided, moment, speaker
from massmem.records import SessionRecord
from massmem.transcript import Exchange, vote

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def head(session: SessionRecord) -> str:
    return f"# {_plain(session.title or session.session_id)}\n\n{_plain(about(session))}\n"


def turn(said: Exchange, first: bool, detailed: bool) -> str:
    record, final = said.record, said.final
    parts = [f"\n## {heading(said)}, {moment(record.started_at)}\n"]
    if said.added:
        return "\n".join([*parts, *(f"**{_plain(speaker(m))}**: {m.content}\n" for m in said.messages)])
    parts.append(f"**User**: {record.question}\n")
    if detailed:
        parts += _steps(said)
    parts += [f"**{f'Assistant** ({_plain(who)})' if who else 'User**'}: {text}\n" for who, text in said.dialogue]
    if final is None:
        parts.append(f"*No answer: the turn is {record.status}.*\n")
    else:
        parts.append(f"**Assistant** ({_plain(final.agent_id or '')}): {final.content}\n")
        parts.append(f"*{_plain(how_decided(said))}*\n")
        if not detailed:
            parts += [f"- {_ballot(b.agent_id, b.choice, b.reason)}" for b in said.ballots if b.stands]
    return "\n".join(parts).rstrip("\n") + "\n"


def tail() -> str:
    return ""


def _steps(said: Exchange) -> list[str]:
    parts: list[str] = []
    round_ = 0
    for message in said.messages:
        if message.kind == "user" or message.final:
            continue
        if message.round > round_:
            round_ = message.round
            parts.append(f"### Round {round_}\n")
        agent = _plain(message.agent_id or message.role)
        if (ballot := vote(message)) is not None:
            parts.append(f"- {_ballot(message.agent_id or '', *ballot)}\n")
        else:
            what = "" if message.kind == "assistant" else f", {message.kind.replace('_', ' ')}"
            parts.append(f"**{agent}**{what}:\n\n{_quoted(message.content)}\n")
    return parts


def _ballot(agent: str, choice: str, reason: str) -> str:
    return f"{_plain(agent)} voted for {_plain(choice)}: {_plain(' '.join(reason.split()))}"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _plain(text: str) -> str:
    """A name or a figure as it is, whatever Markdown would make of its characters."""
    return _SPECIAL.sub(r"\\\1", text)
