"""What of the log becomes memories, and in which words. Pure: the same log always gives the same."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from massmem.config.models import RecordingConfig
from massmem.core.records import MessageRecord, MessageToRecord, RecordingJob, is_worth_recording
from massmem.memory.extraction.messages import Origin, RecordedMessage
from massmem.memory.persistent import USER, Episode

WORKFLOW_TOOLS = frozenset({"new_answer", "vote"})

_TOLD = {"reasoning": "[Reasoning]\n", "tool_result": "[Tool Usage]\nResult: "}

Winners = Mapping[tuple[str, int], str]
"""Who won each complete turn, by session id and turn."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one agent did in a turn, as a model that extracts facts is shown it."""

    origin: Origin
    messages: tuple[RecordedMessage, ...]


def winners_of(found: Iterable[MessageToRecord]) -> Winners:
    return {(each.message.session_id, each.message.turn): each.winner for each in found if each.winner is not None}


def groups_of(found: Iterable[MessageToRecord]) -> dict[str, str]:
    """By session: the name under which other sessions find what is said in it."""
    return {each.message.session_id: each.group for each in found}


def episodes_of(
    recordings: Sequence[RecordingJob],
    messages: Mapping[str, MessageRecord],
    winners: Winners,
    groups: Mapping[str, str],
) -> list[Episode]:
    """The episodes of rows of that kind. messages: by id; a row without its message gives none. groups: by session."""
    found = [(row, messages[row.message_id]) for row in recordings if row.message_id in messages]
    return [
        Episode(
            session_id=row.session_id,
            message_id=row.message_id,
            position=row.position or 0,
            turn=row.turn,
            agent_id=row.agent_id or USER,
            text=spoken(message),
            created_at=message.created_at,
            won=not is_ballot(message) and row.agent_id is not None and _winner(row, winners) == row.agent_id,
            group=groups.get(row.session_id, ""),
            private=is_ballot(message),
        )
        for row, message in found
    ]


def is_ballot(message: MessageRecord) -> bool:
    """A vote with its reason: only the agent that cast it ever recalls it."""
    return message.kind == "tool_call" and _tool_name(message.content) == "vote"


def is_tool_use(message: MessageRecord) -> bool:
    """A call of a tool in a turn, or its result: remembered only where the configuration says so."""
    return message.kind in ("tool_call", "tool_result") and "call" in message.metadata


def spoken(message: MessageRecord) -> str:
    """The text of a message as it is remembered: a tool call is written out."""
    return _tool_call(message.content) if message.kind == "tool_call" else message.content


def conversation_of(
    row: RecordingJob, turn: Sequence[MessageRecord], settings: RecordingConfig, winners: Winners, group: str = ""
) -> Conversation | None:
    """The conversation of a row of kind "extract", None when there is nothing in it. turn: all messages of the turn.

    It has the question, what the agent answered and its workflow tools; other tool calls and reasoning only when the
    settings say so. System messages are never part of it.
    """
    own = [message for message in turn if belongs(message, row, settings)]
    if not own or row.agent_id is None:
        return None
    winner = _winner(row, winners)
    origin = Origin(
        row.session_id,
        row.agent_id,
        row.turn,
        won=winner == row.agent_id,
        group=group,
        undecided=winner is None,
        attempt=max(1, *(message.round for message in own)),
    )
    asked = [RecordedMessage("user", m.content, m.id, m.created_at) for m in turn if m.kind == "user"]
    return Conversation(origin, (*asked, *_as_told(own)))


def _winner(row: RecordingJob, winners: Winners) -> str | None:
    return winners.get((row.session_id, row.turn))


def belongs(message: MessageRecord, row: RecordingJob, settings: RecordingConfig) -> bool:
    """The message is part of what a row of kind "extract" is about."""
    if message.agent_id != row.agent_id or not (row.since or 0) < message.seq <= row.seq:
        return False
    match message.kind:
        case "assistant":
            # An answer that is shown as it is stands in the log a second time.
            return is_worth_recording(message.content) and message.metadata.get("presented") is not False
        case "tool_call":
            return settings.record_all_tool_calls or _tool_name(message.content) in WORKFLOW_TOOLS
        case "tool_result":
            return settings.record_all_tool_calls
        case "reasoning":
            return settings.record_reasoning and is_worth_recording(message.content)
        case "user" | "injection" | "system":
            return False


def _as_told(own: Sequence[MessageRecord]) -> list[RecordedMessage]:
    """A tool call and its result are one message; the first of several in a row has the heading.

    Calls that ran at once stand before their results, which name them.
    """
    told: list[RecordedMessage] = []
    places: dict[str, int] = {}
    in_tools = False
    for message in own:
        call = message.metadata.get("call")
        if message.kind == "tool_result" and in_tools:
            place = places.get(call, -1) if isinstance(call, str) else -1
            told[place] = replace(told[place], text=f"{told[place].text}\nResult: {message.content}")
            continue
        text = _TOLD.get(message.kind, "") + spoken(message)
        if message.kind == "tool_call" and not in_tools:
            text = f"[Tool Usage]\n{text}"
        in_tools = message.kind == "tool_call"
        if in_tools and isinstance(call, str):
            places[call] = len(told)
        told.append(RecordedMessage("assistant", text, message.id, message.created_at))
    return told


def _tool_call(content: str) -> str:
    name, arguments = _call(content)
    return f"[Tool Call: {name}]\nArguments: {json.dumps(arguments, ensure_ascii=False)}" if name else content


def _tool_name(content: str) -> str:
    return _call(content)[0]


def _call(content: str) -> tuple[str, Any]:
    """Name and arguments of a tool call as the log keeps it, {name: arguments}; no name when it is anything else."""
    try:
        parsed: Any = json.loads(content)
    except ValueError:
        return "", None
    if not isinstance(parsed, dict) or len(cast("dict[str, Any]", parsed)) != 1:
        return "", None
    return next(iter(cast("dict[str, Any]", parsed).items()))
