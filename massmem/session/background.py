"""The work of `massmem worker`: records memories, and compresses histories before the next question.

All that it works on is in the store. Killed at any point it loses nothing: another worker, or the next one, goes on.
"""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MassmemError
from massmem.core.events import now
from massmem.core.records import EVERYBODY, SessionFilter
from massmem.session.recall import remembers
from massmem.session.session import Session
from massmem.session.team import DEFAULT_TEAM, Team, find_team

log = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
"""How often the queue and the sessions are looked at."""

_LOOK_BACK = timedelta(minutes=10)
"""A worker that starts looks at the sessions that were used since then."""

_OVERLAP = timedelta(seconds=30)
"""Clocks of other machines may be so far behind."""


def check_workers(config: TeamConfig) -> None:
    """Raise InputError when the service leaves recording to workers that cannot do it."""
    is_shared = config.memory.persistent_memory.qdrant.mode == "server"
    if not config.server.record and remembers(config.memory) and not is_shared:
        raise InputError(
            "server.record: false needs a Qdrant server: the embedded index belongs to one process",
            "set memory.persistent_memory.qdrant: {mode: server, url: ...}",
        )


class BackgroundWork:
    """Records and compresses for all sessions of a store."""

    def __init__(self, teams: Mapping[str, Team], *, compresses: bool = True) -> None:
        """teams: started ones, by name, all on the store and the memory of `DEFAULT_TEAM`."""
        self._teams = teams
        self._team = teams[DEFAULT_TEAM]
        self._compresses = compresses
        self._since = now() - _LOOK_BACK
        self._seen: dict[str, datetime] = {}
        """When the sessions that were looked at had been used last."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set. While the store is away, try again."""
        is_away = False
        while not stopping.is_set():
            self._team.memory.wake()
            for notice in self._team.memory.take_notices():
                log.warning("%s", notice)
            try:
                await self._team.memory.open_if_due()
                if self._compresses:
                    await self._compress()
                is_away = False
            except MassmemError as e:
                if not is_away:
                    log.warning("nothing is recorded or compressed for now: %s", e.message)
                is_away = True
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _POLL_SECONDS)

    async def _compress(self) -> None:
        began_at, store = now(), self._team.store
        listed = await store.find_sessions(SessionFilter(owner=EVERYBODY, since=self._since, status="completed"))
        for session in (entry.session for entry in listed):
            if self._seen.get(session.session_id) == session.updated_at:
                continue
            self._seen[session.session_id] = session.updated_at
            own = Session(find_team(self._teams, session.config_path) or self._team, session, owner=session.owner)
            try:
                for event in await own.compress_ahead():
                    fields = {"agent": event.agent_id, "before": event.before, "after": event.after}
                    log.info("a history was compressed", extra={"fields": fields})
            finally:
                await own.close()
        self._since = began_at - _OVERLAP
        self._seen = {name: moment for name, moment in self._seen.items() if moment >= self._since}
