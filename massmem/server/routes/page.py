"""The page, for people with a browser: its files, and how a browser is let in."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse
from pydantic import Field
from starlette.responses import Response as StarletteResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from massmem.core.errors import InputError
from massmem.server.auth import MAX_COOKIE_LENGTH, MAX_TOKEN_LENGTH, Visitors, is_from_page, read_cookie, set_cookie
from massmem.server.dependencies import CheckedRoute, get_service
from massmem.server.errors import Unauthorized
from massmem.server.schemas import SmallBody

router = APIRouter(route_class=CheckedRoute, include_in_schema=False)

FOLDER = Path(__file__).parents[1] / "page"
PATH = "/page"
"""Below it are the files of the page."""

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
        "form-action 'none'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
"""The page loads nothing from elsewhere, runs no script but its own files, and turns no text into markup."""


class Entrance(SmallBody):
    token: Annotated[str, Field(min_length=1, max_length=MAX_TOKEN_LENGTH)]
    """A key or token of the service, or the token of `massmem ui`."""


class PageFiles(StaticFiles):
    """The files of the page; browsers ask whether they have changed before they use them again."""

    def __init__(self) -> None:
        super().__init__(directory=FOLDER)

    async def get_response(self, path: str, scope: Scope) -> StarletteResponse:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "no-cache"
        return response


@router.get("/")
async def page() -> FileResponse:
    """The page; it holds nothing of anybody."""
    return FileResponse(FOLDER / "index.html", headers=_HEADERS)


@router.post(f"{PATH}/enter", status_code=204)
async def enter(body: Entrance, request: Request, response: Response) -> None:
    """Let the browser in that has this token. Raise Unauthorized."""
    if not is_from_page(request):
        raise Unauthorized("only the page can do this")
    visitors: Visitors = request.app.state.visitors
    cookie = visitors.exchange(body.token)
    if cookie is None:
        await get_service(request).authenticate([f"Bearer {body.token}"], request.client)
        if len(body.token) > MAX_COOKIE_LENGTH:
            raise InputError("this token is too long for a browser", "create a key with massmem key create")
        cookie = body.token
    set_cookie(request, response, cookie)


@router.post(f"{PATH}/leave", status_code=204)
async def leave(request: Request, response: Response) -> None:
    """Forget the browser."""
    if cookie := read_cookie(request):
        visitors: Visitors = request.app.state.visitors
        visitors.dismiss(cookie)
    set_cookie(request, response, "")
