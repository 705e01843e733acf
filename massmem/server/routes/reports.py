"""`/api/v1/figures`: tokens, cost, time and wins, by day and agent; `/api/v1/evaluations`: reports of `massmem eval`.

The reports of evaluations on this machine are for whoever runs the service.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ValidationError

from massmem.core.evaluation import SavedReport
from massmem.core.events import now
from massmem.core.insights import Figures
from massmem.core.records import ListedSession, SessionFilter
from massmem.core.transcript import TurnTranscript
from massmem.server.dependencies import Authorized, Caller
from massmem.server.errors import PROBLEMS, Forbidden
from massmem.server.schemas import Body, Problem
from massmem.store.lookup import read_transcript
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)
router = APIRouter(prefix="/api/v1", tags=["figures"], responses=PROBLEMS)

MOST_SESSIONS = 300
"""Sessions that are read, the last used."""

MOST_TURNS = 1_000
"""Turns of all of them that are read: about three seconds of reading."""


class AgentFigures(Body):
    """What an agent did on a day."""

    turns: int
    """Turns that it took part in."""
    wins: int
    """Turns that it won."""
    tokens: int
    """Sent and received."""
    cost: float | None
    """US dollars; null: not known of all."""


class DayFigures(Body):
    """What happened on a day."""

    day: str
    """YYYY-MM-DD, in UTC."""
    turns: int
    """Questions."""
    answered: int
    """Questions with an answer."""
    seconds: float
    """How long users waited for these answers, all together."""
    agents: dict[str, AgentFigures]
    """By the ids of the agents."""


class AgentLabel(Body):
    """How an agent is shown."""

    name: str
    """What people are shown for it."""
    model: str
    """Its model in the present configuration; empty: it is in no team now."""


class FiguresView(Body):
    """Tokens, cost, time and wins."""

    days: list[DayFigures]
    """In order; days without a question are left out."""
    agents: dict[str, AgentLabel]
    """By id, those of the teams first."""
    turns: int
    """Turns that were read."""
    is_cut: bool
    """There are more turns in this time; those of the sessions that were used last were read."""
    recalls: int
    """Prompts that held memories."""
    without_recall: int
    """Prompts that held none."""


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
        async with aclosing(_read_newest_turns(store, entry)) as turns:
            async for turn in turns:
                if turn.record.started_at >= since and result.turns < MOST_TURNS:
                    result.add_turn(turn, await store.read_turn_events(session_id, turn.record.turn))
        if result.turns == MOST_TURNS:
            break
    return FiguresView(
        days=[_show_day(result, day) for day in sorted(result.days)],
        agents=_label_agents(caller, result),
        turns=result.turns,
        is_cut=result.turns == MOST_TURNS or len(listed) > MOST_SESSIONS,
        recalls=result.recalls,
        without_recall=result.without_recall,
    )


async def _read_newest_turns(store: SessionStore, entry: ListedSession) -> AsyncGenerator[TurnTranscript]:
    """Yield the newest turns of a session, in order; of a very long one no more than can be counted."""
    session_id, after = entry.session.session_id, 0
    if entry.turns > MOST_TURNS:
        newest = await store.read_conversation(session_id, None, 2 * MOST_TURNS)
        after = newest[-1].seq - 1
    async with aclosing(read_transcript(store, session_id, after)) as turns:
        async for turn in turns:
            yield turn


def _show_day(result: Figures, name: str) -> DayFigures:
    day = result.days[name]
    agents = {
        agent_id: AgentFigures(
            turns=agent.turns,
            wins=agent.wins,
            tokens=agent.usage.prompt + agent.usage.completion,
            cost=agent.usage.cost if agent.usage.completion else 0.0,
        )
        for agent_id, agent in day.agents.items()
    }
    return DayFigures(day=name, turns=day.turns, answered=day.answered, seconds=round(day.seconds, 3), agents=agents)


def _label_agents(caller: Caller, result: Figures) -> dict[str, AgentLabel]:
    teams = caller.service.teams.values()
    models = {agent.id: agent.backend.model or agent.backend.type for team in teams for agent in team.agents}
    names = {agent.id: agent.display_name for team in teams for agent in team.agents}
    seen = {agent_id for day in result.days.values() for agent_id in day.agents}
    ids = [*(agent_id for agent_id in models if agent_id in seen), *sorted(seen - models.keys())]
    return {
        agent_id: AgentLabel(
            name=result.names.get(agent_id) or names.get(agent_id, agent_id), model=models.get(agent_id, "")
        )
        for agent_id in ids
    }


_NO_SCOPE: dict[str, Any] = {"model": Problem, "description": "The token lacks the scope admin"}
MOST_REPORTS = 100
"""Reports that are shown, the newest."""

_MOST_BYTES = 5_000_000
"""Of one report."""


class EvaluationList(Body):
    """The reports on this machine."""

    reports: list[SavedReport]
    """The newest first."""


@router.get("/evaluations", responses={403: _NO_SCOPE})
async def evaluations(caller: Authorized) -> EvaluationList:
    """The reports of `massmem eval` on this machine; for this machine's user, and tokens with the scope admin."""
    if not caller.is_operator:
        raise Forbidden("admin")
    folder = caller.service.settings.home / "eval" / "reports"
    return EvaluationList(reports=await asyncio.to_thread(_read_reports, folder))


def _read_reports(folder: Path) -> list[SavedReport]:
    """Return the reports in the folder, the newest first. What is none is left out."""
    reports = list(filter(None, map(_read_report, folder.glob("*.json"))))
    return sorted(reports, key=lambda report: report.at, reverse=True)[:MOST_REPORTS]


def _read_report(path: Path) -> SavedReport | None:
    try:
        if path.stat().st_size <= _MOST_BYTES:
            return SavedReport.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as e:
        log.warning("a report of an evaluation cannot be read: %s", type(e).__name__)
    return None
