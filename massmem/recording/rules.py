"""What of the log becomes memories, and in which words. Pure: the same log always gives the same memories.

Values that the user gave when asked stay in their session: other sessions find memories.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from massmem.config.models import RecordingConfig
from massmem.core.records import MessageRecord, MessageToRecord, RecordingJob, is_remembered, is_worth_recording
from massmem.core.redact import mask
from massmem.memory.access import HERE
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.origins import IMPORT, ToolWords
from massmem.memory.persistent import USER, Episode, Fact
from massmem.recording.turn_words import Turns, TurnWords, add_repeated, find_message_origin, parse_call

WORKFLOW_TOOLS = frozenset({"new_answer", "vote"})

_HEADINGS = {"reasoning": "[Reasoning]\n", "tool_result": "[Tool Usage]\nResult: "}

Winners = Mapping[tuple[str, int], str]
"""Who won each complete turn, by session id and turn."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What one agent did in a turn, as a model that extracts facts is shown it."""

    origin: Origin
    messages: tuple[RecordedMessage, ...]
    imported: bool = False
    tool_words: ToolWords = field(default_factory=ToolWords)
    """What tools had given back, and what the agent has repeated of it."""


def mask_params(rows: Iterable[MessageToRecord]) -> list[MessageRecord]:
    """Return the messages as they may be remembered: names instead of values, and no replies to a request for one."""
    return [_mask_message(row.message, row.params) for row in rows if not is_reply(row.message)]


def is_reply(message: MessageRecord) -> bool:
    """Whether the user wrote it when asked for a value."""
    return message.kind == "user" and "param" in message.metadata


def list_winners(rows: Iterable[MessageToRecord]) -> Winners:
    """Return who won the turns of these messages."""
    return {(row.message.session_id, row.message.turn): row.winner for row in rows if row.winner is not None}


def list_groups(rows: Iterable[MessageToRecord]) -> dict[str, str]:
    """Return, by session, the name under which other sessions find its memories."""
    return {row.message.session_id: row.group for row in rows}


def make_episodes(
    recordings: Sequence[RecordingJob], to_record: Sequence[MessageToRecord], turns: Turns | None = None
) -> list[Episode]:
    """Return the episodes of rows of kind "episode". A ballot is none, nor a final answer that repeats an answer.

    to_record: their messages; a row without its message gives no episode. turns: what tools gave back, and what was
    answered, in those that agents wrote in.
    """
    messages = {message.id: message for message in mask_params(to_record)}
    originals = {row.message.id: row.message for row in to_record}
    params = {row.message.session_id: row.params for row in to_record}
    winners, groups = list_winners(to_record), list_groups(to_record)
    pairs = [(row, messages[row.message_id]) for row in recordings if row.message_id in messages]
    return [
        Episode(
            session_id=row.session_id,
            message_id=row.message_id,
            position=row.position or 0,
            turn=row.turn,
            agent_id=row.agent_id or USER,
            text=write_out(message),
            created_at=message.created_at,
            won=row.agent_id is not None and _find_winner(row, winners) == row.agent_id,
            group=HERE if is_for_session_only(message) else groups.get(row.session_id, ""),
            origin=find_message_origin(message),
            call=words.describe_call(message, params[row.session_id]),
            lost=is_lost(message, _find_winner(row, winners)),
            tool_words=words.list_before(message.agent_id, message.round, message.seq) if message.agent_id else None,
        )
        for row, message in pairs
        for words in [(turns or {}).get((row.session_id, row.turn), TurnWords())]
        if not (is_ballot(message) or words.repeats_answer(originals[message.id]))
    ]


def is_ballot(message: MessageRecord) -> bool:
    """Whether it is a vote with its reason: it stays in the log, and is no memory."""
    return message.kind == "tool_call" and _find_tool_name(message.content) == "vote"


def is_lost(message: MessageRecord, winner: str | None) -> bool:
    """Whether it is what an agent said in a complete turn that another agent won. winner: None: none has yet."""
    return message.kind == "assistant" and bool(message.agent_id) and winner not in (None, message.agent_id)


def is_for_session_only(message: MessageRecord) -> bool:
    """Whether it is a note of the user that no other session recalls."""
    return bool(message.metadata.get("session_only"))


def is_tool_use(message: MessageRecord) -> bool:
    """Whether it is a call of a tool, or its result: remembered only where the configuration says so."""
    return message.kind in ("tool_call", "tool_result") and "call" in message.metadata


def write_out(message: MessageRecord) -> str:
    """Return the text of a message as it is remembered: a tool call is written out."""
    name, arguments = parse_call(message.content) if message.kind == "tool_call" else ("", None)
    if not name:
        return message.content
    return f"[Tool Call: {name}]\nArguments: {json.dumps(arguments, ensure_ascii=False)}"


def make_conversation(
    row: RecordingJob,
    turn: Sequence[MessageRecord],
    settings: RecordingConfig,
    winners: Winners,
    group: str = "",
    words: TurnWords | None = None,
) -> Conversation | None:
    """Return the conversation of a row of kind "extract", None when it is empty.

    turn: all messages of the turn. words: what tools gave back in it.

    It has the question, what the agent answered and its workflow tools; other tool calls and reasoning only when the
    settings say so. System messages are never part of it, nor those whose author had no memory.
    """
    turn = [message for message in turn if is_remembered(message)]
    own = [message for message in turn if belongs(message, row, settings)]
    if not own or row.agent_id is None:
        return None
    winner = _find_winner(row, winners)
    origin = Origin(
        row.session_id,
        row.agent_id,
        row.turn,
        won=winner == row.agent_id,
        group=group,
        undecided=winner is None,
        attempt=max(1, *(message.round for message in own)),
    )
    questions = [RecordedMessage("user", m.content, m.id, m.created_at) for m in turn if m.kind == "user"]
    round_ = min(message.round for message in own) and origin.attempt  # 0: its final answer is among them
    read = add_repeated((words or TurnWords()).list_before(row.agent_id, round_, row.seq + 1), own)
    imported = any(find_message_origin(message) == IMPORT for message in own)
    return Conversation(origin, (*questions, *_merge_tool_results(own)), imported, read)


def mark_facts(facts: Iterable[Fact], conversation: Conversation) -> tuple[Fact, ...]:
    """Return the facts that were read in the conversation with what tells where their words come from."""
    users = {message.message_id for message in conversation.messages if message.role == "user"}
    return tuple(
        replace(
            fact,
            origin=IMPORT if conversation.imported else USER if users.issuperset(fact.message_ids) else "",
            tool_words=conversation.tool_words,
        )
        for fact in facts
    )


def _mask_message(message: MessageRecord, params: Mapping[str, object]) -> MessageRecord:
    text = mask(message.content, params)
    return message if text == message.content else message.model_copy(update={"content": text})


def _find_winner(row: RecordingJob, winners: Winners) -> str | None:
    return winners.get((row.session_id, row.turn))


def belongs(message: MessageRecord, row: RecordingJob, settings: RecordingConfig) -> bool:
    """Whether a row of kind "extract" is about the message."""
    if message.agent_id != row.agent_id or not (row.since or 0) < message.seq <= row.seq:
        return False
    match message.kind:
        case "assistant":
            # An answer that is shown as it is stands in the log a second time.
            return is_worth_recording(message.content) and message.metadata.get("presented") is not False
        case "tool_call":
            return settings.record_all_tool_calls or _find_tool_name(message.content) in WORKFLOW_TOOLS
        case "tool_result":
            return settings.record_all_tool_calls
        case "reasoning":
            return settings.record_reasoning and is_worth_recording(message.content)
        case "user" | "injection" | "system":
            return False


def _merge_tool_results(own: Sequence[MessageRecord]) -> list[RecordedMessage]:
    """Make one message of a tool call and its result; the first of several in a row has the heading.

    Calls that ran at once stand before their results, which name them.
    """
    merged: list[RecordedMessage] = []
    positions: dict[str, int] = {}
    in_tools = False
    for message in own:
        call = message.metadata.get("call")
        if message.kind == "tool_result" and in_tools:
            position = positions.get(call, -1) if isinstance(call, str) else -1
            merged[position] = replace(merged[position], text=f"{merged[position].text}\nResult: {message.content}")
            continue
        text = _HEADINGS.get(message.kind, "") + write_out(message)
        if message.kind == "tool_call" and not in_tools:
            text = f"[Tool Usage]\n{text}"
        in_tools = message.kind == "tool_call"
        if in_tools and isinstance(call, str):
            positions[call] = len(merged)
        merged.append(RecordedMessage("assistant", text, message.id, message.created_at))
    return merged


def _find_tool_name(content: str) -> str:
    return parse_call(content)[0]
