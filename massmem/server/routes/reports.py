"""`/api/v1/figures`: tokens, cost, time and wins, by day and agent; `/api/v1/evaluations`: reports of `massmem eval`.

The reports of evaluations on this machine are for whoever runs the service.
"""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ValidationError

from massmem.core.evaluation import SavedReport
from massmem.core.events import now
from massmem.core.insights import AgentKey, Figures, name_teams
from massmem.core.records import SessionFilter
from massmem.core.turn_result import TurnResult
from massmem.server.dependencies import Authorized, Caller, CheckedRoute
from massmem.server.errors import PROBLEMS, Forbidden
from massmem.server.schemas import Body, Problem

log = logging.getLogger(__name__)
router = APIRouter(route_class=CheckedRoute, prefix="/api/v1", tags=["figures"], responses=PROBLEMS)

MOST_SESSIONS = 300
"""Sessions that are read, the last used."""

MOST_TURNS = 1_000
"""Turns of all of them that are read: about three seconds of reading."""


class AgentFigures(Body):
    turns: int
    wins: int
    tokens: int
    cost: float | None


class DayFigures(Body):
    day: str
    turns: int
    answered: int
    seconds: float
    """How long users waited for these answers, all together."""
    agents: dict[str, AgentFigures]


class AgentLabel(Body):
    name: str
    model: str
    team: str
    """Tells it from an agent of another team with its id; empty: it is alone with its id, or that team has no name."""


class FiguresView(Body):
    days: list[DayFigures]
    agents: dict[str, AgentLabel]
    """By id, with a number behind it when several teams have one; those of the teams first."""
    turns: int
    is_cut: bool
    """There are more turns in this time; those of the sessions that were used last were read."""
    recalls: int
    without_recall: int


@router.get("/figures")
async def figures(
    caller: Authorized,
    days: Annotated[int, Query(ge=1, le=366, description="How many days back.")] = 30,
) -> FiguresView:
    """Tokens, cost, time and wins of the user's turns, by day and agent."""
    store, since = caller.service.team.store, now() - timedelta(days=days)
    criteria = SessionFilter(owner=caller.owner, since=since, has_messages=True)
    listed = await store.find_sessions(criteria, MOST_SESSIONS + 1)
    result = Figures()
    for entry in listed[:MOST_SESSIONS]:
        session_id = entry.session.session_id
        for turn in await store.list_turns(session_id, max(entry.turns - MOST_TURNS, 0), MOST_TURNS):
            if turn.started_at >= since and result.turns < MOST_TURNS:
                events = await store.read_turn_events(session_id, turn.turn)
                result.add_turn(TurnResult.of(events), events, entry.session.config_path)
        if result.turns == MOST_TURNS:
            break
    labels = _label_agents(caller, result)
    ids: dict[AgentKey, str] = {}
    for team, agent_id in labels:
        number = sum(known == agent_id for _, known in ids) + 1
        ids[team, agent_id] = agent_id if number == 1 else f"{agent_id} {number}"
    return FiguresView(
        days=[_show_day(result, day, ids) for day in sorted(result.days)],
        agents={ids[key]: label for key, label in labels.items()},
        turns=result.turns,
        is_cut=result.turns == MOST_TURNS or len(listed) > MOST_SESSIONS,
        recalls=result.recalls,
        without_recall=result.without_recall,
    )


def _show_day(result: Figures, name: str, ids: Mapping[AgentKey, str]) -> DayFigures:
    day = result.days[name]
    agents = {
        ids[key]: AgentFigures(
            turns=agent.turns,
            wins=agent.wins,
            tokens=agent.usage.prompt + agent.usage.completion,
            cost=agent.usage.cost if agent.usage.completion else 0.0,
        )
        for key, agent in day.agents.items()
    }
    turns, waits = sum(day.turns.values()), day.response_times
    return DayFigures(day=name, turns=turns, answered=len(waits), seconds=round(sum(waits), 3), agents=agents)


def _label_agents(caller: Caller, result: Figures) -> dict[AgentKey, AgentLabel]:
    teams = caller.service.teams.named
    agents = {(team.config.path, agent.id): agent for team in teams.values() for agent in team.agents}
    seen = {key for day in result.days.values() for key in day.agents}
    keys = [*(key for key in agents if key in seen), *sorted(seen - agents.keys())]
    files = name_teams(keys)
    names = {team.config.path: name or "default team" for name, team in reversed([*teams.items()])}
    labels: dict[AgentKey, AgentLabel] = {}
    shown = {key: text for day in result.days.values() for key, text in day.names.items()}
    for key in keys:
        path, agent_id = key
        agent = agents.get(key)
        team = names.get(path) or (files[key] if caller.is_local else "")
        labels[key] = AgentLabel(
            name=shown.get(key) or (agent.display_name if agent else agent_id),
            model=(agent.backend.model or agent.backend.type) if agent else "",
            team=team if files[key] else "",
        )
    return labels


_NO_SCOPE: dict[str, Any] = {"model": Problem, "description": "The token lacks the scope admin"}
MOST_REPORTS = 100
"""Reports that are shown, the newest."""

_MOST_BYTES = 5_000_000
"""Of one report."""


class EvaluationList(Body):
    reports: list[SavedReport]


@router.get("/evaluations", responses={403: _NO_SCOPE})
async def evaluations(caller: Authorized) -> EvaluationList:
    """The reports of `massmem eval` on this machine; for this machine's user, and tokens with the scope admin."""
    if not caller.is_operator:
        raise Forbidden("admin")
    folder = caller.service.settings.home / "eval" / "reports"
    return EvaluationList(reports=await asyncio.to_thread(_read_reports, folder))


def _read_reports(folder: Path) -> list[SavedReport]:
    reports = list(filter(None, map(_read_report, folder.glob("*.json"))))
    return sorted(reports, key=lambda report: report.at, reverse=True)[:MOST_REPORTS]


def _read_report(path: Path) -> SavedReport | None:
    try:
        if path.stat().st_size <= _MOST_BYTES:
            return SavedReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as e:
        log.warning("a report of an evaluation cannot be read: %s", type(e).__name__)
    return None
