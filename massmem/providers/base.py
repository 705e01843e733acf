"""The port to a model: one method that streams one reply."""

from collections.abc import AsyncGenerator
from typing import Protocol

from massmem.messages import ChatRequest
from massmem.replies import Chunk


class ChatProvider(Protocol):
    """A model behind an endpoint, configured for one agent.

    native_tools: `ChatRequest.tools` works; when False the caller sends `ChatRequest.schema` instead.
    """

    @property
    def native_tools(self) -> bool: ...

    def stream(self, request: ChatRequest) -> AsyncGenerator[Chunk, None]:
        """Send one request and yield its chunks as they arrive; the last one is a FinishChunk.

        Failures that may pass are retried inside, each announced by a RetryChunk. Closing the generator ends the
        request at the server.

        Raises:
            ContextOverflow: the prompt does not fit.
            StreamInterrupted: the stream ended without a finish reason; `partial` holds its text.
            ProviderError: any other failure, as the subclass that fits (see massmem.errors).
        """
        ...

    async def count_prompt(self, request: ChatRequest) -> int | None:
        """Tokens of the request by the model's own tokenizer, with the marks that its template puts around messages.

        None where there is no such count, or it could not be had just now. It may take a request (Anthropic: 0.2 s,
        free of charge): meant for prompts near a limit and for the first one; else a counter's estimate will do.
        """
        ...
