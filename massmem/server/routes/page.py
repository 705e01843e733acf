"""The page, for people with a browser: its files, and how a browser is let in."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from starlette.responses import Response as StarletteResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from massmem.server.auth import (
    MAX_TOKEN_LENGTH,
    close_page_session,
    open_page_session,
    read_cookie,
    set_cookie,
)
from massmem.server.dependencies import CheckedRoute, FromPage, get_page_token, get_service
from massmem.server.schemas import SmallBody

router = APIRouter(route_class=CheckedRoute, include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "page"
PATH = "/page"
"""Below it are the files of the page."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; font-src 'self'; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The page loads nothing from elsewhere, runs no script but its own files, and turns no text into markup."""

_DIAGRAM = (
    "sandbox allow-scripts; default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; form-action 'none'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Of the document that draws a diagram, whose library makes markup: it can ask the service for nothing but scripts, and
has no cookie, as it has no origin."""


class Entrance(SmallBody):
    token: Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_LENGTH)]
    """A key or token of the service, the token of `massmem ui`, or its challenge, signed."""


class PageFiles(StaticFiles):
    """The files of the page; browsers ask whether they have changed before they use them again."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> StarletteResponse:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        if path.endswith(".html"):
            response.headers["Content-Security-Policy"] = _DIAGRAM
        return response


@router.get("/")
async def page(request: Request) -> FileResponse:
    """The page; it holds nothing of anybody. With it comes what browsers sign that come in again."""
    headers = {**_HEADERS, "X-Massmem-Challenge": get_page_token(request).challenge}
    return FileResponse(FOLDER / "index.html", headers=headers)


@router.post(f"{PATH}/enter", status_code=204, dependencies=[FromPage])
async def enter(body: Entrance, request: Request, response: Response) -> None:
    """Let the browser in that has this token; this machine's user gets a key, too. Raise Unauthorized, RetryLater."""
    service, page_token = get_service(request), get_page_token(request)
    is_local = page_token.use(body.token)
    user = page_token.user if is_local else await service.authenticate([f"Bearer {body.token}"], request.client)
    await service.limits.count_request(user.sub)
    set_cookie(request, response, await open_page_session(user, service.team.store))
    if is_local:
        response.headers["X-Massmem-Key"] = page_token.key


@router.post(f"{PATH}/leave", status_code=204, dependencies=[FromPage])
async def leave(request: Request, response: Response) -> None:
    """Forget the browser. Raise RetryLater."""
    if cookie := read_cookie(request):
        await close_page_session(cookie, get_service(request).team.store)
    set_cookie(request, response, "")
