"""Who may run the turns of a session."""

import sqlalchemy as sa

from massmem.store.ports import lease_lost_error
from massmem.store.schema import SESSION, CleanText, leases
from massmem.store.sql.database import Database

_OWNER = sa.select(leases.c.owner).where(leases.c.session_id == SESSION)
_IS_OWN = (leases.c.session_id == SESSION, leases.c.owner == sa.bindparam("of_owner", type_=CleanText))
_RENEW = sa.update(leases).where(*_IS_OWN)
RELEASE_LEASE = sa.delete(leases).where(*_IS_OWN)


class SqlLeaseTable:
    """The LeaseTable port."""

    _database: Database

    async def acquire_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        dialect = self._database.dialect
        lease = {"owner": owner, "expires_at": dialect.time_from_now(seconds)}
        # Not `excluded`: SQLAlchemy takes 0.3 ms to build that, at every turn.
        acquire = (
            dialect.insert(leases)
            .values(session_id=session_id, **lease)
            .on_conflict_do_update(
                index_elements=["session_id"],
                set_=lease,
                where=sa.or_(leases.c.owner == owner, leases.c.expires_at <= dialect.time_from_now(0)),
            )
        )
        return await self._database.execute_for(session_id, acquire) == 1

    async def get_lease_owner(self, session_id: str) -> str | None:
        rows = await self._database.fetch(_OWNER, {"of_session": session_id})
        return rows[0]["owner"] if rows else None

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        renew = _RENEW.values(expires_at=self._database.dialect.time_from_now(seconds))
        return await self._database.execute(renew, {"of_session": session_id, "of_owner": owner}) == 1

    async def release_lease(self, session_id: str, owner: str) -> None:
        await self._database.execute(RELEASE_LEASE, {"of_session": session_id, "of_owner": owner})


def check_lease(connection: sa.Connection, session_id: str, owner: str) -> None:
    """Raise SessionBusyError when somebody else has the session's lease."""
    holder = connection.execute(_OWNER, {"of_session": session_id}).scalar()
    if holder is not None and holder != owner:
        raise lease_lost_error(session_id)
