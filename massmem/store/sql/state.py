"""The state of a session: what its agents know of the user's wishes."""

from typing import Any

import sqlalchemy as sa

from massmem.core.records import SessionState
from massmem.store.schema import SESSION, session_state
from massmem.store.sql.database import Database

# The column of each field of SessionState, where the two differ.
_COLUMNS = {"params": "params_json", "plan_execution": "plan_exec_json"}
_STATE = sa.select(session_state).where(session_state.c.session_id == SESSION)


async def fetch_state(database: Database, session_id: str) -> SessionState:
    """Return the state that was saved last; an empty state for a session without one."""
    rows = await database.fetch(_STATE, {"of_session": session_id})
    if not rows:
        return SessionState()
    return SessionState(**{field: rows[0][_COLUMNS.get(field, field)] for field in SessionState.model_fields})


def build_save_state(database: Database, session_id: str, state: SessionState) -> sa.Executable:
    """Return the statement that replaces a session's state."""
    values: dict[str, Any] = {_COLUMNS.get(field, field): value for field, value in state.model_dump().items()}
    insert = database.dialect.insert(session_state).values(session_id=session_id, **values)
    return insert.on_conflict_do_update(index_elements=["session_id"], set_=values)
