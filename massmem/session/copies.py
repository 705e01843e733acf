"""What a fork shares with the session that it was forked from: a copy of the log, and one memory of it.

The copied messages are not recorded again. `SessionRecord.origins` names whose memories the fork sees as its own. When
these go, because a session is deleted or a turn undone, one fork takes over the recording, and the others share that.
"""

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from itertools import takewhile

from massmem.core.events import MemoryChanged, decode_event
from massmem.core.ids import make_message_id
from massmem.core.records import EVERYBODY, LogEntry, RecordingJob, SessionFilter
from massmem.store.lookup import read_log_pages
from massmem.store.ports import SessionStore

FACTS_STAY = "facts of this turn belong to the session that this one was forked from"


async def copy_log(
    store: SessionStore, session_id: str, is_included: Callable[[LogEntry], bool], copy_id: str, shared: int = 0
) -> AsyncGenerator[Sequence[LogEntry]]:
    """Yield the log of a session before the first entry that is not included, as the log of the copy.

    What belongs to no turn has the number 0, so that the place of an entry decides, and not its turn alone.

    shared: the last entry that is not to be recorded for the copy.
    """
    async for page in read_log_pages(store, session_id):
        entries = list(takewhile(is_included, page))
        if entries:
            yield [rename_entry(e, session_id, copy_id, FACTS_STAY, is_shared=e.seq <= shared) for e in entries]
        if len(entries) < len(page):
            return


def rename_entry(
    entry: LogEntry, old_id: str, new_id: str, no_facts: str | None = None, *, is_shared: bool = False
) -> LogEntry:
    """Return the entry as one of another session. no_facts: see `requeue`. is_shared: it is not to be recorded."""
    event = json.loads(entry.payload)
    if event.get("session_id") == old_id:
        event["session_id"] = new_id
    payload = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    jobs = () if is_shared else tuple(requeue(job, new_id, no_facts) for job in entry.recordings)
    return LogEntry(seq=entry.seq, turn=entry.turn, payload=payload, recordings=jobs)


def requeue(job: RecordingJob, session_id: str, no_facts: str | None = None) -> RecordingJob:
    """Return the job as a new one of the session; what was forgotten stays so. no_facts: why no model reads it."""
    changes: dict[str, object] = {"session_id": session_id, "message_id": make_message_id(session_id, job.seq)}
    if job.kind == "extract" and no_facts and job.status != "forgotten":
        changes |= {"status": "done", "reason": no_facts}
    elif job.status != "forgotten":
        changes |= {"status": "pending", "attempts": 0, "reason": None, "next_attempt_at": None}
    return job.model_copy(update=changes)


async def hand_over(store: SessionStore, session_id: str, turn: int | None = None) -> None:
    """Let a fork record what it shares with a session whose memories are about to go; nothing happens without a fork.

    turn: only this one goes. Called again, after a kill, it comes to the same.
    """
    session = await store.get_session(session_id)
    forks = await store.find_sessions(
        SessionFilter(owner=EVERYBODY if session is None else session.owner, fork_of=session_id)
    )
    shares = {
        one.session.session_id: dict(one.session.origins)[session_id]
        for one in forks
        if one.session.status != "deleting"
    }
    if not shares:
        return
    heir = max(shares, key=lambda name: (shares[name], name))
    last = shares[heir]
    async for page in read_log_pages(store, session_id):
        jobs = {entry.seq: tuple(requeue(job, heir) for job in entry.recordings) for entry in page if entry.seq <= last}
        copies = await store.export_log(heir, page[0].seq - 1, len(page))
        taken = [
            entry.model_copy(update={"recordings": jobs[entry.seq]})
            for entry in copies
            if jobs.get(entry.seq) and turn in (None, *(job.turn for job in jobs[entry.seq]))
        ]
        if taken:
            await store.rewrite_log(heir, taken)
        for entry in page:
            change = decode_event(entry.payload) if entry.seq > last and "memory_changed" in entry.payload else None
            is_lost = any(job.status == "forgotten" for job in entry.recordings)
            if (
                isinstance(change, MemoryChanged)
                and max(change.sources) <= last
                and turn in (None, change.turn)
                and not is_lost
            ):
                await store.append(heir, 0, [change])
    for listed in forks:
        name, origins = listed.session.session_id, listed.session.origins
        if name in shares and name != heir and heir not in dict(origins):
            await store.update_session(name, origins=(*origins, (heir, shares[name])))
