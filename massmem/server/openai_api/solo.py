"""One agent's model alone: one request, without tools and memories, and nothing of it is stored.

For titles and tags that chat clients ask for beside a conversation, and for whoever wants the bare model.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from massmem.config.models import AgentConfig
from massmem.core.attachments import Attachment
from massmem.core.errors import ContextOverflow
from massmem.core.messages import ChatMessage, ChatRequest, FinishChunk, ReasoningChunk, RetryChunk, TextChunk
from massmem.core.prompts import build_system_prompt
from massmem.providers.base import ChatProvider
from massmem.server.errors import InvalidField
from massmem.server.openai_api.pieces import Finish, Piece, Pieces, Progress, Words
from massmem.server.openai_api.requests import AnswerForm, Conversation

log = logging.getLogger(__name__)

_TASK_STARTS = ("### Task:",)
_TASK_MARKS = ("<chat_history>", "### Chat History:")
"""What prompts of Open WebUI for titles, tags, follow-ups, search queries and completions have, and its others lack."""


def is_side_task(conversation: Conversation, metadata: dict[str, Any] | None) -> bool:
    """Whether a chat client asks for itself, as for a title, and not for its user."""
    if metadata is not None and metadata.get("task"):
        return True
    text = conversation.question[1].lstrip()
    is_task = text.startswith(_TASK_STARTS) and any(mark in text for mark in _TASK_MARKS)
    return is_task and not conversation.history


async def ask_model(
    agent: AgentConfig,
    provider: ChatProvider,
    conversation: Conversation,
    form: AnswerForm,
    text: str,
    attachments: Sequence[Attachment],
) -> Pieces:
    """Yield the reply of an agent's model to a conversation. text: of the question, with the texts of its files.

    Raises:
        InvalidField: the conversation is too long, or the model does not see what it shows.
        ProviderError: there is no reply.
    """
    if not provider.abilities.vision:
        attachments = [attachment for attachment in attachments if not attachment.optional]
    if attachments and provider.abilities.vision is False:
        raise InvalidField(f"{agent.id} sees no pictures", "messages")
    system = "\n\n".join(filter(None, (build_system_prompt(agent.system_message), conversation.instructions)))
    roles: dict[str, Literal["user", "assistant"]] = {"user": "user", "agent": "assistant"}
    history = (ChatMessage(roles[role], text_before) for role, text_before in conversation.history)
    request = ChatRequest(
        (ChatMessage("system", system), *history, ChatMessage("user", text, attachments=tuple(attachments))),
        "answer",
        agent.id,
        schema=form.schema,
        temperature=form.temperature,
        max_tokens=form.max_tokens,
    )
    try:
        async with aclosing(_read_reply(provider, request)) as pieces:
            async for piece in pieces:
                yield piece
    except ContextOverflow as e:
        raise InvalidField(
            "the conversation is longer than the model's context window", "messages", code="context_length_exceeded"
        ) from e


async def _read_reply(provider: ChatProvider, request: ChatRequest) -> AsyncGenerator[Piece, None]:
    sent = False
    async with aclosing(provider.stream(request)) as chunks:
        async for chunk in chunks:
            match chunk:
                case TextChunk(text=words):
                    sent = True
                    yield Words(words)
                case ReasoningChunk(text=thought) if not sent:
                    yield Progress(thought)
                case RetryChunk() if sent:  # what was sent cannot be taken back
                    yield Words("\n\n")
                case FinishChunk(reason=reason, usage=usage):
                    yield Finish("length" if reason == "length" else "stop", usage)
                case _:
                    pass
