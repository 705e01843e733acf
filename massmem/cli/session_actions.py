"""What the commands of `massmem sessions` do, between configuration, store and what they print."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from massmem.cli.files import writing
from massmem.cli.progress import Progress, display
from massmem.cli.streams import say
from massmem.cli.team import Prepared
from massmem.errors import InputError
from massmem.events import now
from massmem.export import FORMATS, Format, session_without_secrets, without_secrets
from massmem.insights import Insights
from massmem.plan import plan_of
from massmem.records import ListedSession, MessageRecord, SessionCounts, SessionFilter, SessionRecord
from massmem.registry import Registry, RegistryDamaged, entry_of, without_password
from massmem.session.deletion import Deleted, Place, begun, delete_sessions
from massmem.session_ids import check_session_name
from massmem.store import open_configured
from massmem.store.base import SessionStore
from massmem.store.reading import exchanges, find_session, one_exchange
from massmem.transcript import Exchange


@dataclass(frozen=True, slots=True)
class Listing:
    """One page of a list. counts: of all that match. cut_off: ids of sessions whose deletion was."""

    # asyncio.run makes a text of what its coroutine returns and throws it away: a second for ten thousand sessions.
    sessions: list[ListedSession] = field(repr=False)
    counts: SessionCounts
    cut_off: list[str]


@dataclass(frozen=True, slots=True)
class Found:
    message: MessageRecord
    session: SessionRecord


async def listed(at: Prepared, wanted: SessionFilter, limit: int | None, offset: int = 0) -> Listing:
    async with _store(at) as store:
        found = await store.find_sessions(wanted, limit, offset)
        marked = [each.session.session_id for each in found if each.session.status == "deleting"]
        cut_off = sorted({*marked, *begun(at.home)})
        return Listing(found, await store.session_counts(wanted), cut_off)


async def read(
    at: Prepared, name: str, turn: int | None, head: Callable[[SessionRecord], None], each: Callable[[Exchange], None]
) -> None:
    """Give the session to `head` and its turns, or the one that is wanted, to `each`."""
    async with _store(at) as store:
        session = await find_session(store, check_session_name(name))
        if turn is not None:
            one = await one_exchange(store, session.session_id, turn)
            head(session)
            each(await _with_plan(store, one))
            return
        head(session)
        async with aclosing(exchanges(store, session.session_id)) as turns:
            async for said in turns:
                each(await _with_plan(store, said))


async def _with_plan(store: SessionStore, said: Exchange) -> Exchange:
    """The turn with what is still to be done in it, when it is not over."""
    if said.record.status in ("completed", "abandoned", "undone"):
        return said
    plan = plan_of(await store.turn_events(said.record.session_id, said.record.turn))
    return replace(said, plan=tuple(plan.lines()))


async def found(at: Prepared, query: str, name: str | None, limit: int) -> list[Found]:
    """Messages with words of the query, best first."""
    async with _store(at) as store:
        within = None if name is None else [(await find_session(store, check_session_name(name))).session_id]
        messages = await store.search_text(query, within, limit)
        sessions = {i: await store.get_session(i) for i in {m.session_id for m in messages}}
        return [Found(m, session) for m in messages if (session := sessions[m.session_id]) is not None]


async def renamed(at: Prepared, name: str, title: str) -> SessionRecord:
    """Give the session a name of its own. Raises InputError when another session has it, or its id is that."""
    title = check_session_name(" ".join(title.split()))
    async with _store(at) as store:
        session = await find_session(store, check_session_name(name))
        same = [each.session for each in await store.find_sessions(SessionFilter(title=title), 2)]
        taken = [*same, *([other] if (other := await store.get_session(title)) else [])]
        for each in taken:
            if each.session_id != session.session_id:
                raise InputError(
                    f"another session is called {title!r}: {each.session_id}", "choose another name, or rename that one"
                )
        await store.rename_session(session.session_id, title)
        session = session.model_copy(update={"title": title})
        try:
            await asyncio.to_thread(Registry(at.home).upsert, entry_of(session, at.config.store.url))
        except RegistryDamaged:
            entries = [entry_of(each, at.config.store.url) for each in await store.list_sessions()]
            await asyncio.to_thread(Registry(at.home).rebuild, entries)
        return session


async def to_delete(at: Prepared, names: Sequence[str]) -> list[SessionRecord]:
    """The sessions that are meant, also such as are being deleted; not those of which only traces are left."""
    async with _store(at) as store:
        meant: dict[str, SessionRecord] = {}
        for name in names:
            exact = await store.get_session(check_session_name(name))
            if exact is None and name in begun(at.home):
                continue
            session = exact or await find_session(store, name)
            meant[session.session_id] = session
        return list(meant.values())


async def deleted(at: Prepared, sessions: Sequence[SessionRecord], progress: Progress) -> Deleted:
    async with _store(at) as store:
        place = Place(at.config, at.home, store, Path.cwd(), dict(os.environ))
        return await delete_sessions(place, sessions, progress)


async def unused(at: Prepared, longer_than: timedelta) -> list[ListedSession]:
    """Sessions that were not used for so long, the last used first."""
    async with _store(at) as store:
        return await store.find_sessions(SessionFilter(before=now() - longer_than))


async def exported(
    at: Prepared, name: str, form: Format, write: Callable[[str], object], progress: Progress, *, detailed: bool
) -> SessionRecord:
    """Write a session piece by piece, without secrets."""
    async with _store(at) as store:
        session = await find_session(store, check_session_name(name))
        values = (await store.state(session.session_id)).params
        write(form.head(session_without_secrets(session, values)))
        first, done = True, 0
        async with aclosing(exchanges(store, session.session_id)) as turns:
            async for said in turns:
                write(form.turn(without_secrets(said, values), first, detailed))
                first, done = False, done + len(said.messages)
                progress(done, max(done, session.message_count))
        write(form.tail())
        return session


async def written(
    at: Prepared, name: str, form: str | None, output: Path | None, *, detailed: bool
) -> SessionRecord:  # fmt: skip
    """Write a session to a file, or to stdout when there is none. form None: what the name of the file says.

    Raises InputError when the file cannot be written, and as `find_session`.
    """
    chosen = FORMATS[form or _form_of(output)]
    with writing(output) as write:
        if output is None:
            return await exported(at, name, chosen, write, lambda _done, _total: None, detailed=detailed)
        with display("exporting") as progress:
            return await exported(at, name, chosen, write, progress, detailed=detailed)


def _form_of(output: Path | None) -> str:
    suffix = output.suffix.lower().lstrip(".") if output else ""
    return next((name for name, form in FORMATS.items() if suffix in {form.suffix, name}), "json")


async def insights(at: Prepared, name: str | None, wanted: SessionFilter, progress: Progress) -> dict[str, Any]:
    """Of one session, or of all that are wanted."""
    result, done = Insights(), 0
    async with _store(at) as store:
        if name is not None:
            sessions = [await find_session(store, check_session_name(name))]
        else:
            sessions = [each.session for each in await store.find_sessions(wanted)]
        total = sum(each.message_count for each in sessions)
        for session in sessions:
            result.add_session(session)
            async with aclosing(exchanges(store, session.session_id)) as turns:
                async for said in turns:
                    result.add_turn(said)
                    done += len(said.messages)
                    progress(done, max(done, total))
    one = {"session_id": sessions[0].session_id, "title": sessions[0].title} if name is not None else {}
    return one | result.result()


async def stats(at: Prepared) -> dict[str, Any]:
    """Totals under the names that clients of older systems know, and where the sessions live.

    durable is false for a store in memory, which stands in for a server that is down.
    """
    async with _store(at, fallback=True) as store:
        counts = await store.session_counts(SessionFilter())
        queue, info = await store.recording_counts(), store.info
    average = counts.messages / counts.sessions if counts.sessions else 0.0
    return {
        "total_sessions": counts.sessions,
        "total_messages": counts.messages,
        "avg_messages_per_session": round(average, 2),
        "activeConversations": counts.active,
        "totalMessages": counts.messages,
        "averageMessagesPerConversation": round(average),
        "usingRedis": info.kind == "redis",
        "durable": info.durable,
        "by_status": counts.by_status,
        "recordings": queue.model_dump(),
        "store": {"kind": info.kind, "durable": info.durable, "url": without_password(at.config.store.url)},
    }


@asynccontextmanager
async def _store(at: Prepared, *, fallback: bool = False) -> AsyncGenerator[SessionStore]:
    """What the user should know of the store is said on stderr. fallback: as of `open_configured`."""
    if at.team is not None:
        yield at.team.store
        return
    store = await open_configured(at.config.store, at.home, fallback=fallback)
    for warning in filter(None, (store.info.always, *store.info.once)):
        say(warning)
    try:
        yield store
    finally:
        await store.close()
