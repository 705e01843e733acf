"""The files of sessions in Redis: a hash beside each session, base64 by SHA-256, that lives as long as the session."""

from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from massmem.core.messages import clean_text
from massmem.store.ports import FilePages
from massmem.store.redis.server import Server


def files_key(session_id: str) -> str:
    return f"massmem:v3:files:{clean_text(session_id)}"


def remove_files(pipeline: Any, session_id: str, hashes: Collection[str]) -> None:
    """Queue the command that removes these files."""
    if hashes:
        pipeline.hdel(files_key(session_id), *hashes)


class FileTable:
    """Stores, reads and lists files."""

    def __init__(self, server: Server, ttl: int | None) -> None:
        """ttl: milliseconds that a session lives after its last use; None: for ever."""
        self._server = server
        self._ttl = ttl

    async def save(self, session_id: str, files: Mapping[str, bytes]) -> None:
        key = files_key(session_id)
        if files:
            texts = [text for name, data in files.items() for text in (name, b64encode(data).decode())]
            expiry = ("PERSIST", key) if self._ttl is None else ("PEXPIRE", key, self._ttl)
            await self._server.run_all([("HSET", key, *texts), expiry])

    async def load(self, session_id: str, hashes: Sequence[str]) -> dict[str, bytes]:
        if not hashes:
            return {}
        texts: list[str | None] = await self._server.run("HMGET", files_key(session_id), *hashes)
        return {name: b64decode(text) for name, text in zip(hashes, texts, strict=True) if text is not None}

    async def delete(self, session_id: str, hashes: Sequence[str]) -> None:
        if hashes:
            await self._server.run("HDEL", files_key(session_id), *hashes)

    async def list_hashes(self, session_id: str) -> tuple[str, ...]:
        """Return the hashes of a session's files, in order."""
        return tuple(sorted(await self._server.run("HKEYS", files_key(session_id))))

    async def replace(self, session_id: str, files: FilePages | None) -> None:
        """Store files in place of those that the session has."""
        await self._server.run("UNLINK", files_key(session_id))
        if files is not None:
            async for part in files:
                await self.save(session_id, part)

    def renew(self, pipeline: Any, key: str, session_id: str) -> None:
        """Queue the commands after which a session, at `key`, and its files live for as long as a used one."""
        for used in (key, files_key(session_id)):
            _ = pipeline.persist(used) if self._ttl is None else pipeline.pexpire(used, self._ttl)
