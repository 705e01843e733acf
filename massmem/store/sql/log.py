"""The log of events, and the tables that are derived from it: messages, turns, state."""

from collections.abc import Sequence

import sqlalchemy as sa

from massmem.core.events import EVENT, Event, now
from massmem.core.records import MessageRecord, Owner, SessionState, TurnRecord
from massmem.store.log_format import encode_event
from massmem.store.schema import (
    IS_CONVERSATION,
    IS_NO_DELTA,
    IS_SUMMARY,
    MESSAGE_COLUMNS,
    SESSION,
    TURN,
    answers,
    chat_messages,
    events,
    requests,
    turns,
)
from massmem.store.sql.append import UPDATE_TURN, append_events
from massmem.store.sql.database import Database, Row, SearchScope
from massmem.store.sql.leases import RELEASE_LEASE, check_lease
from massmem.store.sql.queue import QUESTION_SEQ
from massmem.store.sql.state import build_save_state, fetch_state

_UNFINISHED = ("running", "failed", "interrupted", "waiting")

_MAX_SEQ = 2**31 - 1
"""More than the seq of any message."""

_m = chat_messages.c
_t = turns.c
_AFTER = sa.bindparam("after", type_=sa.Integer)
_BEFORE = sa.bindparam("before", type_=sa.Integer)
_LIMIT = sa.bindparam("most", type_=sa.Integer)

_undone = turns.alias("undone")
_STANDS = ~sa.exists().where(
    _undone.c.session_id == _m.session_id, _undone.c.turn == _m.turn, _undone.c.status == "undone"
)
"""Of a message: its turn was not undone."""

_MESSAGES = sa.select(*MESSAGE_COLUMNS)
_MESSAGES_OF_SESSION = _MESSAGES.where(_m.session_id == SESSION)
_MESSAGES_PAGE = _MESSAGES_OF_SESSION.where(_m.seq > _AFTER).order_by(_m.seq).limit(_LIMIT)
_MESSAGES_OF_TURN = _MESSAGES_OF_SESSION.where(_m.seq >= QUESTION_SEQ, _m.turn == TURN).order_by(_m.seq)
_MESSAGES_BY_ID = _MESSAGES.where(_m.id.in_(sa.bindparam("of_messages", expanding=True))).order_by(_m.id)
_CONVERSATION = (
    _MESSAGES_OF_SESSION.where(sa.text(f"({IS_CONVERSATION})"), _STANDS, _m.seq < _BEFORE)
    .order_by(_m.seq.desc())
    .limit(_LIMIT)
)
_LATEST_SUMMARY = (
    _MESSAGES_OF_SESSION.where(sa.text(IS_SUMMARY), _STANDS, _m.agent_id == sa.bindparam("of_agent", type_=sa.Text))
    .order_by(_m.seq.desc())
    .limit(1)
)
_final, _answer = chat_messages.alias("final"), chat_messages.alias("answer")
_REPEATED_ANSWERS = (
    sa.select(_answer.c.id)
    .select_from(_final)
    .join(answers, sa.and_(answers.c.session_id == _final.c.session_id, answers.c.turn == _final.c.turn))
    .join(_answer, sa.and_(_answer.c.session_id == answers.c.session_id, _answer.c.seq == answers.c.seq))
    .where(
        _final.c.id.in_(sa.bindparam("of_messages", expanding=True)),
        _final.c.final,
        _answer.c.content == _final.c.content,
    )
)
_TURN_EVENTS = (
    sa.select(events.c.payload)
    .where(events.c.session_id == SESSION, events.c.turn == TURN, sa.text(IS_NO_DELTA))
    .order_by(events.c.seq)
)
_question, _reply = chat_messages.alias("question"), chat_messages.alias("reply")
_TURNS = (
    sa.select(
        _t.session_id, _t.turn, _question.c.content.label("question"), _t.status, _t.winner,
        _reply.c.content.label("answer"), _t.seed, _t.started_at, _t.ended_at,
    )
    .join(_question, sa.and_(_question.c.session_id == _t.session_id, _question.c.seq == _t.question_seq))
    .outerjoin(_reply, sa.and_(_reply.c.session_id == _t.session_id, _reply.c.seq == _t.answer_seq))
    .where(_t.session_id == SESSION)
)  # fmt: skip
_LAST_TURN = _TURNS.order_by(_t.turn.desc()).limit(1)
_TURNS_PAGE = _TURNS.where(_t.turn > _AFTER).order_by(_t.turn).limit(_LIMIT)
_REQUEST = sa.select(requests.c.seq).where(
    requests.c.session_id == SESSION, requests.c.name == sa.bindparam("of_request", type_=requests.c.name.type)
)


class SqlSessionLog:
    """The SessionLog port."""

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
            if owner:
                check_lease(connection, session_id, owner)
            seqs = append_events(connection, self._database, session_id, turn, batch)
            if save_state is not None:
                connection.execute(save_state)
            if owner and release_lease:
                connection.execute(RELEASE_LEASE, {"of_session": session_id, "of_owner": owner})
            return seqs

        return await self._database.write(change)

    async def read_turn_events(self, session_id: str, turn: int) -> list[Event]:
        rows = await self._database.fetch(_TURN_EVENTS, {"of_session": session_id, "of_turn": turn})
        return [EVENT.validate_json(row["payload"]) for row in rows]

    async def get_last_turn(self, session_id: str) -> TurnRecord | None:
        rows = await self._database.fetch(_LAST_TURN, {"of_session": session_id})
        return TurnRecord(**rows[0]) if rows else None

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
        owner: Owner | None = None,
    ) -> list[MessageRecord]:
        scope = SearchScope(session_ids, owner)
        search = self._database.dialect.build_search(_MESSAGES.where(_STANDS), query, scope, limit)
        return [] if search is None else await self._fetch_messages(search)

    async def get_winners(self, session_ids: Sequence[str]) -> dict[tuple[str, int], str]:
        query = sa.select(_t.session_id, _t.turn, _t.winner).where(
            _t.status == "completed", _t.session_id.in_(session_ids)
        )
        rows = await self._database.fetch(query) if session_ids else []
        return {(row["session_id"], row["turn"]): row["winner"] for row in rows}

    async def load_state(self, session_id: str) -> SessionState:
        return await fetch_state(self._database, session_id)

    async def save_state(self, session_id: str, state: SessionState) -> None:
        save = build_save_state(self._database, session_id, state.model_copy(update={"updated_at": now()}))
        await self._database.execute_for(session_id, save)

    async def _fetch_messages(self, query: sa.Executable, parameters: Row | None = None) -> list[MessageRecord]:
        return [MessageRecord(**row) for row in await self._database.fetch(query, parameters)]
