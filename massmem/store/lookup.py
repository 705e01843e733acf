"""Sessions read from any store: by what a user calls them, and turn by turn."""

import difflib
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence

from massmem.core.errors import InputError, SessionBusyError, UnknownSessionError
from massmem.core.events import AgentDelta, Event, decode_event
from massmem.core.ids import PREFIX, check_session_name
from massmem.core.messages import AttachedFile, Attachment, clean_text
from massmem.core.records import (
    EVERYBODY,
    Everybody,
    ListedSession,
    LogEntry,
    MessageRecord,
    Owner,
    SessionFilter,
    SessionRecord,
    TurnRecord,
)
from massmem.core.transcript import LoggedTurn
from massmem.core.turn_result import TurnResult
from massmem.core.versions import TurnTree
from massmem.memory.persistent import USER, Scope
from massmem.store.ports import SessionStore

_PAGE = 1_000
_TURNS = 100
_CANDIDATES = 6
_SUGGEST_FROM = 500


async def find_own_session(store: SessionStore, session_id: str, owner: Owner) -> SessionRecord | None:
    """Return the owner's session with exactly this id; None when there is none yet.

    Raises:
        UnknownSessionError: it is somebody else's; the message is that of a session that does not exist.
        SessionBusyError: it is being deleted.
        StoreError: the store cannot be read.
    """
    session = await store.get_session(session_id)
    if session is not None and session.owner != owner:
        raise UnknownSessionError("there is no such session")
    if session is not None and session.status == "deleting":
        raise SessionBusyError("the session is being deleted", "wait until it is gone, then ask again")
    return session


async def find_session(store: SessionStore, name: str, owner: Owner | Everybody) -> SessionRecord:
    """Return the session that a user means: by its id, else by its whole title, else by the beginning of its id.

    Raises:
        UnknownSessionError: `owner` has none, or it is being deleted; the hint names similar ones.
        InputError: there are several; the hint names them. Or no session can be called so.
    """
    name = clean_text(name) if name.strip() else check_session_name(name)
    session = await store.get_session(name)
    if session is not None and owner in (EVERYBODY, session.owner):
        return _refuse_deleted(session)
    for filter_ in (
        SessionFilter(title=name, owner=owner),
        SessionFilter(prefix=name, owner=owner),
        SessionFilter(prefix=PREFIX + name, owner=owner),
    ):
        sessions = await store.find_sessions(filter_, _CANDIDATES)
        if len(sessions) == 1:
            return _refuse_deleted(sessions[0].session)
        if sessions:
            raise _ambiguous_error(name, sessions)
    check_session_name(name)  # only now: the title of an imported session may be no name that a user can give
    raise await _unknown_error(store, name, owner)


async def require_session(store: SessionStore, session_id: str) -> SessionRecord:
    """Return the session with this id. Raises UnknownSessionError: there is none, or it is being deleted."""
    session = await store.get_session(session_id)
    if session is None:
        raise UnknownSessionError(f"session {session_id} was deleted", 'start a new one with: massmem "your question"')
    return _refuse_deleted(session)


async def get_newest_session(store: SessionStore, owner: Owner | Everybody) -> SessionRecord:
    """Return the session that was used last. Raises UnknownSessionError: there is none."""
    for listed in await store.find_sessions(SessionFilter(owner=owner), _CANDIDATES):
        if listed.session.status != "deleting":
            return listed.session
    raise UnknownSessionError("there is no session yet to go on with", 'start one with: massmem "your question"')


async def read_all_messages(store: SessionStore, session_id: str) -> AsyncGenerator[MessageRecord]:
    """Yield every message, oldest first; no more than a page of them is in memory."""
    async for page in read_message_pages(store, session_id):
        for message in page:
            yield message


async def read_message_pages(store: SessionStore, session_id: str) -> AsyncGenerator[list[MessageRecord]]:
    """As `read_all_messages`, a page at a time."""
    after = 0
    while page := await store.read_messages(session_id, after, _PAGE):
        after = page[-1].seq
        yield page


async def read_log_pages(
    store: SessionStore, session_id: str, after: int = 0, *, with_trimmed: bool = False
) -> AsyncGenerator[list[LogEntry]]:
    """Yield the log of a session from the number behind `after`, a page at a time. with_trimmed: as `export_log`."""
    while page := await store.export_log(session_id, after, _PAGE, with_trimmed=with_trimmed):
        after = page[-1].seq
        yield page


Change = Callable[[Event], Event | None]
"""Returns the event as somebody may see it; None: not at all."""


async def read_transcript(
    store: SessionStore, session: SessionRecord, change: Change | None = None
) -> AsyncGenerator[LoggedTurn]:
    """Yield all turns of a session in order; no more than one of them and a page of messages is in memory.

    What was added before the first turn comes as turn 0.

    session: with its real status. change: of the events from which the results are made.
    """
    versions = await read_versions(store, session.session_id)
    records: dict[int, TurnRecord] = {}
    messages: list[MessageRecord] = []

    async def build() -> LoggedTurn:
        turn = messages[0].turn
        if turn not in records:
            records.clear()
            records.update({r.turn: r for r in await store.list_turns(session.session_id, turn - 1, _TURNS)})
        if turn in records:
            [result] = await fold_turns(store, session, [records[turn]], versions, change)
        else:  # what was added from outside
            began, ended = messages[0].created_at, messages[-1].created_at
            result = TurnResult(session_id=session.session_id, turn=turn, status="completed")
            result.started_at, result.ended_at = began, ended
        return LoggedTurn(result, tuple(messages))

    async for message in read_all_messages(store, session.session_id):
        if messages and message.turn != messages[0].turn:
            yield await build()
            messages = []
        messages.append(message)
    if messages:
        yield await build()


async def read_results(store: SessionStore, session: SessionRecord) -> AsyncGenerator[TurnResult]:
    """Yield what each turn of a session came to, in order."""
    last = 0
    while page := await store.list_turns(session.session_id, last, _TURNS):
        last = page[-1].turn
        for result in await fold_turns(store, session, page):
            yield result


async def complete_result(
    store: SessionStore, session_id: str, result: TurnResult, change: Change | None = None
) -> TurnResult:
    """Return the result of a turn that has ended now, with what the log has of it from earlier runs."""
    if result.is_whole or not result.turn:
        return result
    return _fold(await store.read_turn_events(session_id, result.turn), change)


async def fold_turns(
    store: SessionStore,
    session: SessionRecord,
    records: Sequence[TurnRecord],
    versions: Mapping[int, tuple[int, ...]] | None = None,
    change: Change | None = None,
) -> list[TurnResult]:
    """Return what turns came to, from one reading of the log.

    versions: as `read_versions`. Else as `read_transcript`.
    """
    logged = await store.read_events_of_turns(session.session_id, [record.turn for record in records])
    results: list[TurnResult] = []
    for record in records:
        result = _fold(logged[record.turn], change)
        result.turn = record.turn
        result.withdrawn, result.versions = record.withdrawn, list((versions or {}).get(record.turn, ()))
        if record.status in ("abandoned", "undone"):
            result.status = record.status
        elif result.status == "running" and session.status == "interrupted":
            result.status = "interrupted"  # a kill cut it off
        results.append(result)
    return results


def _fold(events: Sequence[Event], change: Change | None) -> TurnResult:
    return TurnResult.of(events if change is None else filter(None, map(change, events)))


async def require_turn(store: SessionStore, session_id: str, number: int) -> TurnRecord:
    """Return the turn with this number. Raises InputError: the session has no such turn."""
    turns = await store.list_turns(session_id, number - 1, 1)
    if not turns or turns[0].turn != number:
        raise InputError(f"{session_id} has no turn {number}", f"see them with: massmem sessions show {session_id}")
    return turns[0]


async def read_turns_backwards(store: SessionStore, session_id: str) -> AsyncGenerator[TurnRecord]:
    """Yield the turns of a session that are not withdrawn, the newest first."""
    turn = await store.get_last_turn(session_id)
    while turn is not None:
        if not turn.withdrawn:
            yield turn
        before = await store.list_turns(session_id, turn.turn - 2, 1)
        turn = before[0] if before and before[0].turn < turn.turn else None


async def read_versions(store: SessionStore, session_id: str) -> dict[int, tuple[int, ...]]:
    """Return the versions of each turn that has several, by its number, the oldest first."""
    if not await store.list_hidden(Scope(session_id, USER, 0)):
        return {}
    return TurnTree(await store.list_places(session_id)).list_versions()


async def read_turn(store: SessionStore, session: SessionRecord, number: int) -> LoggedTurn:
    """Return one turn. Raises InputError: the session has no such turn. session: as for `read_transcript`."""
    record = await require_turn(store, session.session_id, number)
    [result] = await fold_turns(store, session, [record], await read_versions(store, session.session_id))
    return LoggedTurn(result, tuple(await store.read_turn_messages(session.session_id, number)))


async def read_turn_log(store: SessionStore, session_id: str, number: int) -> list[tuple[int, Event]]:
    """Return the events of a turn from its beginning, each with its number in the log, without deltas.

    Raises InputError: the session has no such turn.
    """
    await require_turn(store, session_id, number)
    messages = await store.read_turn_messages(session_id, number)
    log: list[tuple[int, Event]] = []
    async for page in read_log_pages(store, session_id, messages[0].seq - 1):
        log += [(entry.seq, decode_event(entry.payload)) for entry in page if entry.turn == number]
        if page[-1].turn > number:
            break
    return [(seq, event) for seq, event in log if not isinstance(event, AgentDelta)]


async def find_last_hidden(store: SessionStore, session_id: str) -> int:
    """Return the seq of the last message that the history no longer shows, 0 when it shows all."""
    cleared = await store.get_latest_summary(session_id, "")
    return 0 if cleared is None else int(cleared.metadata["until"])


async def load_attachments(
    store: SessionStore, session_id: str, files: Sequence[AttachedFile]
) -> tuple[Attachment, ...]:
    """Return the files of a session with their bytes; one that is lost is left out. Raises StoreError."""
    stored = await store.load_files(session_id, [file.hash for file in files])
    return tuple(Attachment(file, stored[file.hash]) for file in files if file.hash in stored)


def _refuse_deleted(session: SessionRecord) -> SessionRecord:
    if session.status != "deleting":
        return session
    raise UnknownSessionError(
        f"session {session.session_id} is being deleted",
        f"when that was cut off, finish it with: massmem sessions delete {session.session_id}",
    )


def _ambiguous_error(name: str, sessions: Sequence[ListedSession]) -> InputError:
    has_more = len(sessions) >= _CANDIDATES
    lines = [f"  {s.session.session_id}  {s.session.display_title[:60]}".rstrip() for s in sessions[: _CANDIDATES - 1]]
    return InputError(
        f"{clean_text(name)!r} may be any of {'several' if has_more else len(sessions)} sessions",
        "\n".join(["give more of the id of the one you mean:", *lines, *(["  ..."] if has_more else [])]),
    )


async def _unknown_error(store: SessionStore, name: str, owner: Owner | Everybody) -> UnknownSessionError:
    ids_by_name: dict[str, str] = {}
    for listed in await store.find_sessions(SessionFilter(owner=owner), _SUGGEST_FROM):
        ids_by_name[listed.session.session_id] = ids_by_name[listed.session.title] = listed.session.session_id
    near = list(dict.fromkeys(ids_by_name[match] for match in difflib.get_close_matches(name, ids_by_name, n=3)))
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return UnknownSessionError(f"there is no session {name!r}", f"{hint}see all with: massmem --list-sessions")
