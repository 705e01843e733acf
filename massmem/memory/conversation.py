"""ConversationMemory: the log read as the messages that a model is sent. Pure; the log itself is never changed."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from massmem.config.models import AgentConfig, BackendConfig
from massmem.messages import ChatMessage
from massmem.records import MessageRecord

CHARACTERS_PER_TOKEN = 4
"""Rough length of a token in English text; what is used where no tokenizer is at hand."""

NO_ANSWER = "(This was not answered: the turn was stopped.)"

_ASSUMED_WINDOW = 128_000
_LOCAL_WINDOW = 4_096


def estimate_tokens(text: str) -> int:
    """Tokens in `text` without a tokenizer: characters / 4, rounded up."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def context_window(backend: BackendConfig) -> int:
    """Tokens that the agent's model reads, as far as the configuration says."""
    if backend.context_window is not None:
        return backend.context_window
    return _LOCAL_WINDOW if backend.type == "local" else _ASSUMED_WINDOW


@dataclass(frozen=True, slots=True)
class Budget:
    """How much history an agent is sent. messages None: as many as fit the tokens."""

    tokens: int
    messages: int | None = None


def history_budget(agent: AgentConfig) -> Budget:
    """Half of the window at most: the rest is for the question, the answers to judge, and the reply."""
    memory = agent.memory
    if not (memory.enabled and memory.conversation_memory.enabled):
        return Budget(0, 0)
    half = context_window(agent.backend) // 2
    limit = memory.conversation_memory.max_tokens
    return Budget(half if limit is None else min(half, limit), memory.conversation_memory.max_messages)


@dataclass(slots=True)
class Window:
    """A sliding window, filled from the newest message backwards until the budget is used.

    An older message that does not fit ends it: a view has no holes.
    """

    budget: Budget
    records: list[MessageRecord] = field(default_factory=list[MessageRecord])
    full: bool = False
    used: int = 0

    def add(self, record: MessageRecord) -> None:
        """Take the next older message."""
        tokens = estimate_tokens(record.content)
        count = self.budget.messages
        if self.full or self.used + tokens > self.budget.tokens or (count is not None and len(self.records) >= count):
            self.full = True
            return
        self.records.append(record)
        self.used += tokens

    def messages(self) -> tuple[ChatMessage, ...]:
        """The window oldest first, user and assistant in turn, as chat templates require."""
        return alternate(list(reversed(self.records)))


def alternate(records: Sequence[MessageRecord]) -> tuple[ChatMessage, ...]:
    """User questions and final answers as chat messages; a question without an answer gets a placeholder.

    A leading answer whose question is outside the window is left out.
    """
    messages: list[ChatMessage] = []
    for record in records:
        awaiting = bool(messages) and messages[-1].role == "user"
        if record.kind == "user":
            if awaiting:
                messages.append(ChatMessage("assistant", NO_ANSWER))
            messages.append(ChatMessage("user", record.content))
        elif awaiting:
            messages.append(ChatMessage("assistant", record.content))
    if messages and messages[-1].role == "user":
        messages.append(ChatMessage("assistant", NO_ANSWER))
    return tuple(messages)
