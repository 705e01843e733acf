"""The embedded 1.5B model itself, when it is on this machine."""

import json
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from massmem.config.models import BackendConfig
from massmem.core.errors import ContextOverflow, MissingModelError
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    FinishChunk,
)
from massmem.providers.local import LocalFactory, LocalProvider
from massmem.providers.weights import require_weights
from tests.support.replies import ask, wait_for_text

pytestmark = [pytest.mark.slow, pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

SCHEMA = {
    "type": "object",
    "properties": {
        "reason": {"type": "string", "maxLength": 120},
        "action": {"const": "vote"},
        "choice": {"enum": ["A", "B"]},
    },
    "required": ["reason", "action", "choice"],
    "additionalProperties": False,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[LocalProvider]:
    try:
        require_weights("")
    except MissingModelError as e:
        pytest.skip(f"{e.message}; {e.hint}")
    runtimes = LocalFactory()
    yield runtimes.open(BackendConfig(type="local", temperature=0))
    await runtimes.close()


def asking(text: str, **settings: object) -> ChatRequest:
    messages = (ChatMessage("system", "You are exact."), ChatMessage("user", text))
    return ChatRequest(messages, "answer", **{"max_tokens": 40, **settings})  # type: ignore[arg-type]


async def test_the_embedded_model(provider: LocalProvider) -> None:
    answer = await ask(provider, asking("What is the capital of France? One word."))
    assert "Paris" in answer.text
    assert answer.finish == "stop"

    question = "Which answer to '2 + 2' is right? Answer A: 5. Answer B: 4. Reply with a JSON vote."
    voted = await ask(provider, asking(question, schema=SCHEMA, max_tokens=120))
    vote = json.loads(voted.text)
    assert set(vote) == {"reason", "action", "choice"}
    assert vote["choice"] in ("A", "B")
    assert voted.usage.prompt > 30
    assert voted.usage.cached > 5, "the system message was not read twice"

    with pytest.raises(ContextOverflow) as e:
        await ask(provider, asking("word " * 6000))
    assert (e.value.prompt_tokens or 0) > 6000
    assert e.value.window == 4096


async def test_cancelling_is_prompt(provider: LocalProvider) -> None:
    stream = provider.stream(asking("Write a very long story.", max_tokens=2000))
    await wait_for_text(stream)
    await stream.aclose()
    started = time.monotonic()
    last = [chunk async for chunk in provider.stream(asking("Say hi.", max_tokens=1))][-1]
    assert isinstance(last, FinishChunk)
    assert time.monotonic() - started < 30, "2,000 tokens would take minutes"
