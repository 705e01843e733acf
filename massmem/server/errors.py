"""The errors of the HTTP service, and the response that each error becomes."""

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.status import HTTP_405_METHOD_NOT_ALLOWED, HTTP_502_BAD_GATEWAY

from massmem.core import errors
from massmem.core.messages import clean_text
from massmem.core.text import one_line
from massmem.server.schemas import Body, OpenAIError, OpenAIProblem, Problem

log = logging.getLogger(__name__)

RETRY_SOON = 1
"""Seconds after which a client may retry a request that was refused because of other requests."""

RETRY_LATER = 5
"""Seconds after which a client may retry a request that failed because something is unavailable."""

_TEXTS = {
    400: "The request cannot be read, or is not valid",
    401: "No valid key or token",
    404: "There is no such thing",
    408: "The body did not arrive in time",
    409: "Another question to this session, or another import of this file, is under way",
    413: "The body is too large, or the user has too much already",
    422: "The request is not valid",
    429: "Too many requests, questions, streams or wrong keys; Retry-After says when to try again",
    502: "No agent could answer",
    503: "The service cannot answer now; Retry-After says when to try again",
}

OPENAI_PATH = "/v1/"
"""Below it, errors have the form of OpenAI's API."""


def _describe(model: type[Body], *statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": model, "description": _TEXTS[status]} for status in statuses}


PROBLEMS = _describe(Problem, 400, 401, 404, 408, 413, 422, 429, 503)
"""Of every route, for the OpenAPI description."""

TURN_PROBLEMS = _describe(Problem, 409, 502)
"""Of routes that run a turn, too."""

OPENAI_PROBLEMS = {
    **_describe(OpenAIProblem, 400, 401, 404, 408, 409, 413, 429, 502, 503),
    # Else FastAPI describes an error 422 that there is not.
    "default": {"model": OpenAIProblem, "description": "Any other error"},
}

_OPENAI_TYPES = {
    401: ("authentication_error", "invalid_api_key"),
    403: ("permission_error", None),
    409: ("conflict_error", "session_busy"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
}

_METHODS = ("DELETE", "GET", "POST")
"""Methods of our routes; HEAD is answered wherever GET is."""


class Rejected(HTTPException):
    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        *,
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        """param, code: the field and the reason, for clients of OpenAI's API. What was sent may be quoted in them."""
        self.message = one_line(clean_text(message), 1_000)
        super().__init__(status, self.message, headers)
        self.status = status
        self.param = param and one_line(clean_text(param))
        self.code = code

    def __str__(self) -> str:
        return self.message


class Unauthorized(Rejected):
    """The request has no valid token. The message never quotes the token."""

    def __init__(self, message: str, error: str = "invalid_token") -> None:
        """error: the code of RFC 6750, section 3.1; empty when the request has no token at all."""
        details = f' error="{error}", error_description="{message}"' if error else ""
        super().__init__(401, message, {"WWW-Authenticate": f"Bearer{details}"})
        self.error = error


class Expired(Unauthorized):
    """The key or token was valid."""


class Forbidden(Rejected):
    def __init__(self, scope: str) -> None:
        message = f"the token lacks the scope {scope}"
        challenge = f'Bearer error="insufficient_scope", error_description="{message}", scope="{scope}"'
        super().__init__(403, message, {"WWW-Authenticate": challenge})


class InvalidField(Rejected):
    def __init__(self, message: str, param: str | None = None, *, status: int = 400, code: str | None = None) -> None:
        super().__init__(status, message, param=param, code=code)


class RetryLater(Rejected):
    def __init__(self, status: int, message: str, retry_after: int = RETRY_SOON) -> None:
        """status: 429 when the user sends too much, 409 for a busy session, else 503. retry_after: in seconds."""
        super().__init__(status, message, {"Retry-After": str(retry_after)})
        self.retry_after = retry_after


def add_error_handlers(app: FastAPI) -> None:
    """Make every error a response with a `Problem` as its body."""
    app.add_exception_handler(Rejected, _handle_rejected)
    app.add_exception_handler(RequestValidationError, _handle_invalid_request)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(errors.MassmemError, _handle_massmem_error)
    app.add_exception_handler(Exception, _handle_bug)


def make_openai_problem(status: int, message: str, param: str | None = None, code: str | None = None) -> OpenAIProblem:
    """Return an error as OpenAI's API has it. code: None for that of the status."""
    kind, usual = _OPENAI_TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return OpenAIProblem(error=OpenAIError(message=message, type=kind, param=param, code=code or usual))


async def _handle_rejected(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, Rejected)
    if not request.url.path.startswith(OPENAI_PATH):
        return JSONResponse(Problem(error=error.message).model_dump(), error.status, error.headers)
    # The official clients send a request again after 502: the council would be paid for once more.
    more = {"x-should-retry": "false"} if error.status == HTTP_502_BAD_GATEWAY else {}
    problem = make_openai_problem(error.status, error.message, error.param, error.code)
    return JSONResponse(problem.model_dump(), error.status, {**(error.headers or {}), **more})


async def _handle_invalid_request(request: Request, error: Exception) -> JSONResponse:
    """Name what is wrong but not what was sent: proxies may log the response."""
    assert isinstance(error, RequestValidationError)
    problems = [f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" for problem in error.errors()[:5]]
    text = "; ".join(problems)
    if not request.url.path.startswith(OPENAI_PATH):
        return await _handle_rejected(request, Rejected(422, text))
    param = ".".join(str(part) for part in error.errors()[0]["loc"][1:])
    return await _handle_rejected(request, Rejected(400, text, param=param or None))


async def _handle_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code != HTTP_405_METHOD_NOT_ALLOWED:
        return await _handle_rejected(request, Rejected(error.status_code, error.detail, error.headers))
    # Of all routes of the path; Starlette names the methods of the first route alone.
    scopes = [{**request.scope, "method": method} for method in _METHODS]
    known = {s["method"] for s in scopes for route in request.app.routes if route.matches(s)[0] is Match.FULL}
    methods = sorted({*known, "HEAD"} if "GET" in known else known)
    refusal = Rejected(405, "this path has no such method", {"Allow": ", ".join(methods)})
    return await _handle_rejected(request, refusal)


async def _handle_massmem_error(request: Request, error: Exception) -> JSONResponse:
    """Use messages of our own: those of the errors name hosts, files and the ids of the store."""
    match error:
        case errors.UnknownSessionError():
            refusal = Rejected(404, "Session not found")
        case errors.UnknownMemoryError():
            refusal = Rejected(404, "There is no such memory")
        case errors.SessionBusyError():
            refusal = RetryLater(409, "another question to this session is under way")
        case errors.BusyError():
            refusal = RetryLater(429, error.message, RETRY_LATER)
        case errors.InputError() if type(error) is errors.InputError:
            refusal = Rejected(400 if request.url.path.startswith(OPENAI_PATH) else 422, error.message)
        case errors.StoreError() | errors.MemoryUnavailable() | errors.ProviderError() | errors.ToolServerError():
            is_ours = not isinstance(error, errors.EmbeddingError | errors.ProviderError | errors.ToolServerError)
            log.error("%s: %s", type(error).__name__, error.message if is_ours else "its message may quote a user")
            refusal = RetryLater(503, "the service cannot answer now", RETRY_LATER)
        case _:
            return await _handle_bug(request, error)
    return await _handle_rejected(request, refusal)


async def _handle_bug(request: Request, error: Exception) -> JSONResponse:
    """Log where the bug is, and tell the client nothing of it."""
    log.error("a request failed", exc_info=error)
    return await _handle_rejected(request, Rejected(500, "internal error"))
