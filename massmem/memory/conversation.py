"""ConversationMemory: the log read as the messages that a model is sent. Pure; the log itself is never changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from massmem.config.models import HistoryPreset, MemoryConfig
from massmem.core.messages import AttachedFile, ChatMessage, count_attached_tokens, read_attached_files
from massmem.core.records import MessageRecord
from massmem.memory.tokens import estimate_tokens

MAX_MESSAGES = 400
"""Messages of earlier turns in one view; more of them are compressed even where they would fit."""

NO_ANSWER = "(This was not answered: the turn was stopped.)"


@dataclass(frozen=True, slots=True)
class HistoryBudget:
    tokens: int
    messages: int | None = None
    """None: as many as fit the tokens."""
    answer: int | None = None
    """Characters that are sent of an answer, None for all."""
    relevant: int = 0
    """Older messages that are sent beside the newest ones, because they share words with the question."""


PRESETS: dict[HistoryPreset, HistoryBudget] = {
    "brief": HistoryBudget(tokens=1_000_000, messages=6, answer=200),
    "chat": HistoryBudget(tokens=4_000, messages=20),
    "long": HistoryBudget(tokens=1_000_000, messages=50),
}


def history_budget(memory: MemoryConfig, window: int) -> HistoryBudget:
    """Return what the configuration allows of earlier turns. window: tokens that the agent's model reads."""
    conversation = memory.conversation_memory
    if not (memory.enabled and conversation.enabled):
        return HistoryBudget(0, 0)
    preset = PRESETS[conversation.preset] if conversation.preset else HistoryBudget(window)
    return HistoryBudget(
        min(window, preset.tokens if conversation.max_tokens is None else conversation.max_tokens),
        preset.messages if conversation.max_messages is None else conversation.max_messages,
        preset.answer if conversation.max_answer_characters is None else conversation.max_answer_characters,
        conversation.relevant_messages,
    )


@dataclass(frozen=True, slots=True)
class HistoryMessage:
    message: ChatMessage
    id: str
    """Of the message in the log; "" for a placeholder."""
    seq: int
    """Of the message in the log; for a placeholder that of its question."""
    files: tuple[AttachedFile, ...] = ()


@dataclass(frozen=True, slots=True)
class HistoryView:
    """Earlier turns as an agent is sent them: a summary of the older part, then messages verbatim, oldest first."""

    messages: tuple[HistoryMessage, ...] = ()
    summary: str = ""


@dataclass(slots=True)
class HistoryWindow:
    """A sliding window, filled from the newest message backwards until the budget is used.

    An older message that does not fit ends it: a view has no holes.
    """

    budget: HistoryBudget
    after: int = 0
    """Messages up to this seq are left out, since a summary stands for them."""
    sees: bool = True
    """The agent is shown what the messages came with."""
    records: list[MessageRecord] = field(default_factory=list[MessageRecord])
    full: bool = False
    used: int = 0

    def add(self, record: MessageRecord) -> None:
        """Take the next older message."""
        tokens = estimate_tokens(self._text(record))
        if self.sees:
            tokens += count_attached_tokens(read_attached_files(record.metadata))
        most = MAX_MESSAGES + 1 if self.budget.messages is None else self.budget.messages
        over = self.used + tokens > self.budget.tokens or len(self.records) >= most
        # One message that is larger than the window by itself is taken, and compressed later: it must not be lost.
        oversized = over and not self.records and self.budget.messages is None and self.budget.tokens > 0
        if self.full or record.seq <= self.after or (over and not oversized):
            self.full = True
            return
        self.records.append(record)
        self.used += tokens

    def view(self, summary: str = "", relevant: Sequence[MessageRecord] = ()) -> HistoryView:
        """Return the window as it is sent. relevant: older messages to send before it, in any order."""
        records = [*sorted(relevant, key=lambda r: r.seq), *reversed(self.records)]
        return HistoryView(alternate_roles([self._cut(record) for record in records]), summary)

    def _cut(self, record: MessageRecord) -> MessageRecord:
        text = self._text(record)
        return record if text == record.content else record.model_copy(update={"content": text})

    def _text(self, record: MessageRecord) -> str:
        most = self.budget.answer
        if record.kind == "user" or most is None or len(record.content) <= most:
            return record.content
        return f"{record.content[:most]}..."


def alternate_roles(records: Sequence[MessageRecord]) -> tuple[HistoryMessage, ...]:
    """Return user questions and final answers as chat messages; a question without an answer gets a placeholder.

    A leading answer whose question is outside the window is left out.
    """
    messages: list[HistoryMessage] = []
    for record in records:
        awaiting = bool(messages) and messages[-1].message.role == "user"
        if record.kind == "user":
            if awaiting:
                messages.append(HistoryMessage(ChatMessage("assistant", NO_ANSWER), "", messages[-1].seq))
            files = read_attached_files(record.metadata)
            messages.append(HistoryMessage(ChatMessage("user", record.content), record.id, record.seq, files))
        elif awaiting:
            messages.append(HistoryMessage(ChatMessage("assistant", record.content), record.id, record.seq))
    if messages and messages[-1].message.role == "user":
        messages.append(HistoryMessage(ChatMessage("assistant", NO_ANSWER), "", messages[-1].seq))
    return tuple(messages)
