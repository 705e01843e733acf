"""Lines about a session and a turn that the formats share."""

from datetime import UTC, datetime

from massmem.money import dollars
from massmem.records import MessageRecord, SessionRecord
from massmem.transcript import Exchange


def moment(at: datetime) -> str:
    """`2026-11-21 22:53 UTC`: a file is read anywhere."""
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def about(session: SessionRecord) -> str:
    """Which session this is, in one line."""
    return (
        f"{session.session_id} · {session.status} · {session.message_count} messages · {session.model} · "
        f"{moment(session.created_at)} to {moment(session.updated_at)}"
    )


def heading(said: Exchange) -> str:
    """What a turn is called."""
    if said.added:
        return "Outside of turns"
    return f"Turn {said.record.turn}{', undone' if said.record.status == 'undone' else ''}"


def speaker(message: MessageRecord) -> str:
    """Who said a message that was added: `User`, `Assistant (ann)`, `ann, tool result`."""
    if message.metadata.get("note"):
        return "User, to be remembered"
    if message.metadata.get("cleared"):
        return "massmem"
    match message.kind:
        case "user":
            return "User"
        case "assistant":
            return f"Assistant ({message.agent_id})" if message.agent_id else "Assistant"
        case kind:
            return f"{message.agent_id or message.role}, {kind.replace('_', ' ')}"


def how_decided(said: Exchange) -> str:
    """`2 of 3 votes, 2 rounds, confidence 67%, 12.0 s, 1,234 tokens`, as far as it is known."""
    final, votes, usage = said.final, said.votes, said.usage
    parts: list[str] = []
    if votes:
        parts.append(f"{votes.get(said.record.winner or '', 0)} of {sum(votes.values())} votes")
    parts.append(f"{said.rounds} round{'' if said.rounds == 1 else 's'}")
    if final is not None and final.confidence is not None:
        parts.append(f"confidence {final.confidence * 100:.0f}%{', escalated' if final.escalated else ''}")
    if said.seconds is not None:
        parts.append(f"{said.seconds:,.1f} s")
    if tokens := usage.prompt + usage.completion:
        parts.append(f"{'' if usage.reported else 'about '}{tokens:,} tokens")
        if usage.cost:
            parts.append(dollars(usage.cost))
    return ", ".join(parts)
