"""For whoever runs the service: health, readiness, metrics and the OpenAPI description."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from massmem.core.errors import MassmemError
from massmem.server.dependencies import Authorized, Scraper
from massmem.server.errors import PROBLEMS
from massmem.server.metrics import CONTENT_TYPE
from massmem.server.schemas import Health, Readiness
from massmem.server.service import Service

router = APIRouter(tags=["operations"])

_OK = "ok"
_NO_STORE = "the store cannot be used"


@router.get("/healthz")
async def healthz() -> Health:
    """The process is alive."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness}})
async def readyz(request: Request, response: Response) -> Readiness:
    """The process can answer: its store, its vectors and its models are there, and it is not about to end."""
    service: Service | None = getattr(request.app.state, "service", None)
    checks = {"store": _NO_STORE} if service is None else await _run_checks(service)
    # Without vectors memories are searched by words: worse, but no reason to send users elsewhere.
    ready = all(result == _OK for name, result in checks.items() if name != "vectors")
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "not ready", checks=checks)


@router.get("/metrics", response_class=Response, responses={401: PROBLEMS[401]})
async def metrics(service: Scraper) -> Response:
    """Metrics for Prometheus; for tokens with the scope metrics or admin."""
    service.metrics.set_recordings(await service.team.store.count_recordings())
    return Response(service.metrics.export(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: Authorized) -> JSONResponse:
    """This interface, for programs."""
    return JSONResponse(request.app.openapi())


async def _run_checks(service: Service) -> dict[str, str]:
    return {
        "store": await _check_store(service),
        "vectors": service.team.memory.trouble or _OK,
        "provider": _OK if service.team.chat else "no model is configured",
        "process": "about to end" if service.turns.stopping else _OK,
    }


async def _check_store(service: Service) -> str:
    try:
        await service.team.store.get_session("readyz")
    except MassmemError:
        return _NO_STORE
    return _OK
