"""The HTTP service: routes, what surrounds them, and errors as answers."""

import asyncio
import gc
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.telemetry import TelemetryConfig
from starlette.exceptions import HTTPException

from massmem import errors
from massmem.config.models import TeamConfig
from massmem.server.auth import Refused
from massmem.server.guard import Guard
from massmem.server.limits import SOON, TooMuch
from massmem.server.opening import kept_trying
from massmem.server.routes import ai_memory, chat, conversations, operations
from massmem.server.schemas import Problem
from massmem.server.service import Service, opened

log = logging.getLogger(__name__)

_LATER = 5
_NO_SPANS: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own spans name the path of a request, and with it the session; ours are of telemetry/."""

_NEW_OBJECTS = 20_000
"""After so many the youngest are collected; by default after 700, less than one request makes."""


@dataclass(frozen=True, slots=True)
class Settings:
    """config: the team and the service. teams: further teams by name. stopping: set when the process is to end.

    failures: filled with what has kept the service from starting.
    """

    config: TeamConfig
    home: Path
    teams: Mapping[str, TeamConfig] = field(default_factory=dict[str, TeamConfig])
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    failures: list[errors.MassmemError] = field(default_factory=list[errors.MassmemError])


def create_app(settings: Settings) -> FastAPI:
    """The application; its store, memory and models are opened when it starts, or as soon as the store is there."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        def make() -> AbstractAsyncContextManager[Service]:
            return opened(settings.config, settings.teams, settings.home, stopping=settings.stopping)

        def ready(service: Service) -> None:
            app.state.service = service
            # What is there now stays to the end: the collector need not go through it for every few requests.
            gc.freeze()
            gc.set_threshold(_NEW_OBJECTS)

        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(kept_trying(make, ready))
            except errors.MassmemError as e:
                settings.failures.append(e)
                raise
            yield

    # The routes themselves: a router that is included is gone through twice for each request.
    routes = [route for family in (chat, conversations, ai_memory, operations) for route in family.router.routes]
    app = FastAPI(
        title="massmem",
        version="1",
        lifespan=lifespan,
        routes=routes,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_SPANS,
    )
    app.add_middleware(Guard, limits=settings.config.server.limits)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(TooMuch, _too_much)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(errors.MassmemError, _known)
    app.add_exception_handler(Exception, _unknown)
    return app


def problem(status: int, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(Problem(error=message).model_dump(), status, dict(headers or {}))


async def _refused(_: Request, e: Exception) -> JSONResponse:
    return problem(401, str(e), {"WWW-Authenticate": "Bearer"})


async def _too_much(_: Request, e: Exception) -> JSONResponse:
    assert isinstance(e, TooMuch)  # it was registered for these
    return problem(e.status, e.message, {"Retry-After": str(e.retry_after)})


async def _not_valid(_: Request, e: Exception) -> JSONResponse:
    """What is wrong, without what was sent: the answer may be logged on the way."""
    assert isinstance(e, RequestValidationError)
    said = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in e.errors()[:5]]
    return problem(422, "; ".join(said)[:1000])


async def _http(_: Request, e: Exception) -> JSONResponse:
    assert isinstance(e, HTTPException)
    return problem(e.status_code, e.detail, e.headers)


async def _known(_: Request, e: Exception) -> JSONResponse:
    """massmem's own errors. Their messages name hosts, files and the store's ids: users get words of their own."""
    match e:
        case errors.UnknownSessionError():
            return problem(404, "Session not found")
        case errors.SessionBusyError():
            return problem(409, "another question to this session is under way", {"Retry-After": str(SOON)})
        case errors.InputError() if type(e) is errors.InputError:
            return problem(422, e.message)
        case errors.StoreError() | errors.MemoryUnavailable() | errors.ProviderError() | errors.ToolServerError():
            log.error("%s: %s", type(e).__name__, e.message)
            return problem(503, "the service cannot answer now", {"Retry-After": str(_LATER)})
        case _:
            return await _unknown(_, e)


async def _unknown(_: Request, e: Exception) -> JSONResponse:
    """A bug: its place goes to the log, and nothing of it to the user."""
    log.error("a request failed", exc_info=e)
    return problem(500, "internal error")
