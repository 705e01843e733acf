"""Looks for turns whose process was killed, and takes them up; for deletions that were cut off, and finishes them."""

import asyncio
import logging
import random
from datetime import datetime, timedelta

from massmem.errors import MassmemError, SessionBusyError
from massmem.events import now
from massmem.records import SessionFilter, SessionRecord
from massmem.server.removal import Removal
from massmem.server.turns import Turns
from massmem.session.session import Session
from massmem.session.unfinished import was_cut_off
from massmem.store.base import SessionStore

log = logging.getLogger(__name__)

LOOK = 2.0
"""Seconds between two looks, more or less: the processes of a service shall not look all at once."""

_MOST = 200
_DELETIONS_EVERY = 15
"""One look in so many is for deletions too."""


class Takeover:
    def __init__(self, store: SessionStore, turns: Turns, removal: Removal) -> None:
        self._store = store
        self._turns = turns
        self._removal = removal
        self._left: dict[str, datetime] = {}

    async def run(self) -> None:
        """Until it is cancelled."""
        look = 0
        while True:
            try:
                await self._look()
                if look % _DELETIONS_EVERY == 0:
                    await self._removal.finish()
            except MassmemError as e:
                log.warning("nothing can be taken up for now: %s", e.message)
            look += 1
            await asyncio.sleep(LOOK * random.uniform(0.5, 1.5))

    async def _look(self) -> None:
        """Sessions that are left alone are remembered until something happens in them."""
        wanted = SessionFilter(cut_off=True, before=now() - timedelta(seconds=LOOK / 2))
        found = [each.session for each in await self._store.find_sessions(wanted, _MOST)]
        self._left = {s.session_id: s.updated_at for s in found if self._left.get(s.session_id) == s.updated_at}
        for session in found:
            if session.session_id not in self._left and not self._turns.runs(session.session_id):
                await self._take_up(session)

    async def _take_up(self, record: SessionRecord) -> None:
        assert record.user_id is not None  # the filter asks for owners
        if self._turns.stopping:
            return
        try:
            session = await self._turns.session(record.session_id, record.user_id, anew=True)
        except SessionBusyError:
            return
        if await self._was_cut_off(session):
            self._turns.finish(session)
        else:
            self._left[record.session_id] = record.updated_at
            await session.close()

    async def _was_cut_off(self, session: Session) -> bool:
        turn = session.unfinished
        if turn is None or turn.status not in ("running", "interrupted"):
            return False
        return was_cut_off(await self._store.turn_events(turn.session_id, turn.turn))
