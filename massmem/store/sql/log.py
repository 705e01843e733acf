"""The log of events, and what is derived from it: messages, turns, state; and who may write it, by leases.

Every statement finds its rows by an index: the cost does not grow with the log. Statements that a turn sends are made
once: SQLAlchemy takes 0.1 ms to build one, and a turn sends about 50.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import exc

from massmem.core.events import Event, TurnStarted, decode_event, now
from massmem.core.messages import clean_text
from massmem.core.records import (
    EVERYBODY,
    Everybody,
    LogEntry,
    MessageRecord,
    Owner,
    SessionState,
    TurnPlace,
    TurnRecord,
    count_microseconds,
)
from massmem.memory.persistent import Scope
from massmem.store import projection
from massmem.store.encoding import EncodedEvent, encode_event, find_unspaced_words, merge_hits
from massmem.store.ports import SEARCHED_KINDS, lease_lost_error, turn_started_error, unknown_session_error
from massmem.store.projection import InsertRow, QueueExtraction, UpdateSession, UpdateTurn, WithdrawTurns
from massmem.store.schema import (
    IS_CONVERSATION,
    IS_HIDDEN,
    IS_NO_DELTA,
    IS_SUMMARY,
    MESSAGE_COLUMNS,
    SESSION,
    TURN,
    CleanText,
    UtcDateTime,
    chat_messages,
    chat_sessions,
    events,
    is_owned_by,
    leases,
    recordings,
    requests,
    session_state,
    turns,
)
from massmem.store.schema import files as stored_files
from massmem.store.sql.database import Database, Dialect, Row, SearchScope
from massmem.store.sql.queue import QUESTION_SEQ, QUEUE_EXTRACTION, build_queue_row

_OWNER = sa.select(leases.c.owner).where(leases.c.session_id == SESSION)
_LEASE_OWNER = sa.bindparam("of_owner", type_=CleanText)
_IS_OWN = (leases.c.session_id == SESSION, leases.c.owner == _LEASE_OWNER)
_RELEASE_LEASE = sa.delete(leases).where(*_IS_OWN)


@cache
def _build_acquire(dialect: Dialect) -> sa.Executable:
    lease = {"owner": _LEASE_OWNER, "expires_at": dialect.time_from_now("until")}
    is_over = leases.c.expires_at <= dialect.time_from_now("moment")
    insert = dialect.insert(leases).values(session_id=SESSION, **lease)
    may_take = sa.or_(leases.c.owner == _LEASE_OWNER, is_over)
    return insert.on_conflict_do_update(index_elements=["session_id"], set_=lease, where=may_take)


class SqlLeaseTable:
    _database: Database

    async def acquire_lease(self, session_id: str, owner: str, seconds: float, *, if_free: bool = False) -> bool:
        # A lease of the last century is over, and none is before it.
        moment = timedelta(days=-36_500) if if_free else timedelta()
        key = {"of_session": session_id, "of_owner": owner, "until": timedelta(seconds=seconds), "moment": moment}
        return await self._database.execute_for(session_id, _build_acquire(self._database.dialect), key) == 1

    async def get_lease_owner(self, session_id: str) -> str | None:
        rows = await self._database.fetch(_OWNER, {"of_session": session_id})
        return rows[0]["owner"] if rows else None

    async def renew_lease(self, session_id: str, owner: str, seconds: float) -> bool:
        renew = sa.update(leases).where(*_IS_OWN).values(expires_at=self._database.dialect.time_from_now("until"))
        key = {"of_session": session_id, "of_owner": owner, "until": timedelta(seconds=seconds)}
        return await self._database.execute(renew, key) == 1

    async def release_lease(self, session_id: str, owner: str) -> None:
        await self._database.execute(_RELEASE_LEASE, {"of_session": session_id, "of_owner": owner})


_r = recordings.c
_LAST_POSITION = (
    sa.select(_r.position).where(_r.session_id == SESSION, _r.kind == "episode").order_by(_r.seq.desc()).limit(1)
)
_LAST_NUMBERS = sa.select(
    sa.select(sa.func.max(events.c.seq)).where(events.c.session_id == SESSION).scalar_subquery().label("seq"),
    _LAST_POSITION.scalar_subquery().label("position"),
    _OWNER.scalar_subquery().label("owner"),
)
_INSERT_EVENTS = sa.insert(events)
_INSERTS = {table.name: sa.insert(table) for table in (chat_messages, turns, recordings, requests)}
UPDATE_TURN = sa.update(turns).where(turns.c.session_id == SESSION, turns.c.turn == TURN)
_other = chat_sessions.alias()
_NEXT_USE = sa.select(
    (sa.func.max(_other.c.used) + 1) * (1 - sa.bindparam("imported", type_=sa.Integer))
).scalar_subquery()
_MOMENT = sa.bindparam("moment", type_=sa.BigInteger)
_UPDATE_SESSION = (
    sa.update(chat_sessions)
    .where(chat_sessions.c.session_id == SESSION)
    .values(
        title=sa.func.coalesce(
            sa.func.nullif(chat_sessions.c.title, ""), sa.bindparam("new_title", type_=CleanText), ""
        ),
        last_message=sa.func.coalesce(sa.bindparam("new_message", type_=CleanText), chat_sessions.c.last_message),
        status=sa.func.coalesce(sa.bindparam("new_status", type_=sa.Text), chat_sessions.c.status),
        message_count=chat_sessions.c.message_count + sa.bindparam("added", type_=sa.Integer),
        size=chat_sessions.c.size + sa.bindparam("bytes", type_=sa.BigInteger),
        updated_at=sa.bindparam("at", type_=UtcDateTime),
        used=sa.case((_MOMENT > _NEXT_USE, _MOMENT), else_=_NEXT_USE),
    )
)


_LAST_SHOWN = sa.select(sa.func.max(turns.c.turn)).where(turns.c.session_id == SESSION, sa.text(f"NOT ({IS_HIDDEN})"))
_EVENTS_OF_LAST_TURN = (
    sa.select(events.c.payload)
    .where(events.c.session_id == SESSION, events.c.turn == _LAST_SHOWN.scalar_subquery(), sa.text(IS_NO_DELTA))
    .order_by(events.c.seq)
)
_SEQ = sa.bindparam("of_seq", type_=sa.Integer)
_PAYLOAD = sa.select(events.c.payload).where(events.c.session_id == SESSION, events.c.seq == _SEQ)
_REWRITE_EVENT = (
    sa.update(events)
    .where(events.c.session_id == SESSION, events.c.seq == _SEQ)
    .values(payload=sa.bindparam("new_payload", type_=events.c.payload.type))
)
_DELETE_JOB = sa.delete(recordings).where(
    _r.session_id == SESSION,
    _r.seq == _SEQ,
    _r.kind == sa.bindparam("of_kind", type_=_r.kind.type),
    _r.agent_id == sa.bindparam("of_agent", type_=_r.agent_id.type),
)


class NumberedEvent(NamedTuple):
    """An event with its number in the log and its JSON."""

    seq: int
    turn: int
    event: Event
    json: str


@dataclass(slots=True)
class _Changes:
    rows: dict[str, list[Row]] = field(default_factory=lambda: {table: [] for table in _INSERTS})
    turns: dict[int, Row] = field(default_factory=dict[int, Row])
    """New values by number of the turn."""
    extractions: list[tuple[int, QueueExtraction]] = field(default_factory=list[tuple[int, QueueExtraction]])
    """Each with its turn."""
    session: Row = field(default_factory=dict[str, Any])
    updates: list[UpdateSession] = field(default_factory=list[UpdateSession])
    empty: bool = True

    @property
    def chooses_turns(self) -> bool:
        """Whether another turn may be the last one that is shown."""
        return any("withdrawn" in values or values.get("status") == "undone" for values in self.turns.values())

    def add(self, turn: int, change: projection.Change) -> None:
        self.empty = False
        match change:
            case InsertRow(table, row):
                self.rows[table].append(row)
            case UpdateTurn(values):
                self.turns.setdefault(turn, {}).update(values)
            case WithdrawTurns(numbers, withdrawn):
                for number in numbers:
                    self.turns.setdefault(number, {})["withdrawn"] = withdrawn
            case QueueExtraction():
                self.extractions.append((turn, change))
            case UpdateSession():
                self.updates.append(change)


def append_events(
    connection: sa.Connection,
    database: Database,
    session_id: str,
    turn: int,
    batch: Sequence[EncodedEvent],
    *,
    owner: str = "",
) -> list[int]:
    """Store events after the newest of the session. Returns their sequence numbers. owner: as for `append`.

    Raises StoreError for an unknown session, SessionBusyError when somebody else has its lease, or began the turn.
    """
    database.dialect.lock_session(connection, session_id)
    seq, position, holder = connection.execute(_LAST_NUMBERS, {"of_session": session_id}).one()
    if owner and holder not in (None, owner):
        raise lease_lost_error(session_id)
    seq = seq or 0
    numbered: list[NumberedEvent] = []
    for event, text in batch:
        seq += projection.count_seqs(event)
        turn = event.turn if isinstance(event, TurnStarted) and event.imported else turn
        numbered.append(NumberedEvent(seq, turn, event, text))
    changes = _collect_changes(session_id, numbered)
    position = -1 if position is None else position
    for row in changes.rows["recordings"]:
        if row["kind"] == "episode":
            row["position"] = position = position + 1
    _store(connection, database, session_id, numbered, changes)
    return [event.seq for event in numbered]


def _number(entry: LogEntry) -> NumberedEvent:
    return NumberedEvent(entry.seq, entry.turn, decode_event(entry.payload), entry.payload)


def restore_events(connection: sa.Connection, database: Database, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Store entries of another store's log under their own numbers, and its queue as it is there."""
    numbered = [*map(_number, entries)]
    changes = _collect_changes(session_id, numbered)
    changes.rows["recordings"] = [build_queue_row(job) for entry in entries for job in entry.recordings]
    changes.extractions.clear()
    if numbered:
        _store(connection, database, session_id, numbered, changes)


def rewrite_events(connection: sa.Connection, database: Database, session_id: str, entries: Sequence[LogEntry]) -> None:
    """Replace the texts of events, and of the rows that were derived from them."""
    database.dialect.lock_session(connection, session_id)
    key = {"of_session": session_id}
    for entry in entries:
        place = key | {"of_seq": entry.seq}
        stored = connection.execute(_PAYLOAD, place).scalar_one_or_none()
        if stored is None:
            raise unknown_session_error(session_id)
        if stored != entry.payload:
            old, new = (
                _collect_changes(session_id, [_number(entry.model_copy(update={"payload": payload}))])
                for payload in (stored, entry.payload)
            )
            connection.execute(_REWRITE_EVENT, place | {"new_payload": entry.payload})
            _rewrite_messages(connection, database, new.rows["chat_messages"])
            _rewrite_session(connection, key, old.session, new.session)
        for row in map(build_queue_row, entry.recordings):
            connection.execute(
                _DELETE_JOB, key | {"of_seq": row["seq"], "of_kind": row["kind"], "of_agent": row["agent_id"]}
            )
            connection.execute(_INSERTS["recordings"], row)


def _rewrite_messages(connection: sa.Connection, database: Database, rows: Sequence[Row]) -> None:
    """Replace texts and metadata; what only the store knows of a message stays."""
    for row in rows:
        stored = connection.execute(sa.select(_m.metadata).where(_m.id == row["id"])).scalar_one()
        values = {"content": row["content"], "metadata": stored | row["metadata"]}
        connection.execute(sa.update(chat_messages).where(_m.id == row["id"]).values(values))
    database.dialect.index_messages(connection, rows)


def _rewrite_session(connection: sa.Connection, key: Row, old: Row, new: Row) -> None:
    """Replace a title and a last message that the old text gave."""
    columns = {"title": "new_title", "last_message": "new_message"}
    for column, name in columns.items():
        if old[name] and old[name] != new[name]:
            is_same = chat_sessions.c[column] == old[name]
            change = sa.update(chat_sessions).where(chat_sessions.c.session_id == SESSION, is_same)
            connection.execute(change.values({column: new[name]}), key)


def _collect_changes(session_id: str, numbered: Iterable[NumberedEvent]) -> _Changes:
    changes = _Changes()
    for seq, turn, event, _ in numbered:
        for change in projection.project(session_id, turn, seq, event):
            changes.add(turn, change)
    newest = changes.updates[::-1]
    changes.session["new_title"] = next(filter(None, (update.title for update in changes.updates)), None)
    changes.session["new_message"] = next(filter(None, (update.last_message for update in newest)), None)
    changes.session["new_status"] = next(filter(None, (update.status for update in newest)), None)
    return changes


def _store(
    connection: sa.Connection,
    database: Database,
    session_id: str,
    numbered: Sequence[NumberedEvent],
    changes: _Changes,
) -> None:
    rows = [
        {"session_id": session_id, "seq": seq, "turn": turn, "type": event.type, "payload": text, "at": event.at}
        for seq, turn, event, text in numbered
    ]
    with database.require_session(session_id):
        connection.execute(_INSERT_EVENTS, rows)
    for table, insert in _INSERTS.items():
        if changes.rows[table]:
            try:
                connection.execute(insert, changes.rows[table])
            except exc.IntegrityError as e:
                if insert.table is turns and database.dialect.find_refusal(e.orig) == "duplicate":
                    raise turn_started_error() from e
                raise
    database.dialect.index_messages(connection, changes.rows["chat_messages"])
    if not changes.empty:
        size = sum(projection.measure_event(event, text) for _, _, event, text in numbered)
        last = numbered[-1].event
        use = {"at": last.at, "moment": count_microseconds(last.at), "imported": int(getattr(last, "imported", False))}
        _update_rows(connection, session_id, changes, {"bytes": size, **use})


def _update_rows(connection: sa.Connection, session_id: str, changes: _Changes, newest: Row) -> None:
    """newest: the time of the newest event and whether it is an import, and the bytes of all of them."""
    key: Row = {"of_session": session_id}
    rows = [{**key, "of_turn": n, "end": e.seq, "at": e.time, "done_as": e.done_as} for n, e in changes.extractions]
    if rows:
        connection.execute(QUEUE_EXTRACTION, rows)
    for _, group in groupby(({**key, "of_turn": turn, **values} for turn, values in changes.turns.items()), tuple):
        connection.execute(UPDATE_TURN, [*group])
    added = len(changes.rows["chat_messages"])
    if changes.session["new_message"] is None and changes.chooses_turns:
        payloads = connection.execute(_EVENTS_OF_LAST_TURN, key).scalars()
        changes.session["new_message"] = projection.fold_session(map(decode_event, payloads)).last_message or ""
    connection.execute(_UPDATE_SESSION, {**key, **changes.session, "added": added, **newest})


# The column of each field of SessionState, where the two differ.
_COLUMNS = {"params": "params_json", "plan_execution": "plan_exec_json"}
_STATE = sa.select(session_state).where(session_state.c.session_id == SESSION)


async def fetch_state(database: Database, session_id: str) -> SessionState:
    """Return the state that was saved last; an empty state for a session without one."""
    rows = await database.fetch(_STATE, {"of_session": session_id})
    if not rows:
        return SessionState()
    return SessionState(**{field: rows[0][_COLUMNS.get(field, field)] for field in SessionState.model_fields})


def build_save_state(database: Database, session_id: str, state: SessionState) -> sa.Executable:
    """Return the statement that replaces a session's state."""
    values: dict[str, Any] = {_COLUMNS.get(field, field): value for field, value in state.model_dump().items()}
    insert = database.dialect.insert(session_state).values(session_id=session_id, **values)
    return insert.on_conflict_do_update(index_elements=["session_id"], set_=values)


_UNFINISHED = ("running", "failed", "interrupted", "waiting")

_MAX_SEQ = 2**31 - 1
"""More than the seq of any message."""

_m = chat_messages.c
_t = turns.c
_AFTER = sa.bindparam("after", type_=sa.Integer)
_BEFORE = sa.bindparam("before", type_=sa.Integer)
_LIMIT = sa.bindparam("most", type_=sa.Integer)

_hidden = turns.alias("hidden")
STANDS = ~sa.exists().where(
    _hidden.c.session_id == _m.session_id,
    _hidden.c.turn == _m.turn,
    sa.or_(_hidden.c.withdrawn, _hidden.c.status == "undone"),
)
"""Of a message: its turn was neither undone nor withdrawn."""

_MESSAGES = sa.select(*MESSAGE_COLUMNS)
_MESSAGES_OF_SESSION = _MESSAGES.where(_m.session_id == SESSION)
_MESSAGES_PAGE = _MESSAGES_OF_SESSION.where(_m.seq > _AFTER).order_by(_m.seq).limit(_LIMIT)
_MESSAGES_OF_TURN = _MESSAGES_OF_SESSION.where(_m.seq >= sa.func.coalesce(QUESTION_SEQ, 0), _m.turn == TURN).order_by(
    _m.seq
)
_MESSAGES_BY_ID = _MESSAGES.where(_m.id.in_(sa.bindparam("of_messages", expanding=True))).order_by(_m.id)
_CONVERSATION = (
    _MESSAGES_OF_SESSION.where(sa.text(f"({IS_CONVERSATION})"), STANDS, _m.seq < _BEFORE)
    .order_by(_m.seq.desc())
    .limit(_LIMIT)
)
_LATEST_SUMMARY = (
    _MESSAGES_OF_SESSION.where(sa.text(IS_SUMMARY), STANDS, _m.agent_id == sa.bindparam("of_agent", type_=sa.Text))
    .order_by(_m.seq.desc())
    .limit(1)
)
_final, _answer = chat_messages.alias("final"), chat_messages.alias("answer")
_REPEATED_ANSWERS = (
    sa.select(_answer.c.id)
    .select_from(_final)
    .join(turns, sa.and_(turns.c.session_id == _final.c.session_id, turns.c.turn == _final.c.turn))
    .join(_answer, sa.and_(_answer.c.session_id == _final.c.session_id, _answer.c.seq > turns.c.question_seq))
    .where(
        _final.c.id.in_(sa.bindparam("of_messages", expanding=True)),
        _answer.c.seq < _final.c.seq,
        _final.c.final,
        _answer.c.kind == "assistant",
        ~_answer.c.final,
        _answer.c.content == _final.c.content,
    )
)
_EVENTS_OF_TURNS = (
    sa.select(events.c.turn, events.c.payload)
    .where(
        events.c.session_id == SESSION,
        events.c.turn.in_(sa.bindparam("of_turns", expanding=True)),
        sa.text(IS_NO_DELTA),
        events.c.seq <= sa.bindparam("until", type_=sa.Integer),
    )
    .order_by(events.c.seq)
)
_question, _reply = chat_messages.alias("question"), chat_messages.alias("reply")
_TEXTS = {"question": _question.c.content.label("question"), "answer": _reply.c.content.label("answer")}
_TURNS = (
    sa.select(*(_TEXTS[name] if name in _TEXTS else _t[name] for name in TurnRecord.model_fields))
    .join(_question, sa.and_(_question.c.session_id == _t.session_id, _question.c.seq == _t.question_seq))
    .outerjoin(_reply, sa.and_(_reply.c.session_id == _t.session_id, _reply.c.seq == _t.answer_seq))
    .where(_t.session_id == SESSION)
)
_NEWEST_TURN = _TURNS.order_by(_t.turn.desc()).limit(1)
_LAST_TURN = _NEWEST_TURN.where(~_t.withdrawn)
_PLACES = sa.select(*(_t[name] for name in TurnPlace.model_fields)).where(_t.session_id == SESSION).order_by(_t.turn)
_HIDDEN = sa.select(_t.session_id, _t.turn).where(sa.text(f"({IS_HIDDEN})"))
_GROUP = sa.bindparam("of_group", type_=CleanText)  # None: no session has it
_OF_GROUP = sa.select(chat_sessions.c.session_id).where(chat_sessions.c.memory_group == _GROUP)
_NAMED = _t.session_id.in_(sa.bindparam("of_sessions", expanding=True))
_HIDDEN_OF_SCOPE = _HIDDEN.where(sa.or_(_NAMED, _t.session_id.in_(_OF_GROUP)))
_TURNS_PAGE = _TURNS.where(_t.turn > _AFTER).order_by(_t.turn).limit(_LIMIT)
_REQUEST = sa.select(requests.c.seq).where(
    requests.c.session_id == SESSION, requests.c.name == sa.bindparam("of_request", type_=requests.c.name.type)
)


_OF_HASHES = (
    stored_files.c.session_id == SESSION,
    stored_files.c.hash.in_(sa.bindparam("of_hashes", expanding=True)),
)
_FILES = sa.select(stored_files.c.hash, stored_files.c.data).where(*_OF_HASHES)
_DELETE_FILES = sa.delete(stored_files).where(*_OF_HASHES)


def build_file_rows(session_id: str, files: Mapping[str, bytes]) -> list[Row]:
    return [{"session_id": session_id, "hash": name, "data": data} for name, data in files.items()]


class SqlSessionLog:
    _database: Database

    async def append(
        self,
        session_id: str,
        turn: int,
        events: Sequence[Event],
        *,
        state: SessionState | None = None,
        owner: str = "",
        release_lease: bool = False,
    ) -> list[int]:
        if not events:
            return []
        batch = [encode_event(event) for event in events]
        save_state = None
        if state is not None:
            save_state = build_save_state(self._database, session_id, state.model_copy(update={"updated_at": now()}))

        def change(connection: sa.Connection) -> list[int]:
            seqs = append_events(connection, self._database, session_id, turn, batch, owner=owner)
            if save_state is not None:
                connection.execute(save_state)
            if owner and release_lease:
                connection.execute(_RELEASE_LEASE, {"of_session": session_id, "of_owner": owner})
            return seqs

        return await self._database.write(change)

    async def read_turn_events(self, session_id: str, turn: int, until: int | None = None) -> list[Event]:
        return (await self.read_events_of_turns(session_id, [turn], until))[turn]

    async def read_events_of_turns(
        self, session_id: str, turns: Collection[int], until: int | None = None
    ) -> dict[int, list[Event]]:
        of_turns = {turn: list[Event]() for turn in turns}
        key = {"of_session": session_id, "of_turns": [*turns], "until": _MAX_SEQ if until is None else until}
        for row in await self._database.fetch(_EVENTS_OF_TURNS, key):
            of_turns[row["turn"]].append(decode_event(row["payload"]))
        return of_turns

    async def get_last_turn(self, session_id: str, *, with_withdrawn: bool = False) -> TurnRecord | None:
        query = _NEWEST_TURN if with_withdrawn else _LAST_TURN
        rows = await self._database.fetch(query, {"of_session": session_id})
        return TurnRecord(**rows[0]) if rows else None

    async def list_places(self, session_id: str) -> list[TurnPlace]:
        return [TurnPlace(**row) for row in await self._database.fetch(_PLACES, {"of_session": session_id})]

    async def list_hidden(self, scope: Scope) -> frozenset[tuple[str, int]]:
        query = _HIDDEN if scope.all_sessions else _HIDDEN_OF_SCOPE
        key = {"of_sessions": [scope.session_id, *scope.others], "of_group": scope.group or None}
        return frozenset((row["session_id"], row["turn"]) for row in await self._database.fetch(query, key))

    async def list_turns(self, session_id: str, after: int = 0, limit: int = 100) -> list[TurnRecord]:
        rows = await self._database.fetch(_TURNS_PAGE, {"of_session": session_id, "after": after, "most": limit})
        return [TurnRecord(**row) for row in rows]

    async def abandon_turn(self, session_id: str, turn: int) -> None:
        abandon = UPDATE_TURN.where(_t.status.in_(_UNFINISHED)).values(status="abandoned")
        await self._database.execute(abandon, {"of_session": session_id, "of_turn": turn})

    async def find_request(self, session_id: str, request: str) -> int | None:
        rows = await self._database.fetch(_REQUEST, {"of_session": session_id, "of_request": request})
        return rows[0]["seq"] if rows else None

    async def read_conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        before = _MAX_SEQ if before is None else before
        return await self._fetch_messages(_CONVERSATION, {"of_session": session_id, "before": before, "most": limit})

    async def get_latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        messages = await self._fetch_messages(_LATEST_SUMMARY, {"of_session": session_id, "of_agent": agent_id})
        return messages[0] if messages else None

    async def read_messages(self, session_id: str, after: int = 0, limit: int = 1000) -> list[MessageRecord]:
        return await self._fetch_messages(_MESSAGES_PAGE, {"of_session": session_id, "after": after, "most": limit})

    async def read_turn_messages(self, session_id: str, turn: int) -> list[MessageRecord]:
        return await self._fetch_messages(_MESSAGES_OF_TURN, {"of_session": session_id, "of_turn": turn})

    async def get_messages(self, message_ids: Sequence[str]) -> list[MessageRecord]:
        return await self._fetch_messages(_MESSAGES_BY_ID, {"of_messages": message_ids}) if message_ids else []

    async def find_repeated_answers(self, message_ids: Sequence[str]) -> list[str]:
        rows = await self._database.fetch(_REPEATED_ANSWERS, {"of_messages": message_ids}) if message_ids else []
        return [row["id"] for row in rows]

    async def search_messages(
        self,
        query: str,
        session_ids: Sequence[str] | None = None,
        limit: int = 20,
        *,
        owner: Owner | Everybody,
    ) -> list[MessageRecord]:
        scope = SearchScope(session_ids, owner)
        search = self._database.dialect.build_search(_MESSAGES.where(STANDS), query, scope, limit)
        hits = [] if search is None else await self._fetch_messages(search)
        if unspaced := find_unspaced_words(clean_text(query)):
            return merge_hits(await self._fetch_messages(_build_part_search(unspaced, scope, limit)), hits, limit)
        return hits

    async def get_winner_names(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        is_answer = sa.and_(_m.session_id == _t.session_id, _m.seq == _t.answer_seq)
        query = (
            sa.select(_t.session_id, _t.turn, _t.winner, _m.metadata)
            .select_from(sa.join(turns, chat_messages, is_answer))
            .where(_t.status == "completed", _t.winner != "", _t.session_id.in_(session_ids))
        )
        rows = await self._database.fetch(query) if session_ids else []
        return {(row["session_id"], row["turn"]): row["metadata"].get("agent_type", row["winner"]) for row in rows}

    async def save_files(self, session_id: str, files: Mapping[str, bytes]) -> None:
        if files:
            insert = self._database.dialect.insert(stored_files).on_conflict_do_nothing()
            await self._database.execute_for(session_id, insert, build_file_rows(session_id, files))

    async def load_files(self, session_id: str, hashes: Sequence[str]) -> dict[str, bytes]:
        key = {"of_session": session_id, "of_hashes": hashes}
        rows = await self._database.fetch(_FILES, key) if hashes else []
        return {row["hash"]: bytes(row["data"]) for row in rows}

    async def delete_files(self, session_id: str, hashes: Sequence[str]) -> None:
        key = {"of_session": session_id, "of_hashes": hashes}
        if hashes:
            await self._database.execute(_DELETE_FILES, key)

    async def load_state(self, session_id: str) -> SessionState:
        return await fetch_state(self._database, session_id)

    async def save_state(self, session_id: str, state: SessionState) -> None:
        save = build_save_state(self._database, session_id, state.model_copy(update={"updated_at": now()}))
        await self._database.execute_for(session_id, save)

    async def _fetch_messages(self, query: sa.Executable, parameters: Row | None = None) -> list[MessageRecord]:
        return await self._database.fetch_as(lambda row: MessageRecord(**row), query, parameters)


def _build_part_search(words: Sequence[str], scope: SearchScope, limit: int) -> sa.Select[*tuple[Any, ...]]:
    """Return the query for messages with these parts of words; those with most of them first, then the newest."""
    has = [_m.content.contains(word, autoescape=True) for word in words]
    number = sum((sa.case((condition, 1), else_=0) for condition in has), sa.literal(0))
    where: list[sa.ColumnElement[bool]] = [_m.kind.in_(SEARCHED_KINDS), sa.or_(*has), STANDS]
    if scope.session_ids is not None:
        where.append(_m.session_id.in_(scope.session_ids))
    if scope.owner is not EVERYBODY:
        where.append(_m.session_id.in_(sa.select(chat_sessions.c.session_id).where(is_owned_by(scope.owner))))
    return _MESSAGES.where(*where).order_by(number.desc(), _m.row_id.desc()).limit(limit)
