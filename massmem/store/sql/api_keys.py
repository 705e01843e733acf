"""The API keys of users."""

import sqlalchemy as sa

from massmem.core.records import ApiKey
from massmem.store.schema import KEY, api_keys
from massmem.store.sql.database import Database

_k = api_keys.c
_HASH = sa.bindparam("of_hash", type_=KEY)
_FIND = sa.select(api_keys).where(_k.key_hash == _HASH)
_DELETE = sa.delete(api_keys).where(_k.id == sa.bindparam("of_id", type_=KEY))


class SqlKeyTable:
    """The KeyTable port."""

    _database: Database

    async def add_key(self, key: ApiKey) -> None:
        await self._database.execute(sa.insert(api_keys), key.model_dump())

    async def find_key(self, key_hash: str) -> ApiKey | None:
        rows = await self._database.fetch(_FIND, {"of_hash": key_hash})
        return ApiKey(**rows[0]) if rows else None

    async def list_keys(self) -> list[ApiKey]:
        rows = await self._database.fetch(sa.select(api_keys).order_by(_k.created_at, _k.id))
        return [ApiKey(**row) for row in rows]

    async def delete_key(self, key_id: str) -> bool:
        return await self._database.execute(_DELETE, {"of_id": key_id}) > 0
