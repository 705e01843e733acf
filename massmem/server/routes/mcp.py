"""`/mcp` of the service: MCP over streamable HTTP, with the keys and owners of all other routes.

No session of the protocol is kept, so any process answers any request. A client that closes the stream of a request
cancels it.
"""

import json
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress

from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import Message, Receive, Scope, Send

from massmem.core.errors import InputError
from massmem.core.events import Event
from massmem.server.dependencies import Caller, authorize
from massmem.server.errors import Rejected, RetryLater
from massmem.server.limits import JsonRequest
from massmem.server.mcp import create_mcp_server
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
        try:
            await self._caller.service.turns.check_room(self.owner)
        except Rejected as e:
            raise InputError(e.message) from e

    async def ask(self, question: str, session_id: str | None, project: str | None) -> AsyncGenerator[Event, None]:
        if not question.strip():
            raise InputError("the question is empty")
        if session_id is not None:
            await self._caller.sessions.get(session_id)
        asked = await self._caller.make_question(question, session_id, None, None, project)
        turns = self._caller.service.turns
        try:
            async for _, event in turns.ask(asked):
                public = hide_internals(event)
                if public is not None:
                    yield public
        except RetryLater as e:
            raise InputError(e.message, f"ask again in {e.retry_after} s") from e
        except Rejected as e:
            raise InputError(e.message) from e
        finally:
            turns.stop_question(asked)


class McpRoute:
    """The ASGI application at `/mcp`. To be used within `run`."""

    path = "/mcp"
    """As the access log names it."""

    def __init__(self, max_body: int) -> None:
        """max_body: bytes of a request."""
        server = create_mcp_server(lambda request: UserAccess(getattr(request.state, _CALLER)))
        server.streamable_http_app(
            stateless_http=True,
            max_request_body_size=max_body,
            # It guards servers without authentication against pages in a browser.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        self._manager = server.session_manager

    def run(self) -> AbstractAsyncContextManager[None]:
        return self._manager.run()

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

        await self._manager.handle_request(scope, receive_again, send)
