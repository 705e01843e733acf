"""The errors of the HTTP service, and the response that each error becomes."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.status import HTTP_405_METHOD_NOT_ALLOWED

from massmem.core import errors
from massmem.server.schemas import Problem

log = logging.getLogger(__name__)

RETRY_SOON = 1
"""Seconds after which a client may retry a request that was refused because of other requests."""

RETRY_LATER = 5
"""Seconds after which a client may retry a request that failed because something is unavailable."""

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in (
        (400, "The request cannot be read"),
        (401, "No valid token"),
        (404, "No such session"),
        (408, "The body did not arrive in time"),
        (413, "The body is too large"),
        (422, "The request is not valid"),
        (429, "Too many requests, questions or streams"),
        (503, "The service cannot answer now"),
    )
}
"""What every route may answer, for the OpenAPI description."""

TURN_PROBLEMS: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Another question to this session is under way"},
    502: {"model": Problem, "description": "No agent could answer"},
}
"""What routes that run a turn may answer as well."""


_METHODS = ("DELETE", "GET", "POST")
"""Methods of our routes; HEAD is answered wherever GET is."""


class Unauthorized(Exception):
    """The request has no valid token. The message goes to the client and never quotes the token."""

    def __init__(self, message: str, error: str = "invalid_token") -> None:
        """error: the code of RFC 6750, section 3.1; empty when the request has no token at all."""
        super().__init__(message)
        self.error = error


class Forbidden(Exception):
    """The token is valid, and lacks a scope."""

    def __init__(self, scope: str) -> None:
        super().__init__(f"the token lacks the scope {scope}")
        self.scope = scope


class RetryLater(Exception):
    """The request is refused for now; the client may send it again."""

    def __init__(self, status: int, message: str, retry_after: int = RETRY_SOON) -> None:
        """status: 429 when the user sends too much, else 503. retry_after: in seconds."""
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after


def add_error_handlers(app: FastAPI) -> None:
    """Make every error a response with a `Problem` as its body."""
    app.add_exception_handler(Unauthorized, _handle_unauthorized)
    app.add_exception_handler(Forbidden, _handle_forbidden)
    app.add_exception_handler(RetryLater, _handle_retry_later)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(errors.MassmemError, _handle_massmem_error)
    app.add_exception_handler(Exception, _handle_bug)


def _respond(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(Problem(error=message).model_dump(), status, headers)


async def _handle_unauthorized(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Unauthorized)
    details = f' error="{error.error}", error_description="{error}"' if error.error else ""
    return _respond(401, str(error), {"WWW-Authenticate": f"Bearer{details}"})


async def _handle_forbidden(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Forbidden)
    challenge = f'Bearer error="insufficient_scope", error_description="{error}", scope="{error.scope}"'
    return _respond(403, str(error), {"WWW-Authenticate": challenge})


async def _handle_retry_later(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RetryLater)
    return _respond(error.status, error.message, {"Retry-After": str(error.retry_after)})


async def _handle_invalid_request(_: Request, error: Exception) -> JSONResponse:
    """Name what is wrong but not what was sent: proxies may log the response."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()[:5]]
    return _respond(422, "; ".join(problems)[:1000])


async def _handle_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTP_405_METHOD_NOT_ALLOWED:
        return _respond(405, "this path has no such method", {"Allow": ", ".join(_list_methods(request))})
    return _respond(error.status_code, error.detail, error.headers)


def _list_methods(request: Request) -> list[str]:
    """Return the methods of all routes of the request's path; Starlette names those of the first route alone."""
    methods = [method for method in _METHODS if _has_route(request, method)]
    return sorted([*methods, "HEAD"] if "GET" in methods else methods)


def _has_route(request: Request, method: str) -> bool:
    scope = {**request.scope, "method": method}
    return any(route.matches(scope)[0] is Match.FULL for route in request.app.routes)


async def _handle_massmem_error(request: Request, error: Exception) -> JSONResponse:
    """Use messages of our own: those of the errors name hosts, files and the ids of the store."""
    match error:
        case errors.UnknownSessionError():
            return _respond(404, "Session not found")
        case errors.SessionBusyError():
            return _respond(409, "another question to this session is under way", {"Retry-After": str(RETRY_SOON)})
        case errors.InputError() if type(error) is errors.InputError:
            return _respond(422, error.message)
        case errors.StoreError() | errors.MemoryUnavailable() | errors.ProviderError() | errors.ToolServerError():
            log.error("%s: %s", type(error).__name__, error.message)
            return _respond(503, "the service cannot answer now", {"Retry-After": str(RETRY_LATER)})
        case _:
            return await _handle_bug(request, error)


async def _handle_bug(_: Request, error: Exception) -> JSONResponse:
    """Log where the bug is, and tell the client nothing of it."""
    log.error("a request failed", exc_info=error)
    return _respond(500, "internal error")
