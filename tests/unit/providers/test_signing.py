"""What a plain key does not open, at the wire: Azure with Entra ID, Claude on Amazon Bedrock and on Vertex AI."""

import base64
import binascii
import json
import struct
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from massmem.config.models import BackendConfig
from massmem.core.errors import (
    AuthenticationError,
    ConfigError,
    MalformedResponse,
    ModelNotFound,
    ProviderError,
    RateLimited,
    StreamInterrupted,
)
from massmem.core.messages import ChatMessage, ChatRequest, ToolSpec
from massmem.providers import Providers
from tests.support.provider_stub import AnthropicWire, Http, Recorded, ResponsesWire, Say, Stub
from tests.support.replies import ask

WIRE = AnthropicWire()
ASK = (ChatMessage("system", "Be brief."), ChatMessage("user", "Capital?"))
VOTE = ToolSpec("vote", "Vote.", {"type": "object", "properties": {"choice": {"type": "string"}}})
SAY = Say(["Par", "is."], reasoning=["France."])
ACCESS, SECRET, SESSION = "AKIATEST00000000TEST", "aws-secret-0123456789", "aws-session-token-0123456789"
TOKEN = "token-of-the-cloud-0123456789"
VARIABLES = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_BEDROCK_BASE_URL", "ANTHROPIC_VERTEX_BASE_URL",
    "CLOUD_ML_REGION", "ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT",
    "IDENTITY_ENDPOINT", "IDENTITY_HEADER", "AZURE_CLIENT_ID", "AZURE_TENANT_ID", "AZURE_CLIENT_SECRET",
)  # fmt: skip


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide the credentials of whoever runs this, and set headers that are for other servers."""
    import_module("anthropic.lib.aws._auth")._get_session.cache_clear()  # the SDK keeps the credentials that it found
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "CLOUDSDK_CONFIG"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-openai")
    for name in ("OPENAI_CUSTOM_HEADERS", "ANTHROPIC_CUSTOM_HEADERS"):
        monkeypatch.setenv(name, "x-secret: for its maker only")


@pytest.fixture
async def providers() -> AsyncIterator[Providers]:
    """Providers that have learnt nothing."""
    opened = Providers()
    yield opened
    await opened.close()


def backend(type_: str, **fields: Any) -> BackendConfig:
    return BackendConfig.model_validate({"type": type_, "model": "claude-x", "max_retries": 0, **fields})


def frame(payload: dict[str, Any], **headers: str) -> bytes:
    """Return a frame of AWS's event stream."""
    names = b"".join(
        bytes([len(name) + 1]) + b":" + name.replace("_", "-").encode() + b"\x07" + struct.pack(">H", len(value))
        + value.encode()
        for name, value in headers.items()
    )  # fmt: skip
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(names) + len(body), len(names))
    head = prelude + struct.pack(">I", binascii.crc32(prelude)) + names + body
    return head + struct.pack(">I", binascii.crc32(head))


def in_frames(reply: Http) -> Http:
    """Return a reply of Anthropic's as Bedrock sends it, in pieces that do not end where the frames do."""
    parts: list[Any] = []
    for part in reply.parts:
        if not isinstance(part, bytes):
            parts.append(part)
            continue
        data = part.partition(b"data: ")[2].strip()
        whole = frame({"bytes": base64.b64encode(data).decode()}, event_type="chunk", message_type="event")
        parts += [whole[:21], whole[21:]]
    return Http(headers={"content-type": "application/vnd.amazon.eventstream"}, parts=parts)


# Bedrock


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials as AWS's programs read them."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
    for name, value in zip(names, (ACCESS, SECRET, SESSION, "eu-west-1"), strict=True):
        monkeypatch.setenv(name, value)


def sign_again(sent: Recorded, url: str, body: bytes) -> str:
    """Return what AWS computes from a request, to compare with the signature that it came with."""
    names = sent.headers["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    auth: Any = import_module("botocore.auth")
    credentials = import_module("botocore.credentials").Credentials(ACCESS, SECRET, SESSION)
    request: Any = import_module("botocore.awsrequest").AWSRequest(
        "POST", url + sent.path, {name: sent.headers[name] for name in names}, body
    )
    request.context["timestamp"] = sent.headers["x-amz-date"]
    signer = auth.SigV4Auth(credentials, "bedrock", "eu-west-1")
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return signer.signature(text, request)


@pytest.mark.usefixtures("aws")
async def test_claude_on_bedrock_is_asked_at_its_path_with_a_signature_and_read_from_frames(
    providers: Providers, stub: Stub
) -> None:
    stub.replies = [in_frames(WIRE.stream(Say(["Par", "is."], ["France."], [("vote", '{"choice": "Z"}')])))]
    model = "eu.anthropic.claude-x-v1:0"
    provider = await providers.open(backend("bedrock", model=model, base_url=stub.url))
    assert await provider.count_prompt(ChatRequest(ASK, "answer")) is None  # there is no such request
    reply = await ask(provider, ChatRequest(ASK, "answer", "a", tools=(VOTE,), tool_choice="auto"))
    assert (reply.text, reply.reasoning, reply.usage.prompt) == ("Paris.", "France.", 20)
    assert [(call.name, call.arguments) for call in reply.tool_calls] == [("vote", '{"choice": "Z"}')]
    (sent,) = stub.requests
    assert sent.path == f"/model/{model}/invoke-with-response-stream"
    assert sent.body["anthropic_version"]
    assert sent.body["messages"][-1]["content"][0]["text"] == "Capital?"
    assert sent.body.keys().isdisjoint({"model", "stream"})
    body = json.dumps(sent.body, ensure_ascii=False, separators=(",", ":")).encode()
    assert sent.headers["x-amz-security-token"] == SESSION
    assert f"Credential={ACCESS}/" in sent.headers["authorization"]
    assert "/eu-west-1/bedrock/aws4_request" in sent.headers["authorization"]
    assert sent.headers["authorization"].endswith(f"Signature={sign_again(sent, stub.url, body)}")
    assert "x-secret" not in sent.headers
    assert SECRET not in json.dumps(sent.headers)


async def test_an_api_key_of_bedrock_goes_as_it_is(
    providers: Providers, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", TOKEN)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    stub.replies = [in_frames(WIRE.stream(SAY))]
    assert (await ask(await providers.open(backend("bedrock", base_url=stub.url)), ChatRequest(ASK, "answer"))).text
    assert stub.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


THROTTLED = frame({"message": "Too many requests."}, exception_type="throttlingException", message_type="exception")


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        (Http(403, parts=[b'{"message": "You have no access to the model."}']), AuthenticationError, "no access"),
        (Http(404, parts=[b'{"message": "There is no such model."}']), ModelNotFound, "HTTP 404: There is no such"),
        (Http(429, {"retry-after": "7"}, [b'{"message": "Too many requests."}']), RateLimited, "Too many"),
        (Http(302, {"location": "http://127.0.0.1:1/"}), ProviderError, "HTTP 302"),
        (in_frames(WIRE.stream(Say(["Par"], cut=True))), StreamInterrupted, "closed connection"),
        (Http(headers={"content-type": "application/vnd.amazon.eventstream"}, parts=[THROTTLED]), RateLimited, "Too"),
        (
            Http(headers={"content-type": "application/vnd.amazon.eventstream"}, parts=[THROTTLED[:-1] + b"x"]),
            MalformedResponse,
            "cannot be read",
        ),
    ],
    ids=["no access", "no model", "a limit", "a redirect", "a cut", "an exception in frames", "a damaged frame"],
)
async def test_refusals_of_bedrock(
    reply: Http, kind: type[ProviderError], words: str, providers: Providers, stub: Stub
) -> None:
    stub.replies = [reply]
    with pytest.raises(kind, match=words) as caught:
        await ask(await providers.open(backend("bedrock", base_url=stub.url)), ChatRequest(ASK, "answer"))
    assert caught.value.retry_after == (7.0 if reply.status == 429 else None)
    assert len(stub.requests) == 1


async def test_bedrock_without_credentials_says_so(
    providers: Providers, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    with pytest.raises(AuthenticationError, match="AWS credentials"):
        await ask(await providers.open(backend("bedrock", base_url=stub.url)), ChatRequest(ASK, "answer"))
    assert stub.requests == []


async def test_a_region_that_the_sdk_misses_is_a_mistake_of_the_configuration(providers: Providers, stub: Stub) -> None:
    with pytest.raises(ConfigError, match="AWS_REGION"):
        await providers.open(backend("bedrock", base_url=stub.url))


# Vertex AI


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stub: Stub) -> None:
    """A service account, whose tokens the stub gives."""
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {"type": "service_account", "project_id": "p1", "private_key_id": "k", "private_key": key.decode()}
    account |= {"client_email": "agent@p1.iam.gserviceaccount.com", "token_uri": f"{stub.url}/token"}
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    monkeypatch.setenv("CLOUD_ML_REGION", "europe-west1")
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "p1")


TOKENS = json.dumps({"access_token": TOKEN, "expires_in": 3600, "token_type": "Bearer"}).encode()


@pytest.mark.usefixtures("google")
async def test_claude_on_vertex_is_asked_at_its_path_with_a_token(providers: Providers, stub: Stub) -> None:
    stub.routes["/token"] = Http(headers={"content-type": "application/json"}, parts=[TOKENS])
    stub.replies = [WIRE.stream(SAY)]
    provider = await providers.open(backend("vertex", base_url=f"{stub.url}/v1"))
    reply = await ask(provider, ChatRequest(ASK, "answer"))
    assert (reply.text, reply.reasoning, reply.usage.prompt) == ("Paris.", "France.", 20)
    sent = stub.requests[-1]
    place = "/v1/projects/p1/locations/europe-west1/publishers/anthropic/models"
    assert sent.path == f"{place}/claude-x:streamRawPredict"
    assert sent.body["anthropic_version"] and sent.body["stream"]
    assert "model" not in sent.body
    assert sent.headers["authorization"] == f"Bearer {TOKEN}"
    assert "x-secret" not in sent.headers
    stub.replies = [Http(headers={"content-type": "application/json"}, parts=[b'{"input_tokens": 12}'])]
    assert await provider.count_prompt(ChatRequest(ASK, "answer")) == 12
    assert stub.requests[-1].path == f"{place}/count-tokens:rawPredict"
    assert [request.path for request in stub.requests].count("/token") == 1


@pytest.mark.usefixtures("google")
@pytest.mark.parametrize("token", [Http(400, parts=[b'{"error": "invalid_grant"}']), None])
async def test_vertex_without_a_token_says_so(token: Http | None, providers: Providers, stub: Stub,
                                              monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    if token is None:
        monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    else:
        stub.routes["/token"] = token
    with pytest.raises(AuthenticationError, match=r"credentials|invalid_grant"):
        await ask(await providers.open(backend("vertex", base_url=f"{stub.url}/v1")), ChatRequest(ASK, "answer"))
    assert {request.path for request in stub.requests} <= {"/token"}


# Azure with Entra ID


@pytest.mark.parametrize("type_", ["azure_openai"])
async def test_azure_is_asked_with_a_token_of_the_managed_identity(
    type_: str, providers: Providers, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{stub.url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", "proof")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "a-key-that-is-not-used")
    token = {"access_token": TOKEN, "expires_on": "4102444800", "resource": "r", "token_type": "Bearer"}
    stub.routes["/identity"] = Http(headers={"content-type": "application/json"}, parts=[json.dumps(token).encode()])
    stub.replies = [ResponsesWire().stream(Say(["Paris."]))]
    provider = await providers.open(backend(type_, auth="entra", base_url=stub.url))
    for _ in range(2):
        assert (await ask(provider, ChatRequest(ASK, "answer"))).text == "Paris."
    identity, first, second = stub.requests
    assert identity.path.startswith("/identity?") and "resource=https" in identity.path
    assert identity.headers["x-identity-header"] == "proof"
    assert (first.path, second.path) == ("/openai/v1/responses",) * 2
    assert first.headers["authorization"] == second.headers["authorization"] == f"Bearer {TOKEN}"
    assert first.headers.keys().isdisjoint({"api-key", "x-secret", "openai-organization"})
    stub.replies = [ResponsesWire().error(401, "The token is of another tenant.")]
    with pytest.raises(AuthenticationError, match="HTTP 401: The token is of another tenant"):
        await ask(provider, ChatRequest(ASK, "answer"))


async def test_azure_without_an_identity_says_so(
    providers: Providers, stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{stub.url}/identity")
    monkeypatch.setenv("IDENTITY_HEADER", "proof")
    monkeypatch.setenv("PATH", "/none")
    stub.routes["/identity"] = Http(400, parts=[b'{"message": "no identity"}'])
    with pytest.raises(AuthenticationError, match="DefaultAzureCredential"):
        await ask(
            await providers.open(backend("azure_openai", auth="entra", base_url=stub.url)), ChatRequest(ASK, "answer")
        )
    assert {request.path.partition("?")[0] for request in stub.requests} == {"/identity"}


# Packages

WITHOUT = """
import asyncio, sys
sys.modules.update(dict.fromkeys(sys.argv[2].split(",")))
from massmem.config.models import BackendConfig
from massmem.core.errors import ConfigError
from massmem.providers import Providers
fields = {"auth": "entra"} if sys.argv[1] == "azure_openai" else {}
try:
    asyncio.run(Providers().open(BackendConfig(type=sys.argv[1], model="m", base_url="http://127.0.0.1:9", **fields)))
except ConfigError as e:
    print(e.message, e.hint)
"""


@pytest.mark.parametrize(
    ("type_", "modules", "package", "extra"),
    [
        ("azure_openai", "azure,azure.core,azure.identity", "azure-identity", "azure"),
        ("bedrock", "boto3,botocore", "boto3", "bedrock"),
        ("vertex", "google.auth", "google-auth", "vertex"),
    ],
)
def test_a_missing_package_names_the_extra(type_: str, modules: str, package: str, extra: str) -> None:
    command = [sys.executable, "-c", WITHOUT, type_, modules]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"the package {package}, which is not installed" in out
    assert f"pip install 'massmem[{extra}]'" in out
