"""/sessions, /resume, /rename and /export: this conversation among the others."""

from collections.abc import Sequence
from pathlib import Path

from massmem.cli import session_actions as actions
from massmem.cli import session_view as view
from massmem.cli.chat.command import Command
from massmem.cli.chat.desk import Desk
from massmem.cli.showing import tell
from massmem.cli.streams import write_out
from massmem.errors import InputError
from massmem.export import FORMATS
from massmem.records import SessionFilter
from massmem.store.reading import one_exchange

_LISTED = 20
_OFFERED = 50


async def _sessions(desk: Desk, rest: str) -> None:
    found = await actions.listed(desk.at, SessionFilter(text=rest), _LISTED)
    if found.sessions:
        write_out(view.table(found.sessions))
    else:
        tell("no session matches" if rest else "there is no session yet")
    if (more := found.counts.sessions - len(found.sessions)) > 0:
        tell(f"{more:,} more; find them with: /sessions TEXT")


async def _resume(desk: Desk, rest: str) -> None:
    if not rest:
        await _sessions(desk, "")
        tell("go on with one of them: /resume ID or NAME")
        return
    unfinished = await desk.resume(rest)
    await show_last(desk)
    if unfinished is not None and unfinished.status != "waiting":
        tell("its last turn is not finished: /continue finishes it")


async def show_last(desk: Desk) -> None:
    """Where the conversation stands: its name and its last turn."""
    store, name = desk.team.store, desk.session.id
    session = await store.get_session(name)
    if session is None:
        return
    write_out(view.heading(session))
    last = await store.last_turn(name)
    if last is not None:
        write_out(view.conversation(await one_exchange(store, name, last.turn), everything=False))


async def _rename(desk: Desk, rest: str) -> None:
    _check_begun(desk)
    if not rest:
        raise InputError("the new name is missing", "like this: /rename Trip to Lisbon")
    session = await actions.renamed(desk.at, desk.session.id, rest)
    tell(f'{session.session_id} is called "{session.title}" now')


async def _export(desk: Desk, rest: str) -> None:
    _check_begun(desk)
    form = rest if rest in FORMATS else None
    output = _file(rest) if rest and form is None else Path(f"{desk.session.id}.{_suffix(form or 'markdown')}")
    await actions.written(desk.at, desk.session.id, form, output, detailed=False)
    tell(f"written to {output}")


def _file(name: str) -> Path:
    return Path(name).expanduser()


def _suffix(form: str) -> str:
    return FORMATS[form].suffix.lstrip(".")


def _check_begun(desk: Desk) -> None:
    if not desk.session.id:
        raise InputError("this conversation has not begun", "ask something first")


async def _complete_session(desk: Desk, words: Sequence[str]) -> Sequence[str]:
    found = await desk.team.store.find_sessions(SessionFilter(), _OFFERED)
    titles = [each.session.title for each in found if each.session.title]
    return [*titles, *(each.session.session_id for each in found)]


async def _complete_form(_desk: Desk, words: Sequence[str]) -> Sequence[str]:
    return () if words else tuple(FORMATS)


COMMANDS = (
    Command("sessions", "The conversations so far, the last used first.", _sessions, "[TEXT]"),
    Command("resume", "Go on with another conversation.", _resume, "ID | NAME", _complete_session),
    Command("rename", "Give this conversation a name.", _rename, "NAME"),
    Command("export", "Write this conversation to a file, no secrets.", _export, "[FILE | FORMAT]", _complete_form),
)
