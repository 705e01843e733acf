"""All sessions of a Redis store: in order, filtered, counted."""

from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from massmem.messages import clean_text
from massmem.records import ListedSession, SessionCounts, SessionFilter, SessionRecord
from massmem.store.redis.keys import OfAll, all_key, microseconds
from massmem.store.redis.log import Head
from massmem.store.redis.scripts import HEADS
from massmem.store.redis.session import Sessions

_FIRST_PAGE, _PAGE = 50, 1_000


async def heads(sessions: Sessions, order: OfAll, wanted: SessionFilter | None = None) -> AsyncGenerator[Head]:
    """Sessions by a time, newest first, those of the same time by their ids; read in pages.

    wanted: only those last used between its times are read, when the order is that.
    """
    await sessions.sweep()
    newest, oldest = "+inf", "-inf"
    if wanted is not None and order == "used":
        oldest = "-inf" if wanted.since is None else str(microseconds(wanted.since))
        newest = "+inf" if wanted.before is None else f"({microseconds(wanted.before)}"
    start, size, seen, gone = 0, _FIRST_PAGE, set[str](), list[str]()
    while True:
        page: list[str] = await sessions.client.program(HEADS, all_key(order), newest, oldest, start, size)
        ids, texts = page[::2], page[1::2]
        for session_id, text in zip(ids, texts, strict=True):
            if not text:
                gone.append(session_id)
            elif session_id not in seen:  # one that is used meanwhile moves the others on
                seen.add(session_id)
                yield Head.model_validate_json(text)
        if len(ids) < size:
            break
        start, size = start + size, _PAGE
    if gone:
        await sessions.sweep(gone)


async def listed(
    sessions: Sessions, wanted: SessionFilter, limit: int | None, offset: int
) -> list[ListedSession]:  # fmt: skip
    """The last used first; of those used at the same time, the newest."""
    found: list[Head] = []
    end = None if limit is None else offset + limit
    async with aclosing(heads(sessions, "used", wanted)) as all_:
        async for head in all_:
            full = end is not None and len(found) >= end
            if full and (not found or head.session.updated_at != found[-1].session.updated_at):
                break
            if matches(head.session, wanted):
                found.append(head)
    found.sort(key=lambda h: (h.session.updated_at, h.session.created_at, h.session.session_id.encode()), reverse=True)
    return [_listed(head) for head in found[offset:end]]


async def created(sessions: Sessions, limit: int | None, offset: int) -> list[SessionRecord]:
    """The newest first, without those that are being deleted."""
    found: list[SessionRecord] = []
    async with aclosing(heads(sessions, "created")) as all_:
        async for head in all_:
            if limit is not None and len(found) >= offset + limit:
                break
            if head.session.status != "deleting":
                found.append(head.session)
    return found[offset:]


async def counted(sessions: Sessions, wanted: SessionFilter) -> SessionCounts:
    found = [head.session async for head in heads(sessions, "used", wanted) if matches(head.session, wanted)]
    return SessionCounts(
        sessions=len(found),
        active=sum(session.active for session in found),
        messages=sum(session.message_count for session in found),
        by_status=_statuses(found),
    )


async def count_said(sessions: Sessions, wanted: SessionFilter) -> int:
    return sum([head.said async for head in heads(sessions, "used", wanted) if matches(head.session, wanted)])


def matches(session: SessionRecord, wanted: SessionFilter) -> bool:
    text = clean_text(wanted.text).casefold()
    texts = (session.session_id, session.title, session.last_message, session.description)
    return (
        wanted.status in (None, session.status)
        and (not text or any(text in each.casefold() for each in texts))
        and (wanted.title is None or clean_text(wanted.title).casefold() == session.title.casefold())
        and session.session_id.startswith(clean_text(wanted.prefix))
        and (wanted.since is None or session.updated_at >= wanted.since)
        and (wanted.before is None or session.updated_at < wanted.before)
        and (wanted.owner is None or session.user_id == clean_text(wanted.owner))
        and (not wanted.cut_off or (session.user_id is not None and session.status in ("active", "interrupted")))
    )


def _listed(head: Head) -> ListedSession:
    return ListedSession(
        session=head.session,
        turns=head.turns,
        said=head.said,
        confidence=head.confidence,
        escalated=head.escalated,
    )


def _statuses(sessions: Iterable[SessionRecord]) -> dict[str, int]:
    return dict(Counter(session.status for session in sessions))
