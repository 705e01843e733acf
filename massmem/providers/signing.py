"""Clients for what a plain key does not open: Azure with Entra ID, Claude on Amazon Bedrock and on Google's Vertex AI.

The official SDKs find the credentials and sign, and are imported nowhere else. Connections, limits, retries and errors
are massmem's.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpx2

from massmem.config.presets import Signer
from massmem.core.errors import ConfigError
from massmem.providers.clients import ApiClient, SigningError, timeouts
from massmem.providers.endpoints import NO_KEY, Endpoint

_EXTRAS: Mapping[Signer, tuple[str, str, tuple[str, str]]] = {
    "entra": ("azure", "azure-identity", ("azure.core.exceptions", "AzureError")),
    "bedrock": ("bedrock", "boto3", ("botocore.exceptions", "BotoCoreError")),
    "vertex": ("vertex", "google-auth", ("google.auth.exceptions", "GoogleAuthError")),
}
"""The extra of massmem, its package, and what this raises."""


def open_signed(endpoint: Endpoint, connections: httpx2.AsyncClient) -> ApiClient:
    """Return the client of an endpoint with a signer. Blocks for a second (imports).

    Raises ConfigError: a package is not installed, or the environment lacks what the SDK needs, such as a region.
    """
    assert endpoint.signer
    extra, package, (module, error) = _EXTRAS[endpoint.signer]
    try:
        failure: type[Exception] = getattr(import_module(module), error)
        sdk, client = _open_sdk(endpoint, {"base_url": endpoint.base_url, "http_client": connections, "max_retries": 0})
    except ImportError as e:
        message = f"backend: requests are signed with the package {package}, which is not installed"
        raise ConfigError([message], f"pip install 'massmem[{extra}]'") from e
    except ValueError as e:
        raise ConfigError([f"backend: {e}"]) from e
    # The SDKs have read variables that are for other servers.
    client.organization = client.project = None
    client._custom_headers = {}
    failures = failure, sdk.APIError.__base__, ValueError, RuntimeError
    return _SignedClient(endpoint.base_url, connections, {}, sdk, client, failures)


def _open_sdk(endpoint: Endpoint, settings: dict[str, Any]) -> tuple[Any, Any]:
    """Return the module and the client of an SDK."""
    if endpoint.signer == "entra":
        sdk: Any = import_module("openai")
        # With every request it looks for httpx in sys.modules, and fails on one that another thread has half loaded.
        with suppress(ImportError):
            import_module("httpx")
        azure: Any = import_module("azure.identity")
        get_token = azure.get_bearer_token_provider(
            azure.DefaultAzureCredential(), "https://cognitiveservices.azure.com/.default"
        )
        return sdk, sdk.AsyncOpenAI(api_key=lambda: asyncio.to_thread(get_token), **settings)
    sdk = import_module("anthropic")
    settings["open_telemetry"] = False
    if endpoint.signer == "vertex":
        import_module("google.auth.transport.requests")
        return sdk, sdk.AsyncAnthropicVertex(**settings)
    import_module("boto3")
    key = None if endpoint.key == NO_KEY else endpoint.key
    return sdk, sdk.AsyncAnthropicBedrock(api_key=key, **settings)


@dataclass(frozen=True, slots=True)
class _SignedClient(ApiClient):
    sdk: Any
    client: Any
    failures: tuple[type[Exception], ...]
    """What its signing raises."""

    async def post(
        self, path: str, body: Mapping[str, Any], seconds: float, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        sdk, options = self.sdk, {"timeout": timeouts(seconds)}
        try:
            stream = await self.client.post(
                path, body=dict(body), cast_to=object, options=options, stream=True, stream_cls=sdk.AsyncStream[object]
            )
        except sdk.APIStatusError as e:
            raise httpx2.HTTPStatusError(e.message, request=e.request, response=e.response) from e
        except sdk.APIConnectionError as e:
            raise e.__cause__ or SigningError(str(e)) from e
        except self.failures as e:
            raise SigningError(str(e) or type(e).__name__) from e
        reply: httpx2.Response = stream.response
        if reply.headers.get("content-type", "").startswith("application/vnd.amazon.eventstream"):
            assert isinstance(reply.stream, httpx2.AsyncByteStream)  # the client is asynchronous
            reply.stream = _EventLines(reply.stream)
        return reply


class _EventLines(httpx2.AsyncByteStream):
    """What Bedrock sends in AWS's frames, as the lines of a Messages stream."""

    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raise httpx2.DecodingError for damaged frames."""
        frames: Any = import_module("botocore.eventstream")
        buffer = frames.EventStreamBuffer()
        async for block in self._stream:
            buffer.add_data(block)
            try:
                events = [self._read(frame) for frame in buffer]
            except (frames.ParserError, ValueError, AttributeError) as e:
                raise httpx2.DecodingError(f"its frames cannot be read: {e}") from e
            for event in events:
                yield b"data: %b\n\n" % event

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _read(self, frame: Any) -> bytes:
        payload = json.loads(frame.payload)
        if data := payload.get("bytes"):
            return base64.b64decode(data)
        code = frame.headers.get(":exception-type") or frame.headers.get(":error-code") or "error"
        return json.dumps({"type": "error", "error": {"type": code, "message": payload.get("message")}}).encode()
