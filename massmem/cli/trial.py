"""A tiny request to a model: whether it answers, and how long that takes."""

import time
from contextlib import aclosing

from massmem.config.models import BackendConfig
from massmem.messages import ChatMessage, ChatRequest
from massmem.providers import Providers

TOKENS = 64
"""Of the reply, at most: models that think before they speak need some to say anything."""

_PATIENCE = 60.0


async def tried(backend: BackendConfig) -> float:
    """Ask the model for one word; returns the seconds that it took.

    Raises:
        MassmemError: it does not answer, see Providers.open and ChatProvider.stream.
    """
    limits = {
        "max_tokens": TOKENS,
        "max_retries": 0,
        "timeout": min(backend.timeout, _PATIENCE),
        "thinking_tokens": None,
    }
    providers = Providers()
    began = time.monotonic()
    try:
        provider = await providers.open(backend.model_copy(update=limits | {"thinking_tokens": None}))
        request = ChatRequest((ChatMessage("user", "Reply with the one word: ready"),), purpose="answer")
        async with aclosing(provider.stream(request)) as chunks:
            async for _ in chunks:
                pass
    finally:
        await providers.close()
    return time.monotonic() - began
