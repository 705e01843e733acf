"""Finds out whose words new memories have, among the results of their turn and what is remembered."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from massmem.core.text import find_look
from massmem.memory.access import is_owned, may_see, visible_to
from massmem.memory.index import All, Index, OneOf
from massmem.memory.origins import AGENT, TOOL, find_tool_name, name_tool_origin
from massmem.memory.persistent import USER, Episode, Fact, Memory, Scope
from massmem.memory.points import to_memory
from massmem.memory.text_analysis import build_query_vector
from massmem.memory.tool_words import ToolText, ToolWords
from massmem.memory.words import extract_forms

_FROM_TOOLS = (OneOf("kind", ("episode",)), OneOf("origin", (TOOL,)))
_MOST_COMPARED = 20
"""Memories from tools that share most words with a new one."""


@dataclass(slots=True)
class OriginFinder:
    """Finds the origins of memories that are about to be written together, the oldest first.

    What an agent repeats of an earlier turn, or of another session, keeps the origin that it has there.
    """

    index: Index
    has_tools: bool | None = None
    """The index holds passages that are from tools; None: nobody has looked."""
    new: list[tuple[Memory, bool]] = field(default_factory=list[tuple[Memory, bool]])
    """Passages from tools that are not in the index yet, and whether their agent won the turn."""

    def find(self, source: Episode | Fact, text: str) -> tuple[str, str]:
        """Return who said a fact, or a passage with this text, and which tool's words it rests on ("": no tool's).

        Raises:
            MemoryUnavailable: the index cannot be used now.
        """
        origin = source.origin or (USER if source.agent_id == USER else AGENT)
        rests_on = origin if find_tool_name(origin) else ""
        words = source.tool_words or ToolWords()
        is_in_doubt = isinstance(source, Fact) and origin == USER and not words.are_users(text)
        if origin == AGENT or is_in_doubt:
            tool = words.find_tool(text)
            tool = tool or ToolWords([*self._find_earlier(source, text)], words.user_texts).find_tool(text)
            rests_on = name_tool_origin(tool)
        self._note(source, text, rests_on)
        return AGENT if is_in_doubt and rests_on else origin, rests_on

    def _note(self, source: Episode | Fact, text: str, rests_on: str) -> None:
        if isinstance(source, Episode) and rests_on:
            memory = Memory(
                "0",
                "episode",
                source.session_id,
                source.turn,
                source.agent_id,
                text,
                (source.message_id,),
                source.created_at,
                group=source.group,
                rests_on=rests_on,
            )
            self.new.append((memory, source.won))

    def _find_earlier(self, source: Episode | Fact, text: str) -> Iterator[ToolText]:
        """Yield passages from tools that the author may have been shown."""
        group = source.group
        scope = Scope(
            source.session_id, source.agent_id, source.turn, all_sessions=not is_owned(group), group=group or None
        )
        memories = [*self._search(scope, text), *self.new]
        return (_to_tool_text(memory) for memory, won in memories if may_see(scope, memory, won=won))

    def _search(self, scope: Scope, text: str) -> Iterable[tuple[Memory, bool]]:
        if self.has_tools is None:
            self.has_tools = bool(self.index.list_seconds(All(_FROM_TOOLS), 1, newest_first=True))
        if not self.has_tools:
            return ()
        plain = text if text.isascii() else f"{text} {find_look(text)}"  # letters of other alphabets are looked up, too
        words = build_query_vector(extract_forms(plain))
        hits = self.index.search_words(words, visible_to(scope, *_FROM_TOOLS), _MOST_COMPARED)
        payloads = self.index.read_payloads([point_id for point_id, _ in hits])
        return [(to_memory(point_id, payload), payload["won"] is True) for point_id, payload in payloads.items()]


def find_origins(index: Index, sources: Sequence[tuple[Episode | Fact, str]]) -> list[tuple[str, str]]:
    """Return for facts, and for passages of messages, each with its text, what OriginFinder.find returns."""
    finder = OriginFinder(index)
    return [finder.find(source, text) for source, text in sources]


def _to_tool_text(memory: Memory) -> ToolText:
    return ToolText(find_tool_name(memory.rests_on), memory.text)
