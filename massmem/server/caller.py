"""What every protected route begins with: whose request it is, and that it is not one too many."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, Header, Request
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase

from massmem.errors import InputError
from massmem.server.auth import Refused, User
from massmem.server.conversations import stored_name
from massmem.server.limits import TooMuch
from massmem.server.schemas import Problem
from massmem.server.service import Service

LONGEST_KEY = 255
_LATER = 5

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in (
        (400, "The request cannot be read"),
        (401, "No token that counts"),
        (404, "No such session"),
        (408, "The body did not arrive in time"),
        (413, "The body is too large"),
        (422, "The request is not valid"),
        (429, "Too many requests, questions or streams"),
        (503, "The service cannot answer now"),
    )
}
TURN_PROBLEMS: dict[int | str, dict[str, Any]] = {
    409: {"model": Problem, "description": "Another question to this session is under way"},
    502: {"model": Problem, "description": "No agent could answer"},
}
_LINKS = {
    name: {"operationId": name, "parameters": {"session_id": "$response.body#/session_id"}}
    for name in ("history", "follow", "conversation", "memory", "clear")
}
ANSWERS: dict[int | str, dict[str, Any]] = {200: {"links": _LINKS}, **TURN_PROBLEMS}
"""Of routes that answer questions: what can be read of the session, by the names of the operations."""


@dataclass(frozen=True, slots=True)
class Caller:
    user: User
    service: Service

    @property
    def sub(self) -> str:
        return self.user.sub


def service_of(request: Request) -> Service:
    """Raises TooMuch while the store has not been reached yet."""
    service: Service | None = getattr(request.app.state, "service", None)
    if service is None:
        raise TooMuch(503, "the service cannot answer yet", _LATER)
    return service


class _Bearer(SecurityBase):
    """How the description of the interface names the token."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(bearerFormat="JWT", description="A JSON Web Token; `sub` is the user.")


class _Authorized(_Bearer):
    async def __call__(self, request: Request) -> Caller:
        """Raises Refused, TooMuch."""
        service = service_of(request)
        user = service.tokens.user(request.headers.getlist("authorization"))
        request.state.user = user.sub
        await service.limits.request(user.sub)
        return Caller(user, service)


class _Scraper(_Bearer):
    """For what is about all users."""

    async def __call__(self, request: Request) -> Service:
        """Raises Refused."""
        service = service_of(request)
        user = service.tokens.user(request.headers.getlist("authorization"))
        if not user.scopes & {"admin", "metrics"}:
            raise Refused("the token lacks the scope metrics")
        return service


Authorized = Annotated[Caller, Depends(_Authorized())]
Scraper = Annotated[Service, Depends(_Scraper())]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_KEY,
        description="A name of this question: sent again with it, it is not asked again, and has the same answer.",
    ),
]
LastEvent = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=2**53, description="Go on after this event.")
]  # fmt: skip


def request_name(key: str | None) -> str:
    """The name under which the log knows the question; keys may hold anything."""
    return "" if key is None else sha256(key.encode()).hexdigest()[:32]


def session_for(caller: Caller, name: str | None, key: str | None) -> str:
    """The store's name of the session that is asked; without a name a new one, the same for the same key."""
    if name is None:
        drawn = uuid4().hex if key is None else sha256(f"{caller.sub}\0{key}".encode()).hexdigest()[:32]
        name = f"session_{drawn}"
    elif ".." in name:
        raise InputError("a session id has no two dots in a row")
    return stored_name(caller.sub, name)
