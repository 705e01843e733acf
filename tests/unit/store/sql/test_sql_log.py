"""The log of events in SQL: what appending stores besides them, by which statements."""

import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import event

from massmem.store import open_store
from massmem.store.sql import SqlSessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import START, answer, ballot, begin
from tests.support.sample_turn import event as make_event


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "massmem.db"


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqlSessionStore]:
    opened = await open_store(f"sqlite:///{database}", database.parent)
    assert isinstance(opened, SqlSessionStore)
    await opened.create_session(session())
    yield opened
    await opened.close()


def record_statements(store: SqlSessionStore) -> list[str]:
    """Return a list that gets every statement that the store sends from now on, but those of triggers and indexes."""
    statements: list[str] = []

    def record(statement: str) -> None:
        # SQLite tells of a statement again whenever it comes back to it from a trigger.
        if not statement.startswith("--") and "'main'." not in statement and statement != ["", *statements][-1]:
            statements.append(statement)

    for engine in (store._database._engines.write, store._database._engines.read):
        event.listen(engine, "checkout", lambda driver, *_: driver.set_trace_callback(record))
    return statements


async def explain_turn(store: SqlSessionStore, database: Path) -> dict[str, list[str]]:
    """Return every statement that a whole turn and all the reads of a turn send, with SQLite's plan for it."""
    statements = record_statements(store)
    thought = answer(1, "ann", "A").model_copy(update={"reasoning": "because"})
    await store.append("session_a", 1, [begin("ann"), thought, ballot(2, "ann", "ann")])
    await store.append("session_a", 1, [make_event(3, "ballots_voided", round=2, agents=("ann", "bob")), done()])
    await store.append("session_a", 2, [begin("ann")])
    await store.append(
        "session_a", 2, [make_event(3, "agent_delta", agent_id="ann", round=1, channel="text", text="x")]
    )
    await store.abandon_turn("session_a", 2)
    await store.get_last_turn("session_a")
    await store.read_turn_events("session_a", 1)
    await store.read_conversation("session_a", 9, 10)
    await store.read_conversation("session_a", None, 10)
    await store.read_messages("session_a", 3, 10)
    await store.get_session("session_a")
    await store.list_sessions()
    await store.read_turn_messages("session_a", 1)
    await store.get_messages(["0", "1"])
    await store.get_winner_names(["session_a"])
    for kind in ("episode", "complete", "extract"):
        rows = await store.list_due_recordings(kind, 10)
        await store.fail_recording(rows[0], "away", START)
        await store.finish_recordings(rows)
    with closing(sqlite3.connect(database)) as connection:
        return {
            statement: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
            for statement in statements
            if not statement.startswith(("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA"))
        }


# What is inserted; the agents of one turn.
SHORT = re.compile(r"SCAN (\d+ )?CONSTANT ROWS?|USE TEMP B-TREE FOR GROUP BY")


async def test_no_statement_reads_more_than_its_rows(store: SqlSessionStore, database: Path) -> None:
    plans = await explain_turn(store, database)
    verbs = [re.match(r"\w+ (?:INTO )?(\w+)?", statement) for statement in plans]
    assert len(plans) >= 15, verbs
    listing = [steps for statement, steps in plans.items() if "chat_sessions.created_at DESC" in statement]
    assert listing == [["SCAN chat_sessions USING INDEX ix_chat_sessions_created"]]  # a page of it, in its order
    for statement, steps in plans.items():
        if steps not in listing:
            long = [step for step in steps if ("SCAN" in step or "TEMP B-TREE" in step) and not SHORT.fullmatch(step)]
            assert not long, (statement, steps)
    steps = str(plans)
    assert "ix_chat_messages_conversation" in steps
    assert "idx_chat_messages_session_id" in steps
    assert "ix_events_turn" in steps
    assert "ix_recordings_pending" in steps


async def test_number_of_statements_does_not_grow_with_the_batch(store: SqlSessionStore) -> None:
    statements = record_statements(store)
    sizes: list[int] = []
    for events in ([answer(1, "ann", "A")], [answer(1, "ann", "A")] * 32):
        statements.clear()
        await store.append("session_a", 1, events)
        sizes.append(len({re.split(r"\d|'", statement)[0] for statement in statements}))
    assert sizes[0] == sizes[1] <= 9


async def test_positions_of_episodes_go_on_in_the_next_batch(store: SqlSessionStore) -> None:
    await store.append("session_a", 1, [begin("ann"), answer(1, "ann", "The first answer.")])
    await store.append("session_a", 1, [answer(2, "bob", "The second answer."), done(text="The final answer.")])
    assert [row.position for row in await store.list_due_recordings("episode", 9)] == [0, 1, 2, 3]


async def test_messages_outside_of_turns_are_not_looked_through_for_repeated_answers(
    store: SqlSessionStore, database: Path
) -> None:
    """A client may resend a conversation of 10,000 messages: the work must not be their square."""
    added = [make_event(0, "message_added", role="agent", text=f"Message {n}.") for n in range(400)]
    await store.append("session_a", 0, added)
    statements = record_statements(store)
    assert await store.find_repeated_answers([message.id for message in await store.read_messages("session_a")]) == []
    ticks = 0

    def count() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    with closing(sqlite3.connect(database)) as connection:
        connection.set_progress_handler(count, 1_000)
        connection.execute(statements[-1]).fetchall()
    assert ticks < 100, "thousands of steps"
