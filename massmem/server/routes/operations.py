"""For whoever runs the service: is it alive, can it answer, how much does it do, what does it offer."""

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from massmem.errors import MassmemError
from massmem.server.caller import PROBLEMS, Authorized, Scraper
from massmem.server.metrics import CONTENT_TYPE
from massmem.server.schemas import Health, Readiness, as_json
from massmem.server.service import Service

router = APIRouter(tags=["operations"])

_OK = "ok"
_AWAY = "the store cannot be used"


@router.get("/healthz", response_model=Health)
async def healthz() -> Response:
    """The process is alive."""
    return as_json(Health())


@router.get("/readyz", response_model=Readiness, responses={503: {"model": Readiness}})
async def readyz(request: Request) -> Response:
    """The process can answer: its store, its vectors and its models are there, and it is not about to end."""
    service: Service | None = getattr(request.app.state, "service", None)
    checks = {"store": _AWAY} if service is None else await _checked(service)
    # Without vectors memories are found by words: worse, but no reason to send users elsewhere.
    ready = all(said == _OK for name, said in checks.items() if name != "vectors")
    answer = as_json(Readiness(status="ready" if ready else "not ready", checks=checks))
    answer.status_code = 200 if ready else 503
    return answer


@router.get("/metrics", response_class=Response, responses={401: PROBLEMS[401]})
async def metrics(service: Scraper) -> Response:
    """Numbers for Prometheus; for tokens with the scope metrics or admin."""
    service.metrics.queue(await service.team.store.recording_counts())
    return Response(service.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request, caller: Authorized) -> JSONResponse:
    """This interface, for programs."""
    return JSONResponse(request.app.openapi())


async def _checked(service: Service) -> dict[str, str]:
    return {
        "store": await _store(service),
        "vectors": service.team.memory.trouble or _OK,
        "provider": _OK if service.team.chat else "no model is configured",
        "process": "about to end" if service.turns.stopping else _OK,
    }


async def _store(service: Service) -> str:
    try:
        await service.team.store.get_session("readyz")
    except MassmemError:
        return _AWAY
    return _OK
