"""Statements for what stands beside the log: a session's state, and the lease of whoever runs its turn."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from massmem.records import SessionState
from massmem.store.base import Mark
from massmem.store.dialect import Dialect
from massmem.store.prepared import Row, Statement
from massmem.store.rows import clean, leased
from massmem.store.schema import SESSION, chat_sessions, events, leases, session_state
from massmem.store.sessions import DELETING

LONG = 1e9
"""Seconds for which no lease has been expired."""

GET_STATE = Statement(sa.select(session_state).where(session_state.c.session_id == SESSION))
OWNER = Statement(sa.select(leases.c.owner).where(leases.c.session_id == SESSION))
_OWNER = sa.bindparam("of_owner", type_=sa.Text)
_OWNED = (leases.c.session_id == SESSION, leases.c.owner == _OWNER)
RELEASE = Statement(sa.delete(leases).where(*_OWNED))
MARK = Statement(
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


@dataclass(frozen=True, slots=True)
class StateStatements:
    """acquire: changes one row when the lease is free, has expired, or is the owner's already; none otherwise.

    renew: also a lease that has expired, as long as nobody else has taken it. Both take what `lease` makes.
    save: takes what `saved` makes.
    """

    save: Statement
    acquire: Statement
    renew: Statement


def statements(dialect: Dialect) -> StateStatements:
    until = dialect.moment("until")
    return StateStatements(
        Statement(_save(dialect)),
        Statement(_acquire(dialect, until)),
        Statement(sa.update(leases).where(*_OWNED).values(expires_at=until)),
    )


def lease(dialect: Dialect, session_id: str, owner: str, seconds: float, since: float = 0) -> Row:
    """since: what somebody else has is free when it expired so many seconds ago."""
    return {
        "of_session": session_id,
        "of_owner": owner,
        "until": dialect.ahead(seconds),
        "now": dialect.ahead(-since),
    }


def state(row: Row) -> SessionState:
    fields = {field: row[_COLUMNS.get(field, field)] for field in SessionState.model_fields}
    return SessionState(**fields)


def saved(session_id: str, new: SessionState) -> Row:
    values: dict[str, Any] = {_new(field): clean(value) for field, value in new.model_dump().items()}
    return {"of_session": session_id, **values}


def leave(connection: sa.Connection, session_id: str, owner: str) -> None:
    """Let go of the lease. Raises SessionBusyError: somebody else has it."""
    where = {"of_session": session_id, "of_owner": owner}
    if not RELEASE.change(connection, where) and OWNER.all(connection, where):
        raise leased(session_id)


def is_known(connection: sa.Connection, session_id: str, known: Mark) -> bool:
    """Whether the session has this mark still."""
    return [Mark._make(row) for row in MARK.all(connection, {"of_session": session_id})] == [known]


def _save(dialect: Dialect) -> sa.Executable:
    columns = [session_state.c[_COLUMNS.get(field, field)] for field in SessionState.model_fields]
    values = {
        column: sa.bindparam(_new(field), type_=column.type)
        for field, column in zip(SessionState.model_fields, columns, strict=True)
    }
    insert = dialect.insert(session_state).values({session_state.c.session_id: SESSION, **values})
    return insert.on_conflict_do_update(
        index_elements=["session_id"], set_={column.key: insert.excluded[column.key] for column in columns}
    )


def _new(field: str) -> str:
    return f"new_{field}"


def _acquire(dialect: Dialect, until: sa.ColumnElement[Any]) -> sa.Executable:
    insert = dialect.insert(leases).values(session_id=SESSION, owner=_OWNER, expires_at=until)
    return insert.on_conflict_do_update(
        index_elements=["session_id"],
        set_={"owner": insert.excluded.owner, "expires_at": insert.excluded.expires_at},
        where=sa.or_(leases.c.owner == _OWNER, leases.c.expires_at <= dialect.moment("now")),
    )
