"""What was said in a session, as far as this process has followed its log: what is known is not read again."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from massmem.events import AgentDelta, Event, TurnUndone
from massmem.messages import clean_text
from massmem.records import MessageRecord
from massmem.store.changes import Insert
from massmem.store.projection import numbers_taken, project

MOST_KEPT = 200_000
"""Characters of one session's conversation; a longer one is read again from there on."""


@dataclass(slots=True)
class Heard:
    """A session's conversation up to the event `seq`, the newest in its log.

    whole: from the first event on; else there may be more before it. summaries: the newest by agent, None for one that
    has none; an agent that is missing here was not asked about. reasoning: the agents' is remembered, too; it only
    counts for what is followed from the first event on.
    """

    seq: int
    whole: bool = False
    reasoning: bool = False
    summaries: dict[str, MessageRecord | None] = field(default_factory=dict[str, MessageRecord | None])
    _said: deque[MessageRecord] = field(default_factory=deque[MessageRecord])
    _size: int = 0
    _answers: dict[int, set[str]] = field(default_factory=dict[int, set[str]])
    _more: bool = False

    @classmethod
    def from_the_first(cls, agents: Iterable[str], *, reasoning: bool) -> "Heard":
        """Of a session whose log is empty."""
        return cls(0, whole=True, reasoning=reasoning, summaries=dict.fromkeys(["", *agents]))

    @property
    def size(self) -> int:
        """Characters."""
        return self._size

    def newest_first(self) -> Sequence[MessageRecord]:
        """User messages and final answers."""
        return [*reversed(self._said)]

    def read(self, page: Sequence[MessageRecord], before: int | None, *, whole: bool) -> None:
        """Take up a page of the log, newest first, as far as there is room. whole: nothing was said before it.

        before: its messages stand before this one, None: they are the newest.
        """
        if before != (self._said[0].seq if self._said else None):
            return  # what stands between is not known
        self._more = True  # of what else is in the log nothing was read
        for record in page:
            if self._size + len(record.content) > MOST_KEPT:
                return
            self._size += len(record.content)
            self._said.appendleft(record)
        self.whole = whole

    def follow(self, session_id: str, turn: int, numbers: Sequence[int], events: Sequence[Event]) -> bool:
        """Take up what this process has stored. False: somebody else has written before it, or all has to be read anew.

        numbers: of the events in the log.
        """
        for seq, event in zip(numbers, events, strict=True):
            if seq - numbers_taken(event) != self.seq or isinstance(event, TurnUndone):
                return False
            self.seq = seq
            if not isinstance(event, AgentDelta):
                for change in project(session_id, turn, seq, event):
                    if isinstance(change, Insert) and change.table == "chat_messages":
                        row: dict[str, Any] = {**change.row, "content": clean_text(change.row["content"])}
                        self._take(MessageRecord(**row))
        return True

    def all_in(self, shown: frozenset[str], turn: int) -> bool:
        """These messages are all that can be remembered of the session before this turn, and of the turn itself."""
        known = self.whole and not self._more and not self._answers
        return known and all(record.id in shown for record in self._said if record.turn < turn)

    def _take(self, record: MessageRecord) -> None:
        match record.kind:
            case "injection":
                self.summaries[record.agent_id or ""] = record
            case "system":
                pass
            case "reasoning":
                self._more |= self.reasoning
            case "assistant" if not record.final:
                self._answers.setdefault(record.turn, set()).add(record.content)
            case "user" | "assistant":
                self._add(record)
            case "tool_call" | "tool_result":
                self._more = True

    def _add(self, record: MessageRecord) -> None:
        if record.final:  # an answer that is shown as it is stands in the log a second time
            self._more |= bool(self._answers.pop(record.turn, set()) - {record.content})
        self._said.append(record)
        self._size += len(record.content)
        while self._size > MOST_KEPT:
            self._size -= len(self._said.popleft().content)
            self.whole = False


def begin_a_log(numbers: Sequence[int], events: Sequence[Event]) -> bool:
    """Nothing was in the session's log before these events. numbers: of them in the log."""
    return bool(events) and numbers[0] == numbers_taken(events[0])
