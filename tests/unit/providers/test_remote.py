"""What a network and a server can do wrong, the same for both protocols; and what is shared between agents."""

import asyncio
import gzip
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core import errors
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    RetryChunk,
    TextChunk,
)
from massmem.providers import Providers
from massmem.providers.base import ChatProvider
from massmem.providers.clients import LONGEST_REPLY
from tests.support.provider_stub import (
    KEY,
    AnthropicWire,
    Cut,
    Http,
    OpenAIWire,
    ResponsesWire,
    Say,
    Stub,
    Wire,
    running_stub,
)
from tests.support.replies import ask, collect

ASK = ChatRequest((ChatMessage("user", "Capital of France?"),), "answer", "a")
OK = Say(["Paris."])


@dataclass
class Remote:
    providers: Providers
    stub: Stub
    wire: Wire

    async def open(self, *replies: Http, **fields: Any) -> ChatProvider:
        self.stub.replies = list(replies)
        base = {"type": self.wire.type, "model": "m", "api_key": KEY, "base_url": self.stub.url + self.wire.path}
        options = {**base, **self.wire.options, "max_retries": 0, **fields}
        return await self.providers.open(BackendConfig.model_validate(options))


@pytest.fixture(params=[OpenAIWire(), ResponsesWire(), AnthropicWire()], ids=["openai", "responses", "anthropic"])
async def remote(request: pytest.FixtureRequest) -> AsyncIterator[Remote]:
    providers = Providers()
    async with running_stub() as stub:
        yield Remote(providers, stub, request.param)
        await providers.close()


async def failure(provider: ChatProvider) -> errors.ProviderError:
    with pytest.raises(errors.ProviderError) as caught:
        await collect(provider, ASK)
    return caught.value


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (401, errors.AuthenticationError),
        (403, errors.AuthenticationError),
        (404, errors.ModelNotFound),
        (408, errors.ProviderUnavailable),
        (409, errors.ProviderUnavailable),
        (413, errors.ContextOverflow),
        (422, errors.RequestRejected),
        (429, errors.RateLimited),
        (500, errors.ProviderUnavailable),
        (502, errors.ProviderUnavailable),
        (503, errors.ProviderUnavailable),
        (529, errors.ProviderUnavailable),
    ],
)
async def test_statuses(remote: Remote, status: int, kind: type[errors.ProviderError]) -> None:
    refused = remote.wire.error(status, f"because of {KEY}")
    provider = await remote.open(refused, remote.wire.stream(OK), max_retries=1)
    if kind.retryable:
        chunks = await collect(provider, ASK)
        assert isinstance(chunks[0], RetryChunk)
        assert len(remote.stub.requests) == 2
        return
    error = await failure(provider)
    assert type(error) is kind
    assert f"HTTP {status}: because of [redacted]" in error.message
    assert KEY not in str(error)
    chats = [request for request in remote.stub.requests if "/models" not in request.path]
    assert len(chats) == 1, "a model that does not exist is looked for in the list"


async def test_the_sdk_itself_never_retries(remote: Remote) -> None:
    provider = await remote.open(remote.wire.error(503, "no"))
    assert type(await failure(provider)) is errors.ProviderUnavailable
    assert len(remote.stub.requests) == 1


async def test_retry_after_is_waited_for(remote: Remote) -> None:
    busy = remote.wire.error(429, "slow down", headers={"retry-after-ms": "150"})
    provider = await remote.open(busy, remote.wire.stream(OK), max_retries=1)
    start = time.monotonic()
    chunks = await collect(provider, ASK)
    assert time.monotonic() - start >= 0.15
    assert isinstance(chunks[0], RetryChunk)
    assert 0.15 <= chunks[0].delay <= 0.165


async def test_agents_on_one_model_and_key_send_nothing_after_a_refusal_and_others_do(remote: Remote) -> None:
    busy = remote.wire.error(429, "slow down", headers={"retry-after": "100"})
    first = await remote.open(busy, remote.wire.stream(OK))
    await failure(first)
    second = await remote.open(remote.wire.stream(OK))
    assert "nothing was sent" in (await failure(second)).message
    assert len(remote.stub.requests) == 1
    for other in ({"model": "n"}, {"api_key": "sk-other"}):
        assert await collect(await remote.open(remote.wire.stream(OK), **other), ASK)


async def test_reply_that_used_up_a_window_is_read_and_the_next_request_waits(remote: Remote) -> None:
    last = remote.wire.stream(OK)
    last.headers.update({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "100"})
    provider = await remote.open(last)
    assert await collect(provider, ASK)
    assert "nothing was sent" in (await failure(provider)).message
    assert len(remote.stub.requests) == 1


async def test_a_retry_after_of_an_hour_is_named_at_once(remote: Remote) -> None:
    provider = await remote.open(remote.wire.error(429, "slow down", headers={"retry-after": "3600"}), max_retries=3)
    error = await failure(provider)
    assert "3600 s" in error.message
    assert error.retry_after == 3600
    assert len(remote.stub.requests) == 1


async def test_a_quota_that_is_used_up_is_not_tried_again(remote: Remote) -> None:
    provider = await remote.open(remote.wire.error(429, "You exceeded your quota", "insufficient_quota"), max_retries=3)
    assert type(await failure(provider)) is errors.RequestRejected
    assert len(remote.stub.requests) == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"content-type": "text/html"}, b"<html>login</html>"),
        ({"content-type": "application/json"}, b'{"hello": 1}'),
        ({"content-encoding": "gzip"}, b"this is not gzip"),
    ],
)
async def test_reply_that_is_no_event_stream_is_malformed(remote: Remote, headers: dict[str, str], body: bytes) -> None:
    provider = await remote.open(Http(200, headers, [body]))
    error = await failure(provider)
    assert type(error) is errors.MalformedResponse
    assert "base_url" in error.hint


async def test_an_html_error_page_is_not_shown(remote: Remote) -> None:
    page = Http(502, {"content-type": "text/html"}, [b"<html><h1>Bad Gateway</h1></html>"])
    error = await failure(await remote.open(page))
    assert type(error) is errors.ProviderUnavailable
    assert "<h1>" not in error.message


async def test_a_redirect_is_not_followed(remote: Remote) -> None:
    provider = await remote.open(Http(307, {"location": f"{remote.stub.url}/elsewhere"}, [b""]))
    assert type(await failure(provider)) is errors.RequestRejected
    assert len(remote.stub.requests) == 1


async def test_a_hang_before_the_first_byte_is_a_timeout(remote: Remote) -> None:
    provider = await remote.open(Http(head=False, parts=[60.0]), timeout=0.2)
    start = time.monotonic()
    error = await failure(provider)
    assert type(error) is errors.ProviderTimeout
    assert "0.2 s" in error.message
    assert time.monotonic() - start < 20


async def test_a_hang_in_the_middle_is_a_timeout_that_keeps_the_text(remote: Remote) -> None:
    provider = await remote.open(remote.wire.stream(Say(["Par"], pause=5.0)), timeout=0.2)
    error = await failure(provider)
    assert type(error) is errors.ProviderTimeout
    assert error.partial == "Par"


async def test_a_slow_stream_that_keeps_coming_is_no_timeout(remote: Remote) -> None:
    slow = [part for piece in remote.wire.stream(Say(list("Paris."))).parts for part in (piece, 0.2)]
    provider = await remote.open(Http(parts=slow), timeout=1.0)
    reply = await ask(provider, ASK)
    assert reply.text == "Paris."


@pytest.mark.parametrize(
    "noise", [b": keep-alive\n\n", b"x", b'event: ping\ndata: {"type": "ping"}\n\n'], ids=["comments", "bytes", "pings"]
)
async def test_reply_without_content_is_a_timeout_however_much_arrives(remote: Remote, noise: bytes) -> None:
    provider = await remote.open(Http(parts=[part for _ in range(4_000) for part in (noise, 0.05)]), timeout=0.4)
    start = time.monotonic()
    assert type(await failure(provider)) is errors.ProviderTimeout
    assert time.monotonic() - start < 100, "of the 200 for which it arrives"


@pytest.mark.parametrize("limit", ["backend", "request"])
async def test_reply_that_takes_too_long_ends_at_its_deadline_and_is_not_repeated(remote: Remote, limit: str) -> None:
    slow = [part for piece in remote.wire.stream(Say(list("Paris." * 50))).parts for part in (piece, 0.1)]
    provider = await remote.open(Http(parts=slow), deadline=0.5 if limit == "backend" else None, max_retries=3)
    start = time.monotonic()
    with pytest.raises(errors.DeadlineExceeded, match=r"not complete after 0\.5 s") as caught:
        await ask(provider, replace(ASK, deadline=0.5) if limit == "request" else ASK)
    assert time.monotonic() - start < 20, "of the 30 that the reply takes"
    assert caught.value.partial.startswith("P")
    assert len(remote.stub.requests) == 1


async def test_compressed_reply_is_read(remote: Remote) -> None:
    plain = b"".join(part for part in remote.wire.stream(OK).parts if isinstance(part, bytes))
    provider = await remote.open(Http(headers={"content-encoding": "gzip"}, parts=[gzip.compress(plain)]))
    assert (await ask(provider, ASK)).text == "Paris."


@pytest.mark.parametrize("status", [200, 400])
async def test_compressed_reply_is_bounded_by_what_it_becomes(remote: Remote, status: int) -> None:
    lines = (b": " + b"x" * 99_997 + b"\n\n") * (LONGEST_REPLY // 100_000 + 1)  # comments, in a stream
    bomb = gzip.compress(lines, 1)
    provider = await remote.open(Http(status, headers={"content-encoding": "gzip"}, parts=[bomb]))
    error = await failure(provider)
    assert type(error) is errors.MalformedResponse
    assert "more than 50,000,000 bytes" in error.message


async def test_reply_in_an_unknown_compression_is_refused(remote: Remote) -> None:
    error = await failure(await remote.open(Http(headers={"content-encoding": "br"}, parts=[b"x"])))
    assert type(error) is errors.MalformedResponse
    assert "'br'" in error.message


async def test_a_server_that_is_not_there(remote: Remote) -> None:
    async def ignore(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None: ...

    server = await asyncio.start_server(ignore, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    provider = await remote.open(base_url=f"http://127.0.0.1:{port}")
    error = await failure(provider)
    assert type(error) is errors.ProviderConnectionError
    assert "base_url" in error.hint


async def test_tls_to_a_plain_port_is_reported_once_with_the_host(remote: Remote) -> None:
    attempts: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        attempts.append(await reader.read(1_000))
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        host = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        provider = await remote.open(base_url=f"https://user:hunter2@{host}", max_retries=3)
        error = await failure(provider)
    assert type(error) is errors.WrongAddress
    assert f"{host}: the server does not speak TLS" in error.message
    assert "hunter2" not in error.message
    assert len(attempts) == 1


async def test_an_error_event_in_the_middle_voids_the_text(remote: Remote) -> None:
    begun = [
        *remote.wire.stream(Say(["Lon"], cut=True)).parts[:-1],
        remote.wire.error_event("overloaded_error", "busy"),
    ]
    provider = await remote.open(Http(parts=begun), remote.wire.stream(OK), max_retries=1)
    reply = await ask(provider, ASK)
    assert reply.text == "Paris."
    assert reply.usage.requests == 2


async def test_leaving_early_ends_the_request_at_the_server(remote: Remote) -> None:
    provider = await remote.open(remote.wire.stream(Say(["Paris"], pause=30.0)))
    async with aclosing(provider.stream(ASK)) as chunks:
        assert await anext(chunks) == TextChunk("Paris")
    await asyncio.wait_for(remote.stub.disconnected.wait(), 10)


@pytest.mark.parametrize("head", [True, False], ids=["mid-stream", "before the first byte"])
async def test_cancelling_ends_the_request_at_the_server(remote: Remote, head: bool) -> None:
    provider = await remote.open(Http(head=head, parts=[30.0]))
    task = asyncio.create_task(collect(provider, ASK))
    while not remote.stub.requests:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(remote.stub.disconnected.wait(), 10)


async def test_agents_share_connections_and_reuse_them(remote: Remote) -> None:
    one = await remote.open(remote.wire.stream(OK))
    two = await remote.open(remote.wire.stream(OK))
    for _ in range(3):
        await collect(one, ASK)
        await collect(two, ASK)
    assert len(remote.stub.requests) == 6
    assert remote.stub.connections == 1


async def test_another_key_has_another_client(remote: Remote) -> None:
    one = await remote.open(remote.wire.stream(OK))
    two = await remote.open(remote.wire.stream(OK), api_key="sk-other-key-0123456")
    await collect(one, ASK)
    await collect(two, ASK)
    assert remote.stub.connections == 2
    sent = [r.headers.get("authorization", "") + r.headers.get("x-api-key", "") for r in remote.stub.requests]
    assert [KEY in s for s in sent] == [True, False]


async def test_an_outage_is_not_amplified_across_agents(remote: Remote) -> None:
    down = remote.wire.error(503, "down", headers={"retry-after": "0"})
    agents = [await remote.open(down, max_retries=20) for _ in range(5)]
    results = await asyncio.gather(*(failure(agent) for agent in agents))
    assert {type(error) for error in results} == {errors.ProviderUnavailable}
    assert len(remote.stub.requests) == 5 + 10


async def test_a_proxy_for_the_world_is_not_asked_for_loopback(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_stub() as proxy:
        proxy.replies = [Http(502)]
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        await collect(await remote.open(remote.wire.stream(OK)), ASK)
        assert proxy.connections == 0


async def test_ten_megabytes_in_one_line(remote: Remote) -> None:
    long = "x" * 10_000_000
    reply = await ask(await remote.open(remote.wire.stream(Say([long]))), ASK)
    assert len(reply.text) == 10_000_000


async def test_no_connection_is_left_open(remote: Remote) -> None:
    provider = await remote.open(remote.wire.stream(Say(["x"], cut=True)), Http(parts=[Cut]))
    await failure(provider)
    await failure(provider)
    await collect(await remote.open(remote.wire.stream(OK)), ASK)
    await remote.providers.close()
    async with asyncio.timeout(10):
        while remote.stub.open_connections:
            await asyncio.sleep(0.01)


OPEN_AND_ASK = """
import asyncio, sys
kind, root = sys.argv[1:]
sys.path.insert(0, root)
from massmem.config.models import BackendConfig
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.providers import Providers
from tests.support.provider_stub import AnthropicWire, OpenAIWire, Say, running_stub

async def main():
    wire = {"openai": OpenAIWire, "anthropic": AnthropicWire}[kind]()
    async with running_stub() as stub:
        stub.replies = [wire.stream(Say(["x"]))]
        providers = Providers()
        provider = await providers.open(BackendConfig(type=kind, model="m", api_key="k", base_url=stub.url + wire.path))
        async for _ in provider.stream(ChatRequest((ChatMessage("user", "q"),), "answer")):
            pass
        await providers.close()
    print([name for name in ("openai", "anthropic", "boto3", "google.auth", "azure") if name in sys.modules])
asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_no_sdk_is_imported_where_a_key_is_enough(kind: str, pytestconfig: pytest.Config) -> None:
    """In a fresh process, where nothing is imported yet. The import takes half a second and 25 MB."""
    command = [sys.executable, "-c", OPEN_AND_ASK, kind, str(pytestconfig.rootpath)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
