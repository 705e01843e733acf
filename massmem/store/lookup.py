"""Sessions read from any store: by what a user calls them, and turn by turn."""

import difflib
from collections.abc import AsyncGenerator, Sequence

from massmem.core.errors import InputError, UnknownSessionError
from massmem.core.messages import clean_text
from massmem.core.records import ListedSession, MessageRecord, SessionFilter, SessionRecord, TurnRecord
from massmem.core.transcript import TurnTranscript, build_transcript
from massmem.store.ports import SessionStore

PREFIX = "session_"
"""How the ids begin that massmem makes; it may be left out."""

_PAGE = 1_000
_TURNS = 100
_CANDIDATES = 6
_SUGGEST_FROM = 500


async def find_session(store: SessionStore, name: str) -> SessionRecord:
    """The session that a user means: by its id, else by its whole title, else by the beginning of its id.

    Raises:
        UnknownSessionError: there is none, or it is being deleted; the hint names similar ones.
        InputError: there are several; the hint names them.
    """
    exact = await store.get_session(name)
    if exact is not None:
        return _alive(exact)
    wanted = [SessionFilter(title=name), SessionFilter(prefix=name), SessionFilter(prefix=PREFIX + name)]
    for each in wanted:
        found = await store.find_sessions(each, _CANDIDATES)
        if len(found) == 1:
            return _alive(found[0].session)
        if found:
            raise _ambiguous(name, found)
    raise await _unknown(store, name)


async def resolve_session(store: SessionStore, name: str | None, *, newest: bool) -> SessionRecord | None:
    """The one that is named, or the one that was used last; None: a new session. Raises as the two do."""
    if name is not None:
        return await find_session(store, name)
    return await get_newest_session(store) if newest else None


async def require_session(store: SessionStore, session_id: str) -> SessionRecord:
    """Raises UnknownSessionError when there is none with this id, or it is being deleted."""
    found = await store.get_session(session_id)
    if found is None:
        raise UnknownSessionError(f"session {session_id} was deleted", 'start a new one with: massmem "your question"')
    return _alive(found)


async def get_newest_session(store: SessionStore) -> SessionRecord:
    """The session that was used last. Raises UnknownSessionError when there is none."""
    for listed in await store.find_sessions(SessionFilter(), _CANDIDATES):
        if listed.session.status != "deleting":
            return listed.session
    raise UnknownSessionError("there is no session yet to go on with", 'start one with: massmem "your question"')


async def read_transcript(store: SessionStore, session_id: str) -> AsyncGenerator[TurnTranscript]:
    """All turns of a session in order; never more than one of them and a page of messages is held.

    What was added before the first turn comes as turn 0, see `TurnTranscript.is_between_turns`.
    """
    records: dict[int, TurnRecord] = {}
    said: list[MessageRecord] = []
    after = 0
    while page := await store.read_messages(session_id, after, _PAGE):
        after = page[-1].seq
        for message in page:
            if said and message.turn != said[0].turn:
                yield await _exchange(store, records, said)
                said = []
            said.append(message)
    if said:
        yield await _exchange(store, records, said)


async def read_turn_transcript(store: SessionStore, session_id: str, turn: int) -> TurnTranscript:
    """Raises InputError when the session has no such turn."""
    found = await store.list_turns(session_id, turn - 1, 1)
    if not found or found[0].turn != turn:
        raise InputError(
            f"{session_id} has no turn {turn}", f"see what it has with: massmem sessions show {session_id}"
        )
    return build_transcript(found[0], await store.read_turn_messages(session_id, turn))


async def _exchange(
    store: SessionStore, records: dict[int, TurnRecord], messages: Sequence[MessageRecord]
) -> TurnTranscript:
    """records: a page of turns, filled here as it is needed."""
    session_id, turn = messages[0].session_id, messages[0].turn
    if turn not in records:
        records.clear()
        records.update({r.turn: r for r in await store.list_turns(session_id, turn - 1, _TURNS)})
    return build_transcript(records.get(turn) or _no_turn(messages), messages)


def _no_turn(messages: Sequence[MessageRecord]) -> TurnRecord:
    """What stands for the turn of messages that were added before the first one."""
    first, last = messages[0], messages[-1]
    return TurnRecord(
        session_id=first.session_id, turn=first.turn, question="", status="completed", seed=0,
        started_at=first.created_at, ended_at=last.created_at,
    )  # fmt: skip


def _alive(session: SessionRecord) -> SessionRecord:
    if session.status != "deleting":
        return session
    raise UnknownSessionError(
        f"session {session.session_id} is being deleted",
        f"when that was cut off, finish it with: massmem sessions delete {session.session_id}",
    )


def _ambiguous(name: str, found: Sequence[ListedSession]) -> InputError:
    more = "" if len(found) < _CANDIDATES else " or another"
    lines = [f"  {f.session.session_id}  {f.session.title[:60]}".rstrip() for f in found[: _CANDIDATES - 1]]
    return InputError(
        f"{clean_text(name)!r} may be any of {'several' if more else len(found)} sessions",
        "\n".join(["give more of the id of the one you mean:", *lines, *(["  ..."] if more else [])]),
    )


async def _unknown(store: SessionStore, name: str) -> UnknownSessionError:
    known: dict[str, str] = {}
    for listed in await store.find_sessions(SessionFilter(), _SUGGEST_FROM):
        known[listed.session.session_id] = known[listed.session.title] = listed.session.session_id
    near = list(dict.fromkeys(known[found] for found in difflib.get_close_matches(name, known, n=3)))
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return UnknownSessionError(f"there is no session {name!r}", f"{hint}see all with: massmem --list-sessions")
