"""The FastAPI application: routes, middleware, error handlers, and the service that it opens when it starts."""

import asyncio
import signal
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from importlib.util import find_spec
from types import FrameType

from fastapi import FastAPI
from fastapi.telemetry import TelemetryConfig
from sse_starlette.sse import AppStatus
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from massmem.server.auth import PageToken
from massmem.server.errors import add_error_handlers
from massmem.server.limits import BodyLimit
from massmem.server.metrics import AccessLog
from massmem.server.routes import chat, imports, memories, openai, operations, page, reports, sessions
from massmem.server.routes.mcp import McpRoute
from massmem.server.service import Service, Settings, keep_service_open

_NO_SPANS: TelemetryConfig = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own spans name the path of a request, and with it the session; ours are those of massmem.telemetry."""


_BROWSER_HEADERS = [
    *("MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"),
    *("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID"),
    *("X-Session-Id", "X-Massmem-Solo"),
]
"""Headers that pages of other origins may send."""


def create_app(settings: Settings, on_error: Callable[[Exception], None]) -> FastAPI:
    """Return the application. It opens its store, memory and models when it starts, or as soon as the store is there.

    `app.state.service` is the open service.

    on_error: called with what keeps the service from starting or from ending; uvicorn would write a traceback.
    """

    # The library would cut every stream, also those of MCP, as soon as the process is told to end. The turns end them.
    AppStatus.disable_automatic_graceful_drain()
    mcp = McpRoute(settings.config.server.limits.body) if find_spec("mcp") else None

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None]:
        def set_service(service: Service) -> None:
            app.state.service = service

        with _catch_exit_signals() as stopping:
            try:
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(keep_service_open(settings, stopping, set_service))
                    if mcp is not None:
                        await stack.enter_async_context(mcp.run())
                    yield
            except Exception as e:  # a bug, too, is said: uvicorn's own log is off, as its tracebacks quote users
                on_error(e)
                raise

    app = FastAPI(
        title="massmem",
        summary="Several agents answer a question together, and remember.",
        version="1",
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        telemetry=_NO_SPANS,
    )
    for routes in (chat, imports, sessions, memories, reports, openai, operations, page):
        app.include_router(routes.router)
    app.mount(page.PATH, GZipMiddleware(page.PageFiles(), compresslevel=6))
    app.state.page_token = PageToken(settings.page_token, settings.page_file, settings.page_key)
    app.state.server, app.state.is_done = settings.config.server, False
    if mcp is not None:
        app.router.routes.append(Route(mcp.path, mcp, methods=["POST"], include_in_schema=False))
    app.add_middleware(BodyLimit, limits=settings.config.server.limits)
    app.add_middleware(HeadRequests)
    if origins := settings.config.server.cors.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=_BROWSER_HEADERS,
            expose_headers=["Location", "Retry-After", "X-Session-Id"],
        )
    app.add_middleware(AccessLog)
    add_error_handlers(app)
    return app


class HeadRequests:
    """Answers HEAD as GET, without a body. FastAPI's routes know HEAD only where it is written out."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        has_ended = asyncio.Event()

        async def send_head(message: Message) -> None:
            scope["method"] = "HEAD"  # uvicorn and the log read it here
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body"})
                has_ended.set()

        async def receive_until_end() -> Message:
            """End streams as soon as their header is sent."""
            if has_ended.is_set():
                return {"type": "http.disconnect"}
            return await receive()

        scope["method"] = "GET"
        await self._app(scope, receive_until_end, send_head)


@contextmanager
def _catch_exit_signals() -> Generator[asyncio.Event]:
    """Give an event that is set as soon as the process is told to end.

    uvicorn tells its application only when all connections are closed. Turns and streams have to know before that.
    """
    stopping = asyncio.Event()
    if threading.current_thread() is not threading.main_thread():  # no signal can be caught there
        yield stopping
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: FrameType | None) -> None:
        stopping.set()
        handler = handlers[signal.Signals(number)]
        if callable(handler):
            handler(number, frame)

    for number in handlers:
        signal.signal(number, handle)
    try:
        yield stopping
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
