"""The tables of the session store in a relational database.

`events` is the log; chat_messages, turns, requests and the counters of chat_sessions are derived from it by
`projection.py`. Texts of any length are in chat_messages only: turns point to it by seq.

What they have more on PostgreSQL is in `postgres.py`: a question on SQLite loads one dialect. From the first release on
the schema changes only through `migrations/`.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine.interfaces import Dialect

from massmem.core.errors import StoreVersionError
from massmem.core.messages import clean_text
from massmem.core.records import Owner
from massmem.store.encoding import clean_json

EARLIER = tuple(f"{number:04}" for number in range(1, 18))
"""Revisions of builds before the first release: the first migration brings them all to what it makes."""

REVISIONS = (*EARLIER, "0018", "0019")
"""Every revision that this program can open, oldest first. The last one is what it reads and writes."""

# Conditions of partial indexes. They are literal SQL because SQLite uses a partial index only when the query repeats
# its condition word for word.
IS_CONVERSATION = "kind = 'user' OR final"
IS_NO_DELTA = "type <> 'agent_delta'"
IS_PENDING = "status = 'pending'"
IS_SUMMARY = "kind = 'injection'"
HAS_OWNER = "user_id IS NOT NULL"
HAS_HISTORY = "history_hash <> ''"
IS_HIDDEN = "withdrawn OR status = 'undone'"
MAY_BE_CUT_OFF = "status IN ('active', 'interrupted')"


def version_error(name: str, revision: str, place: str) -> StoreVersionError:
    """Return the error for a database with a newer schema. place: where another store may be: "file", "database"."""
    return StoreVersionError(
        f"{name} was written by a newer massmem (schema {revision!r}, this program knows up to {REVISIONS[-1]!r})",
        f"use that massmem, or set store.url to another {place}",
    )


class UtcDateTime(sa.TypeDecorator[datetime]):
    """Aware datetimes in and out; UTC in the database, also where it has no time zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class CleanText(sa.TypeDecorator[str]):
    """Text without characters that a database refuses."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        return None if value is None else clean_text(value)


class CleanJson(sa.TypeDecorator[Any]):
    """A JSON value without characters that a database refuses."""

    impl = sa.JSON
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> Any:
        return clean_json(value)


KEY = CleanText().with_variant(CleanText(collation="C"), "postgresql")
"""An id, ordered by its bytes: PostgreSQL orders text by the database's language unless told otherwise."""

metadata = sa.MetaData()

# Parameters that many statements share.
SESSION = sa.bindparam("of_session", type_=KEY)
TURN = sa.bindparam("of_turn", type_=sa.Integer)


def _session_id(*, primary_key: bool = False) -> sa.Column[str]:
    session = sa.ForeignKey("chat_sessions.session_id", ondelete="CASCADE")
    return sa.Column("session_id", KEY, session, primary_key=primary_key, nullable=False)


def _seq() -> sa.Column[int]:
    return sa.Column("seq", sa.Integer, primary_key=True, autoincrement=False)


def _partial_index(name: str, *columns: str, where: str) -> sa.Index:
    return sa.Index(name, *columns, sqlite_where=sa.text(where))


chat_sessions = sa.Table(
    "chat_sessions",
    metadata,
    sa.Column("session_id", KEY, primary_key=True),
    sa.Column("user_id", CleanText),
    sa.Column("title", CleanText, nullable=False),
    sa.Column("last_message", CleanText, nullable=False),
    sa.Column("message_count", sa.Integer, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("active", sa.Boolean, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("model", CleanText, nullable=False),
    sa.Column("config_path", CleanText, nullable=False),
    sa.Column("description", CleanText, nullable=False),
    sa.Column("memory_group", CleanText, nullable=False, server_default=""),
    sa.Column("project", CleanText, nullable=False, server_default=""),
    sa.Column("history_hash", sa.Text, nullable=False, server_default=""),
    sa.Column("origins", sa.JSON, nullable=False, server_default="[]"),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("updated_at", UtcDateTime, nullable=False),
    sa.Column("used", sa.BigInteger, nullable=False, server_default="0"),
    sa.Index("ix_chat_sessions_created", "created_at", "session_id"),
    sa.Index("ix_chat_sessions_used", "used"),
    _partial_index("ix_chat_sessions_owner", "user_id", "updated_at", where=HAS_OWNER),
    _partial_index("ix_chat_sessions_history", "user_id", "history_hash", where=f"{HAS_OWNER} AND {HAS_HISTORY}"),
    _partial_index("ix_chat_sessions_cut_off", "updated_at", where=f"{HAS_OWNER} AND {MAY_BE_CUT_OFF}"),
)

chat_messages = sa.Table(
    "chat_messages",
    metadata,
    # The search index refers to messages by a number that must survive VACUUM; an implicit rowid does not.
    sa.Column("row_id", sa.Integer().with_variant(sa.BigInteger(), "postgresql"), primary_key=True),
    sa.Column("id", KEY, nullable=False),
    _session_id(),
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
    sa.Column("metadata", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("id", name="uq_chat_messages_id"),
    sa.UniqueConstraint("session_id", "seq", name="uq_chat_messages_seq"),
    sa.Index("idx_chat_messages_session_id", "session_id", "turn", "seq"),
    _partial_index("ix_chat_messages_conversation", "session_id", "seq", where=IS_CONVERSATION),
    _partial_index("ix_chat_messages_summaries", "session_id", "agent_id", "seq", where=IS_SUMMARY),
)


def is_owned_by(owner: Owner) -> sa.ColumnElement[bool]:
    """Return the condition that a row of chat_sessions belongs to this owner."""
    column = chat_sessions.c.user_id
    # The condition of the partial index comes first, though the second one says it all.
    return column.is_(None) if owner.user_id is None else sa.and_(sa.text(HAS_OWNER), column == owner.user_id)


MESSAGE_COLUMNS = tuple(column for column in chat_messages.c if column.name != "row_id")
"""The fields of a MessageRecord."""

turns = sa.Table(
    "turns",
    metadata,
    _session_id(primary_key=True),
    sa.Column("turn", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("question_seq", sa.Integer, nullable=False),
    sa.Column("answer_seq", sa.Integer),
    sa.Column("winner", sa.Text),
    sa.Column("seed", sa.BigInteger, nullable=False),
    sa.Column("started_at", UtcDateTime, nullable=False),
    sa.Column("ended_at", UtcDateTime),
    sa.Column("parent", sa.Integer),
    sa.Column("withdrawn", sa.Boolean, nullable=False, server_default=sa.false()),
    _partial_index("ix_turns_hidden", "session_id", "turn", where=IS_HIDDEN),
)

session_state = sa.Table(
    "session_state",
    metadata,
    _session_id(primary_key=True),
    sa.Column("params_json", CleanJson, nullable=False),
    sa.Column("waiting_for_param", CleanText),
    sa.Column("last_intent_id", CleanText),
    sa.Column("plan_exec_json", CleanJson),
    sa.Column("last_result", CleanJson),
    sa.Column("updated_at", UtcDateTime, nullable=False),
)

# One row per session whose turn is running. `expires_at` lets another process take over from one that was killed.
leases = sa.Table(
    "leases",
    metadata,
    _session_id(primary_key=True),
    sa.Column("owner", CleanText, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

# The seq of each question that was asked under a request name.
requests = sa.Table(
    "requests",
    metadata,
    _session_id(primary_key=True),
    sa.Column("name", KEY, primary_key=True),
    sa.Column("seq", sa.Integer, nullable=False),
    sqlite_with_rowid=False,
)

# The queue of what is to be recorded as memories: about one row per message, so without a number of its own, and with
# an index of pending rows only. agent_id is "" for the user. No text of a message is here.
recordings = sa.Table(
    "recordings",
    metadata,
    _session_id(primary_key=True),
    _seq(),
    sa.Column("kind", KEY, primary_key=True),
    sa.Column("agent_id", KEY, primary_key=True),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("position", sa.Integer),
    sa.Column("since", sa.Integer),
    sa.Column("status", sa.Text, nullable=False, server_default="pending"),
    sa.Column("attempts", sa.Integer, nullable=False, server_default="0"),
    sa.Column("reason", CleanText),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("next_attempt_at", UtcDateTime),
    sa.Column("forgotten", sa.JSON(none_as_null=True)),
    sa.CheckConstraint("kind IN ('episode', 'complete', 'extract')", name="ck_recordings_kind"),
    sa.CheckConstraint("status IN ('pending', 'done', 'failed', 'forgotten')", name="ck_recordings_status"),
    _partial_index("ix_recordings_pending", "kind", "created_at", "session_id", "seq", where=IS_PENDING),
    sqlite_with_rowid=False,
)

# What questions came with and models see, once for each session: another session never finds it.
files = sa.Table(
    "files",
    metadata,
    _session_id(primary_key=True),
    sa.Column("hash", KEY, primary_key=True),
    sa.Column("data", sa.LargeBinary, nullable=False),
)

# Keys of users of the HTTP service. The key itself is nowhere: see massmem/core/records.py.
api_keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("key_hash", KEY, primary_key=True),
    sa.Column("id", KEY, nullable=False),
    sa.Column("sub", CleanText, nullable=False),
    sa.Column("name", CleanText, nullable=False),
    sa.Column("scope", CleanText, nullable=False),
    sa.Column("last_four", sa.Text, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime),
)

# Browsers in which users of the HTTP service have entered. What they send is nowhere: see massmem/core/records.py.
page_sessions = sa.Table(
    "page_sessions",
    metadata,
    sa.Column("cookie_hash", KEY, primary_key=True),
    sa.Column("sub", CleanText, nullable=False),
    sa.Column("scope", CleanText, nullable=False),
    sa.Column("key_hash", sa.Text, nullable=False),
    sa.Column("token_id", CleanText, nullable=False),
    sa.Column("signed_with", sa.Text, nullable=False),
    sa.Column("used_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
)

events = sa.Table(
    "events",
    metadata,
    _session_id(primary_key=True),
    _seq(),
    sa.Column("turn", sa.Integer, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("at", UtcDateTime, nullable=False),
    _partial_index("ix_events_turn", "session_id", "turn", "seq", where=IS_NO_DELTA),
)

# The index holds no second copy of the text (external content). Triggers keep it complete, also when a deleted session
# takes its messages along: SQLite fires them for cascades.
_ADD = "INSERT INTO message_search(rowid, content) VALUES (new.row_id, new.content);"
_REMOVE = "INSERT INTO message_search(message_search, rowid, content) VALUES ('delete', old.row_id, old.content);"
SEARCH = (
    "CREATE VIRTUAL TABLE message_search USING fts5("
    "content, content='chat_messages', content_rowid='row_id', tokenize='unicode61 remove_diacritics 2')",
    f"CREATE TRIGGER message_search_insert AFTER INSERT ON chat_messages BEGIN {_ADD} END",
    f"CREATE TRIGGER message_search_delete AFTER DELETE ON chat_messages BEGIN {_REMOVE} END",
    f"CREATE TRIGGER message_search_update AFTER UPDATE OF content ON chat_messages BEGIN {_REMOVE} {_ADD} END",
)
for _statement in SEARCH:
    event.listen(chat_messages, "after_create", sa.DDL(_statement).execute_if(dialect="sqlite"))

_PUBLIC_ID = "CASE WHEN s.user_id IS NULL THEN s.session_id ELSE substr(s.session_id, 26) END AS session_id"
VIEWS = (
    f"CREATE VIEW conversations AS SELECT {_PUBLIC_ID}, s.user_id, s.title, s.last_message, (SELECT count(*) FROM "
    f"chat_messages m WHERE m.session_id = s.session_id AND ({IS_CONVERSATION})) AS message_count, s.active, "
    "s.created_at, s.updated_at FROM chat_sessions s",
    f"CREATE VIEW conversation_messages AS SELECT m.id, {_PUBLIC_ID}, s.user_id, m.role, m.content, m.confidence, "
    "m.escalated, m.metadata, m.created_at FROM chat_messages m JOIN chat_sessions s ON s.session_id = m.session_id "
    f"WHERE {IS_CONVERSATION}",
)
"""For people with an SQL prompt: what users know, under the ids that they know; massmem does not read them."""
