"""SQLite indexes new messages many at a time, instead of each turn's as it is stored."""

from alembic import op

revision = "0007"
down_revision = "0006"

_INDEXED = "EXISTS (SELECT 1 FROM message_search_docsize WHERE id = old.row_id)"
_REMOVE = "INSERT INTO message_search(message_search, rowid, content) VALUES ('delete', old.row_id, old.content);"
_ADD = "INSERT INTO message_search(rowid, content) VALUES (new.row_id, new.content);"


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    for name in ("insert", "delete", "update"):
        op.execute(f"DROP TRIGGER message_search_{name}")
    op.execute(
        f"CREATE TRIGGER message_search_delete AFTER DELETE ON chat_messages WHEN {_INDEXED} BEGIN {_REMOVE} END"
    )
    op.execute(
        "CREATE TRIGGER message_search_update AFTER UPDATE OF content ON chat_messages "
        f"WHEN {_INDEXED} BEGIN {_REMOVE} {_ADD} END"
    )
