"""A model server on loopback that replays what a test wrote, in both wire protocols, and records what it was sent."""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import parse_qsl

import pytest

KEY = "sk-stub-0123456789abcdef"


class Cut:
    """In a reply's parts: close the connection here, as a crashed server does."""


@dataclass(frozen=True)
class Http:
    """One HTTP reply. parts are sent one by one: bytes, seconds to wait, or Cut. head False: not even a status line."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    parts: Sequence[bytes | float | type[Cut]] = ()
    head: bool = True


@dataclass(frozen=True)
class Recorded:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]


class Stub:
    """replies are used in order; the last one repeats. routes: by path, before them; paths without either are 404."""

    def __init__(self) -> None:
        self.replies: list[Http] = []
        self.routes: dict[str, Http] = {}
        self.requests: list[Recorded] = []
        self.connections = 0
        self.disconnected = asyncio.Event()
        self.url = ""
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def open_connections(self) -> int:
        return len(self._tasks)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while (request := await _read_request(reader)) is not None:
                self.requests.append(request)
                if not await self._send(self._reply_to(request.path), reader, writer):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def _reply_to(self, path: str) -> Http:
        if route := self.routes.get(path.partition("?")[0]):
            return route
        if not self.replies:
            return Http(404)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]

    async def _send(self, reply: Http, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        gone = asyncio.ensure_future(reader.read(1))
        try:
            if reply.head:
                headers = {"content-type": "text/event-stream", "transfer-encoding": "chunked", **reply.headers}
                lines = [f"HTTP/1.1 {reply.status} Stub", *(f"{k}: {v}" for k, v in headers.items()), "", ""]
                writer.write("\r\n".join(lines).encode())
            for part in reply.parts:
                if part is Cut:
                    return False
                if isinstance(part, bytes):
                    writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                    await writer.drain()
                elif isinstance(part, float | int) and await self._client_left(gone, part):
                    return False
            writer.write(b"0\r\n\r\n")
            await writer.drain()
            return True
        finally:
            gone.cancel()

    async def _client_left(self, gone: "asyncio.Future[bytes]", seconds: float) -> bool:
        done, _ = await asyncio.wait({gone}, timeout=seconds)
        if done:
            self.disconnected.set()
        return bool(done)

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@pytest.fixture
async def stub() -> AsyncGenerator[Stub]:
    """Give a model server on loopback."""
    async with running_stub() as server:
        yield server


@asynccontextmanager
async def running_stub() -> AsyncGenerator[Stub]:
    stub = Stub()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    stub.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield stub
    finally:
        server.close()
        await stub.stop()


async def _read_request(reader: asyncio.StreamReader) -> Recorded | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.decode().split("\r\n")
    headers = {k.lower(): v for k, _, v in (line.partition(": ") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    is_form = headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    fields = dict(parse_qsl(body.decode())) if is_form else json.loads(body or b"{}")
    return Recorded(first.split(" ")[1], headers, fields)


@dataclass(frozen=True)
class Say:
    """One reply in neutral terms. finish None: the stream ends without one. cut: the connection breaks instead."""

    texts: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    calls: Sequence[tuple[str, str]] = ()
    finish: str | None = "stop"
    cut: bool = False
    pause: float = 0.0


class OpenAIWire:
    """Replies as /chat/completions sends them."""

    type = "openai"
    path = "/v1"
    options: ClassVar[Mapping[str, Any]] = {"api": "chat"}
    """Of a backend that speaks it."""

    def stream(self, say: Say) -> Http:
        deltas: list[dict[str, Any]] = [{"reasoning_content": r} for r in say.reasoning]
        deltas += [{"content": t} for t in say.texts]
        for i, (name, arguments) in enumerate(say.calls):
            middle = len(arguments) // 2
            start = {"index": i, "id": f"call_{i}", "type": "function"}
            deltas.append({"tool_calls": [{**start, "function": {"name": name, "arguments": arguments[:middle]}}]})
            deltas.append({"tool_calls": [{"index": i, "function": {"arguments": arguments[middle:]}}]})
        parts: list[bytes | float | type[Cut]] = [self.event(self.chunk(delta)) for delta in deltas]
        if say.pause:
            parts.append(say.pause)
        if say.cut:
            return Http(parts=[*parts, Cut])
        if say.finish is not None:
            reason = {"stop": "tool_calls" if say.calls else "stop", "refused": "content_filter"}
            parts.append(self.event(self.chunk({}, reason.get(say.finish, say.finish))))
            usage = {"prompt_tokens": 20, "completion_tokens": 7, "total_tokens": 27}
            parts.append(self.event({"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 5}}}))
        return Http(parts=[*parts, b"data: [DONE]\n\n"])

    def chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {
            "id": "c1",
            "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    def event(self, data: object) -> bytes:
        return f"data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

    def error(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> Http:
        body = {"error": {"message": message, "type": "invalid_request_error", "code": code or None}}
        return _json_reply(status, body, headers)

    def error_event(self, code: str, message: str) -> bytes:
        return self.event({"error": {"message": message, "code": code}})


class ResponsesWire(OpenAIWire):
    """Replies as /responses sends them."""

    options: ClassVar[Mapping[str, Any]] = {"api": "responses"}

    def stream(self, say: Say) -> Http:
        parts: list[bytes | float | type[Cut]] = [self.event({"type": "response.created", "response": {"id": "r"}})]
        for delta in say.reasoning:
            parts.append(self.event({"type": "response.reasoning_summary_text.delta", "delta": delta}))
        if say.reasoning:
            item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
            parts.append(self.event({"type": "response.output_item.done", "item": item}))
        parts += [self.event({"type": "response.output_text.delta", "delta": text}) for text in say.texts]
        for i, (name, arguments) in enumerate(say.calls):
            parts.append(self.event({"type": "response.function_call_arguments.delta", "delta": arguments}))
            item = {"type": "function_call", "id": f"fc_{i}", "call_id": f"call_{i}", "name": name}
            item |= {"arguments": arguments, "status": "completed"}
            parts.append(self.event({"type": "response.output_item.done", "item": item}))
        if say.pause:
            parts.append(say.pause)
        if say.cut:
            return Http(parts=[*parts, Cut])
        if say.finish is not None:
            parts.append(self.event(self._end(say.finish)))
        return Http(parts=parts)

    def _end(self, finish: str) -> dict[str, Any]:
        usage = {"input_tokens": 20, "output_tokens": 7, "total_tokens": 27}
        usage |= {"input_tokens_details": {"cached_tokens": 5}, "output_tokens_details": {"reasoning_tokens": 3}}
        reason = {"length": "max_output_tokens", "refused": "content_filter"}.get(finish)
        status = "incomplete" if reason else "completed"
        response = {"id": "r", "status": status, "usage": usage}
        response |= {"incomplete_details": {"reason": reason}} if reason else {}
        return {"type": f"response.{status}", "response": response}

    def error_event(self, code: str, message: str) -> bytes:
        return self.event({"type": "error", "code": code, "message": message, "param": None})


class AnthropicWire:
    """Replies as /v1/messages sends them."""

    type = "anthropic"
    path = ""
    options: ClassVar[Mapping[str, Any]] = {}

    def stream(self, say: Say) -> Http:
        usage = {"input_tokens": 15, "cache_read_input_tokens": 5, "output_tokens": 1}
        message: dict[str, Any] = {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": "m",
            "usage": usage,
        }
        parts: list[bytes | float | type[Cut]] = [self.event({"type": "message_start", "message": message})]
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if say.reasoning:
            deltas = [{"type": "thinking_delta", "thinking": r} for r in say.reasoning]
            blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, deltas))
        if say.texts:
            blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": t} for t in say.texts]))
        for i, (name, arguments) in enumerate(say.calls):
            middle = len(arguments) // 2
            halves = (arguments[:middle], arguments[middle:])
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
            blocks.append(({"type": "tool_use", "id": f"call_{i}", "name": name, "input": {}}, deltas))
        for index, (block, deltas) in enumerate(blocks):
            parts.append(self.event({"type": "content_block_start", "index": index, "content_block": block}))
            parts += [self.event({"type": "content_block_delta", "index": index, "delta": d}) for d in deltas]
            if say.cut or say.pause:
                continue
            parts.append(self.event({"type": "content_block_stop", "index": index}))
        if say.pause:
            parts.append(say.pause)
        if say.cut:
            return Http(parts=[*parts, Cut])
        if say.finish is not None:
            names = {"stop": "tool_use" if say.calls else "end_turn", "length": "max_tokens", "refused": "refusal"}
            delta = {"stop_reason": names.get(say.finish, say.finish), "stop_sequence": None}
            parts.append(self.event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}))
            parts.append(self.event({"type": "message_stop"}))
        return Http(parts=parts)

    def event(self, data: dict[str, Any]) -> bytes:
        return f"event: {data['type']}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()

    def error(self, status: int, message: str, code: str = "", headers: dict[str, str] | None = None) -> Http:
        body = {"type": "error", "error": {"type": code or "invalid_request_error", "message": message}}
        return _json_reply(status, body, headers)

    def error_event(self, code: str, message: str) -> bytes:
        return self.event({"type": "error", "error": {"type": code, "message": message}})


Wire = OpenAIWire | AnthropicWire


def _json_reply(status: int, body: object, headers: dict[str, str] | None) -> Http:
    return Http(status, {"content-type": "application/json", **(headers or {})}, [json.dumps(body).encode()])
