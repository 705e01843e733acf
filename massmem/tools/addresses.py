"""What a user names by its address, and what models cite: pages and documents of the web.

The user's own machine and network may be read, too, where the user has named the address on the command line: whoever
does that may as well run curl. No model leads there, no user of the service, and no page elsewhere by its redirects:
what counts is the address of each connection, before anything is sent on it.
"""

import asyncio
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from massmem.config.addresses import is_near, is_near_ip
from massmem.core.errors import InputError
from massmem.core.messages import PDF
from massmem.core.text import one_line
from massmem.providers.clients import HTTP_ERRORS, find_proxy, open_client
from massmem.tools.documents import File, read_document, read_encoded, read_page

if TYPE_CHECKING:
    from httpx2 import Response

SECONDS = 30.0
"""For an address, with its redirects."""
MAX_REDIRECTS = 5
_HEADERS = {
    "user-agent": "massmem",
    "accept": "text/html,application/xhtml+xml,application/pdf,text/markdown,text/*;q=0.9,application/json;q=0.9",
}
_TEXTS = re.compile(r"text/(?!html$)[\w.+-]+|application/(?:[\w.+-]+\+)?(?:json|xml|yaml|toml)")
_PAGES = ("text/html", "application/xhtml+xml")
_SAVE = "open it in a browser, save it, and name the file"


async def fetch(address: str, most: int, *, is_named: bool) -> File:
    """Fetch what is at an address. most: bytes. is_named: by the user of this machine, whose network may be read.

    Raises InputError: it cannot be fetched within SECONDS, is no page, PDF or text, or is larger.
    """
    try:
        return await _fetch(address, most, is_named=is_named)
    except TimeoutError as e:
        raise InputError(f"{address} did not arrive within {SECONDS:g} seconds", "try again, or save it first") from e
    except (*HTTP_ERRORS, UnicodeError) as e:
        reason = one_line(str(e), 200) or type(e).__name__
        raise InputError(f"{address} cannot be fetched: {reason}", "check the address, and the network") from e


async def _fetch(address: str, most: int, *, is_named: bool) -> File:
    if "@" in (urlsplit(address).netloc or ""):
        raise InputError("the address holds a password, which the models would be shown", _SAVE)
    url, way = address, _Way(address, is_named=is_named)
    async with asyncio.timeout(SECONDS):
        for _ in range(MAX_REDIRECTS + 1):
            async with (
                open_client(url, headers=_HEADERS, timeout=SECONDS) as client,
                client.stream("GET", url, extensions=await way.enter(url)) as reply,
            ):
                if reply.next_request is None:
                    return await _read(reply, address, most)
                url = str(reply.next_request.url)
    raise InputError(f"{address} leads on more than {MAX_REDIRECTS} times", "name the address where it ends")


class _Way:
    """The connections to an address and to where it leads: only what begins in this network may go on there."""

    def __init__(self, address: str, *, is_named: bool) -> None:
        self._address = self._url = address
        self._is_inside = None if is_named else False  # None: the first connection decides
        self._first = "" if is_named else "none"

    async def enter(self, url: str) -> dict[str, Any]:
        """Return what checks the next connection: extensions of its request. Raises InputError, as that does."""
        self._url = url
        if find_proxy(url)[0]:  # the proxy looks up the name
            self._check(is_near(url))
            return {}
        if self._is_inside is False:
            for *_, place in await asyncio.get_running_loop().getaddrinfo(urlsplit(url).hostname, None):
                self._check(is_near_ip(str(place[0])))
        return {"trace": self._trace}

    async def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Check a connection before anything is sent on it: the name may have another address by now."""
        if event == "connection.connect_tcp.complete":
            connection = info["return_value"]
            peer, own = (connection.get_extra_info(name)[0] for name in ("server_addr", "client_addr"))
            self._first = self._first or peer
            try:
                self._check(is_near_ip(peer) or peer == own != self._first)  # this machine may have a public address
            except InputError:
                await connection.aclose()
                raise

    def _check(self, is_inside: bool) -> None:
        if self._is_inside is None:
            self._is_inside = is_inside
        if is_inside > self._is_inside:
            raise InputError(f"{self._address} leads into this network, to {one_line(self._url, 200)}", _SAVE)


async def _read(reply: "Response", address: str, most: int) -> File:
    if reply.status_code != 200:
        status = f"{reply.status_code} {reply.reason_phrase}".strip()
        raise InputError(f"{address} cannot be read: the server says {status}", f"check the address, or {_SAVE}")
    data = bytearray()
    async for piece in reply.aiter_bytes():
        data += piece
        if len(data) > most:
            raise InputError(f"{address} is larger than {most:,} bytes", "raise files.max_size in the configuration")
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == PDF or data.startswith(b"%PDF-"):
        return File(read_document, address, bytes(data))
    if kind not in _PAGES and not _TEXTS.fullmatch(kind):
        what = f"of type {one_line(kind, 60)}" if kind else "of no type that its server names"
        raise InputError(f"{address} is {what}, not a page, a PDF or a text", _SAVE)
    read = read_page if kind in _PAGES else read_document
    if reply.charset_encoding:  # what the server says counts before what the text says of itself
        read = partial(read_encoded, reply.charset_encoding, kind in _PAGES)
    return File(read, address, bytes(data))
