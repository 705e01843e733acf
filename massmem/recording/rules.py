"""Chooses what of the log becomes memories, and in which words, and finds the tools that these words rest on.

Pure but for `read_tool_words`: the same log always gives the same memories. Values that the user gave when asked stay
in their session: other sessions find memories.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from massmem.config.models import RecordingConfig
from massmem.core.calls import describe_call, parse_object
from massmem.core.records import MessageRecord, MessageToRecord, RecordingJob, is_remembered, is_worth_recording
from massmem.core.redact import mask_values
from massmem.memory.access import HERE
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.origins import IMPORT, WEB, ToolText, ToolWords, name_tool_origin
from massmem.memory.persistent import USER, Episode, Fact
from massmem.memory.words import split_sentences
from massmem.store.ports import SessionStore

# Words of tools and users in a turn

_EARLIER = 50
"""Messages of the conversation before a turn in which the user's own words are looked for."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    message: MessageRecord
    words: ToolText

    def can_be_read_by(self, agent_id: str | None, round_: int, seq: int) -> bool:
        """Return whether the agent's message at this place of the log can rest on it.

        Results of other agents reach it through their answers, which it reads in the next round. Round 0 is what the
        winner makes of all answers.
        """
        own = self.message.agent_id == agent_id
        return self.message.seq < seq and (own or not round_ or self.message.round < round_)


@dataclass(slots=True)
class TurnWords:
    """The results of a turn, in the order of the log."""

    results: Sequence[ToolResult] = ()
    user_texts: Sequence[str] = ()
    answers: Sequence[MessageRecord] = field(default=(), compare=False)
    """Of the agents, before the final answer."""
    _prepared: dict[tuple[int, ...], ToolWords] = field(default_factory=dict[tuple[int, ...], ToolWords])

    def list_before(self, agent_id: str | None, round_: int, seq: int) -> ToolWords:
        """Return what the agent can have read from tools before its message at this place of the log."""
        results = [result for result in self.results if result.can_be_read_by(agent_id, round_, seq)]
        key = tuple(result.message.seq for result in results)
        if key not in self._prepared:
            texts = [result.words for result in results]
            self._prepared[key] = ToolWords(texts, self.user_texts if texts else ())
        return self._prepared[key]

    def repeats_answer(self, message: MessageRecord) -> bool:
        """Return whether it is a final answer with the text of an answer of its agent, which is remembered already."""
        text = message.content.split()
        return message.final and any(
            answer.agent_id == message.agent_id and answer.content.split() == text for answer in self.answers
        )

    def describe_call(self, message: MessageRecord, params: Mapping[str, object]) -> str:
        """Return the call that a message is the result of, in one line; "" for any other message.

        params: values of which only the names are told.
        """
        result = next((result for result in self.results if result.message.id == message.id), None)
        if result is None:
            return ""
        _, arguments = parse_call(result.words.arguments)
        text = json.dumps(mask_values(arguments, params), ensure_ascii=False) if arguments else ""
        return describe_call(result.words.tool, text)


Turns = Mapping[tuple[str, int], TurnWords]
"""By session id and turn."""


async def read_tool_words(
    store: SessionStore, session_id: str, turn: int, messages: Sequence[MessageRecord] | None = None
) -> TurnWords:
    """Return the results of a turn. messages: of the turn; None: they are read. Raise StoreError."""
    if messages is None:
        messages = await store.read_turn_messages(session_id, turn)
    users = [message for message in messages if message.kind == "user"]
    results = list_results(messages)
    if results and messages[0].seq > 1:
        users += [m for m in await store.read_conversation(session_id, messages[0].seq, _EARLIER) if m.kind == "user"]
    answers = [m for m in messages if m.kind == "assistant" and not m.final and is_remembered(m)]
    return TurnWords(results, [message.content for message in users], answers)


def list_results(messages: Iterable[MessageRecord]) -> list[ToolResult]:
    """Return the results among the messages of a turn, oldest first."""
    calls: dict[tuple[object, object], str] = {}
    results: list[ToolResult] = []
    for message in messages:
        key = message.agent_id, message.metadata.get("call")
        if message.kind == "tool_call":
            calls[key] = message.content
        elif message.kind == "tool_result":
            words = ToolText(name_tool(message), message.content, calls.get(key, "") if key[1] else "")
            results.append(ToolResult(message, words))
    return results


def parse_call(content: str) -> tuple[str, Any]:
    """Return name and arguments of a tool call as the log has it, {name: arguments}; no name for anything else."""
    call = parse_object(content) or {}
    return next(iter(call.items())) if len(call) == 1 else ("", None)


def name_tool(message: MessageRecord) -> str:
    """Return the name of the tool that a result is of."""
    return str(message.metadata.get("tool") or "unknown")


def find_message_origin(message: MessageRecord) -> str:
    """Return the origin of a message as the log names it; "": the author's, as far as its words are."""
    if message.metadata.get("imported"):
        return IMPORT
    return name_tool_origin(name_tool(message)) if message.kind == "tool_result" else ""


def find_web_origin(message: MessageRecord) -> str:
    """Return WEB for an answer with sources from there, else ""."""
    return WEB if message.metadata.get("citations") else ""


def add_repeated(words: ToolWords, messages: Iterable[MessageRecord]) -> ToolWords:
    """Return the words with what agents repeated of them in these messages: a model reads facts from that.

    Summaries of results count as results.
    """
    repeated: list[ToolText] = []
    for message in messages:
        if message.kind == "tool_result":
            repeated.append(ToolText(name_tool(message), message.content))
        elif message.kind == "assistant":
            pairs = ((words.find_tool_of(text), text) for text in split_sentences(message.content))
            repeated += [ToolText(tool, text) for tool, text in pairs if tool]
    return ToolWords([*words.results, *repeated], words.user_texts) if repeated else words


# Memories of a turn

WORKFLOW_TOOLS = frozenset({"new_answer", "vote"})

_HEADINGS = {"reasoning": "[Reasoning]\n", "tool_result": "[Tool Usage]\nResult: "}

Winners = Mapping[tuple[str, int], str]
"""Who won each complete turn, by session id and turn."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The work of one agent in a turn, as a model that extracts facts is shown it."""

    origin: Origin
    messages: tuple[RecordedMessage, ...]
    imported: bool = False
    tool_words: ToolWords = field(default_factory=ToolWords)
    """From results of tools, and from what the agent has repeated of them."""
    from_web: frozenset[str] = frozenset()
    """Ids of the messages that have sources from the web."""


def mask_params(rows: Iterable[MessageToRecord]) -> list[MessageRecord]:
    """Return the messages as they may be remembered: names instead of values, and no replies to a request for one."""
    return [_mask_message(row.message, row.params) for row in rows if not is_reply(row.message)]


def is_reply(message: MessageRecord) -> bool:
    """Whether the user wrote it when asked for a value."""
    return message.kind == "user" and "param" in message.metadata


def list_winners(rows: Iterable[MessageToRecord]) -> Winners:
    """Return who won the turns of these messages."""
    return {(row.message.session_id, row.message.turn): row.winner for row in rows if row.winner is not None}


def list_places(rows: Iterable[MessageToRecord]) -> dict[str, tuple[str, str]]:
    """Return, by session, the group and the project whose sessions find its memories."""
    return {row.message.session_id: (row.group, row.project) for row in rows}


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
    winners, places = list_winners(to_record), list_places(to_record)
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
            group=HERE if is_for_session_only(message) else places[row.session_id][0],
            project=places[row.session_id][1],
            origin=find_message_origin(message),
            rests_on=find_web_origin(message),
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
    return message.kind == "tool_call" and parse_call(message.content)[0] == "vote"


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
    place: tuple[str, str] = ("", ""),
    words: TurnWords | None = None,
) -> Conversation | None:
    """Return the conversation of a row of kind "extract", None when it is empty.

    turn: all messages of the turn. place: group and project. words: what tools gave back in it.

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
        group=place[0],
        project=place[1],
        undecided=winner is None,
        attempt=max(1, *(message.round for message in own)),
    )
    questions = [RecordedMessage("user", m.content, m.id, m.created_at) for m in turn if m.kind == "user"]
    round_ = min(message.round for message in own) and origin.attempt  # 0: its final answer is among them
    read = add_repeated((words or TurnWords()).list_before(row.agent_id, round_, row.seq + 1), own)
    imported = any(find_message_origin(message) == IMPORT for message in own)
    from_web = frozenset(message.id for message in own if find_web_origin(message))
    return Conversation(origin, (*questions, *_merge_tool_results(own)), imported, read, from_web)


def mark_facts(facts: Iterable[Fact], conversation: Conversation) -> tuple[Fact, ...]:
    """Return the facts that were read in the conversation with what tells where their words come from."""
    users = {message.message_id for message in conversation.messages if message.role == "user"}
    return tuple(
        replace(
            fact,
            origin=IMPORT if conversation.imported else USER if users.issuperset(fact.message_ids) else "",
            rests_on="" if conversation.from_web.isdisjoint(fact.message_ids) else WEB,
            tool_words=conversation.tool_words,
        )
        for fact in facts
    )


def _mask_message(message: MessageRecord, params: Mapping[str, object]) -> MessageRecord:
    text = message.hide_values(message.content, params)
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
            return settings.record_all_tool_calls or parse_call(message.content)[0] in WORKFLOW_TOOLS
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
