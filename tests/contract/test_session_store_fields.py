"""What every SessionStore promises of each field of its records: what was written is read."""

from datetime import timedelta
from itertools import chain

from pydantic import BaseModel

from massmem.core.events import now
from massmem.core.records import MessageRecord, RecordingJob, SessionRecord, SessionState, TurnRecord
from massmem.store.ports import SessionStore
from massmem.store.schema import chat_messages, chat_sessions, recordings, session_state, turns
from tests.contract.test_session_store import done, everything, queue, session
from tests.contract.test_session_store_state import STATE
from tests.support.sample_turn import begin, waiting_turn, whole_turn

ONLY_IN_SQL = {
    "chat_sessions": {"size"},
    "chat_messages": {"row_id"},
    "turns": {"question_seq", "answer_seq"},
    "recordings": set[str](),
    "session_state": {"session_id"},
}
"""Columns that statements use, and no record has."""
UNUSED = {"tokens"}
"""Columns that nothing is written to, and the records show."""
OTHER_NAMES = {"params_json": "params", "plan_exec_json": "plan_execution"}


def test_each_column_is_a_field_of_its_record() -> None:
    for table, record, from_elsewhere in (
        (chat_sessions, SessionRecord, set[str]()),
        (chat_messages, MessageRecord, set[str]()),
        (turns, TurnRecord, {"question", "answer"}),
        (recordings, RecordingJob, {"message_id"}),
        (session_state, SessionState, set[str]()),
    ):
        columns = {OTHER_NAMES.get(column.name, column.name) for column in table.c}
        assert columns - ONLY_IN_SQL[table.name] == {*record.model_fields} - from_elsewhere, (
            f"make the fields of {record.__name__} (massmem/core/records.py) and the columns of {table.name}"
            " (massmem/store/schema.py, and a migration) the same, or name here what only SQL needs"
        )


def list_unset(*records: BaseModel) -> set[str]:
    """Return the fields that have their default in all of these records of one kind."""
    fields = {name: field for name, field in type(records[0]).model_fields.items() if not field.is_required()}
    known = records[0].model_dump()
    defaults = {n: f.get_default(call_default_factory=True, validated_data=known) for n, f in fields.items()}
    return {
        name
        for name, default in defaults.items()
        if name not in UNUSED and all(getattr(record, name) == default for record in records)
    }


async def test_each_field_that_was_written_is_read(store: SessionStore) -> None:
    whole = session().model_copy(
        update={"user_id": "alice", "memory_group": "g", "project": "/p", "history_hash": "h", "active": False}
    )
    await store.create_session(whole)
    await store.create_session(session("session_b"))
    await store.update_session("session_a", origins=(("session_b", 3),))
    await store.append("session_a", 1, whole_turn())
    unsure = done(8).model_copy(update={"confidence": 0.4, "verdict": "unsure", "escalated": True})
    again = begin("ann", at=7, question="And at night?").model_copy(update={"parent": 0, "withdraws": (1,)})
    await store.append("session_a", 2, [again, unsure])
    await store.append("session_b", 1, waiting_turn())
    for job in await queue(store, "session_a"):
        await store.fail_recording(job, "the model is away", now() - timedelta(seconds=1))
    await store.forget_fact("session_a", "ann", [m.id for m in await everything(store)], (1, 2))
    await store.save_state("session_a", STATE)
    stored = [await store.get_session(name) for name in ("session_a", "session_b")]
    names = ("session_a", "session_b")
    assert list_unset(*filter(None, stored)) == set()
    assert list_unset(*chain(*[await store.list_turns(name) for name in names])) == set()
    assert list_unset(*chain(*[await everything(store, name) for name in names])) == set()
    assert list_unset(*await queue(store)) == set()
    assert list_unset(await store.load_state("session_a")) == set()
