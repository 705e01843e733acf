"""Plain text, and the lines about sessions and turns that other formats share."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from massmem.core.records import MessageRecord, SessionRecord
from massmem.core.text import format_dollars
from massmem.core.transcript import TurnTranscript, parse_ballot


@dataclass(frozen=True, slots=True)
class AgentStep:
    """What an agent did in a turn before the final answer."""

    agent_id: str
    round: int
    text: str
    """What it wrote; the reason of a ballot."""
    choice: str | None
    """The agent that it voted for; None when it did not vote."""
    label: str
    """`, reasoning` or another kind of message; "" for an answer and a ballot."""
    message: MessageRecord


def agent_steps(turn: TurnTranscript) -> Iterator[AgentStep]:
    """Return what the agents did, in order."""
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
    """Return one line that identifies the session."""
    return (
        f"{session.session_id} · {session.status} · {session.message_count} messages · {session.model} · "
        f"{format_moment(session.created_at)} to {format_moment(session.updated_at)}"
    )


def title_turn(turn: TurnTranscript) -> str:
    """Return `Turn 3`, `Turn 3, undone` or `Outside of turns`."""
    if turn.is_between_turns:
        return "Outside of turns"
    return f"Turn {turn.record.turn}{', undone' if turn.record.status == 'undone' else ''}"


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


def describe_decision(turn: TurnTranscript) -> str:
    """Return `2 of 3 votes, 2 rounds, agreement 67%, 12.0 s, 1,234 tokens`, without the parts that are unknown."""
    final, votes, usage = turn.final, turn.votes, turn.usage
    parts: list[str] = []
    if votes:
        parts.append(f"{votes.get(turn.record.winner or '', 0)} of {sum(votes.values())} votes")
    parts.append(f"{turn.rounds} round{'' if turn.rounds == 1 else 's'}")
    if final is not None and final.confidence is not None:
        parts.append(f"agreement {final.confidence:.0%}{', escalated' if final.escalated else ''}")
    if turn.seconds is not None:
        parts.append(f"{turn.seconds:,.1f} s")
    if tokens := usage.prompt + usage.completion:
        parts.append(f"{'' if usage.reported else 'about '}{tokens:,} tokens")
        if usage.cost:
            parts.append(format_dollars(usage.cost))
    return ", ".join(parts)


def list_minority(turn: TurnTranscript) -> tuple[str, list[tuple[str, str]]]:
    """Return how many agree with the answer, and the agents with another one, as (name, its answer); both may be empty.

    Their reasons stand among the ballots.
    """
    dissent = turn.dissent
    if dissent is None or not dissent.minority:
        return "", []
    answers = [(turn.name(position.agent_id), position.answer) for position in dissent.minority if position.answer]
    return dissent.describe_agreement(), answers


def write_start(session: SessionRecord) -> str:
    title = session.title or session.session_id
    return f"{title}\n{describe_session(session)}\n"


def write_turn(turn: TurnTranscript, first: bool, detailed: bool) -> str:
    record, final = turn.record, turn.final
    parts = [f"\n--- {title_turn(turn)}, {format_moment(record.started_at)} ---"]
    if turn.is_between_turns:
        return "\n\n".join([*parts, *(f"{name_speaker(m)}: {m.content}" for m in turn.messages)]) + "\n"
    parts.append(f"User: {record.question}")
    if detailed:
        parts += [_write_step(step, turn) for step in agent_steps(turn)]
    parts += [f"{f'Assistant ({agent})' if agent else 'User'}: {text}" for agent, text in turn.dialogue]
    if final is None:
        parts.append(f"(no answer: the turn is {record.status})")
    else:
        parts.append(f"Assistant ({final.agent_name}): {final.content}")
        parts.append(f"[{describe_decision(turn)}]")
        if not detailed:
            agreement, minority = list_minority(turn)
            parts += [f"[{agreement}]"] if agreement else []
            parts += [
                f"{turn.name(b.agent_id)} voted for {turn.name(b.choice)}: {b.reason}" for b in turn.ballots if b.stands
            ]
            parts += [f"{name} answered: {answer}" for name, answer in minority]
    return "\n\n".join(parts) + "\n"


def _write_step(step: AgentStep, turn: TurnTranscript) -> str:
    action = "" if step.choice is None else f", voted for {turn.name(step.choice)}"
    return f"{turn.name(step.agent_id)}, round {step.round}{step.label}{action}: {step.text}"
