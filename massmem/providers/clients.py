"""The one place that makes HTTP clients: for models, embeddings, downloads, tool servers and Qdrant.

The libraries read nothing of the environment themselves. What it sets for an address is checked here, and a setting
that cannot be used is named; one that this address does not need does not matter. Nothing goes through a proxy to this
machine.
"""

import json
import os
import re
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from urllib.request import getproxies

import anyio
import httpx2

from massmem.config.addresses import is_loopback
from massmem.config.home import RECORD_VARIABLE, open_private
from massmem.core.errors import (
    AuthenticationError,
    InputError,
    MalformedResponse,
    ProviderConnectionError,
    ProviderError,
    ProviderTimeout,
    RequestRejected,
)
from massmem.core.events import now
from massmem.core.redact import REDACTED, SECRET_KEYS, mask, mask_values, redact, redact_values
from massmem.core.text import trim_value
from massmem.providers.endpoints import Endpoint
from massmem.providers.failures import SHORTEST_KEY

LONGEST_REPLY = 50_000_000
"""Bytes, decompressed; the longest replies of today's models, an event per token, have 30 million."""

CONNECT_TIMEOUT = 10.0
"""Seconds."""
_UNKNOWN_ENCODINGS = ("br", "zstd", "compress", "x-compress", "dcb", "dcz")
_GZIP, _GZIP_BITS = b"\x1f\x8b", zlib.MAX_WBITS | 16
_PIECE = 65_536
"""Bytes that are decompressed at a time."""
_LIMITS = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)
_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
"""The first that is set counts."""


class SigningError(Exception):
    """A request could not be signed."""


HTTP_ERRORS: Mapping[type[Exception], type[ProviderError]] = {
    httpx2.TimeoutException: ProviderTimeout,
    httpx2.TransportError: ProviderConnectionError,
    httpx2.UnsupportedProtocol: RequestRejected,
    httpx2.LocalProtocolError: RequestRejected,
    httpx2.SSEError: MalformedResponse,
    httpx2.DecodingError: MalformedResponse,
    httpx2.HTTPError: RequestRejected,
    httpx2.InvalidURL: RequestRejected,
    httpx2.CookieConflict: RequestRejected,
    httpx2.StreamError: ProviderConnectionError,
    ssl.SSLError: ProviderConnectionError,
    TimeoutError: ProviderTimeout,
    SigningError: AuthenticationError,
    anyio.EndOfStream: ProviderConnectionError,
    OSError: ProviderConnectionError,
    # A chunk that is no JSON, no text, or nested without end.
    ValueError: MalformedResponse,
    RecursionError: MalformedResponse,
}


def kind_of(error: Exception) -> type[ProviderError]:
    """Return what an error of HTTP_ERRORS means: the entry for its most derived class."""
    return next(HTTP_ERRORS[cls] for cls in type(error).__mro__ if cls in HTTP_ERRORS)


def timeouts(seconds: float) -> httpx2.Timeout:
    """Return the limits of a request: seconds without any byte, and 10 seconds at most for the connection."""
    return httpx2.Timeout(seconds, connect=min(seconds, CONNECT_TIMEOUT))


def http_client(endpoint: Endpoint) -> httpx2.AsyncClient:
    """Return a client for the requests to a model's endpoint. Blocks for a moment. Raises as open_client."""
    # A redirect would carry the prompt to an address that nobody configured.
    return open_client(
        endpoint.base_url,
        follow_redirects=False,
        params=parse_qsl(endpoint.query, keep_blank_values=True),
        event_hooks={"response": [_limit_reply]},
    )


@dataclass(frozen=True, slots=True)
class ApiClient:
    """Posts JSON to one endpoint, with its key."""

    root: str
    """The address before all paths."""
    connections: httpx2.AsyncClient
    headers: Mapping[str, str]
    """With the key."""

    async def post(
        self, path: str, body: Mapping[str, Any], seconds: float, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Return the reply, to be read and closed. It has a status of success.

        path: below the root, or a whole address. seconds: without any byte. headers: instead of those with the key.

        Raises one of HTTP_ERRORS; for an error that the server sent, HTTPStatusError with the reply, read whole.
        """
        request = self.connections.build_request(
            "POST",
            path if "://" in path else self.root + path,
            json=body,
            headers={"accept": "application/json", "user-agent": "massmem", **(headers or self.headers)},
            timeout=timeouts(seconds),
        )
        reply = await self.connections.send(request, stream=True)
        if not reply.is_success:
            async with aclosing(reply):
                await reply.aread()
        return reply.raise_for_status()


def open_client(url: str, **settings: Any) -> httpx2.AsyncClient:
    """Return a client for an address. Blocks for a moment. settings: of the client of httpx2.

    Raises InputError: the environment names a proxy or certificates for this address that cannot be used.
    """
    return httpx2.AsyncClient(transport=_Router(httpx2.AsyncHTTPTransport, url), trust_env=False, **settings)


def open_blocking_client(url: str, **settings: Any) -> httpx2.Client:
    """Return a client for programs without an event loop. Otherwise as `open_client`."""
    return httpx2.Client(transport=_Router(httpx2.HTTPTransport, url), trust_env=False, **settings)


def choose_way(url: str) -> dict[str, Any]:
    """Return how an address is reached, as arguments of a client of httpx: its proxy and its certificates.

    Raises InputError, as open_client.
    """
    proxy = find_proxy(url)[0]
    # Plain http has no certificates to verify, and loading them takes 30 to 80 ms.
    tls: ssl.SSLContext | bool = False
    if url.lower().startswith("https:") or proxy.startswith("https:"):
        variable = next((name for name in _CERTIFICATES if os.environ.get(name)), "")
        tls = _load_tls(variable, os.environ.get(variable, ""), os.environ.get("SSLKEYLOGFILE", ""))
    return {"proxy": proxy or None, "verify": tls, "trust_env": False}


def read_headers(variables: Mapping[str, str], more: str) -> dict[str, str]:
    """Return the headers that the environment sets for a provider, as its SDK does.

    variables: by header. more: a variable with lines of NAME: VALUE, which win.

    Raises InputError, which names the variable that holds what no header may have.
    """
    for name in (*variables.values(), more):
        value = os.environ.get(name, "")
        lines = map(str.strip, value.split("\n")) if name.endswith("HEADERS") else [value]
        if not all(line.isascii() and line.isprintable() for line in lines):
            raise InputError(f"{name} holds characters that no header may have", f"correct it, or: unset {name}")
    set_ = {header: value for header, name in variables.items() if (value := os.environ.get(name))}
    pairs = (line.partition(":") for line in os.environ.get(more, "").split("\n") if ":" in line)
    return {**set_, **{name.strip().lower(): value.strip() for name, _, value in pairs}}


def find_proxy(url: str) -> tuple[str, str]:
    """Return the proxy for an address and the variable that names it, "" and "" when there is none.

    Raises InputError: it cannot be used.
    """
    parts, proxies = urlsplit(url), getproxies()
    scheme = parts.scheme if proxies.get(parts.scheme) else "all"
    value = trim_value(proxies.get(scheme, ""))
    host = parts.hostname or ""
    if not value or is_loopback(url) or _is_exempt(host, parts.port, proxies.get("no", "")):
        return "", ""
    twins = (
        name for name, text in os.environ.items() if name.lower() == f"{scheme}_proxy" and trim_value(text) == value
    )
    variable = next(twins, "the proxy of this system")
    # curl takes an address without a scheme; desktops write socks:// for version 5.
    proxy = (value if "://" in value else f"http://{value}").replace("socks://", "socks5://", 1)
    try:
        address = urlsplit(proxy)
        is_usable = address.scheme in _PROXY_SCHEMES and bool(address.hostname) and (address.port or 1) > 0
        httpx2.Proxy(proxy)
    except (ValueError, httpx2.InvalidURL):
        is_usable = False
    if not is_usable:
        raise InputError(
            f"{variable}: {redact(value)} is no proxy that can be used for {host}",
            f"write http://HOST:PORT, https://, socks5:// or socks5h://; or add {host} to NO_PROXY",
        )
    if proxy.startswith("socks") and find_spec("socksio") is None:
        message = f"{variable}: a SOCKS proxy needs the package socksio, which is not installed"
        raise InputError(message, f"pip install socksio; or add {host} to NO_PROXY")
    return proxy, variable


def _is_exempt(host: str, port: int | None, exceptions: str) -> bool:
    """Return whether NO_PROXY names the host: itself, its domain, a network that it is in, or `*`."""
    for entry in exceptions.replace(",", " ").lower().split():
        name = entry.rpartition("://")[2]
        try:
            if ip_address(host) in ip_network(name.strip("[]"), strict=False):
                return True
        except ValueError:
            name, colon, number = name.rpartition(":") if name.count(":") == 1 else (name, "", "")
            if colon and number != str(port):
                continue
            name = name.lstrip("*.")
            if not name or host == name or host.endswith(f".{name}"):
                return True
    return False


@cache
def _load_tls(variable: str, place: str, key_log: str) -> ssl.SSLContext:
    """Return the certificates that are trusted. Raises InputError for those that cannot be read.

    variable: names `place`, a file or folders; "": those of this system. key_log: the file that gets the keys of
    connections, "" for none.
    """
    try:
        if not variable:
            context = httpx2.create_ssl_context(trust_env=False)
        else:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            folders = [folder for folder in place.split(os.pathsep) if Path(folder).is_dir()]
            for folder in folders:
                context.load_verify_locations(capath=folder)
            if not folders:
                context.load_verify_locations(cafile=place)
        variable, place = "SSLKEYLOGFILE", key_log
        if place:
            context.keylog_filename = place
    except (OSError, ValueError) as e:
        reason = "it has no certificates" if isinstance(e, ssl.SSLError | ValueError) else e.strerror
        raise InputError(f"{variable}: {place} cannot be used: {reason}", f"correct it, or: unset {variable}") from e
    return context


class _Router(httpx2.AsyncBaseTransport, httpx2.BaseTransport):
    """Sends each request on its way: the address decides on proxy and certificates, also after a redirect."""

    def __init__(self, transport: type[httpx2.AsyncHTTPTransport | httpx2.HTTPTransport], url: str) -> None:
        self._transport = transport
        self._transports: dict[tuple[str | None, object], Any] = {}
        self._servers: dict[tuple[str, bytes], Any] = {}
        self._find(httpx2.URL(url))  # what cannot be used is said before the first request

    def _find(self, url: httpx2.URL) -> Any:
        server = url.scheme, url.netloc
        if server not in self._servers:
            self._servers[server] = self._choose(str(url))
        return self._servers[server]

    def _choose(self, url: str) -> Any:
        """Return the transport for an address. The environment is read once for each server."""
        way = choose_way(url)
        key = way["proxy"], way["verify"]
        if key not in self._transports:
            if way["proxy"]:
                tls = way["verify"] if way["proxy"].startswith("https:") else None
                way["proxy"] = httpx2.Proxy(way["proxy"], ssl_context=tls)
            self._transports[key] = self._transport(limits=_LIMITS, **way)
        return self._transports[key]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(request)
        try:
            return exchange.wrap(await self._find(request.url).handle_async_request(request))
        except httpx2.TransportError as e:
            exchange.write(e)
            failure = e
        raise _name_proxy(failure, request)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(request)
        try:
            return exchange.wrap(self._find(request.url).handle_request(request))
        except httpx2.TransportError as e:
            exchange.write(e)
            failure = e
        raise _name_proxy(failure, request)

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()

    def close(self) -> None:
        for transport in self._transports.values():
            transport.close()


def _name_proxy(error: httpx2.TransportError, request: httpx2.Request) -> httpx2.TransportError:
    """Return the error; of a connection through a proxy, one without a cause, which says so."""
    proxy, variable = find_proxy(str(request.url))
    if not proxy or not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.ProxyError):
        return error
    about = str(error) or type(error).__name__
    return type(error)(f"{about}; {variable} sends it through the proxy {redact(proxy)}", request=request)


async def _limit_reply(response: httpx2.Response) -> None:
    """Bound what a reply may take of the memory, compressed or not."""
    encoding = response.headers.pop("content-encoding", "").lower()
    if encoding in _UNKNOWN_ENCODINGS:
        raise httpx2.DecodingError(f"the server compresses its replies with {encoding!r}, which nobody asked for")
    assert isinstance(response.stream, httpx2.AsyncByteStream)  # the client is asynchronous
    response.stream = _BoundedStream(response.stream, deflated="deflate" in encoding)


class _BoundedStream(httpx2.AsyncByteStream):
    """The bytes of a reply, decompressed in small pieces: a few kilobytes can stand for gigabytes.

    What they are is read from the first of them. Servers call a reply compressed that is not, and put other words
    (none, utf-8) in the place of an encoding.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, *, deflated: bool) -> None:
        self._stream = stream
        self._deflated = deflated
        self._length = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Raise httpx2.DecodingError for more bytes than any reply has, and for what cannot be decompressed."""
        head, decompress = b"", None
        async for block in self._stream:
            if decompress is None and len(head := head + block) < 2:
                continue
            block, head = (block, b"") if decompress else (head, b"")
            decompress = decompress or self._choose(block)
            for piece in decompress(block):
                self._count(piece)
                yield piece
        self._count(head)
        yield head

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _count(self, piece: bytes) -> None:
        self._length += len(piece)
        if self._length > LONGEST_REPLY:
            raise httpx2.DecodingError(f"the reply has more than {LONGEST_REPLY:,} bytes")

    def _choose(self, head: bytes) -> Callable[[bytes], Iterable[bytes]]:
        """Return what decompresses a reply that begins with these bytes."""
        if head.startswith(_GZIP):
            return partial(_decompress, zlib.decompressobj(_GZIP_BITS))
        for bits in (zlib.MAX_WBITS, -zlib.MAX_WBITS) if self._deflated else ():
            with suppress(zlib.error):  # with a header, or without; or not at all
                zlib.decompressobj(bits).decompress(head, _PIECE)
                return partial(_decompress, zlib.decompressobj(bits))
        return lambda block: (block,)


def _decompress(decompressor: Any, block: bytes) -> Iterator[bytes]:
    try:
        while block:
            yield decompressor.decompress(block, _PIECE)
            block = decompressor.unconsumed_tail
    except zlib.error as e:
        raise httpx2.DecodingError(f"the compressed reply is damaged: {e}") from e


# What goes over the wire, without secrets: a line of JSON for each exchange. `scripts/case` makes a test of one.

_OPEN_HEADERS = re.compile("accept.*|anthropic-.*|connection|content-.*|host|user-agent|x-stainless-.*")
"""Headers of a request that are shown; any other may hold a key."""


class _Exchange:
    """A request and its reply, which is written when it has been read."""

    def __init__(self, request: httpx2.Request) -> None:
        self._request = request
        self._reply: httpx2.Response | None = None
        self._chunks: list[tuple[float, str]] = []
        self._began = time.monotonic()
        self._file = os.environ.get(RECORD_VARIABLE, "")
        if not self._file:
            return
        request.headers["accept-encoding"] = "identity"  # what is compressed cannot be redacted
        words = {name: value.rpartition(" ")[2] for name, value in request.headers.items()}
        self._secrets = {n: w for n, w in words.items() if len(w) >= SHORTEST_KEY and not _OPEN_HEADERS.fullmatch(n)}

    def wrap(self, reply: httpx2.Response) -> httpx2.Response:
        """Return the reply, whose bytes are noted while they are read."""
        if self._file:
            self._reply = reply
            reply.stream = _NotedStream(reply.stream, self)
        return reply

    def add(self, block: bytes) -> None:
        # Undecodable bytes, such as half a letter, become surrogates, and these the same bytes again.
        self._chunks.append((round(time.monotonic() - self._began, 3), block.decode("utf-8", "surrogateescape")))

    def write(self, error: Exception | None = None) -> None:
        """Write what was sent and what came, once. error: why there is no more."""
        file, self._file = self._file, ""
        if not file:
            return
        is_open, sent = _OPEN_HEADERS.fullmatch, self._request.headers.items()
        headers = {name: value if is_open(name) else REDACTED for name, value in sent}
        try:
            body = mask_values(redact_values(json.loads(self._request.content)), self._secrets)
        except (ValueError, RecursionError, httpx2.RequestNotRead):
            body = None  # there is none, or it is no JSON
        request = {"method": self._request.method, "url": self._redact(str(self._request.url)), "headers": headers}
        row: dict[str, Any] = {"time": now().isoformat(), "request": request | {"body": body}}
        if self._reply is not None:
            chunks = [(seconds, self._redact(text)) for seconds, text in self._chunks]
            whole = self._redact("".join(text for _, text in self._chunks))
            if whole != "".join(text for _, text in chunks):
                chunks = [(self._chunks[-1][0], whole)]  # a key that is cut in two is seen in the whole only
            shown = redact_values(dict(self._reply.headers), (*SECRET_KEYS, "cookie", "organization", "project"))
            row["reply"] = {"status": self._reply.status_code, "headers": shown, "chunks": chunks}
        if error is not None:
            row["error"] = self._redact(f"{type(error).__name__}: {error}")
        with open_private(Path(file), "ab") as out:
            out.write(json.dumps(row).encode() + b"\n")

    def _redact(self, text: str) -> str:
        return redact(mask(text, self._secrets))


class _NotedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    def __init__(self, stream: Any, exchange: _Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for block in self._stream:
                self._exchange.add(block)
                yield block
        except httpx2.TransportError as e:
            self._exchange.write(e)
            raise

    def __iter__(self) -> Iterator[bytes]:
        for block in self._stream:
            self._exchange.add(block)
            yield block

    async def aclose(self) -> None:
        self._exchange.write()
        await self._stream.aclose()

    def close(self) -> None:
        self._exchange.write()
        self._stream.close()
