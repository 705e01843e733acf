"""Full-text search in PostgreSQL: which words a text has, and the statement that finds and ranks by them.

Words are cut and folded here, since how the server does it depends on how it was set up: they are runs of letters and
digits, without case and accents, as SQLite's index has them. PostgreSQL ranks without knowing how rare a word is, and
ranks every row that matches: so the statement weighs words by their rarity, as BM25 does, and where a query matches
very many messages, its rarer words choose those that are ranked.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from massmem.store.schema import chat_messages
from massmem.store.words import sought, words

_MOST_BYTES = 900_000
"""Of one message's words: a tsvector takes a megabyte. What comes later in the message is not found."""

_MOST_POSITIONS, _LAST_POSITION = 255, 16_383

_RANKED = 5_000
"""Messages that are ranked, about: rarer words come first until they match so many together."""

_READ = 10_000
"""And at most, for a query of nothing but common words."""

# Frequencies are the server's own estimates (pg_stats); a word that is not among the commonest counts as rare.
# The weight of a word is BM25's: ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N messages.
_BEST = """
WITH common AS (
    SELECT each.word, each.share * c.reltuples AS messages
    FROM pg_stats s JOIN pg_class c ON c.oid = to_regclass('message_search')
    CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS each(word, share)
    WHERE s.schemaname = current_schema() AND s.tablename = 'message_search' AND s.attname = 'words'
), terms AS MATERIALIZED (
    SELECT wanted.term, wanted.term::tsquery AS query, coalesce(common.messages, 0) AS messages,
           sum(coalesce(common.messages, 0)) OVER rarest AS together, row_number() OVER rarest AS place
    FROM unnest(:terms, :words) AS wanted(term, word) LEFT JOIN common ON common.word = wanted.word
    WINDOW rarest AS (ORDER BY coalesce(common.messages, 0), wanted.term)
), chosen AS MATERIALIZED (
    SELECT string_agg(term, ' | ')::tsquery AS query FROM terms WHERE place = 1 OR together <= :ranked
), hits AS MATERIALIZED (
    SELECT session_id, seq, words FROM message_search
    WHERE words @@ (SELECT query FROM chosen) {of_sessions} LIMIT :read
), size AS MATERIALIZED (
    SELECT greatest((SELECT count(*) FROM hits), (SELECT max(messages) FROM terms),
                    (SELECT reltuples FROM pg_class WHERE oid = to_regclass('message_search'))) AS messages
), weights AS MATERIALIZED (
    SELECT terms.query, ln(1 + (size.messages - found.messages + 0.5) / (found.messages + 0.5)) AS weight
    FROM terms CROSS JOIN size CROSS JOIN LATERAL (
        SELECT greatest(count(*), terms.messages) AS messages FROM hits WHERE hits.words @@ terms.query
    ) AS found
)
SELECT session_id, seq, (SELECT sum(ts_rank(hits.words, query, 1) * weight) FROM weights) AS score
FROM hits ORDER BY score DESC, session_id, seq LIMIT :most
"""
_OF_SESSIONS = "AND session_id = ANY(:sessions)"


def vector(text: str) -> str:
    """The words of a text with their positions, as PostgreSQL reads a tsvector."""
    places: dict[str, list[int]] = {}
    size = 0
    for place, word in enumerate(words(text), 1):
        found = places.get(word)
        if found is None:
            size += len(word.encode()) + 8
            if size > _MOST_BYTES:
                break
            found = places[word] = []
        if len(found) < _MOST_POSITIONS and place <= _LAST_POSITION:
            found.append(place)
            size += 2
    return " ".join(f"'{word}':{','.join(map(str, at))}" if at else f"'{word}'" for word, at in places.items())


def terms(query: str) -> dict[str, str]:
    """A tsquery for each word of the query, with the word that tells how rare it is; the first MOST_WORDS of them.

    Parts of one word (snake_case) stand side by side, and the longest tells.
    """
    return {" <-> ".join(f"'{part}'" for part in word): max(word, key=len) for word in sought(query)}


def search(
    columns: sa.Select[*tuple[Any, ...]], query: str, session_ids: Sequence[str] | None, limit: int
) -> sa.Select[*tuple[Any, ...]] | None:
    """As Dialect.search."""
    wanted = terms(query)
    if not wanted:
        return None
    texts = ARRAY(sa.Text)
    binds: list[sa.BindParameter[Any]] = [
        sa.bindparam("terms", list(wanted), type_=texts),
        sa.bindparam("words", list(wanted.values()), type_=texts),
        sa.bindparam("ranked", _RANKED),
        sa.bindparam("read", _READ),
        sa.bindparam("most", limit),
    ]
    if session_ids is not None:
        binds.append(sa.bindparam("sessions", list(session_ids), type_=texts))
    statement = sa.text(_BEST.format(of_sessions="" if session_ids is None else _OF_SESSIONS))
    m = chat_messages.c
    best = statement.bindparams(*binds).columns(m.session_id, m.seq, sa.column("score", sa.Float)).subquery()
    there = sa.and_(m.session_id == best.c.session_id, m.seq == best.c.seq)
    return columns.join_from(chat_messages, best, there).order_by(best.c.score.desc(), m.row_id)
