"""What differs between relational databases, as one value: `sqlite.py` and `postgres.py` make it, the rest uses it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from massmem.errors import StoreError

Search = Callable[
    [sa.Select[*tuple[Any, ...]], str, Sequence[str] | None, int], sa.Select[*tuple[Any, ...]] | None
]  # fmt: skip
"""(a SELECT of chat_messages, the query, sessions or all, limit): the messages with any word of the query, best first.

None when the query has no words. Reasoning is left out.
"""


@dataclass(frozen=True, slots=True)
class Dialect:
    """writers, readers: transactions at the same time in one process. reading: options of connections that read."""

    writers: int
    readers: int
    reading: Mapping[str, Any]
    insert: Callable[[sa.Table], sqlite.Insert | postgresql.Insert]
    """An INSERT that knows ON CONFLICT."""
    moment: Callable[[str], sa.ColumnElement[datetime]]
    """The database's own time, as far from now as the parameter of this name says."""
    ahead: Callable[[float], Any]
    """The value, for so many seconds from now, of a parameter of `moment`."""
    lock: Callable[[sa.Connection, str], None]
    """Let no other transaction append to this session until this one ends."""
    index: Callable[[sa.Connection, Sequence[dict[str, Any]]], None]
    """Make new rows of chat_messages found by `search`, at once or later."""
    behind: Callable[[sa.Connection], bool]
    """Whether rows wait that `search` does not find."""
    catch_up: Callable[[sa.Connection], None]
    """Make them found."""
    search: Search
    erase: Callable[[sa.Engine], bool]
    """Leave nothing on the disk of what was deleted; False when others keep that from happening now."""
    is_duplicate: Callable[[BaseException | None], bool]
    """Whether a row was refused because there is one with the same key."""
    is_missing_parent: Callable[[BaseException | None], bool]
    """Whether a row was refused because the row that it belongs to does not exist."""
    is_conflict: Callable[[BaseException | None], bool]
    """Whether the transaction was undone for the sake of another one and can simply run again."""
    error: Callable[[BaseException | None], StoreError]
    """The error to show for one of the driver's."""
