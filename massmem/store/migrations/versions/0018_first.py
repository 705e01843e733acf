"""The first schema: what schema.py declares. From the first release on it is written out here and stays.

A database of an earlier build, whichever of 0001 to 0017, gets what it lacks and keeps its rows. It goes by what is
there: two of those numbers stood for three schemas each.
"""

from collections.abc import Set

import sqlalchemy as sa
from alembic import op

from massmem.core.records import count_microseconds
from massmem.store.postgres import message_search
from massmem.store.schema import SEARCH, chat_sessions, metadata

revision = "0018"
down_revision = None

_COUNT_BYTES = """
UPDATE chat_sessions SET size =
    coalesce((SELECT sum(length(payload)) FROM events WHERE events.session_id = chat_sessions.session_id), 0)
    + coalesce((SELECT sum(length(data)) FROM files WHERE files.session_id = chat_sessions.session_id), 0)
"""
_RECORD_MESSAGES = """
INSERT INTO recordings (session_id, seq, kind, agent_id, turn, position, created_at)
SELECT session_id, seq, 'episode', coalesce(agent_id, ''), turn,
       row_number() OVER (PARTITION BY session_id ORDER BY seq) - 1, created_at
FROM chat_messages WHERE kind IN ('user', 'assistant') AND length(trim(content)) >= 10
"""
_RECORD_WINNERS = """
INSERT INTO recordings (session_id, seq, kind, agent_id, turn, created_at)
SELECT session_id, answer_seq, 'complete', winner, turn, ended_at FROM turns WHERE status = 'completed'
"""


def upgrade() -> None:
    bind = op.get_bind()
    inspector = sa.inspect(bind)
    tables = {name: {column["name"] for column in inspector.get_columns(name)} for name in inspector.get_table_names()}
    # No build recorded anything before 0002, and its queue had another form.
    is_unrecorded = "payload" in tables.get("recordings", ())
    for name in ("answers", "ballots", "recordings" if is_unrecorded else ""):
        if tables.pop(name, None):
            op.drop_table(name)
    metadata.create_all(bind)
    for table in metadata.sorted_tables:
        if table.name in tables:
            _complete(table, tables[table.name])
    if "size" not in tables.get("chat_sessions", {"size"}):
        op.execute(_COUNT_BYTES)
    if "used" not in tables.get("chat_sessions", {"used"}):
        names = chat_sessions.c.session_id
        for name, time in bind.execute(sa.select(names, chat_sessions.c.updated_at)).all():
            bind.execute(sa.update(chat_sessions).where(names == name).values(used=count_microseconds(time)))
    if is_unrecorded:
        op.execute(_RECORD_MESSAGES)
        op.execute(_RECORD_WINNERS)
    if bind.dialect.name == "postgresql":
        message_search.create(bind, checkfirst=True)
    elif tables:
        _complete_search()


def _complete(table: sa.Table, columns: Set[str]) -> None:
    """Add the columns and indexes that a table lacks, and drop those that it no longer has."""
    for name in columns - {*table.columns.keys()}:
        op.drop_column(table.name, name)
    for column in table.columns:
        if column.name not in columns:
            default = column.server_default
            added = sa.Column(column.name, column.type, nullable=column.nullable)
            if isinstance(default, sa.DefaultClause):
                added.server_default = sa.DefaultClause(default.arg)
            op.add_column(table.name, added)
    unique = {constraint.name for constraint in table.constraints if isinstance(constraint, sa.UniqueConstraint)}
    present = {index["name"] for index in sa.inspect(op.get_bind()).get_indexes(table.name)} - unique
    for name in present - {index.name for index in table.indexes}:
        op.drop_index(str(name), table.name)
    for index in table.indexes:
        if index.name not in present:
            index.create(op.get_bind())


def _complete_search() -> None:
    """Index all messages in SQLite where a build did so later than it stored them (0007)."""
    if op.get_bind().scalar(sa.text("SELECT 1 FROM sqlite_master WHERE name = 'message_search_insert'")):
        return
    for name in ("delete", "update"):
        op.execute(f"DROP TRIGGER message_search_{name}")
    op.execute("DROP TABLE message_search")
    for statement in (*SEARCH, "INSERT INTO message_search(message_search) VALUES ('rebuild')"):
        op.execute(statement)
