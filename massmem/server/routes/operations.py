"""For whoever runs the service: health, readiness, metrics and the OpenAPI description."""

import asyncio
import errno
import re
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from massmem.config.show import read_field_docs
from massmem.core import evaluation, messages, records, report, turn_result, verdict, voting
from massmem.core.errors import MassmemError
from massmem.server import openai_replies, schemas
from massmem.server.dependencies import Authorized, CheckedRoute, Scraper
from massmem.server.errors import PROBLEMS
from massmem.server.metrics import CONTENT_TYPE
from massmem.server.routes import imports, memories, openai, reports, sessions
from massmem.server.schemas import Health, Problem, Readiness
from massmem.server.service import Service
from massmem.session import imports as import_results

router = APIRouter(route_class=CheckedRoute, tags=["operations"])

_DESCRIBED = (
    messages, records, voting, verdict, report, evaluation, turn_result, schemas, openai_replies, imports,
    memories, openai, reports, sessions, import_results,
)  # fmt: skip
"""Modules whose classes the interface gives: pydantic would read their sources at every start of massmem."""
_NO_SCOPE: dict[str, Any] = {"model": Problem, "description": "The token lacks the scope metrics"}
_ROOM = 1_000_000
"""Bytes that must fit on the disk for the process to be ready."""

_CHECK_SECONDS = 0.7
"""For one check; all of them are made at the same time."""

_PROBES = ThreadPoolExecutor(2, "readyz")
"""Apart from the threads that requests of users may fill."""

_OK = "ok"
_NO_STORE = "the store cannot be used"


@router.get("/healthz")
async def healthz() -> Health:
    """The process is alive."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness}})
async def readyz(request: Request, response: Response) -> Readiness:
    """The process can answer: its store, disk, vectors and models are there, and it is not about to end."""
    service, state = getattr(request.app.state, "service", None), request.app.state
    checks = {"store": _NO_STORE}
    if service is not None:
        # Anybody may ask: who asks at the same time gets the same answer.
        if (checking := getattr(state, "checking", None)) is None or checking.done():
            checking = state.checking = asyncio.create_task(_check(service))
        checks = await asyncio.shield(checking)
    # Without vectors memories are searched by words: worse, but no reason to send users elsewhere.
    ready = all(result == _OK for name, result in checks.items() if name != "vectors")
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "not ready", checks=checks)


@router.get("/metrics", response_class=Response, responses={401: PROBLEMS[401], 403: _NO_SCOPE, 429: PROBLEMS[429]})
async def metrics(service: Scraper) -> Response:
    """Metrics for Prometheus; for tokens with the scope metrics or admin."""
    service.metrics.set_recordings(await service.team.store.count_recordings())
    return Response(service.metrics.export(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: Authorized) -> JSONResponse:
    """This interface, for programs."""
    document = await asyncio.to_thread(request.app.openapi)
    describe_fields(document)
    return JSONResponse({**document, "servers": [{"url": str(request.base_url).rstrip("/")}]})


def describe_fields(document: dict[str, Any]) -> None:
    """Give each field of an OpenAPI document the line below it in the source."""
    docs = read_field_docs(*_DESCRIBED)
    for name, schema in document["components"]["schemas"].items():
        for field, properties in schema.get("properties", {}).items():
            if text := docs.get((re.sub("^.*__|-(?:In|Out)put$", "", name), field)):
                properties.setdefault("description", text)


async def _check(service: Service) -> dict[str, str]:
    probe = asyncio.get_running_loop().run_in_executor(_PROBES, _check_disk, service.settings.home)
    store, disk = await asyncio.gather(_limit_time(_check_store(service)), _limit_time(probe))
    return {
        "store": store,
        "disk": disk,
        "vectors": service.team.memory.trouble or _OK,
        "provider": _OK if service.team.chat else "no model is configured",
        "process": "about to end" if service.turns.stopping else _OK,
    }


async def _limit_time(check: Awaitable[str]) -> str:
    try:
        return await asyncio.wait_for(check, _CHECK_SECONDS)
    except TimeoutError:
        return f"no reply in {_CHECK_SECONDS} s"


def _check_disk(home: Path) -> str:
    try:
        with TemporaryFile(dir=home) as file:
            file.write(bytes(_ROOM))
    except OSError as e:
        return "the disk is full" if e.errno in (errno.ENOSPC, errno.EDQUOT) else "the disk cannot be written"
    return _OK


async def _check_store(service: Service) -> str:
    try:
        await service.team.store.get_session("readyz")
    except MassmemError:
        return _NO_STORE
    return _OK
