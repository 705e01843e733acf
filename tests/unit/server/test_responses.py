"""Server-sent events: what they hide, how they are written, and what becomes of errors."""

import json
from collections.abc import AsyncGenerator

import pytest
from sse_starlette import ServerSentEvent

from massmem.core.errors import StoreError
from massmem.core.events import (
    AgentFailed,
    Event,
    Notice,
    ToolCalled,
    ToolReturned,
    TurnAbandoned,
    TurnFailed,
    TurnStarted,
    UserReplied,
)
from massmem.core.messages import Usage
from massmem.server.errors import RetryLater
from massmem.server.responses import encode_events, wait_for_first
from massmem.server.turns import NumberedEvent

WITH_INTERNALS: list[Event] = [
    TurnStarted(session_id="0123456789abcdef01234567.mine", turn=1, question="q", agents=("a",), seed=1),
    TurnAbandoned(session_id="0123456789abcdef01234567.mine", turn=1, why="change", usage=Usage()),
    AgentFailed(
        agent_id="a", round=1, step="answer", error="RateLimited", usage=Usage(),
        message="http://internal.host:8080 refused key sk-123", hint="set OPENAI_API_KEY",
    ),
    TurnFailed(message="http://internal.host:8080 refused", hint="set OPENAI_API_KEY", exit_code=3, usage=Usage()),
    UserReplied(param="pin", text="my pin is sk-123"),
    ToolCalled(agent_id="a", round=1, batch=1, usage=Usage(), call_id="c", name="find", arguments='{"key": "sk-123"}'),
    ToolReturned(agent_id="a", round=1, name="find", content="http://internal.host says sk-123"),
    Notice(message="/home/service/internal.host is locked"),
    ToolCalled(
        agent_id="a", round=1, call_id="c1", batch=1, name="mcp__files__read", usage=Usage(),
        arguments='{"path": "/home/internal.host"}',
    ),
    ToolReturned(agent_id="a", round=1, name="mcp__files__read", content="internal.host has sk-123", call_id="c1"),
]  # fmt: skip


async def encode(*events: Event, error: Exception | None = None) -> list[str]:
    """Return the texts of a stream of these events, numbered from 7, without the reconnection time it begins with."""

    async def numbered() -> AsyncGenerator[NumberedEvent, None]:
        for number, event in enumerate(events, 7):
            yield number, event
        if error is not None:
            raise error

    texts: list[str] = []
    async for event in encode_events(await wait_for_first(numbered())):
        assert isinstance(event, ServerSentEvent)
        texts.append(event.encode().decode())
    assert texts[0] == "retry: 1000\n\n"
    return texts[1:]


@pytest.mark.parametrize("event", WITH_INTERNALS, ids=lambda event: event.type)
async def test_internals_are_hidden(event: Event) -> None:
    texts = await encode(event)
    assert len(texts) == (0 if isinstance(event, Notice) else 1)
    for text in texts:
        for word in ("0123456789abcdef", "internal.host", "sk-123", "OPENAI"):
            assert word not in text
        number, name, data = text.removesuffix("\n\n").split("\n")
        assert (number, name) == ("id: 7", f"event: {event.type}")
        assert json.loads(data.removeprefix("data: "))["type"] == event.type


async def test_line_breaks_do_not_end_an_event() -> None:
    event = TurnStarted(session_id="x.s", turn=1, question="a\n\nevent: b\rdata: c\u2028", agents=("a",), seed=1)
    [text] = await encode(event)
    assert text.count("\n") == 4
    assert "\r" not in text


@pytest.mark.parametrize("error", [RetryLater(503, "the process ends"), StoreError("db.internal is away")])
async def test_error_after_the_first_event_becomes_an_event(error: Exception) -> None:
    texts = await encode(WITH_INTERNALS[0], error=error)
    assert texts[-1].startswith("event: error\ndata: ")
    assert "internal" not in texts[-1]


async def test_error_before_the_first_event_is_raised() -> None:
    with pytest.raises(RetryLater):
        await encode(error=RetryLater(429, "too much"))
