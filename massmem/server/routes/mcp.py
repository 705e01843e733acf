"""`/mcp` of the service: MCP over streamable HTTP, with the keys and owners of all other routes.

No session of the protocol is kept, so any process answers any request. A turn goes on without the client that asked.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from typing import Any

from starlette.types import Message, Receive, Scope, Send

from massmem.core.errors import InputError
from massmem.core.events import Event
from massmem.server.dependencies import Caller, authorize
from massmem.server.errors import Rejected, RetryLater
from massmem.server.limits import JsonRequest
from massmem.server.mcp_access import CouncilQuestion
from massmem.server.responses import hide_internals

_CALLER = "massmem_caller"


class UserAccess:
    project = ""

    def __init__(self, caller: Caller) -> None:
        self.team = caller.service.team
        self.owner = caller.owner
        self._caller = caller

    def show(self, event: Event) -> Event | None:
        return hide_internals(event)

    async def check_room(self) -> None:
        with _explain_refusal():
            await self._caller.service.turns.check_room(self.owner)

    async def ask(self, question: CouncilQuestion, roots: Sequence[str]) -> AsyncGenerator[Event, None]:
        files, turns = self.team.config.files, self._caller.service.turns  # roots are of another machine
        record = None if question.session_id is None else await self._caller.sessions.get(question.session_id)
        with _explain_refusal():
            if question.question is None and record is not None:
                events = (await turns.continue_turn(record.session_id, self.owner)).follow()
            else:
                text, attachments = await question.read(files.folders, files.max_size, self._caller.name)
                session_id, team, project = question.session_id, question.team, question.project
                asked = await self._caller.make_question(text, session_id, team, None, project)
                schema, change = question.answer_schema, question.choose_team(files.folders)
                events = turns.ask(replace(asked, attachments=attachments, answer_schema=schema, change=change))
            async with aclosing(events):
                async for _, event in events:
                    public = hide_internals(event)
                    if public is not None:
                        yield public

    async def stop(self, session_id: str) -> None:
        with _explain_refusal():
            (await self._caller.service.turns.find_running(session_id)).stop("user")


@contextmanager
def _explain_refusal() -> Generator[None]:
    try:
        yield
    except RetryLater as e:
        raise InputError(e.message, f"try again in {e.retry_after} s") from e
    except Rejected as e:
        raise InputError(e.message) from e


class McpRoute:
    """The ASGI application at `/mcp`. To be used within `run`.

    The first request imports the library: that is a fifth of the CPU that the start of a service takes without it.
    """

    path = "/mcp"
    """As the access log names it."""

    def __init__(self, max_body: int) -> None:
        """max_body: bytes of a request."""
        self._max_body = max_body
        self._wanted = asyncio.Event()
        self._manager: asyncio.Future[Any]

    @asynccontextmanager
    async def run(self) -> AsyncGenerator[None]:
        self._manager = asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(self._serve())  # a task of its own: the library wants one to open and to close it
        try:
            yield
        finally:
            serving.cancel()
            await asyncio.wait({serving})

    async def _serve(self) -> None:
        await self._wanted.wait()
        try:
            server = await asyncio.to_thread(_create_server, self._max_body)
            async with server.session_manager.run():
                self._manager.set_result(server.session_manager)
                await asyncio.Event().wait()
        finally:
            self._manager.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raise Unauthorized, RetryLater, and Rejected as `JsonRequest`."""
        scope["route"] = self
        request = JsonRequest(scope, receive)
        scope["state"][_CALLER] = await authorize(request)
        with suppress(json.JSONDecodeError):  # the library says so in its own way
            if isinstance(await request.json(), list):
                raise Rejected(400, "a request has one message; send one request for each")
        unread: list[Message] = [{"type": "http.request", "body": await request.body(), "more_body": False}]

        async def receive_again() -> Message:
            return unread.pop() if unread else await receive()

        self._wanted.set()
        await (await asyncio.shield(self._manager)).handle_request(scope, receive_again, send)


def _create_server(max_body: int) -> Any:
    from mcp.server.transport_security import TransportSecuritySettings

    from massmem.server.mcp import create_mcp_server

    server = create_mcp_server(lambda request: UserAccess(getattr(request.state, _CALLER)))
    # The library's guard is for servers without authentication, against pages in a browser.
    security = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server.streamable_http_app(stateless_http=True, max_request_body_size=max_body, transport_security=security)
    return server
