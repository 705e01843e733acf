"""The session store on a relational database: SQLAlchemy Core, one class for each port.

What differs between databases is a `Dialect`; `sqlite.py` and `postgres.py` have one each, and open the store.
"""

from massmem.store.ports import StoreInfo
from massmem.store.sql.catalogue import SqlKeyTable, SqlSessionCatalogue
from massmem.store.sql.database import Database
from massmem.store.sql.log import SqlLeaseTable, SqlSessionLog
from massmem.store.sql.queue import SqlRecordingQueue


class SqlSessionStore(SqlSessionLog, SqlLeaseTable, SqlRecordingQueue, SqlSessionCatalogue, SqlKeyTable):
    def __init__(self, database: Database, info: StoreInfo) -> None:
        self.info = info
        self._database = database

    async def close(self) -> None:
        await self._database.close()
