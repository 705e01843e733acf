"""Markdown: a heading per turn, speakers in bold, and the votes."""

import re

from massmem.core.records import SessionRecord
from massmem.core.transcript import TurnTranscript
from massmem.export.as_text import (
    agent_steps,
    describe_decision,
    describe_session,
    format_moment,
    list_minority,
    name_speaker,
    title_turn,
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|])")


def write_start(session: SessionRecord) -> str:
    return f"# {_escape(session.title or session.session_id)}\n\n{_escape(describe_session(session))}\n"


def write_turn(turn: TurnTranscript, first: bool, detailed: bool) -> str:
    record, final = turn.record, turn.final
    parts = [f"\n## {title_turn(turn)}, {format_moment(record.started_at)}\n"]
    if turn.is_between_turns:
        return "\n".join([*parts, *(f"**{_escape(name_speaker(m))}**: {m.content}\n" for m in turn.messages)])
    parts.append(f"**User**: {record.question}\n")
    if detailed:
        parts += _write_steps(turn)
    parts += [
        f"**{f'Assistant** ({_escape(agent)})' if agent else 'User**'}: {text}\n" for agent, text in turn.dialogue
    ]
    if final is None:
        parts.append(f"*No answer: the turn is {record.status}.*\n")
    else:
        parts.append(f"**Assistant** ({_escape(final.agent_name)}): {final.content}\n")
        parts.append(f"*{_escape(describe_decision(turn))}*\n")
        if not detailed:
            agreement, minority = list_minority(turn)
            parts += [f"*{agreement}*\n"] if agreement else []
            parts += [f"- {_write_ballot(turn, b.agent_id, b.choice, b.reason)}" for b in turn.ballots if b.stands]
            parts += [f"\n**{_escape(name)}** answered:\n\n{_quote(answer)}" for name, answer in minority]
    return "\n".join(parts).rstrip("\n") + "\n"


def _write_steps(turn: TurnTranscript) -> list[str]:
    parts: list[str] = []
    round_ = 0
    for step in agent_steps(turn):
        if step.round > round_:
            round_ = step.round
            parts.append(f"### Round {round_}\n")
        if step.choice is not None:
            parts.append(f"- {_write_ballot(turn, step.agent_id, step.choice, step.text)}\n")
        else:
            parts.append(f"**{_escape(turn.name(step.agent_id))}**{step.label}:\n\n{_quote(step.text)}\n")
    return parts


def _write_ballot(turn: TurnTranscript, agent: str, choice: str, reason: str) -> str:
    return f"{_escape(turn.name(agent))} voted for {_escape(turn.name(choice))}: {_escape(' '.join(reason.split()))}"


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", text)
