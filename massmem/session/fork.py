"""Forks sessions: a new one begins with a copy of another one's log, up to the end of a turn, or to any event.

A question can also be asked again in such a copy that only lives in memory, to see what a memory or a model decides.

A copy, and not a log that two sessions share: every query has one session id, and deletion, erasure, moves, retention
and search of one session never have to ask who else reads a row. 10,000 messages of 1,667 turns take 2.6 s of processor
time in SQLite, and as much room as the original: 25 MB. Their memories are not copied: see massmem.session.copies.
"""

import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from massmem.config.models import NO_STORE, BackendConfig, TeamConfig
from massmem.core.errors import InputError, UnknownSessionError
from massmem.core.events import Event, ParamProvided, TurnAbandoned, TurnCompleted, TurnStarted, now
from massmem.core.ids import MAX_NAME_LENGTH, name_by_clock
from massmem.core.records import (
    LogEntry,
    MessageRecord,
    SessionCopy,
    SessionRecord,
    SessionState,
    TurnRecord,
)
from massmem.core.turn_result import TurnResult
from massmem.core.versions import TurnTree
from massmem.core.voting import read_plan
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import unknown_memory
from massmem.session.copies import copy_log
from massmem.session.session import Session
from massmem.session.team import Team
from massmem.store import open_store
from massmem.store.lookup import read_all_messages, read_turns_backwards, require_turn
from massmem.store.move import read_files
from massmem.store.ports import SessionStore
from massmem.store.projection import fold_session

_SUFFIX = " (fork)"


@dataclass(frozen=True, slots=True)
class _End:
    last: TurnRecord | None
    """The last turn of which something is copied; None: there is none yet."""
    seq: int | None = None
    """The last event that is copied; None: the last of the turn."""
    events: list[Event] = field(default_factory=list[Event])
    """Those of the turn that are copied, without deltas."""

    @property
    def turn(self) -> int:
        return 0 if self.last is None else self.last.turn

    def includes(self, entry: LogEntry | MessageRecord) -> bool:
        return entry.turn <= self.turn if self.seq is None else entry.seq <= self.seq


async def fork_session(
    store: SessionStore,
    session_id: str,
    turn: int | None = None,
    prefix: str = "",
    *,
    event: int | None = None,
) -> SessionRecord:
    """Copy a session up to the end of a turn, or up to an event; return the new session.

    The copy has the messages, votes, winners, summaries and files as they were then, and the values that the user had
    given. What is remembered of the turns that it has whole stays one memory of both sessions.

    turn: the last one that is copied; None: the last one that has ended. prefix: what the new id begins with.
    event: instead of it: the number in the log of the last event that is copied. A turn that had not ended then is
    unfinished in the new session, as if it had been cut off there.

    Raises:
        UnknownSessionError
        InputError: there is no such turn or event; `turn` has not ended, or was undone.
        StoreError: the store cannot be used; there is no new session then.
    """
    copy = await _export(store, session_id)
    if event is not None:
        last = await _find_turn_at(store, session_id, event)
    else:
        last = await (_find_newest_turn(store, session_id) if turn is None else _find_turn(store, session_id, turn))
    events = [] if last is None else await store.read_turn_events(session_id, last.turn, event)
    end = _End(last, event, events)
    # Not the time alone: a fork or a conversation of the same moment would be replaced.
    fork_id = f"{prefix}{name_by_clock()}_{secrets.token_hex(4)}"
    count, shared = await _measure(store, session_id, end)
    fork = SessionCopy(
        session=_describe(copy.session, end, fork_id, count, shared),
        state=await _restore_state(store, copy.state, session_id, end),
        # No event says when a turn was given up: when the next question came.
        abandoned=tuple(number for number in copy.abandoned if number < end.turn + (event is None)),
        files=copy.files,
    )
    log = copy_log(store, session_id, end.includes, fork_id, shared)
    await store.import_session(fork, log, read_files(store, copy))
    if (
        event is None and last is not None and last.withdrawn
    ):  # the user wants this version, and not the one that is shown there
        await store.append(fork_id, 0, [TurnTree(await store.list_places(fork_id)).plan_choice(end.turn)])
    return fork.session


async def ask_again(
    team: Team,
    session: SessionRecord,
    number: int,
    without: Collection[str] = (),
    backends: Mapping[str, BackendConfig] | None = None,
) -> tuple[list[Event], list[Event]]:
    """Ask the question of a turn again, apart from its session; return the events of the turn and of the new try.

    Nothing is stored. The agents see the history and the memories as they were before the turn.

    team: open, and not started. without: ids of memories, or of messages, that no agent recalls. backends: other models
    of agents, by id.

    Raises:
        InputError: no such turn, memory or agent; the turn was not answered; one of its agents is not in the team.
        StoreError: the store cannot be read.
        MissingKeyError, MissingModelError, ConfigError: see Providers.open.
    """
    await require_turn(team.store, session.session_id, number)
    events = await team.store.read_turn_events(session.session_id, number)
    started = next((event for event in events if isinstance(event, TurnStarted)), None)
    if started is None or TurnResult.of(events).answer is None:
        raise InputError(f"turn {number} has no winner to compare with", "choose one that was answered")
    config = _change_team(team.config, started, backends or {})
    team.memory.start()
    for memory_id in without:
        await _check_memory(team, memory_id)
    question, attachments = await Session(team, session, owner=session.owner).load_question(number)
    async with _open_past(team.store, session.session_id, number) as earlier_store:
        guest = team.with_config(config, earlier_store)
        try:
            await guest.start()
            async with Session(guest, session, owner=session.owner) as copy:
                copy.seed = started.seed
                copy.limit_recall(without, started.at)
                asked = copy.ask(question, "", started.answer_schema, attachments, full=started.full)
                return events, [event async for event in asked]
        finally:
            await guest.close()


def _change_team(team: TeamConfig, started: TurnStarted, backends: Mapping[str, BackendConfig]) -> TeamConfig:
    """Return the team with the agents that the turn had, some of them on other models."""
    by_id = {agent.id: agent for agent in team.agents}
    if missing := [agent_id for agent_id in started.agents if agent_id not in by_id]:
        raise InputError(
            f"the team has no agent {missing[0]!r}, which took part in turn {started.turn}",
            "name the configuration that the session had: --config FILE",
        )
    if unknown := [agent_id for agent_id in backends if agent_id not in started.agents]:
        hint = f"agents: {', '.join(started.agents)}"
        raise InputError(f"there is no agent {unknown[0]!r} in turn {started.turn}", hint)
    agents = tuple(
        agent.model_copy(update={"backend": backends.get(agent.id, agent.backend)})
        for agent in (by_id[agent_id] for agent_id in started.agents)
    )
    telemetry = team.telemetry.model_copy(update={"stages": None})  # it is a try, and no turn of the session
    return team.model_copy(update={"agents": agents, "telemetry": telemetry})


async def _check_memory(team: Team, memory_id: str) -> None:
    """Raise InputError when there is no such memory or message."""
    if await team.store.get_messages([memory_id]):
        return
    async with team.open_durable_memory() as memory:
        if not await memory.list(Selection(ids=(memory_id,)), 1):
            raise unknown_memory(memory_id)


@asynccontextmanager
async def _open_past(store: SessionStore, session_id: str, turn: int) -> AsyncGenerator[SessionStore]:
    """Open a store in memory, for the block, with the session as it was before a turn; it has the same id there."""
    copy = await _export(store, session_id)
    earlier_store = await open_store(NO_STORE, Path())
    try:
        earlier = copy.model_copy(update={"abandoned": tuple(number for number in copy.abandoned if number < turn)})
        log = copy_log(store, session_id, lambda entry: entry.turn < turn, session_id)
        await earlier_store.import_session(earlier, log, read_files(store, copy))
        yield earlier_store
    finally:
        await earlier_store.close()


async def _export(store: SessionStore, session_id: str) -> SessionCopy:
    copy = await store.export_session(session_id)
    if copy is None or copy.session.status == "deleting":
        raise UnknownSessionError(f"there is no session {session_id}", "see the sessions with: massmem --list-sessions")
    return copy


async def _find_newest_turn(store: SessionStore, session_id: str) -> TurnRecord:
    async with aclosing(read_turns_backwards(store, session_id)) as turns:
        last = await anext((turn async for turn in turns if not turn.is_unfinished), None)
    if last is None:
        raise InputError(f"no turn of {session_id} has ended yet", "ask a question, or finish the one that was cut off")
    return last


async def _find_turn_at(store: SessionStore, session_id: str, seq: int) -> TurnRecord | None:
    """Return the last turn that has begun when this event is stored; None: there is none."""
    entries = await store.export_log(session_id, seq - 1, 1)
    if not entries or entries[0].seq != seq:
        raise InputError(
            f"{session_id} has no event {seq}",
            f"see their numbers with: massmem sessions show {session_id} --turn 1 --events",
        )
    number = 0
    async for message in _read_messages(store, session_id, lambda message: message.seq <= seq):
        number = max(number, message.turn)
    return (await store.list_turns(session_id, number - 1, 1))[0] if number else None


async def _find_turn(store: SessionStore, session_id: str, number: int) -> TurnRecord:
    turn = await require_turn(store, session_id, number)
    if turn.is_unfinished:
        raise InputError(f"turn {number} has not ended", f"finish it with: massmem --session-id {session_id}")
    if turn.status == "undone":
        raise InputError(f"turn {number} was undone", f"fork before it: --turn {number - 1}")
    return turn


async def _measure(store: SessionStore, session_id: str, end: _End) -> tuple[int, int]:
    """Return how many messages are copied, and the number of the last one of the turns that are copied whole."""
    count = shared = 0
    async for message in _read_messages(store, session_id, end.includes):
        count += 1
        if end.seq is None or message.turn < end.turn:
            shared = message.seq
    return count, shared


def _describe(source: SessionRecord, end: _End, fork_id: str, count: int, shared: int) -> SessionRecord:
    """count: of messages. shared: the last message that both share."""
    created_at, row = now(), fold_session(end.events)
    changes = {
        "session_id": fork_id,
        "title": "" if end.last is None else source.display_title[: MAX_NAME_LENGTH - len(_SUFFIX)] + _SUFFIX,
        "last_message": row.last_message or "",
        "message_count": count,
        "active": True,
        "origins": (*((name, min(last, shared)) for name, last in source.origins), (source.session_id, shared)),
        "history_hash": "",
        "status": row.status or "active",
        "created_at": created_at,
        "updated_at": created_at,
    }
    return SessionRecord.model_validate(source.model_dump(exclude={"used"}) | changes)


async def _read_messages(
    store: SessionStore, session_id: str, is_included: Callable[[MessageRecord], bool]
) -> AsyncGenerator[MessageRecord]:
    """Yield the messages before the first one that is not included."""
    async for message in read_all_messages(store, session_id):
        if not is_included(message):
            return
        yield message


async def _restore_state(store: SessionStore, state: SessionState, session_id: str, end: _End) -> SessionState:
    """Return the state without what the user gave after the end, waiting for what the last turn waits for then."""
    params, result = dict(state.params), state.last_result
    later = (await store.read_turn_events(session_id, end.turn))[len(end.events) :] if end.seq else []
    after = end.turn
    while turns := await store.list_turns(session_id, after):
        after = turns[-1].turn
        logged = await store.read_events_of_turns(session_id, [turn.turn for turn in turns])
        later += [event for of_turn in logged.values() for event in of_turn]
    for event in later:
        if isinstance(event, ParamProvided):
            params.pop(event.param, None)
    if result is not None and (result.get("turn", 0) > end.turn or any(isinstance(e, TurnCompleted) for e in later)):
        result = None
    is_over = end.seq is None or any(isinstance(event, TurnCompleted | TurnAbandoned) for event in end.events)
    plan = read_plan([] if is_over else end.events)
    waiting = {"turn": end.turn, **asdict(plan)} if plan.waiting_for else None
    changes = {"waiting_for_param": plan.waiting_for, "plan_execution": waiting}
    return state.model_copy(update={"params": params, "last_result": result, **changes})
