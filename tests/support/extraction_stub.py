"""Replies of a chat model that is asked for facts, for the loopback server of provider_stub, and what it was sent."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from massmem.config.models import MemoryLlmConfig
from massmem.memory.extraction.extractor import Bounds, FactExtractor, Limits, MemoryModel, open_model
from massmem.memory.extraction.prompts import Extraction, KnownFacts, Origin, RecordedMessage
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from tests.support.json_server import serve_posts
from tests.support.provider_stub import KEY, Http, OpenAIWire, Recorded, Say, Stub

QUICK = Limits(deadline=20)
QUICK_REQUEST = Bounds(timeout=10, retries=0)

Open = Callable[..., "StubExtractor"]

DAY = datetime(2025, 3, 4, 10, 30, tzinfo=UTC)
ORIGIN = Origin("session_20250304_103000", "agent_a", 1)

FIRST = "Postgres 16 took 1,200 writes per second on the staging server on 4 March 2025."
SECOND = "Redis 7 lost the last second of writes when its server was killed."


def make_message(text: str, message_id: str = "q1", role: Any = "user", moment: datetime = DAY) -> RecordedMessage:
    return RecordedMessage(role, text, message_id, moment)


TURN = (
    make_message("How many writes does Postgres take?"),
    make_message("1,200 a second on staging. Redis was quicker but lost data when killed.", "a1", "assistant"),
)


def completion(content: str | None, finish: str = "stop", refusal: str | None = None) -> Http:
    """A whole reply of /chat/completions."""
    if refusal is not None:
        wire = OpenAIWire()
        return Http(parts=[wire.event(wire.chunk({"refusal": refusal}, "stop")), b"data: [DONE]\n\n"])
    return OpenAIWire().stream(Say([] if content is None else [content], finish=finish))


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
    """What stands below a heading of the user prompt."""
    return prompt.partition(f"{name}:\n")[2].partition("\n\n")[0]


def texts(extraction: Extraction) -> list[str]:
    return [fact.text for fact in extraction.facts]


def make_llm_config(stub: Stub, provider: str = "openai") -> MemoryLlmConfig:
    values = {"provider": provider, "model": "stub", "api_key": KEY, "base_url": f"{stub.url}/v1"}
    return MemoryLlmConfig.model_validate(values)


def extraction_server(text: str) -> AbstractContextManager[str]:
    """The URL of a model server in a thread that always says `text`."""
    body = b"".join(part for part in completion(text).parts if isinstance(part, bytes))
    return serve_posts(lambda _: (200, "text/event-stream", body))


@dataclass(slots=True)
class StubExtractor:
    """Opens its model with the first extraction."""

    config: MemoryLlmConfig
    providers: Providers
    home: Path
    limits: Limits = QUICK
    bounds: Bounds = QUICK_REQUEST
    known: KnownFacts | None = None
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    chat: ChatProvider | None = None
    """Answers instead of the configured model."""

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        if self.chat is not None:
            model = MemoryModel(self.chat, compact=True)
        else:
            model = await open_model(self.config, self.providers, self.environ, self.bounds)
        return await FactExtractor(model, self.known, self.limits).extract(messages, origin)


@asynccontextmanager
async def extractors(stub: Stub, home: Path) -> AsyncIterator[Open]:
    """Gives a function that opens an extractor, for the stub unless it is given another configuration."""
    providers = Providers()

    def open_(config: MemoryLlmConfig | None = None, **more: Any) -> StubExtractor:
        return StubExtractor(config or make_llm_config(stub), providers, home / "state", **more)

    yield open_
    await providers.close()
