"""Search in messages by their words, with SQLite's full-text search in memory.

Sessions in Redis are short and expire: there is no index to keep.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing

from massmem.core.messages import clean_text
from massmem.core.records import MessageRecord
from massmem.store.ports import SEARCHED_KINDS
from massmem.store.tokenizer import quote_words

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
