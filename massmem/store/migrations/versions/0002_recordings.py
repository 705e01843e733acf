"""The queue of what is to be remembered, filled with what the log holds already.

No release has written to the first form of the table, so nothing of it is taken over.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

KEY = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

# What was said before becomes searchable. Facts are not extracted from it unasked, since that may cost money:
# `massmem memory rebuild` does it.
_EPISODES = """
INSERT INTO recordings (session_id, seq, kind, agent_id, turn, position, created_at)
SELECT session_id, seq, 'episode', coalesce(agent_id, ''), turn,
       row_number() OVER (PARTITION BY session_id ORDER BY seq) - 1, created_at
FROM chat_messages
WHERE (kind IN ('user', 'assistant') AND length(trim(content)) >= 10
       AND NOT (final AND coalesce(json_extract(metadata, '$.presented'), 1) = 0))
"""
_COMPLETE = """
INSERT INTO recordings (session_id, seq, kind, agent_id, turn, created_at)
SELECT session_id, answer_seq, 'complete', winner, turn, ended_at
FROM turns WHERE status = 'completed'
"""
_EXTRACT = """
INSERT INTO recordings (session_id, seq, kind, agent_id, turn, since, status, reason, created_at)
SELECT m.session_id, max(m.seq), 'extract', m.agent_id, m.turn, t.question_seq - 1, 'done',
       'said before there was a memory', t.ended_at
FROM chat_messages m JOIN turns t ON t.session_id = m.session_id AND t.turn = m.turn
WHERE m.agent_id IS NOT NULL AND t.ended_at IS NOT NULL
GROUP BY m.session_id, m.turn, m.agent_id
"""


def upgrade() -> None:
    op.add_column("chat_sessions", sa.Column("memory_group", sa.Text, nullable=False, server_default=""))
    op.drop_table("recordings")
    op.create_table(
        "recordings",
        sa.Column("session_id", KEY, primary_key=True, nullable=False),
        sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False, nullable=False),
        sa.Column("kind", KEY, primary_key=True, nullable=False),
        sa.Column("agent_id", KEY, primary_key=True, nullable=False),
        sa.Column("turn", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer),
        sa.Column("since", sa.Integer),
        sa.Column("status", sa.Text, nullable=False, server_default="pending"),
        sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
        sa.Column("reason", sa.Text),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("next_attempt_at", sa.DateTime(timezone=True)),
        sa.ForeignKeyConstraint(["session_id"], ["chat_sessions.session_id"], ondelete="CASCADE"),
        sa.CheckConstraint("kind IN ('episode', 'complete', 'extract')", name="ck_recordings_kind"),
        sa.CheckConstraint("status IN ('pending', 'done', 'failed', 'forgotten')", name="ck_recordings_status"),
        sqlite_with_rowid=False,
    )
    pending = sa.text("status = 'pending'")
    op.create_index(
        "ix_recordings_pending",
        "recordings",
        ["kind", "created_at", "session_id", "seq"],
        sqlite_where=pending,
        postgresql_where=pending,
    )
    if op.get_context().dialect.name == "postgresql":
        return  # no release has written to PostgreSQL with the first schema
    for statement in (_EPISODES, _COMPLETE, _EXTRACT):
        op.execute(statement)
