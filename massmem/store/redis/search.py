"""Finds sessions and messages: sessions by a filter, messages by words with SQLite's full-text search in memory.

Sessions in Redis are short and expire: there is no index to keep.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from massmem.core.messages import clean_text
from massmem.core.records import EVERYBODY, Everybody, MessageRecord, Owner, SessionFilter, SessionRecord
from massmem.store.encoding import quote_words
from massmem.store.ports import SEARCHED_KINDS

_CREATE = "CREATE VIRTUAL TABLE texts USING fts5(content, tokenize='unicode61 remove_diacritics 2')"
_BEST = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY bm25(texts), rowid LIMIT ?"


def search(messages: Sequence[MessageRecord], query: str, limit: int) -> list[MessageRecord]:
    """Return messages with words of the query, best first, without reasoning."""
    words = quote_words(clean_text(query))
    if not words:
        return []
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(_CREATE)
        rows = ((number, m.content) for number, m in enumerate(messages) if m.kind in SEARCHED_KINDS)
        database.executemany("INSERT INTO texts(rowid, content) VALUES (?, ?)", rows)
        return [messages[number] for (number,) in database.execute(_BEST, (" OR ".join(words), limit))]


def matches(session: SessionRecord, criteria: SessionFilter) -> bool:
    """Return whether the session matches every field that is set."""
    text = clean_text(criteria.text).casefold()
    texts = (session.session_id, session.title, session.last_message, session.description)
    return (
        criteria.status in (None, session.status)
        and any(text in field.casefold() for field in texts)
        and (criteria.title is None or clean_text(criteria.title).casefold() == session.title.casefold())
        and session.session_id.startswith(clean_text(criteria.prefix))
        and is_owned_by(session, criteria.owner)
        and criteria.history_hash in ("", session.history_hash)
        and (not criteria.has_messages or session.message_count > 0)
        and (not criteria.cut_off or (session.user_id is not None and session.status in ("active", "interrupted")))
    )


def is_owned_by(session: SessionRecord, owner: Owner | Everybody) -> bool:
    """Return whether the session is one of `owner`."""
    return owner is EVERYBODY or session.user_id == (owner.user_id and clean_text(owner.user_id))
