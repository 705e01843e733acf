"""Replies of a chat model that is asked for facts, for the loopback server of provider_stub, and what it was sent."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from massmem.config.models import MemoryLlmConfig
from massmem.memory.extraction.mem0 import Limits, Mem0Extractor
from massmem.memory.extraction.task import Extraction, Origin, RecordedMessage
from tests.support.json_server import json_server
from tests.support.provider_stub import KEY, Http, Recorded, Stub

QUICK = Limits(deadline=20, timeout=10, retries=0)

Open = Callable[..., Mem0Extractor]

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
    return reply(200, _completion(content, finish, refusal))


def _completion(content: str | None, finish: str, refusal: str | None) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27},
    }


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


def texts(extraction: Extraction) -> list[str]:
    return [fact.text for fact in extraction.facts]


def configured(stub: Stub, provider: str = "openai") -> MemoryLlmConfig:
    values = {"provider": provider, "model": "stub", "api_key": KEY, "base_url": f"{stub.url}/v1"}
    return MemoryLlmConfig.model_validate(values)


def extraction_server(text: str) -> AbstractContextManager[str]:
    """The URL of a model server in a thread that always says `text`."""
    return json_server(lambda: (200, _completion(text, "stop", None)))


@asynccontextmanager
async def extractors(stub: Stub, home: Path) -> AsyncIterator[Open]:
    """Gives a function that opens an extractor, for the stub unless it is given another configuration."""
    opened: list[Mem0Extractor] = []

    def open_(config: MemoryLlmConfig | None = None, limits: Limits = QUICK, **more: Any) -> Mem0Extractor:
        opened.append(Mem0Extractor(config or configured(stub), home / "state", {}, limits=limits, **more))
        return opened[-1]

    yield open_
    for extractor in opened:
        await extractor.close()
