"""Takes over what a killed process left behind: its turns are resumed, its deletions are finished."""

import asyncio
import logging
import random
from datetime import datetime, timedelta

from massmem.core.errors import MassmemError
from massmem.core.events import now
from massmem.core.outcome import was_cut_off
from massmem.core.records import SessionFilter, SessionRecord
from massmem.server.conversations import Conversations
from massmem.server.turns import Turns
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

_SECONDS = 2.0
"""Time between two looks, more or less: the processes of a service do not all look at once."""

_MAX_SESSIONS = 200
_LOOKS_PER_DELETION = 15


class Takeover:
    """Looks for interrupted turns and deletions as long as it runs."""

    def __init__(self, store: SessionStore, turns: Turns, conversations: Conversations) -> None:
        self._store = store
        self._turns = turns
        self._conversations = conversations
        self._ignored: dict[str, datetime] = {}
        """Sessions whose user stopped the turn, and when they were changed last."""

    async def run(self) -> None:
        """Run until cancelled."""
        looks = 0
        while True:
            try:
                await self._resume_turns()
                if looks % _LOOKS_PER_DELETION == 0:
                    await self._conversations.finish_deletions()
            except MassmemError as e:
                log.warning("the work of killed processes cannot be taken over now: %s", e.message)
            looks += 1
            await asyncio.sleep(_SECONDS * random.uniform(0.5, 1.5))

    async def _resume_turns(self) -> None:
        cut_off = SessionFilter(cut_off=True, before=now() - timedelta(seconds=_SECONDS / 2))
        sessions = [listed.session for listed in await self._store.find_sessions(cut_off, _MAX_SESSIONS)]
        self._ignored = {s.session_id: s.updated_at for s in sessions if self._is_ignored(s)}
        for session in sessions:
            if self._is_ignored(session) or self._turns.is_running(session.session_id):
                continue
            if await self._was_cut_off(session.session_id):
                assert session.user_id is not None  # the filter finds sessions with an owner
                self._turns.resume(session.session_id, session.user_id)
            else:
                self._ignored[session.session_id] = session.updated_at

    def _is_ignored(self, session: SessionRecord) -> bool:
        return self._ignored.get(session.session_id) == session.updated_at

    async def _was_cut_off(self, session_id: str) -> bool:
        turn = await self._store.get_last_turn(session_id)
        if turn is None or turn.status not in ("running", "interrupted"):
            return False
        return was_cut_off(await self._store.read_turn_events(session_id, turn.turn))
