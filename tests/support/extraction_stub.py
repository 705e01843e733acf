"""Replies of a chat model that is asked for facts, for the loopback server of provider_stub, and what it was sent."""

import json
from datetime import UTC, datetime
from typing import Any

from massmem.memory.extraction import Origin, RecordedMessage
from tests.support.provider_stub import Http, Recorded

DAY = datetime(2025, 3, 4, 10, 30, tzinfo=UTC)
ORIGIN = Origin("session_20250304_103000", "agent_a", 1)

FIRST = "Postgres 16 took 1,200 writes per second on the staging server on 4 March 2025."
SECOND = "Redis 7 lost the last second of writes when its server was killed."


def said(text: str, message_id: str = "q1", role: Any = "user", moment: datetime = DAY) -> RecordedMessage:
    return RecordedMessage(role, text, message_id, moment)


TURN = (
    said("How many writes does Postgres take?"),
    said("1,200 a second on staging. Redis was quicker but lost data when killed.", "a1", "assistant"),
)


def completion(content: str | None, finish: str = "stop", refusal: str | None = None) -> Http:
    """A whole reply of /chat/completions."""
    message = {"role": "assistant", "content": content, "refusal": refusal}
    body = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
    }
    return reply(200, body)


def facts(*texts: str, sources: tuple[str, ...] = ()) -> Http:
    return completion(memory(*texts, sources=sources))


def memory(*texts: str, sources: tuple[str, ...] = ()) -> str:
    items = [{"id": str(n), "text": t, "attributed_to": "user", "sources": list(sources)} for n, t in enumerate(texts)]
    return json.dumps({"memory": items})


def failing(status: int, message: str = "no", code: str | None = None, **headers: str) -> Http:
    return reply(status, {"error": {"message": message, "type": "error", "code": code}}, **headers)


def reply(status: int, body: Any, **headers: str) -> Http:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return Http(status, {"content-type": "application/json", **names}, [json.dumps(body).encode()])


def prompts(request: Recorded) -> tuple[str, str]:
    """System and user prompt of a request."""
    system, user = request.body["messages"]
    return system["content"], user["content"]


def section(prompt: str, name: str) -> str:
    """What stands below a heading of mem0's prompt."""
    return prompt.partition(f"\n## {name}\n")[2].partition("\n\n## ")[0]
