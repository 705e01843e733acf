"""Keeps the registry's entry of a session in step with the store."""

import asyncio
import logging
from pathlib import Path

from massmem.records import SessionStatus
from massmem.registry import Registry, RegistryDamaged, entry_of
from massmem.store.base import SessionStore

log = logging.getLogger(__name__)


class Listing:
    def __init__(self, store: SessionStore, home: Path, url: str) -> None:
        """url: the store's, as it is configured; its password is left out of the list."""
        self._store = store
        self._home = home
        self._url = url

    async def enter(self, session_id: str, status: SessionStatus | None = None) -> None:
        """Enter the session as the store has it, or with `status`. A damaged registry is made anew from the store.

        Raises HomeError, StoreError.
        """
        record = await self._store.get_session(session_id)
        if record is None or record.status == "deleting":
            return
        if status is not None:
            record = record.model_copy(update={"status": status})
        registry = Registry(self._home)
        try:
            await asyncio.to_thread(registry.upsert, entry_of(record, self._url))
        except RegistryDamaged as e:
            log.warning("%s; it is made again from the store. %s", e.message, e.hint)
            entries = [entry_of(r, self._url) for r in await self._store.list_sessions()]
            await asyncio.to_thread(registry.rebuild, entries)
