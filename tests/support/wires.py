"""Shapes of replies as servers really send them, one row each, in `tests/wires/*.yaml`; and the server that plays one.

A row has `about`, what arrives, and what must be true of it:

| key | meaning |
|---|---|
| `api` | chat, responses or anthropic; a list: the row holds for each of them |
| `frames` | events, or texts: lines as they are. In chat, `{delta: ..., finish: ...}` is short for a chunk |
| `body` | instead of them: JSON, or a text as it is. `status`, `headers`: of the reply |
| `split` | bytes of a piece; `compress`: gzip, deflate, or raw, which is deflate without its header |
| `tools` | names of the offered tools, or their properties by name; left out: the request offers none |
| `text`, `reasoning`, `finish` | of the reply; left out: "", "", stop or tool_calls |
| `calls` | pairs of name and arguments; arguments that are a text are compared as they are |
| `usage` | fields of it. `named`: words of the warning about what was left out; left out: there is no warning |
| `error` | the class of the failure, instead of a reply. `says`: words of its message. `retry_after`: seconds |
"""

import gzip
import json
import logging
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from massmem.config.models import BackendConfig
from massmem.core import errors
from massmem.core.messages import ChatMessage, ChatRequest, ToolSpec
from massmem.providers import Providers
from tests.support.provider_stub import KEY, Http, Stub, running_stub
from tests.support.replies import ask

FOLDER = Path(__file__).parents[1] / "wires"
ROWS = {"about", "api", "frames", "body", "status", "headers", "split", "compress", "tools"}
OUTCOME = {"text", "reasoning", "finish", "calls", "usage", "named", "error", "says", "retry_after"}
BACKENDS: Mapping[str, Mapping[str, str]] = {
    "chat": {"type": "openai", "api": "chat"},
    "responses": {"type": "openai", "api": "responses"},
    "anthropic": {"type": "anthropic"},
}


@dataclass(frozen=True)
class Wire:
    """One row, for one API."""

    name: str
    api: str
    row: Mapping[str, Any]

    def build_reply(self) -> Http:
        """Return the reply that the server sends."""
        row, headers = self.row, {"content-type": "text/event-stream"}
        if "body" in row:
            headers["content-type"] = "application/json"
            payload = row["body"].encode() if isinstance(row["body"], str) else json.dumps(row["body"]).encode()
        else:
            payload = b"".join(encode_frame(frame, self.api) for frame in row["frames"])
        if compress := row.get("compress"):
            deflated = zlib.compress(payload)
            payload = {"gzip": gzip.compress(payload), "deflate": deflated, "raw": deflated[2:-4]}[compress]
        size = row.get("split") or len(payload) or 1
        parts = [payload[i : i + size] for i in range(0, len(payload), size)]
        all_headers = {
            name: value for name, value in {**headers, **row.get("headers", {})}.items() if value is not None
        }
        return Http(row.get("status", 200), all_headers, parts)

    def build_request(self) -> ChatRequest:
        tools: Any = self.row.get("tools", {})
        names = cast("Mapping[str, list[str]]", tools if isinstance(tools, dict) else {key: [] for key in tools})
        specs = (
            ToolSpec(name, "", {"type": "object", "properties": {key: {"type": "string"} for key in keys}})
            for name, keys in names.items()
        )
        return ChatRequest((ChatMessage("user", "When?"),), "answer", "a", tools=tuple(specs), tool_choice="auto")

    async def check(self, caplog: pytest.LogCaptureFixture) -> None:
        """Play the row, and compare the outcome."""
        row, caught = self.row, None
        with caplog.at_level(logging.WARNING, "massmem.providers.normaliser"):
            try:
                reply = await self._play()
            except errors.ProviderError as e:
                caught, reply = e, None
        if "error" in row:
            assert type(caught).__name__ == row["error"], f"{caught or reply}"
            assert row.get("says", "") in str(caught)
            assert caught is not None
            assert caught.retry_after == row.get("retry_after")
            return
        assert reply is not None, f"{type(caught).__name__}: {caught}"
        usual = "tool_calls" if row.get("calls") else "stop"
        expected = (row.get("text", ""), row.get("reasoning", ""), row.get("finish", usual))
        assert (reply.text, reply.reasoning, reply.finish) == expected
        expected_calls = [(name, value) for name, value in row.get("calls", ())]
        texts = [isinstance(value, str) for _, value in expected_calls] or [False] * len(reply.tool_calls)
        got = [
            (call.name, call.arguments if is_text else json.loads(call.arguments))
            for call, is_text in zip(reply.tool_calls, texts, strict=True)
        ]
        assert got == expected_calls
        assert len({call.id for call in reply.tool_calls} - {""}) == len(reply.tool_calls)
        assert {name: getattr(reply.usage, name) for name in row.get("usage", ())} == row.get("usage", {})
        warnings = [record.getMessage() for record in caplog.records]
        assert len(warnings) == ("named" in row), warnings
        assert row.get("named", "") in "".join(warnings)

    async def _play(self) -> Any:
        providers = Providers()
        async with running_stub() as stub:
            stub.replies = [self.build_reply()]
            try:
                return await ask(await providers.open(build_backend(self.api, stub)), self.build_request())
            finally:
                await providers.close()


def build_backend(api: str, stub: Stub) -> BackendConfig:
    """Return the backend of a model behind this API of the stub."""
    base_url = stub.url if api == "anthropic" else f"{stub.url}/v1"
    fields = {"model": "m", "base_url": base_url, "api_key": KEY, "max_retries": 0, "timeout": 20, **BACKENDS[api]}
    return BackendConfig.model_validate(fields)


def encode_frame(frame: object, api: str) -> bytes:
    """Return the bytes of an event; a text is a line."""
    if isinstance(frame, str):
        return f"{frame}\n".encode()
    if isinstance(frame, dict):
        fields = cast("dict[str, Any]", frame)
        if api == "chat" and not fields.keys() - {"delta", "finish"}:
            choice = {"index": 0, "delta": fields.get("delta", {}), "finish_reason": fields.get("finish")}
            frame = {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}
        elif api != "chat" and isinstance(fields.get("type"), str):
            return f"event: {fields['type']}\ndata: {json.dumps(frame)}\n\n".encode()
    return f"data: {json.dumps(frame)}\n\n".encode()


def list_wires() -> Iterator[Wire]:
    """Yield all rows."""
    for path in sorted(FOLDER.glob("*.yaml")):
        rows = cast("list[dict[str, Any]]", yaml.safe_load(path.read_text()))
        for row in rows:
            assert not row.keys() - ROWS - OUTCOME, f"{path.name}: {row['about']}: {row.keys() - ROWS - OUTCOME}"
            apis = cast("list[str]", row["api"] if isinstance(row["api"], list) else [row["api"]])
            for api in apis:
                yield Wire(f"{path.stem}: {row['about']}" + (f" ({api})" if len(apis) > 1 else ""), api, row)
