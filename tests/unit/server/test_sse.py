"""Events as they leave the service: nothing internal, nothing that a user gave, one block of lines each."""

import json
from collections.abc import AsyncGenerator

import pytest

from massmem.errors import StoreError
from massmem.events import (
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
from massmem.messages import Usage
from massmem.server import sse
from massmem.server.limits import TooMuch
from massmem.server.running import Numbered

HIDDEN: list[Event] = [
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


@pytest.mark.parametrize("event", HIDDEN, ids=lambda event: event.type)
def test_what_is_internal_stays_inside(event: Event) -> None:
    text = sse.written(7, event)
    for word in ("0123456789abcdef", "internal.host", "sk-123", "OPENAI"):
        assert word not in text
    if not isinstance(event, Notice):
        name, number, data = text.removesuffix("\n\n").split("\n")
        assert (name, number) == (f"event: {event.type}", "id: 7")
        assert json.loads(data.removeprefix("data: "))["type"] == event.type


def test_line_breaks_do_not_end_an_event() -> None:
    event = TurnStarted(session_id="x.s", turn=1, question="a\n\nevent: b\rdata: c\u2028", agents=("a",), seed=1)
    assert sse.written(1, event).count("\n") == 4
    assert "\r" not in sse.written(1, event)


@pytest.mark.parametrize("error", [TooMuch(503, "the process ends"), StoreError("db.internal is away")])
async def test_an_error_after_the_first_event_is_an_event(error: Exception) -> None:
    async def events() -> AsyncGenerator[Numbered, None]:
        yield 1, HIDDEN[0]
        raise error

    texts = [text async for text in sse.stream(await sse.begun(events()))]
    assert texts[0].startswith("retry: ")
    assert texts[-1].startswith("event: error\ndata: ")
    assert "internal" not in texts[-1]


async def test_an_error_before_the_first_event_is_raised() -> None:
    async def events() -> AsyncGenerator[Numbered, None]:
        raise TooMuch(429, "too much")
        yield 1, HIDDEN[0]

    with pytest.raises(TooMuch):
        await sse.begun(events())
