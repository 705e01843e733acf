"""Reads from the log what tools gave back before an agent wrote something, and what the user wrote."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from massmem.core.records import MessageRecord
from massmem.memory.origins import IMPORT, name_tool_origin
from massmem.memory.text_analysis import split_sentences
from massmem.memory.tool_words import ToolText, ToolWords

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

_EARLIER = 50
"""Messages of the conversation before a turn in which the user's own words are looked for."""

_IMPORTED = re.compile(r"(?:[0-9a-f]{24}\.)?import_[0-9a-f]{16}")
"""Ids of sessions that were imported by versions that did not mark their messages."""


@dataclass(slots=True)
class TurnWords:
    """The results of a turn, by their places in the log."""

    results: Sequence[tuple[int, ToolText]] = ()
    user_texts: Sequence[str] = ()
    _by_count: dict[int, ToolWords] = field(default_factory=dict[int, ToolWords])

    def list_before(self, seq: int) -> ToolWords:
        """Return what tools had given back before the message with this seq."""
        count = sum(place < seq for place, _ in self.results)
        if count not in self._by_count:
            texts = [result for _, result in self.results[:count]]
            self._by_count[count] = ToolWords(texts, self.user_texts if texts else ())
        return self._by_count[count]


Turns = Mapping[tuple[str, int], TurnWords]
"""By session id and turn."""


async def read_tool_words(
    store: "SessionStore", session_id: str, turn: int, messages: Sequence[MessageRecord] | None = None
) -> TurnWords:
    """Return the results of a turn. messages: of the turn; None: they are read. Raise StoreError."""
    if messages is None:
        messages = await store.read_turn_messages(session_id, turn)
    users = [message for message in messages if message.kind == "user"]
    results = list_results(messages)
    if results and messages[0].seq > 1:
        users += [m for m in await store.read_conversation(session_id, messages[0].seq, _EARLIER) if m.kind == "user"]
    return TurnWords(results, [message.content for message in users])


def list_results(messages: Iterable[MessageRecord]) -> list[tuple[int, ToolText]]:
    """Return the results among the messages of a turn, oldest first, with their seqs."""
    calls: dict[tuple[object, object], str] = {}
    results: list[tuple[int, ToolText]] = []
    for message in messages:
        key = message.agent_id, message.metadata.get("call")
        if message.kind == "tool_call":
            calls[key] = message.content
        elif message.kind == "tool_result":
            text = ToolText(name_tool(message), message.content, calls.get(key, "") if key[1] else "")
            results.append((message.seq, text))
    return results


def name_tool(message: MessageRecord) -> str:
    """Return the name of the tool that a result is of."""
    return str(message.metadata.get("tool") or "unknown")


def find_message_origin(message: MessageRecord) -> str:
    """Return the origin of a message as the log names it; "": the author's, as far as its words are."""
    if message.metadata.get("imported") or _IMPORTED.fullmatch(message.session_id):
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
