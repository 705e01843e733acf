"""SQLite indexes each message in the transaction that stores it, and now those that 0007 left waiting."""

from alembic import op

revision = "0008"
down_revision = "0007"

_ADD = "INSERT INTO message_search(rowid, content) VALUES (new.row_id, new.content);"
_REMOVE = "INSERT INTO message_search(message_search, rowid, content) VALUES ('delete', old.row_id, old.content);"


def upgrade() -> None:
    if op.get_bind().dialect.name != "sqlite":
        return
    # Row numbers rise: the messages that wait are the newest.
    op.execute(
        "INSERT INTO message_search(rowid, content) SELECT row_id, content FROM chat_messages "
        "WHERE row_id > (SELECT coalesce(max(id), 0) FROM message_search_docsize) ORDER BY row_id"
    )
    for name in ("delete", "update"):
        op.execute(f"DROP TRIGGER message_search_{name}")
    for event, name, body in (
        ("INSERT", "insert", _ADD),
        ("DELETE", "delete", _REMOVE),
        ("UPDATE OF content", "update", f"{_REMOVE} {_ADD}"),
    ):
        op.execute(f"CREATE TRIGGER message_search_{name} AFTER {event} ON chat_messages BEGIN {body} END")
