"""The API keys of users in Redis: one hash, JSON by the SHA-256 of the key. They do not expire with sessions."""

from massmem.core.records import ApiKey
from massmem.store.redis.server import Server

API_KEYS = "massmem:v3:api_keys"


class RedisKeyTable:
    """The KeyTable port."""

    _server: Server

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
