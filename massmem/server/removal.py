"""Deletes a conversation: with the request it is gone for its user; its traces follow at once, or soon."""

import logging

from massmem.errors import MassmemError, SessionBusyError
from massmem.memory.memories import Selection
from massmem.records import SessionFilter, SessionRecord
from massmem.server.turns import Turns
from massmem.session.ownership import owned
from massmem.session.team import Team

log = logging.getLogger(__name__)

_EVENTS = 2_000
"""Events that one transaction deletes: others write between two of them."""


class Removal:
    def __init__(self, team: Team, turns: Turns) -> None:
        self._team = team
        self._turns = turns
        self._files_hold_traces = False

    async def remove(self, session: SessionRecord) -> None:
        """Delete the session for good.

        Raises:
            SessionBusyError: a turn of it is under way.
            StoreError: what is marked as being deleted is finished by `finish`.
        """
        session_id = session.session_id
        if self._turns.runs(session_id):
            raise SessionBusyError("a question to this session is under way")
        async with owned(self._team.store, self._team.process, session_id):
            self._team.warm.take(session_id)
            await self._team.store.delete_session(session_id, 0)
        try:
            await self._erase(session_id)
        except MassmemError as e:
            log.warning("what is left of a deleted session is erased later: %s", e.message)

    async def finish(self) -> None:
        """Erase what is left of sessions whose deletion was begun, here or in another process. Raises StoreError."""
        for each in await self._team.store.find_sessions(SessionFilter(status="deleting")):
            try:
                await self._erase(each.session.session_id)
            except SessionBusyError:
                continue  # another process is at it
        if self._files_hold_traces and await self._team.store.erase():
            self._files_hold_traces = False

    async def _erase(self, session_id: str) -> None:
        """Memories first: while there are any, the session is there too, and says that it is being deleted."""
        store, memory = self._team.store, self._team.memory
        async with owned(store, self._team.process, session_id):
            await store.forget_recordings(Selection(session_id=session_id))
            await memory.forget(session_id)
            while await store.delete_session(session_id, _EVENTS) is not None:
                pass
            # Another process may have taken something out of the queue before it was emptied.
            await memory.forget(session_id)
        self._files_hold_traces = True
