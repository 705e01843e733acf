"""Full-text search in PostgreSQL: the index entry of a text, and the statement that finds and ranks messages.

Words are split and folded here, since how the server does it depends on how it was set up. PostgreSQL ranks without
knowing how rare a word is, and ranks every row that matches: so the statement weighs words by their rarity, as BM25
does, and where a query matches very many messages, its rarer words choose those that are ranked.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY

from massmem.store.schema import CleanText, chat_messages
from massmem.store.sql.database import SearchScope
from massmem.store.tokenizer import split_query, split_words

_MAX_BYTES = 900_000
"""Of one message's words: a tsvector holds a megabyte. What comes later in the message is not found."""

_MAX_POSITIONS, _LAST_POSITION = 255, 16_383
"""Of a word in a tsvector."""

_MAX_RANKED = 5_000
"""Messages that a search ranks, about: rarer words come first until they match so many together."""

_MAX_READ = 10_000
"""And at most, for a query of nothing but common words."""

_MAX_HIDDEN = 1_000
"""Messages of undone turns that may match better without keeping others from being found."""

# Frequencies are the server's own estimates (pg_stats); a word that is not among the commonest counts as rare.
# The weight of a word is BM25's: ln(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N messages.
_BEST = """
WITH common AS (
    SELECT frequent.word, frequent.share * c.reltuples AS messages
    FROM pg_stats s JOIN pg_class c ON c.oid = to_regclass('message_search')
    CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS frequent(word, share)
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
    WHERE words @@ (SELECT query FROM chosen) {conditions} LIMIT :read
), size AS MATERIALIZED (
    SELECT greatest((SELECT count(*) FROM hits), (SELECT max(messages) FROM terms),
                    (SELECT reltuples FROM pg_class WHERE oid = to_regclass('message_search'))) AS messages
), weights AS MATERIALIZED (
    SELECT terms.query, ln(1 + (size.messages - matches.messages + 0.5) / (matches.messages + 0.5)) AS weight
    FROM terms CROSS JOIN size CROSS JOIN LATERAL (
        SELECT greatest(count(*), terms.messages) AS messages FROM hits WHERE hits.words @@ terms.query
    ) AS matches
)
SELECT session_id, seq, (SELECT sum(ts_rank(hits.words, query, 1) * weight) FROM weights) AS score
FROM hits ORDER BY score DESC, session_id, seq LIMIT :most
"""
_OF_SESSIONS = "AND session_id = ANY(:sessions)"
_OF_OWNER = (
    "AND session_id IN (SELECT session_id FROM chat_sessions WHERE user_id IS NOT DISTINCT FROM cast(:owner AS text))"
)


def build_tsvector(text: str) -> str:
    """Return the words of a text with their positions, as PostgreSQL reads a tsvector."""
    positions: dict[str, list[int]] = {}
    size = 0
    for position, word in enumerate(split_words(text), 1):
        if word not in positions:
            size += len(word.encode()) + 8
            if size > _MAX_BYTES:
                break
            positions[word] = []
        if len(positions[word]) < _MAX_POSITIONS and position <= _LAST_POSITION:
            positions[word].append(position)
            size += 2
    return " ".join(f"'{word}':{','.join(map(str, at))}" if at else f"'{word}'" for word, at in positions.items())


def build_tsqueries(query: str) -> dict[str, str]:
    """Return a tsquery for each word of the query, with the part of the word that tells how rare it is, the longest.

    Parts of one word (snake_case) must stand side by side.
    """
    return {" <-> ".join(f"'{part}'" for part in word): max(word, key=len) for word in split_query(query)}


def build_search(
    columns: sa.Select[*tuple[Any, ...]], query: str, scope: SearchScope, limit: int
) -> sa.Select[*tuple[Any, ...]] | None:
    """See Dialect.build_search."""
    tsqueries = build_tsqueries(query)
    if not tsqueries:
        return None
    texts = ARRAY(sa.Text)
    binds: list[sa.BindParameter[Any]] = [
        sa.bindparam("terms", list(tsqueries), type_=texts),
        sa.bindparam("words", list(tsqueries.values()), type_=texts),
        sa.bindparam("ranked", _MAX_RANKED),
        sa.bindparam("read", _MAX_READ),
        sa.bindparam("most", limit + _MAX_HIDDEN),
    ]
    conditions: list[str] = []
    if scope.session_ids is not None:
        conditions.append(_OF_SESSIONS)
        binds.append(sa.bindparam("sessions", list(scope.session_ids), type_=texts))
    if scope.owner is not None:
        conditions.append(_OF_OWNER)
        binds.append(sa.bindparam("owner", scope.owner.user_id, type_=CleanText))
    statement = sa.text(_BEST.format(conditions=" ".join(conditions)))
    m = chat_messages.c
    best = statement.bindparams(*binds).columns(m.session_id, m.seq, sa.column("score", sa.Float)).subquery()
    same_message = sa.and_(m.session_id == best.c.session_id, m.seq == best.c.seq)
    return columns.join_from(chat_messages, best, same_message).order_by(best.c.score.desc(), m.row_id).limit(limit)
