"""Statements for what stands beside the log: a session's state, and the lease of whoever runs its turn."""

from typing import Any

import sqlalchemy as sa

from massmem.records import SessionState
from massmem.store.base import Mark
from massmem.store.dialect import Dialect
from massmem.store.rows import clean, leased
from massmem.store.schema import SESSION, chat_sessions, events, leases, session_state
from massmem.store.sessions import DELETING

GET_STATE = sa.select(session_state).where(session_state.c.session_id == SESSION)
OWNER = sa.select(leases.c.owner).where(leases.c.session_id == SESSION)
_OWNER = sa.bindparam("of_owner", type_=sa.Text)
_OWNED = (leases.c.session_id == SESSION, leases.c.owner == _OWNER)
RELEASE = sa.delete(leases).where(*_OWNED)
_RENEW = sa.update(leases).where(*_OWNED)
MARK = (
    sa.select(
        chat_sessions.c.created_at,
        sa.func.coalesce(
            sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery(), 0
        ).label("seq"),
        session_state.c.updated_at.label("state_at"),
    )
    .outerjoin(session_state, session_state.c.session_id == chat_sessions.c.session_id)
    .where(chat_sessions.c.session_id == SESSION, chat_sessions.c.status != DELETING)
)

# The column of each field, where the two differ.
_COLUMNS = {"params": "params_json", "plan_execution": "plan_exec_json"}


def state(row: dict[str, Any]) -> SessionState:
    fields = {field: row[_COLUMNS.get(field, field)] for field in SessionState.model_fields}
    return SessionState(**fields)


def save(dialect: Dialect, session_id: str, state: SessionState) -> sa.Executable:
    values: dict[str, Any] = {_COLUMNS.get(field, field): clean(value) for field, value in state.model_dump().items()}
    statement = dialect.insert(session_state).values(session_id=session_id, **values)
    return statement.on_conflict_do_update(index_elements=["session_id"], set_=values)


def acquire(dialect: Dialect, session_id: str, owner: str, seconds: float) -> sa.Executable:
    """Changes one row when the lease is free, has expired, or is the owner's already; none otherwise."""
    taken = {"owner": owner, "expires_at": dialect.moment(seconds)}
    statement = dialect.insert(leases).values(session_id=session_id, **taken)
    return statement.execution_options(preserve_rowcount=True).on_conflict_do_update(
        index_elements=["session_id"],
        set_=taken,
        where=sa.or_(leases.c.owner == owner, leases.c.expires_at <= dialect.moment(0)),
    )


def renew(dialect: Dialect, seconds: float) -> sa.Update:
    """Also a lease that has expired is renewed, as long as nobody else has taken it."""
    return _RENEW.values(expires_at=dialect.moment(seconds))


def leave(connection: sa.Connection, session_id: str, owner: str) -> None:
    """Let go of the lease. Raises SessionBusyError: somebody else has it."""
    where = {"of_session": session_id, "of_owner": owner}
    if not connection.execute(RELEASE, where).rowcount and connection.execute(OWNER, where).first() is not None:
        raise leased(session_id)


def is_known(connection: sa.Connection, session_id: str, known: Mark) -> bool:
    """Whether the session has this mark still."""
    found = connection.execute(MARK, {"of_session": session_id}).one_or_none()
    return found is not None and Mark(*found) == known
