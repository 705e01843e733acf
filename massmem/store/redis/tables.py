"""Beside the sessions in Redis: searching them, their files, and the API keys of users.

Sessions are found by a filter, messages by words with SQLite's full-text search in memory: sessions in Redis are short
and expire, there is no index to keep. Files are a hash beside each session, base64 by SHA-256, that lives as long as
the session. API keys are one hash, JSON by the SHA-256 of the key; they do not expire with sessions. A browser
is a text of its own, which expires when the browser has to enter again.
"""

import sqlite3
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from typing import Any

from massmem.core.messages import clean_text
from massmem.core.records import (
    EVERYBODY,
    ApiKey,
    Everybody,
    MessageRecord,
    Owner,
    PageSession,
    SessionFilter,
    SessionRecord,
)
from massmem.store.encoding import find_unspaced_words, merge_hits, quote_words
from massmem.store.ports import MAX_BROWSERS, SEARCHED_KINDS, FilePages
from massmem.store.redis.server import RedisConnection

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
        hits: list[MessageRecord] = [
            messages[number] for (number,) in database.execute(_BEST, (" OR ".join(words), limit))
        ]
    if not (unspaced := find_unspaced_words(clean_text(query))):
        return hits
    counts = [(sum(word in m.content for word in unspaced), m) for m in messages if m.kind in SEARCHED_KINDS]
    counts.sort(key=lambda hit: (-hit[0], -hit[1].created_at.timestamp()))
    return merge_hits([message for number, message in counts if number], hits, limit)


def matches(session: SessionRecord, criteria: SessionFilter) -> bool:
    """Return whether the session matches every field that is set."""
    text = clean_text(criteria.text).casefold()
    texts = (session.session_id, session.title, session.last_message, session.description)
    return (
        criteria.status in (None, session.status)
        and any(text in field.casefold() for field in texts)
        and (criteria.title is None or clean_text(criteria.title).casefold() == session.title.casefold())
        and clean_text(criteria.session_id) in ("", session.session_id)
        and session.session_id.startswith(clean_text(criteria.prefix))
        and is_owned_by(session, criteria.owner)
        and criteria.history_hash in ("", session.history_hash)
        and (criteria.since is None or session.updated_at >= criteria.since)
        and (criteria.before is None or session.updated_at < criteria.before)
        and (not criteria.has_messages or session.message_count > 0)
        and (not criteria.fork_of or criteria.fork_of in dict(session.origins))
        and (not criteria.cut_off or (session.user_id is not None and session.status in ("active", "interrupted")))
    )


def is_owned_by(session: SessionRecord, owner: Owner | Everybody) -> bool:
    return owner is EVERYBODY or session.user_id == (owner.user_id and clean_text(owner.user_id))


def files_key(session_id: str) -> str:
    return f"massmem:v3:files:{clean_text(session_id)}"


class RedisFileTable:
    _server: RedisConnection
    _ttl: int | None
    """Milliseconds that a session lives after its last use; None: for ever."""

    async def _save_files(self, session_id: str, files: Mapping[str, bytes]) -> None:
        key = files_key(session_id)
        if files:
            texts = [text for name, data in files.items() for text in (name, b64encode(data).decode())]
            expiry = ("PERSIST", key) if self._ttl is None else ("PEXPIRE", key, self._ttl)
            await self._server.run_all([("HSET", key, *texts), expiry])

    async def load_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, bytes]:
        if not hashes:
            return {}
        texts: list[str | None] = await self._server.run("HMGET", files_key(session_id), *hashes)
        return {name: b64decode(text) for name, text in zip(hashes, texts, strict=True) if text is not None}

    async def delete_files(self, session_id: str, hashes: Sequence[str]) -> None:
        if hashes:
            await self._server.run("HDEL", files_key(session_id), *hashes)

    async def _add_files(self, session_id: str, files: FilePages | None) -> set[str]:
        """Store files beside those that the session has; return their hashes."""
        added = set[str]()
        if files is not None:
            async for part in files:
                await self._save_files(session_id, part)
                added |= {*part}
        return added

    def _renew(self, pipeline: Any, key: str, session_id: str) -> None:
        """Queue the commands after which a session, at `key`, and its files live for as long as a used one."""
        for used in (key, files_key(session_id)):
            _ = pipeline.persist(used) if self._ttl is None else pipeline.pexpire(used, self._ttl)


API_KEYS = "massmem:v3:api_keys"
PAGE_SESSION = "massmem:v3:page:"

_MAX_LIFETIME = 30 * 86_400
"""Seconds in which the list of a user's browsers goes when none is added."""


class RedisKeyTable:
    _server: RedisConnection

    async def add_key(self, key: ApiKey) -> None:
        await self._server.run("HSET", API_KEYS, key.key_hash, key.model_dump_json())

    async def find_key(self, key_hash: str) -> ApiKey | None:
        text = await self._server.run("HGET", API_KEYS, key_hash)
        return None if text is None else ApiKey.model_validate_json(text)

    async def list_keys(self) -> list[ApiKey]:
        keys = [ApiKey.model_validate_json(text) for text in await self._server.run("HVALS", API_KEYS)]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def delete_key(self, key_id: str) -> bool:
        hashes = [key.key_hash for key in await self.list_keys() if key.id == key_id]
        return bool(hashes) and await self._server.run("HDEL", API_KEYS, *hashes) > 0

    async def add_page_session(self, session: PageSession) -> None:
        seconds = max(1, int((session.expires_at - session.used_at).total_seconds()))
        of_user = f"{PAGE_SESSION}of:{sha256(session.sub.encode()).hexdigest()}"
        add = ("SET", PAGE_SESSION + session.cookie_hash, session.model_dump_json(), "EX", seconds)
        *_, oldest = await self._server.run_all(
            [
                add,
                ("LPUSH", of_user, session.cookie_hash),
                ("EXPIRE", of_user, _MAX_LIFETIME),
                ("LRANGE", of_user, MAX_BROWSERS, -1),
            ]
        )
        gone = [("UNLINK", PAGE_SESSION + cookie_hash) for cookie_hash in oldest]
        await self._server.run_all([*gone, ("LTRIM", of_user, 0, MAX_BROWSERS - 1)])

    async def renew_page_session(self, session: PageSession) -> None:
        key = PAGE_SESSION + session.cookie_hash
        await self._server.run("SET", key, session.model_dump_json(), "XX", "KEEPTTL")

    async def find_page_session(self, cookie_hash: str) -> PageSession | None:
        text = await self._server.run("GET", PAGE_SESSION + cookie_hash)
        return None if text is None else PageSession.model_validate_json(text)

    async def delete_page_session(self, cookie_hash: str) -> None:
        await self._server.run("UNLINK", PAGE_SESSION + cookie_hash)
