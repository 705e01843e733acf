"""Full-text search in SQLite: the statement that finds messages by their words and ranks them.

FTS5's bm25() reads every row that matches any word of the query, three seconds among a million messages when `the` is
one of them. So a query's rarer words choose what is ranked, and a query of nothing but common words is not ranked.

New messages are indexed before the next search, or when many of them wait (see schema.SEARCH).
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from massmem.store.prepared import Statement
from massmem.store.schema import chat_messages
from massmem.store.words import MOST_WORDS

_RANKED = 5_000
"""Messages that are ranked, at most: rarer words come first until they match so many together."""

_NEWEST = 1_000
"""Messages with the rarest word that are read for a query of nothing but common ones; some may be reasoning."""

_MOST_WAITING = 512
"""Messages that wait to be indexed; a turn of three agents has some eight."""

# Rising numbers: the newest messages are those that wait.
_INDEXED = "(SELECT coalesce(max(id), 0) FROM message_search_docsize)"
_WAITING = Statement(
    sa.text(f"SELECT coalesce((SELECT max(row_id) FROM chat_messages), 0) - {_INDEXED}").columns(
        sa.column("waiting", sa.Integer)
    )
)
_CATCH_UP = Statement(
    sa.text(
        "INSERT INTO message_search(rowid, content) "
        f"SELECT row_id, content FROM chat_messages WHERE row_id > {_INDEXED} ORDER BY row_id"
    )
)

# To count matches stops where a word is too common to matter; then its length tells how rare it is.
_BEST = """
WITH counted AS MATERIALIZED (
    SELECT each.value AS term, (
        SELECT count(*) FROM (SELECT 1 FROM message_search WHERE message_search MATCH each.value LIMIT :ranked + 1)
    ) AS messages
    FROM json_each(:words) AS each
), ordered AS MATERIALIZED (
    SELECT term, row_number() OVER rarest AS place, sum(messages) OVER rarest AS together
    FROM counted WHERE messages > 0 WINDOW rarest AS (ORDER BY messages, length(term) DESC, term)
), chosen AS MATERIALIZED (
    SELECT (SELECT group_concat(term, ' OR ') FROM ordered WHERE together <= :ranked) AS rare,
           (SELECT term FROM ordered WHERE place = 1 AND together > :ranked) AS common
)
SELECT rowid AS row_id, bm25(message_search) AS score
FROM message_search WHERE message_search MATCH coalesce((SELECT rare FROM chosen), '""')
UNION ALL
SELECT row_id, -row_id AS score FROM (
    SELECT rowid AS row_id FROM message_search
    WHERE message_search MATCH coalesce((SELECT common FROM chosen), '""') ORDER BY rowid DESC LIMIT :newest
)
"""


def behind(connection: sa.Connection, most: int = 0) -> bool:
    """As Dialect.behind, for more than `most` rows."""
    ((waiting,),) = _WAITING.all(connection, {})
    return waiting > most


def catch_up(connection: sa.Connection) -> None:
    """As Dialect.catch_up."""
    _CATCH_UP.change(connection, {})


def index(connection: sa.Connection, _rows: Sequence[dict[str, Any]]) -> None:
    """As Dialect.index."""
    if behind(connection, _MOST_WAITING):
        catch_up(connection)


def search(
    columns: sa.Select[*tuple[Any, ...]], query: str, session_ids: Sequence[str] | None, limit: int
) -> sa.Select[*tuple[Any, ...]] | None:
    """As Dialect.search."""
    # Each word is quoted: what FTS5 would read as an operator is a word like any other.
    words = [f'"{word}"' for word in dict.fromkeys(re.findall(r"\w+", query))][:MOST_WORDS]
    if not words:
        return None
    newest = _NEWEST if session_ids is None else -1  # SQLite's word for all: a session's may be the oldest
    best = sa.text(_BEST).bindparams(words=json.dumps(words), ranked=_RANKED, newest=newest)
    hits = best.columns(sa.column("row_id", sa.Integer), sa.column("score", sa.Float)).subquery()
    found = (
        columns.join_from(hits, chat_messages, hits.c.row_id == chat_messages.c.row_id)
        .where(chat_messages.c.kind.in_(("user", "assistant", "tool_call", "tool_result")))
        .order_by(hits.c.score, chat_messages.c.row_id)
        .limit(limit)
    )
    return found if session_ids is None else found.where(chat_messages.c.session_id.in_(session_ids))
