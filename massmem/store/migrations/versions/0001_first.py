"""The first schema. Written out and not taken from schema.py, which goes on changing."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None

# PostgreSQL orders text by the database's language unless told otherwise: ids are ordered by their bytes everywhere.
KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_ID = sa.Integer().with_variant(sa.BigInteger(), "postgresql")
METADATA = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    _sessions()
    _messages()
    _search()
    _turns()
    _answers_and_ballots()
    _state_and_recordings()
    _events()


def _session_key() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["session_id"], ["chat_sessions.session_id"], ondelete="CASCADE")


def _message_key() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["session_id", "seq"], ["chat_messages.session_id", "chat_messages.seq"], ondelete="CASCADE"
    )


def _sessions() -> None:
    op.create_table(
        "chat_sessions",
        sa.Column("session_id", KEY, primary_key=True, nullable=False),
        sa.Column("user_id", sa.Text),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("last_message", sa.Text, nullable=False),
        sa.Column("message_count", sa.Integer, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("config_path", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
    )
    op.create_index("ix_chat_sessions_created", "chat_sessions", ["created_at", "session_id"])


def _messages() -> None:
    op.create_table(
        "chat_messages",
        sa.Column("row_id", ROW_ID, primary_key=True, nullable=False),
        sa.Column("id", KEY, nullable=False),
        sa.Column("session_id", KEY, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("final", sa.Boolean, nullable=False),
        sa.Column("tokens", sa.Integer),
        sa.Column("confidence", sa.Float),
        sa.Column("escalated", sa.Boolean, nullable=False),
        sa.Column("metadata", METADATA, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        _session_key(),
        sa.UniqueConstraint("id", name="uq_chat_messages_id"),
        sa.UniqueConstraint("session_id", "seq", name="uq_chat_messages_seq"),
    )
    shown = sa.text("kind = 'user' OR final")
    op.create_index(
        "ix_chat_messages_conversation",
        "chat_messages",
        ["session_id", "seq"],
        sqlite_where=shown,
        postgresql_where=shown,
    )


def _search() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.create_table(
            "message_search",
            sa.Column("session_id", KEY, primary_key=True, nullable=False),
            sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
            sa.Column("words", postgresql.TSVECTOR, nullable=False),
            _message_key(),
        )
        op.create_index("ix_message_search_words", "message_search", ["words"], postgresql_using="gin")
        return
    op.execute(
        "CREATE VIRTUAL TABLE message_search USING fts5("
        "content, content='chat_messages', content_rowid='row_id', tokenize='unicode61 remove_diacritics 2')"
    )
    insert = "INSERT INTO message_search(rowid, content) VALUES (new.row_id, new.content); "
    delete = (
        "INSERT INTO message_search(message_search, rowid, content) VALUES ('delete', old.row_id, old.content); "
    )
    for event, name, body in (
        ("INSERT", "insert", insert),
        ("DELETE", "delete", delete),
        ("UPDATE OF content", "update", delete + insert),
    ):
        op.execute(f"CREATE TRIGGER message_search_{name} AFTER {event} ON chat_messages BEGIN {body}END")


def _turns() -> None:
    op.create_table(
        "turns",
        sa.Column("session_id", KEY, primary_key=True, nullable=False),
        sa.Column("turn", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("question_seq", sa.Integer, nullable=False),
        sa.Column("answer_seq", sa.Integer),
        sa.Column("winner", sa.Text),
        sa.Column("seed", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        _session_key(),
    )


def _answers_and_ballots() -> None:
    for name, own in (
        ("answers", [sa.Column("number", sa.Integer, nullable=False)]),
        ("ballots", [sa.Column("choice", sa.Text, nullable=False), sa.Column("void", sa.Boolean, nullable=False)]),
    ):
        op.create_table(
            name,
            sa.Column("session_id", KEY, primary_key=True, nullable=False),
            sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
            sa.Column("turn", sa.Integer, nullable=False),
            sa.Column("round", sa.Integer, nullable=False),
            sa.Column("agent_id", sa.Text, nullable=False),
            *own,
            _session_key(),
            _message_key(),
        )
        op.create_index(f"ix_{name}_turn", name, ["session_id", "turn"])


def _state_and_recordings() -> None:
    op.create_table(
        "session_state",
        sa.Column("session_id", KEY, primary_key=True, nullable=False),
        sa.Column("params_json", sa.JSON, nullable=False),
        sa.Column("waiting_for_param", sa.Text),
        sa.Column("last_intent_id", sa.Text),
        sa.Column("plan_exec_json", sa.JSON),
        sa.Column("last_result", sa.JSON),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        _session_key(),
    )
    op.create_table(
        "recordings",
        sa.Column("id", sa.Text, primary_key=True, nullable=False),
        sa.Column("session_id", KEY, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("payload", sa.JSON, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True)),
        _session_key(),
        sa.CheckConstraint("status IN ('pending', 'done', 'failed')", name="ck_recordings_status"),
    )
    op.create_index("ix_recordings_due", "recordings", ["status", "next_attempt_at"])
    op.create_index("ix_recordings_session", "recordings", ["session_id", "turn"])


def _events() -> None:
    op.create_table(
        "events",
        sa.Column("session_id", KEY, primary_key=True, nullable=False),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        _session_key(),
    )
    kept = sa.text("type <> 'agent_delta'")
    op.create_index(
        "ix_events_turn", "events", ["session_id", "turn", "seq"], sqlite_where=kept, postgresql_where=kept
    )
