"""`/api/v1/evaluations`: the reports that `massmem eval` has left on this machine, for whoever runs the service."""

import asyncio
import logging
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from pydantic import AwareDatetime, ValidationError

from massmem.server.dependencies import Authorized
from massmem.server.errors import PROBLEMS, Forbidden
from massmem.server.schemas import Body, Problem

log = logging.getLogger(__name__)

_NO_SCOPE: dict[str, Any] = {"model": Problem, "description": "The token lacks the scope admin"}
router = APIRouter(prefix="/api/v1", tags=["figures"], responses={**PROBLEMS, 403: _NO_SCOPE})

MOST_REPORTS = 100
"""Reports that are shown, the newest."""

_MOST_BYTES = 5_000_000
"""Of one report."""


class Share(Body):
    """How many of how many."""

    count: int
    """So many are right."""
    total: int
    """Of so many."""
    value: float
    """The share, 0 to 1."""
    interval: tuple[float, float]
    """In which the true share lies, with 95 %."""


class PerQuestion(Body):
    """Means of a question."""

    tokens: float
    """Sent and received."""
    seconds: float
    """From question to answer."""
    requests: float
    """To models."""


class Council(Body):
    """What became of the members' answers."""

    members: dict[str, Share]
    """Right answers of each agent."""
    oracle: Share
    """Questions that at least one agent answered rightly."""
    rules: dict[str, Share]
    """Right answers of each rule on the same answers and ballots."""


class EvaluatedTeam(Body):
    """How a team did."""

    name: str
    """Its name in the report."""
    accuracy: Share
    """Right answers."""
    failed: int
    """Questions without an answer, which count as wrong."""
    per_question: PerQuestion
    """What they took."""
    cost: float | None
    """US dollars for all questions; null: no known price."""
    council: Council | None
    """null: one agent alone."""


class TeamComparison(Body):
    """Two teams on the same questions."""

    first: str
    """A team."""
    second: str
    """The other one."""
    difference: float
    """Of the accuracies, first - second."""
    interval: tuple[float, float]
    """In which the true difference lies, with 95 %."""
    p: float
    """McNemar, exact, two-sided."""


class EvaluationReport(Body):
    """What teams made of questions with known answers."""

    data: str
    """The file with the questions."""
    at: AwareDatetime
    """When it was made."""
    questions: int
    """How many."""
    teams: list[EvaluatedTeam]
    """In the order of the command."""
    comparisons: list[TeamComparison]
    """Of pairs of teams."""


class EvaluationList(Body):
    """The reports on this machine."""

    reports: list[EvaluationReport]
    """The newest first."""


@router.get("/evaluations")
async def evaluations(caller: Authorized) -> EvaluationList:
    """The reports of `massmem eval` on this machine; for this machine's user, and tokens with the scope admin."""
    if not caller.is_operator:
        raise Forbidden("admin")
    folder = caller.service.settings.home / "eval" / "reports"
    return EvaluationList(reports=await asyncio.to_thread(_read_reports, folder))


def _read_reports(folder: Path) -> list[EvaluationReport]:
    """Return the reports in the folder, the newest first. What is none is left out."""
    reports = list(filter(None, map(_read_report, folder.glob("*.json"))))
    return sorted(reports, key=lambda report: report.at, reverse=True)[:MOST_REPORTS]


def _read_report(path: Path) -> EvaluationReport | None:
    try:
        if path.stat().st_size <= _MOST_BYTES:
            return EvaluationReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as e:
        log.warning("a report of an evaluation cannot be read: %s", type(e).__name__)
    return None
