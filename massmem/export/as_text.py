"""Plain text: `User: ...` and `Assistant (agent): ...`, a blank line between."""

from massmem.export.figures import about, heading, how_decided, moment, speaker
from massmem.records import SessionRecord
from massmem.transcript import Exchange, vote


def head(session: SessionRecord) -> str:
    title = session.title or session.session_id
    return f"{title}\n{about(session)}\n"


def turn(said: Exchange, first: bool, detailed: bool) -> str:
    record, final = said.record, said.final
    parts = [f"\n--- {heading(said)}, {moment(record.started_at)} ---"]
    if said.added:
        return "\n\n".join([*parts, *(f"{speaker(m)}: {m.content}" for m in said.messages)]) + "\n"
    parts.append(f"User: {record.question}")
    if detailed:
        parts += _steps(said)
    parts += [f"{f'Assistant ({who})' if who else 'User'}: {text}" for who, text in said.dialogue]
    if final is None:
        parts.append(f"(no answer: the turn is {record.status})")
    else:
        parts.append(f"Assistant ({final.agent_id}): {final.content}")
        parts.append(f"[{how_decided(said)}]")
        if not detailed:
            parts += [f"{b.agent_id} voted for {b.choice}: {b.reason}" for b in said.ballots if b.stands]
    return "\n\n".join(parts) + "\n"


def tail() -> str:
    return ""


def _steps(said: Exchange) -> list[str]:
    parts: list[str] = []
    for message in said.messages:
        if message.kind == "user" or message.final:
            continue
        who = f"{message.agent_id or message.role}, round {message.round}"
        ballot = vote(message)
        if ballot is not None:
            parts.append(f"{who}, voted for {ballot[0]}: {ballot[1]}")
        else:
            what = "" if message.kind == "assistant" else f", {message.kind.replace('_', ' ')}"
            parts.append(f"{who}{what}: {message.content}")
    return parts
