"""Who uses the page: its browser sends a cookie instead of an Authorization header.

The cookie of a user of the service holds the key or token that they have given; that of this machine's user a random
number, for which `massmem ui` gives a token that can be used once.
"""

import secrets

from fastapi import Request, Response

_HEADER = "X-Massmem-Page"
"""Only our own page can send it: a browser asks before it sends such a header to another origin, and we say no."""

MAX_COOKIE_LENGTH = 3_800
"""Characters. Browsers ignore longer ones without a word."""


class Visitors:
    """The browsers of this machine's user that have been let in. Only for a single process."""

    def __init__(self, token: str = "") -> None:
        """token: lets one browser in, once; "" for none."""
        self._token = token
        self._admitted: set[str] = set()

    def exchange(self, token: str) -> str | None:
        """Return a cookie for the token, which is used up then; None: it is not the token, or was used before."""
        if not self._token or not secrets.compare_digest(self._token.encode(), token.encode()):
            return None
        self._token = ""
        cookie = secrets.token_urlsafe(32)
        self._admitted.add(cookie)
        return cookie

    def admits(self, cookie: str) -> bool:
        return cookie in self._admitted

    def dismiss(self, cookie: str) -> None:
        """Admit the cookie no longer."""
        self._admitted.discard(cookie)


def is_from_page(request: Request) -> bool:
    """Return whether our own page sends the request, and no page of another origin."""
    return _HEADER in request.headers


def read_cookie(request: Request) -> str | None:
    """Return the cookie of the page, if the page sends the request."""
    return request.cookies.get(_cookie_name(request)) if is_from_page(request) else None


def set_cookie(request: Request, response: Response, value: str) -> None:
    """Let the browser send this cookie from now on, until it is closed; "" deletes it."""
    response.set_cookie(
        _cookie_name(request),
        value,
        max_age=None if value else 0,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )


def _cookie_name(request: Request) -> str:
    """Browsers send cookies to all ports of a host: each service has a name of its own."""
    return f"massmem-{request.url.port or request.url.scheme}"
