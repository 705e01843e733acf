"""Statements that are compiled once and handed to the driver with nothing in between.

To run a statement SQLAlchemy takes five times as long as SQLite does. What a statement says, and how its values are
translated, still comes from SQLAlchemy, as do connections and transactions; errors are those that it would raise.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.sql.compiler import SQLCompiler

T = TypeVar("T")

Row = dict[str, Any]
Ready = tuple[str, Any]
"""A statement as the driver takes it, with its values."""

_Process = Callable[[Any], Any]

_MOST_ROWS = 32
"""Rows of one INSERT: of our widest table half of the 999 values that every SQLite takes."""


class Statement:
    """One that is kept as long as the program runs; what differs from call to call are its parameters.

    lists: which of them are sequences, for IN; they may not be empty.
    """

    def __init__(self, statement: sa.Executable, *, lists: Sequence[str] = ()) -> None:
        self._statement = statement
        self._lists = lists
        self._forms: dict[tuple[str | int, ...], _Form] = {}
        self._columns: dict[str, _Columns] = {}

    def all(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> list[list[Any]]:
        """The rows that are found, each with its values in the order of the columns."""
        found, description = self._run(connection, parameters, lambda cursor: (cursor.fetchall(), cursor.description))
        rows = [list(row) for row in found]
        for place, process in self._found(connection.dialect, description).processes:
            for row in rows:
                row[place] = process(row[place])
        return rows

    def rows(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> list[Row]:
        """The rows that are found, each by the names of its columns."""
        found = self.all(connection, parameters)
        names = self._columns[connection.dialect.name].names
        return [dict(zip(names, row, strict=True)) for row in found]

    def change(self, connection: sa.Connection, parameters: Mapping[str, Any]) -> int:
        """Returns how many rows it changed."""
        return self._run(connection, parameters, lambda cursor: cursor.rowcount)

    def change_each(self, connection: sa.Connection, parameters: Sequence[Mapping[str, Any]]) -> None:
        """As often as there are parameters."""
        form = self._form(connection.dialect, parameters[0])
        values = [form.values(each) for each in parameters]
        run(connection, form.text, lambda cursor: cursor.executemany(form.text, values))

    def ready(self, dialect: sa.Dialect, parameters: Mapping[str, Any]) -> Ready:
        """For `send`."""
        if self._lists:
            parameters = {**parameters, **{name: _filled(parameters[name]) for name in self._lists}}
        form = self._form(dialect, parameters)
        return form.text, form.values(parameters)

    def _run(self, connection: sa.Connection, parameters: Mapping[str, Any], take: Callable[[Any], T]) -> T:
        text, values = self.ready(connection.dialect, parameters)

        def execute(cursor: Any) -> T:
            cursor.execute(text, values)
            return take(cursor)

        return run(connection, text, execute)

    def _form(self, dialect: sa.Dialect, parameters: Mapping[str, Any]) -> "_Form":
        key = (dialect.name, *[len(parameters[name]) for name in self._lists])
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = _form(self._statement, dialect, parameters)
        return found

    def _found(self, dialect: sa.Dialect, description: Sequence[Sequence[Any]]) -> "_Columns":
        """description: the driver's, of the columns."""
        found = self._columns.get(dialect.name)
        if found is None:
            assert isinstance(self._statement, sa.SelectBase)
            columns = self._statement.selected_columns
            processes = [
                column.type.dialect_impl(dialect).result_processor(dialect, told[1])
                for column, told in zip(columns, description, strict=True)
            ]
            translated = tuple((place, process) for place, process in enumerate(processes) if process)
            found = self._columns[dialect.name] = _Columns(tuple(columns.keys()), translated)
        return found


class Insertion:
    """Rows for a table, many with one statement."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._forms: dict[tuple[Any, ...], _RowsForm] = {}

    def insert(self, connection: sa.Connection, rows: Sequence[Row]) -> None:
        """rows: all with the same keys; a column that they do not name gets its default."""
        send(connection, self.ready(connection.dialect, rows))

    def ready(self, dialect: sa.Dialect, rows: Sequence[Row]) -> list[Ready]:
        """For `send`. rows: as for `insert`."""
        made: list[Ready] = []
        done = 0
        while done < len(rows):
            # Powers of two alone: few statements, which the driver soon knows all.
            size = min(_MOST_ROWS, 1 << (len(rows) - done).bit_length() - 1)
            form = self._form(dialect, rows[0], size)
            made.append((form.text, form.values(rows[done : done + size])))
            done += size
        return made

    def _form(self, dialect: sa.Dialect, row: Row, size: int) -> "_RowsForm":
        key = (dialect.name, size, *row)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = _rows_form(self._table, dialect, row, size)
        return found


def send(connection: sa.Connection, statements: Iterable[Ready]) -> None:
    """One after the other. Raises as `run`."""
    for text, values in statements:
        run(connection, text, lambda cursor, text=text, values=values: cursor.execute(text, values))


def run(connection: sa.Connection, text: str, execute: Callable[[Any], T]) -> T:
    """What `execute` returns, called with a cursor of the driver. text: of the statement that it sends, for errors.

    Raises DBAPIError and IntegrityError, as SQLAlchemy does.
    """
    dialect, driver = connection.dialect, connection.connection
    errors = dialect.loaded_dbapi
    try:
        cursor = driver.cursor()
        try:
            return execute(cursor)
        finally:
            cursor.close()
    except errors.Error as e:
        if dialect.is_disconnect(e, driver, None):
            connection.invalidate(e)
        kind = exc.IntegrityError if isinstance(e, errors.IntegrityError) else exc.DBAPIError
        raise kind(text, None, e) from e


@dataclass(frozen=True, slots=True)
class _Form:
    """A statement as one kind of database takes it.

    given: its values by name, in their order, and how each is translated. constants: those that are its own. lists:
    the names that the values of a sequence have. by_name: the driver wants names with the values.
    """

    text: str
    given: Sequence[tuple[str, _Process | None]]
    constants: Mapping[str, Any]
    lists: Mapping[str, Sequence[str]]
    by_name: bool

    def values(self, parameters: Mapping[str, Any]) -> Any:
        if self.constants:
            parameters = {**self.constants, **parameters}
        for name, names in self.lists.items():
            parameters = {**parameters, **dict(zip(names, parameters[name], strict=True))}
        if self.by_name:
            return {name: process(parameters[name]) if process else parameters[name] for name, process in self.given}
        return [process(parameters[name]) if process else parameters[name] for name, process in self.given]


@dataclass(frozen=True, slots=True)
class _Columns:
    """names: of what is found. processes: the places whose values are translated, and how."""

    names: tuple[str, ...]
    processes: Sequence[tuple[int, _Process]]


@dataclass(frozen=True, slots=True)
class _RowsForm:
    """An INSERT of some rows. columns: with their translation. names: of all values, when the driver wants them."""

    text: str
    columns: Sequence[tuple[str, _Process | None]]
    names: Sequence[str] | None

    def values(self, rows: Sequence[Row]) -> Any:
        columns = self.columns
        values = [process(row[name]) if process else row[name] for row in rows for name, process in columns]
        return values if self.names is None else dict(zip(self.names, values, strict=True))


def _form(statement: sa.Executable, dialect: sa.Dialect, parameters: Mapping[str, Any]) -> _Form:
    compiled = _compiled(statement, dialect)
    state = compiled.construct_expanded_state(parameters)
    names = state.positiontup or tuple(state.parameters)
    lists = {name: names for name, names in state.parameter_expansion.items() if name in parameters}
    origin = {each: name for name, expanded in state.parameter_expansion.items() for each in expanded}
    return _Form(
        state.statement,
        [(name, _process(compiled, origin.get(name, name))) for name in names],
        {name: state.parameters[name] for name in names if origin.get(name, name) not in parameters},
        lists,
        by_name=state.positiontup is None,
    )


def _rows_form(table: sa.Table, dialect: sa.Dialect, row: Row, size: int) -> _RowsForm:
    columns = [column for column in table.c if column.key in row]
    names = [f"{column.key}_{place}" for place in range(size) for column in columns]
    values = [
        {column.key: sa.bindparam(f"{column.key}_{place}", type_=column.type) for column in columns}
        for place in range(size)
    ]
    compiled = _compiled(sa.insert(table).values(values), dialect)
    assert not compiled.positional or compiled.positiontup == names
    processes = [(column.key, _process(compiled, f"{column.key}_0")) for column in columns]
    return _RowsForm(compiled.string, processes, None if compiled.positional else names)


def _compiled(statement: sa.Executable, dialect: sa.Dialect) -> SQLCompiler:
    assert isinstance(statement, sa.ClauseElement)
    compiled = statement.compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    return compiled


def _process(compiled: SQLCompiler, name: str) -> _Process | None:
    dialect = compiled.dialect
    return compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect)


def _filled(values: Sequence[Any]) -> Sequence[Any]:
    """Repeats the last one up to a power of two: few statements, which the driver soon knows all."""
    return [*values, *[values[-1]] * ((1 << (len(values) - 1).bit_length()) - len(values))]
