"""Statements that go to the driver as they are: the same values, rows and errors as by SQLAlchemy's own way."""

from collections.abc import Generator
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import exc

from massmem.store.prepared import Insertion, Statement, run
from massmem.store.schema import UtcDateTime

THINGS = sa.Table(
    "things",
    sa.MetaData(),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("name", sa.Text, nullable=False, server_default="nameless"),
    sa.Column("there", sa.Boolean),
    sa.Column("share", sa.Float),
    sa.Column("more", sa.JSON(none_as_null=True)),
    sa.Column("at", UtcDateTime),
)
ALL = Statement(sa.select(THINGS).order_by(THINGS.c.number))
SOME = Statement(
    sa.select(THINGS.c.number.label("it")).where(
        THINGS.c.number.in_(sa.bindparam("wanted", expanding=True)), THINGS.c.name.in_(("nameless", "other"))
    ),
    lists=["wanted"],
)
MOVE = Statement(
    sa.update(THINGS)
    .where(THINGS.c.number == sa.bindparam("of_number", type_=sa.Integer))
    .values(at=sa.bindparam("new_at", type_=UtcDateTime), there=True)
)
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@pytest.fixture
def connection() -> Generator[sa.Connection]:
    engine = sa.create_engine("sqlite://", connect_args={"isolation_level": None})
    THINGS.metadata.create_all(engine)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def thing(number: int, **more: Any) -> dict[str, Any]:
    return {"number": number, "there": None, "share": None, "more": None, "at": None} | more


def test_values_are_translated_as_sqlalchemy_does(connection: sa.Connection) -> None:
    there = thing(1, there=True, share=0.1, more={"a": [1]}, at=NOON.astimezone(timezone(timedelta(hours=5))))
    Insertion(THINGS).insert(connection, [there, thing(2)])
    found = ALL.rows(connection, {})
    assert found == [{**row} for row in connection.execute(sa.select(THINGS)).mappings()]
    assert found == [
        {"number": 1, "name": "nameless", "there": True, "share": 0.1, "more": {"a": [1]}, "at": NOON},
        {"number": 2, "name": "nameless", "there": None, "share": None, "more": None, "at": None},
    ]
    assert ALL.all(connection, {}) == [[*row.values()] for row in found]


@given(st.integers(0, 100))
def test_any_number_of_rows(count: int) -> None:
    engine = sa.create_engine("sqlite://", connect_args={"isolation_level": None})
    THINGS.metadata.create_all(engine)
    with engine.connect() as opened:
        Insertion(THINGS).insert(opened, [thing(number, share=number / 3) for number in range(count)])
        assert [(row["number"], row["share"]) for row in ALL.rows(opened, {})] == [(n, n / 3) for n in range(count)]
    engine.dispose()


def test_rows_with_other_columns(connection: sa.Connection) -> None:
    of_things = Insertion(THINGS)
    of_things.insert(connection, [{"number": 1, "name": "a"}])
    of_things.insert(connection, [{"number": 2, "share": 1.5}])
    assert [(row["name"], row["share"]) for row in ALL.rows(connection, {})] == [("a", None), ("nameless", 1.5)]


def test_lists_of_any_length(connection: sa.Connection) -> None:
    Insertion(THINGS).insert(connection, [thing(number) for number in range(9)])
    for length in range(1, 9):
        found = SOME.rows(connection, {"wanted": range(length)})
        assert [row["it"] for row in found] == [*range(length)]


def test_changes(connection: sa.Connection) -> None:
    Insertion(THINGS).insert(connection, [thing(1), thing(2)])
    assert MOVE.change(connection, {"of_number": 1, "new_at": NOON}) == 1
    assert MOVE.change(connection, {"of_number": 9, "new_at": NOON}) == 0
    later = NOON + timedelta(hours=1)
    MOVE.change_each(connection, [{"of_number": number, "new_at": later} for number in (1, 2, 3)])
    assert [(row["at"], row["there"]) for row in ALL.rows(connection, {})] == [(later, True)] * 2


def test_errors_are_those_of_sqlalchemy(connection: sa.Connection) -> None:
    with pytest.raises(exc.IntegrityError) as refused:
        Insertion(THINGS).insert(connection, [thing(1, more="secret"), thing(1)])
    assert refused.value.orig is refused.value.__cause__
    assert "secret" not in str(refused.value)
    with pytest.raises(exc.DBAPIError, match="no such table"):
        run(connection, "DROP TABLE nowhere", lambda cursor: cursor.execute("DROP TABLE nowhere"))
    assert ALL.rows(connection, {}) == []
