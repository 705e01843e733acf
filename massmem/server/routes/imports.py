"""Imports as jobs: each is a file of the home, without texts of the user, that all processes of the service read.

The export is not stored: after a kill the user sends it again, and nothing is stored twice.
"""

import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi import Path as PathParameter
from pydantic import ConfigDict, Field
from starlette.exceptions import HTTPException

from massmem.config.home import explain_write_error, make_file, replace_file
from massmem.core.errors import BusyError, InputError
from massmem.isolation import run_isolated
from massmem.server.dependencies import Authorized, Caller, CheckedRoute
from massmem.server.errors import PROBLEMS, TURN_PROBLEMS, Rejected
from massmem.server.schemas import Body
from massmem.session.imports import ImportResult, hold_import, import_conversation
from massmem.session.imports.files import parse_export
from massmem.session.memories import Memories
from massmem.session.owners import to_stored_id

router = APIRouter(route_class=CheckedRoute, prefix="/api/v1", tags=["sessions"], responses=PROBLEMS)

_MAX_UNPACKED = 200_000_000
"""Bytes of the JSON in an archive."""
_EXAMPLE = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": "Because."}]
_ARCHIVE = {"schema": {"type": "string", "format": "binary"}}
_UPLOADED: dict[str, Any] = {"application/json": {"schema": {}, "example": _EXAMPLE}, "application/zip": _ARCHIVE}
_UPLOAD: dict[str, Any] = {"requestBody": {"description": "The export.", "required": True, "content": _UPLOADED}}


class ImportJob(Body):
    model_config = ConfigDict(frozen=False)
    id: str
    status: Literal["running", "done", "stopped", "failed", "interrupted"] = "running"
    """Unless it is done, the same file, sent again, goes on. interrupted: its process has ended, or lost the store."""
    turns: int = 0
    """That are stored, or were there before."""
    total: int | None = None
    """Turns of the file; null: it is still being read."""
    sessions: list[ImportResult] = Field(default_factory=list[ImportResult])
    """What became of each conversation, once the job has ended."""
    left_out: dict[str, int] = Field(default_factory=dict[str, int])
    """Kinds of things that cannot be read or have no place in a session, and how often."""
    error: str = ""


JobPath = Annotated[
    str, PathParameter(pattern="^[0-9a-f]{32}$", max_length=32, description="The import.", examples=["0" * 32])
]


@router.post("/sessions/import", status_code=202, openapi_extra=_UPLOAD, responses={409: TURN_PROBLEMS[409]})
async def import_sessions(
    request: Request,
    response: Response,
    caller: Authorized,
    name: Annotated[
        str, Query(max_length=200, description="Of the file, without a suffix: tells lists of messages apart.")
    ] = "import",
) -> ImportJob:
    """Begin to make sessions of an export, as `massmem import` reads it; Location is the address of the job.

    Import a newer export again: sessions are brought up to date, except where something was added to them here.
    """
    service = caller.service
    with ExitStack() as held:
        held.enter_context(service.limits.hold_turn(caller.sub))
        body = await request.body()
        job = ImportJob(id=sha256(body).hexdigest()[:32])
        path = _find_file(caller, job.id)
        response.headers["Location"] = f"{router.prefix}/imports/{job.id}"
        try:
            held.enter_context(hold_import(service.settings.home, path.name.encode()))
        except BusyError as e:
            raise Rejected(409, e.message, response.headers) from e
        await service.turns.check_room(caller.owner, is_new=True)
        for old in path.parent.iterdir():
            with suppress(FileNotFoundError):  # other processes do the same
                if old == path.with_suffix(".stop") or old.stat().st_mtime < time.time() - 7 * 86_400:
                    old.unlink()
        _write(path, job)
        service.turns.run(_run(caller, job, path, body, name, held.pop_all()))
    return job


async def _run(caller: Caller, job: ImportJob, path: Path, body: bytes, name: str, held: ExitStack) -> None:
    """Import until all is stored, or the job or this process is to stop. held: ends with it."""
    team, stop, written, done = caller.service.team, path.with_suffix(".stop"), time.monotonic(), 0

    def is_stopping() -> bool:
        return stop.exists() or caller.service.turns.stopping

    def goes_on(turns: int) -> bool:
        nonlocal written
        job.turns = done + turns
        if time.monotonic() > written + 0.5:
            written = time.monotonic()
            _write(path, job)
        return not is_stopping()

    with held:
        try:
            arguments = (body, f"{name}.json", "the file", _MAX_UNPACKED)
            export = await run_isolated(parse_export, *arguments, what="the file", seconds=30, caller=caller.name)
            job.total = sum(len(conversation.turns) for conversation in export.conversations)
            job.left_out = {**export.left_out}
            for conversation in export.conversations:
                await caller.service.turns.check_room(caller.owner, is_new=True)
                memories = Memories.of(team, caller.owner)
                result = await import_conversation(memories, team.process, conversation, goes_on)
                job.sessions.append(replace(result, title=""))
                if is_stopping():
                    break
                job.turns = done = done + len(conversation.turns)
            status = "stopped" if job.turns < job.total else "done"
        except (InputError, BusyError, Rejected) as e:
            status, job.error = "failed", e.message
        # Once for all: the whole file is written.
        ids = [to_stored_id(caller.owner, result.session_id) for result in job.sessions if not result.conflict]
        await caller.sessions.register(*filter(None, [await team.store.get_session(stored_id) for stored_id in ids]))
        team.memory.wake()
        job.status = status
        _write(path, job)


@router.get("/imports/{job_id}")
async def import_job(job_id: JobPath, caller: Authorized) -> ImportJob:
    """How far an import is, or what came of it, for a week."""
    job = _read(caller, job_id)
    for place, result in enumerate(job.sessions):
        session = await caller.service.team.store.get_session(to_stored_id(caller.owner, result.session_id))
        job.sessions[place] = replace(result, title="" if session is None else session.title)
    return job


@router.delete("/imports/{job_id}", status_code=202)
async def stop_import(job_id: JobPath, caller: Authorized) -> ImportJob:
    """Stop an import soon, wherever it runs. What is stored stays."""
    job = _read(caller, job_id)
    if job.status == "running":
        make_file(_find_file(caller, job_id).with_suffix(".stop"))
    return job


def _find_file(caller: Caller, job_id: str) -> Path:
    """Return the file of a job, which no other user has."""
    name = sha256(f"{caller.name} {job_id}".encode()).hexdigest()[:32]
    return caller.service.settings.home / "imports" / f"{name}.json"


def _write(path: Path, job: ImportJob) -> None:
    try:
        replace_file(path, job.model_dump_json(exclude={"sessions"} if job.status == "running" else None))
    except OSError as e:
        raise explain_write_error(path, e) from e


def _read(caller: Caller, job_id: str) -> ImportJob:
    path = _find_file(caller, job_id)
    if not path.exists():
        raise HTTPException(404, "There is no such import")
    job = ImportJob.model_validate_json(path.read_bytes())
    if job.status == "running":
        with suppress(BusyError), hold_import(caller.service.settings.home, path.name.encode()):
            job = ImportJob.model_validate_json(path.read_bytes())  # it may have ended meanwhile
            job.status = "interrupted" if job.status == "running" else job.status
    return job
