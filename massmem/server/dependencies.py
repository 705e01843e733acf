"""Parts of a request that routes take: the caller, who is known and within the limits, headers, and content in parts.

Who calls is checked before what is said: `CheckedRoute` knows the caller before it reads a byte of the body.
"""

import asyncio
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.openapi.models import HTTPBearer
from fastapi.routing import APIRoute
from fastapi.security.base import SecurityBase
from pydantic import AfterValidator

from massmem.core.errors import InputError, MemoryUnavailable
from massmem.core.messages import Attachment, clean_name, clean_text, name_attachments
from massmem.core.records import Owner
from massmem.server.auth import PageToken, User, authenticate_cookie, check_page, read_cookie
from massmem.server.errors import RETRY_LATER, Forbidden, RetryLater
from massmem.server.limits import JsonRequest
from massmem.server.schemas import (
    MAX_LIST_LENGTH,
    MAX_MESSAGE_LENGTH,
    MAX_OFFSET,
    MAX_QUERY_LENGTH,
    MAX_SESSION_ID_LENGTH,
    MAX_SMALL_BODY,
    ContentPart,
    FilePart,
    ImagePart,
    SmallBody,
    TextPart,
    check_words,
)
from massmem.server.service import Service
from massmem.server.turns import ClientQuestion
from massmem.session.owners import find_project, to_stored_id
from massmem.session.sessions import Sessions
from massmem.tools.documents import File, add_document, read_document, read_files, read_picture

MAX_KEY_LENGTH = 255


@dataclass(frozen=True, slots=True)
class Caller:
    user: User
    service: Service

    @property
    def sub(self) -> str | None:
        return self.user.sub

    @property
    def name(self) -> str:
        """Who waits for a worker process of `massmem.isolation` with its other tasks."""
        return self.user.sub or ""

    @property
    def owner(self) -> Owner:
        return Owner(self.user.sub)

    @property
    def sessions(self) -> Sessions:
        return Sessions.of(self.service.team, self.owner)

    @property
    def is_local(self) -> bool:
        """Whether it is the user of this machine, who may see what the configuration and its errors say."""
        return self.user.sub is None

    @property
    def is_operator(self) -> bool:
        """Whether it may see what belongs to nobody in particular: how teams were evaluated, figures of all users."""
        return self.is_local or self.user.is_admin

    async def make_question(
        self,
        content: str | Sequence[ContentPart],
        session_id: str | None,
        team: str | None,
        key: str | None,
        project: str | None = None,
    ) -> ClientQuestion:
        """Return the question of a request body. Without a session id it begins a session, the same for the same key.

        key: the Idempotency-Key. project: as its user names it. Raises InputError: see `read_content`, `find_project`.
        """
        if session_id is None:
            drawn = uuid4().hex if key is None else _digest(f"{self.sub}\0{key}")
            session_id = f"session_{drawn}"
        elif ".." in session_id:
            raise InputError("a session id has no two dots in a row")
        request_id = "" if key is None else _digest(key)  # keys may hold anything
        text, attachments = (
            (content, ())
            if isinstance(content, str)
            else await read_content(content, self.service.settings.config.files.max_size, self.name)
        )
        text = name_attachments(text, attachments)
        if project is not None:
            project = await find_project(self.service.team.store, self.owner, project)
        stored_id = to_stored_id(self.owner, session_id)
        return ClientQuestion(self.owner, stored_id, text, request_id, team, attachments, project=project)


def get_service(request: Request) -> Service:
    """Return the service. Raise RetryLater while its store has not been reached yet."""
    service: Service | None = getattr(request.app.state, "service", None)
    if service is None:
        raise RetryLater(503, "the service cannot answer yet", RETRY_LATER)
    return service


async def authorize(request: Request) -> Caller:
    """Return the caller.

    Raises Unauthorized, or RetryLater: it sends too many requests, or what it asked to forget is not forgotten yet.
    """
    service = get_service(request)
    user = await _authenticate(request, service)
    request.state.user = user.sub  # for the access log
    await service.limits.count_request(user.sub)
    try:
        await service.finish_forgetting(Owner(user.sub))
    except MemoryUnavailable as e:
        raise RetryLater(503, "what you asked to forget is not forgotten yet", RETRY_LATER) from e
    return Caller(user, service)


async def _authenticate(request: Request, service: Service) -> User:
    """Return the user that the request names by its Authorization header, or the page by its cookie."""
    headers = request.headers.getlist("authorization")
    cookie = None if headers else read_cookie(request)
    if cookie is None:
        return await service.authenticate(headers, request.client)
    return await authenticate_cookie(cookie, get_page_token(request), service.tokens, service.team.store)


def get_page_token(request: Request) -> PageToken:
    return request.app.state.page_token


class _Guard(SecurityBase):
    """Gives a route what `CheckedRoute` has found out before. Describes the token in the OpenAPI description."""

    scheme_name = "HTTPBearer"
    model = HTTPBearer(bearerFormat="JWT", description="An API key, or a JSON Web Token; its subject is the user.")

    def __init__(self, check: Callable[[Request], Coroutine[Any, Any, Any]]) -> None:
        """check: raises for a request that is refused; returns what the route is given."""
        self.check = check

    async def __call__(self, request: Request) -> Any:
        return request.state.admitted


class CheckedRoute(APIRoute):
    """A route that knows who calls it, and that they may, before it reads a byte of the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle, guard = super().get_route_handler(), _find_guard(self.dependant)
        body: Any = None if self.body_field is None else self.body_field.field_info.annotation
        is_small = isinstance(body, type) and issubclass(body, SmallBody)

        async def check_and_handle(request: Request) -> Response:
            if guard is not None:
                request.state.admitted = await guard.check(request)
            if is_small:
                request.state.max_body = MAX_SMALL_BODY
            return await handle(JsonRequest(request.scope, request.receive))

        return check_and_handle


def _find_guard(dependant: Dependant) -> _Guard | None:
    """Return the guard among what a route depends on; None: it is public."""
    if isinstance(dependant.call, _Guard):
        return dependant.call
    return next(filter(None, map(_find_guard, dependant.dependencies)), None)


async def _admit_scraper(request: Request) -> Service:
    service = get_service(request)
    user = await service.authenticate(request.headers.getlist("authorization"), request.client)
    if not user.scopes & {"admin", "metrics"}:
        raise Forbidden("metrics")
    return service


async def _admit_page(request: Request) -> None:
    check_page(request)


FromPage = Depends(_Guard(_admit_page))
Authorized = Annotated[Caller, Depends(_Guard(authorize))]
Scraper = Annotated[Service, Depends(_Guard(_admit_scraper))]
SessionPath = Annotated[
    str,
    Path(
        description="The conversation.",
        examples=["user-123-support-chat"],
        json_schema_extra={"maxLength": MAX_SESSION_ID_LENGTH},  # a longer one is not found, as any unknown one
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        description="A name of this question: sent again with it, it is not asked again, and has the same answer.",
    ),
]
QueryWords = Annotated[
    str,
    Query(min_length=1, max_length=MAX_QUERY_LENGTH, pattern=r"\S", description="Words to look for.", examples=["sky"]),
    AfterValidator(check_words),
]
Limit = Annotated[int, Query(ge=1, le=MAX_LIST_LENGTH, description="How many.")]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="How many to skip.")]
LastEventId = Annotated[
    int | None, Header(alias="Last-Event-ID", ge=0, le=2**53, description="Go on after this event.")
]  # fmt: skip


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:32]


_DATA_URL = re.compile(r"data:[^,]{0,200}?;base64,", re.IGNORECASE)


async def read_content(parts: Sequence[ContentPart], most: int, caller: str) -> tuple[str, tuple[Attachment, ...]]:
    """Return the text of a question, with the texts of its files, and what else it came with.

    most: bytes of one file, and of all pictures together. caller: as for `read_files`.

    Raises InputError: a part is not what it says, or the question has no text or is too large; BusyError.
    """
    text = "\n\n".join(part.text for part in parts if isinstance(part, TextPart))
    files = await asyncio.to_thread(_decode_files, parts, most)
    documents = await read_files(files, caller)
    if len(text) + sum(len(document.text) for document in documents) > MAX_MESSAGE_LENGTH:
        raise InputError(f"the question is longer than {MAX_MESSAGE_LENGTH:,} characters", "ask about a part of it")
    attachments = [attachment for document in documents for attachment in document.attachments]
    if sum(attachment.file.size for attachment in attachments) > most:
        raise InputError(f"the files are larger than {most:,} bytes together", "ask about fewer of them")
    for file, document in zip(files, documents, strict=True):
        text = add_document(text, file.name, document)
    if not text.strip():
        raise InputError("the question has no text", "add a part of type text")
    return clean_text(text), tuple(attachments)


def _decode_files(parts: Sequence[ContentPart], most: int) -> list[File]:
    files: list[File] = []
    pictures = 0
    for part in parts:
        match part:
            case TextPart():
                continue
            case ImagePart(image_url=image):
                pictures += 1
                name = f"picture {pictures}"
                files.append(File(read_picture, name, _decode(name, image.url, most)))
            case FilePart(file=file):
                name = clean_name(file.filename)
                files.append(File(read_document, name, _decode(name, file.file_data, most)))
    return files


def _decode(name: str, url: str, most: int) -> bytes:
    beginning = _DATA_URL.match(url)
    if beginning is None:
        raise InputError(f"{name} is no data: URL", "send the file itself, as data:image/png;base64,...")
    encoded = url[beginning.end() :]
    if len(encoded) // 4 * 3 > most + 2:
        raise InputError(f"{name} is larger than {most:,} bytes", "send a smaller one")
    try:
        return b64decode(encoded, validate=True)
    except (NotBase64, ValueError) as e:
        raise InputError(f"{name} is not base64", "encode the bytes of the file as base64") from e
