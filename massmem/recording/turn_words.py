"""Reads from the log what tools gave back that an agent can have read, and what the user wrote."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from massmem.core.calls import describe_call, parse_object
from massmem.core.records import MessageRecord
from massmem.core.redact import mask_values
from massmem.memory.origins import IMPORT, ToolText, ToolWords, name_tool_origin
from massmem.memory.words import split_sentences
from massmem.store.ports import SessionStore

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
    """What the agents answered before the final answer."""
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
    answers = [message for message in messages if message.kind == "assistant" and not message.final]
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
