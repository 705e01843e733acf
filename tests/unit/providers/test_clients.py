"""What the environment sets for HTTP clients: used, without effect, or named; and what is recorded."""

import json
import stat
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from requests import certs

from massmem.config.models import BackendConfig
from massmem.core.errors import InputError, MassmemError
from massmem.core.messages import ChatMessage, ChatRequest, ToolSpec
from massmem.providers.anthropic import AnthropicFactory
from massmem.providers.clients import choose_way, find_proxy, open_blocking_client, open_client
from massmem.providers.openai import OpenAIFactory
from tests.support.provider_stub import KEY, AnthropicWire, Http, OpenAIWire, ResponsesWire, Say, running_stub
from tests.support.replies import ask
from tests.support.wires import Wire

FAR = "http://models.example/v1"
ASK = ChatRequest((ChatMessage("user", "Why?"),), "answer")


def backend_of(type_: str, url: str) -> BackendConfig:
    fields: dict[str, Any] = {"type": type_, "model": "m", "api_key": KEY, "base_url": url or None, "max_retries": 0}
    return BackendConfig.model_validate({**fields, **({"api": "chat"} if type_ == "openai" else {})})


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    proxies = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    certificates = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSLKEYLOGFILE")
    for name in (*proxies, *map(str.upper, proxies), *certificates):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("settings", "url", "proxy"),
    [
        ({"HTTP_PROXY": "http://p:1"}, FAR, "http://p:1"),
        ({"HTTP_PROXY": "p:1"}, FAR, "http://p:1"),
        ({"HTTP_PROXY": ' "http://p:1" '}, FAR, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "http_proxy": "http://lower:1"}, FAR, "http://lower:1"),
        ({"HTTPS_PROXY": "http://p:1"}, FAR, ""),
        ({"HTTPS_PROXY": "ftp://p:1", "ALL_PROXY": "http://all:1"}, FAR, "http://all:1"),
        ({"ALL_PROXY": "socks5://p:1"}, FAR, "socks5://p:1"),
        ({"ALL_PROXY": "socks://p:1/"}, FAR, "socks5://p:1/"),
        ({"ALL_PROXY": "ftp://p:1"}, "http://127.0.0.1:9/v1", ""),
        ({"ALL_PROXY": "ftp://p:1"}, "http://[::1]:9/v1", ""),
        ({"ALL_PROXY": "ftp://p:1"}, "http://0.0.0.0:9/v1", ""),
        ({"ALL_PROXY": "ftp://p:1"}, "http://localhost:9/v1", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "other.example,models.example"}, FAR, ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": ".example"}, FAR, ""),
        ({"HTTP_PROXY": "http://p:1", "no_proxy": "*.example"}, FAR, ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "*"}, FAR, ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "dels.example, localhost"}, FAR, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "models.example:81"}, FAR, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "models.example:81"}, "http://models.example:81/v1", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,fd07:b51a:cc66:f0::/64"}, "http://10.2.3.4:8000", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,fd07::/16"}, "http://[fd07::5]:8000", ""),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8,fd07::/16,:::,/"}, FAR, "http://p:1"),
        ({"HTTP_PROXY": "http://p:1", "NO_PROXY": "[fe80::1]"}, "http://[fe80::1]:8000", ""),
    ],
)
def test_the_proxy_of_an_address(
    settings: dict[str, str], url: str, proxy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(url)[0] == proxy
    open_client(url)


@pytest.mark.parametrize(
    "value", ["ftp://p:1", "socks4://p:1", "http://p:port", "http://p:99999", "http://", "://", "http://user:s3cret@:1"]
)
@pytest.mark.parametrize("name", ["ALL_PROXY", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_that_cannot_be_used_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    for client in (open_client, open_blocking_client, choose_way):
        with pytest.raises(InputError, match=f"^{name}: .* is no proxy that can be used for models.example") as caught:
            client(FAR)
    assert "s3cret" not in caught.value.message
    assert "NO_PROXY" in caught.value.hint


def test_of_two_twins_the_one_that_counts_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://good:1")
    monkeypatch.setenv("http_proxy", "ftp://bad:1")
    with pytest.raises(InputError, match=r"^http_proxy: "):
        open_client(FAR)


def test_a_socks_proxy_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://p:1")
    monkeypatch.setitem(sys.modules, "socksio", None)
    with pytest.raises(InputError, match="ALL_PROXY: a SOCKS proxy needs the package socksio"):
        open_client(FAR)


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "SSLKEYLOGFILE"])
@pytest.mark.parametrize("content", [None, "", "garbage"])
def test_certificates_that_cannot_be_used_are_named_where_they_matter(
    name: str, content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "missing" / "ca.pem"
    if content is not None and name != "SSLKEYLOGFILE":
        place = tmp_path / "ca.pem"
        place.write_text(content)
    monkeypatch.setenv(name, str(place))
    open_client(FAR)
    with pytest.raises(InputError, match=f"^{name}: .*ca.pem cannot be used: "):
        open_client("https://models.example/v1")


def test_certificates_that_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", certs.where())
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/nowhere")
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    way = choose_way("https://models.example/v1")
    assert way["verify"].cert_store_stats()["x509"] > 50
    assert way["verify"].keylog_filename == str(tmp_path / "keys")


async def test_a_proxy_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:s3cret@127.0.0.1:9")
    provider = OpenAIFactory().open(backend_of("openai", FAR))
    with pytest.raises(MassmemError, match=r"HTTP_PROXY sends it through the proxy http://user:\[redacted\]@127") as e:
        await ask(provider, ASK)
    assert "s3cret" not in str(e.value)


async def test_the_environment_is_read_once_for_each_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running_stub() as stub:
        stub.replies = [OpenAIWire().stream(Say(["x"]))]
        monkeypatch.setenv("HTTP_PROXY", stub.url)
        async with open_client(FAR) as client:
            monkeypatch.setenv("HTTP_PROXY", "ftp://nothing/can/use/this")
            assert (await client.get(FAR)).status_code == 200
            with pytest.raises(InputError, match="HTTP_PROXY"):
                await client.get("http://elsewhere.example/v1")
        assert stub.requests[0].path == FAR


async def test_headers_of_the_environment_are_for_their_own_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {
        "OPENAI_CUSTOM_HEADERS": "x-own: secret\nno header",
        "OPENAI_ORG_ID": "secret",
        "OPENAI_PROJECT_ID": "secret",
        "OPENAI_ADMIN_KEY": "secret",
        "ANTHROPIC_CUSTOM_HEADERS": "x-own: secret\nauthorization: Bearer secret",
        "ANTHROPIC_AUTH_TOKEN": "secret",
    }
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for wire, factory in ((OpenAIWire(), OpenAIFactory()), (AnthropicWire(), AnthropicFactory())):
        async with running_stub() as stub:
            stub.replies = [wire.stream(Say(["x"]))]
            await ask(factory.open(backend_of(wire.type, f"{stub.url}/v1")), ASK)
            assert "secret" not in json.dumps(stub.requests[0].headers)
        async with running_stub() as stub:
            stub.replies = [wire.stream(Say(["x"]))]
            monkeypatch.setenv(f"{wire.type.upper()}_BASE_URL", stub.url)
            await ask(factory.open(backend_of(wire.type, "")), ASK)
            assert stub.requests[0].headers["x-own"] == "secret", "the environment names the server, too"
        await factory.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("OPENAI_ORG_ID", "org\n"), ("OPENAI_CUSTOM_HEADERS", "x: é"), ("ANTHROPIC_CUSTOM_HEADERS", "x: 1\ny: a\tb")],
)
def test_headers_that_cannot_be_sent_are_named_where_they_would_be(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    type_ = name.partition("_")[0].lower()
    factory = OpenAIFactory() if type_ == "openai" else AnthropicFactory()
    factory.open(backend_of(type_, FAR))
    with pytest.raises(InputError, match=f"^{name} holds characters"):
        factory.open(backend_of(type_, ""))


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MASSMEM_RECORD", str(tmp_path / "record.jsonl"))
    return tmp_path / "record.jsonl"


async def test_a_record_has_the_exchange_without_keys(record: Path) -> None:
    event = f'data: {{"choices": [{{"index": 0, "delta": {{"content": "Your key is {KEY}"}}}}]}}\n\n'.encode()
    parts = [event[:-20], 0.05, event[-20:]]
    reply = Http(200, {"content-type": "text/event-stream", "set-cookie": "session=1"}, parts)
    async with running_stub() as stub:
        stub.replies = [reply]
        provider = OpenAIFactory().open(backend_of("openai", f"{stub.url}/v1?key=abcdef"))
        with pytest.raises(MassmemError):
            await ask(provider, ASK)
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    text = record.read_text()
    assert KEY not in text and KEY[-8:] not in text and "abcdef" not in text and "session=1" not in text
    (row,) = map(json.loads, text.splitlines())
    assert row["request"]["url"].startswith(f"{stub.url}/v1/chat/completions")
    assert row["request"]["body"]["model"] == "m"
    assert row["request"]["headers"]["authorization"] == "[redacted]"
    assert row["reply"]["status"] == 200
    assert "Your key is [" in row["reply"]["chunks"][0][1]


async def test_a_record_has_the_times_and_the_bytes_of_the_chunks(record: Path) -> None:
    parts = ["data: é".encode()[:-1], 0.1, b"\xa9\n\n"]
    async with running_stub() as stub:
        stub.replies = [Http(500, {"content-type": "text/plain"}, parts)]
        with pytest.raises(MassmemError):
            await ask(OpenAIFactory().open(backend_of("openai", stub.url)), ASK)
    chunks = json.loads(record.read_text().splitlines()[0])["reply"]["chunks"]
    assert b"".join(chunk.encode("utf-8", "surrogateescape") for _, chunk in chunks) == "data: é\n\n".encode()
    assert chunks[-1][0] - chunks[0][0] > 0.05


async def test_a_record_has_what_never_came(record: Path) -> None:
    with pytest.raises(MassmemError):
        await ask(OpenAIFactory().open(backend_of("openai", "http://127.0.0.1:9")), ASK)
    row = json.loads(record.read_text().splitlines()[0])
    assert row["error"].startswith("ConnectError: ")
    assert "reply" not in row


async def test_a_record_becomes_a_row_of_the_table_of_wires(record: Path, caplog: pytest.LogCaptureFixture) -> None:
    call = Say(["Look: "], calls=[("lookup", '{"word": "pier"}')])
    odd = OpenAIWire().stream(call)
    odd = Http(200, {"content-type": "text/plain"}, [b": ping\n\nretry: 3\n\n", *odd.parts])
    for wire, factory, reply in (
        (OpenAIWire(), OpenAIFactory(), odd),
        (ResponsesWire(), OpenAIFactory(), ResponsesWire().stream(call)),
        (AnthropicWire(), AnthropicFactory(), AnthropicWire().stream(call)),
        (OpenAIWire(), OpenAIFactory(), OpenAIWire().error(400, "no such option")),
    ):
        async with running_stub() as stub:
            stub.replies = [reply]
            backend = backend_of(wire.type, stub.url if wire.type == "anthropic" else f"{stub.url}/v1")
            provider = factory.open(backend.model_copy(update=wire.options))
            with suppress(MassmemError):
                await ask(provider, replace(ASK, tools=(ToolSpec("lookup", "", {"properties": {"word": {}}}),)))
            await factory.close()
    case = Path(__file__).parents[3] / "scripts" / "case"
    printed = subprocess.run([sys.executable, case, record], capture_output=True, text=True, check=True).stdout
    rows = yaml.safe_load(printed)
    assert [row["api"] for row in rows] == ["chat", "responses", "anthropic", "chat"]
    assert [row["tools"] for row in rows] == [{"lookup": ["word"]}] * 4
    assert rows[0]["frames"][:3] == [": ping", "", "retry: 3"]
    outcome = {"text": "Look: ", "calls": [["lookup", {"word": "pier"}]]}
    for row in rows[:3]:
        await Wire("recorded", row["api"], row | outcome).check(caplog)
    await Wire("recorded", "chat", rows[3] | {"error": "RequestRejected", "says": "no such option"}).check(caplog)
