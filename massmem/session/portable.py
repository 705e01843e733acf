"""The log of a session in an export, from which `massmem import` makes the same session again.

It has what the readable part has not: votes and rounds as they happened, what the user changed of memories, and which
are forgotten. It goes without secrets, values of params and what only a provider can read, as all of an export.
"""

import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from massmem.core import events as ev
from massmem.core.records import LogEntry, Owner, RecordingJob, SessionCopy, SessionRecord, SessionState
from massmem.core.redact import mask_values, redact_values
from massmem.core.text import dump_json
from massmem.recording.forgetting import STRUCTURE
from massmem.session.copies import rename_entry
from massmem.store.encoding import clean_json
from massmem.store.lookup import read_log_pages
from massmem.store.ports import SessionStore
from massmem.store.projection import WITHOUT_FACTS, make_message_id

_MOST, _DIGITS = 1_000_000_000, 18
"""Events and turns of a log, and digits of its other numbers."""
_OF_JOBS = {"seq", "kind", "agent_id", "position", "since", "status", "created_at", "forgotten"}


async def write_log(
    store: SessionStore, session_id: str, shown_id: str, params: Mapping[str, object]
) -> AsyncGenerator[str]:
    """Yield the end of a session as JSON, from behind its last turn. shown_id: the session's id in the export."""
    copy = await store.export_session(session_id)
    yield f'\n], "log": {{"abandoned": {dump_json(copy.abandoned if copy else ())}, "entries": ['
    separator = "\n"
    async with aclosing(read_log_pages(store, session_id)) as pages:
        async for page in pages:
            for row in dump_entries(page, params, session_id, shown_id):
                yield separator + dump_json(row)
                separator = ",\n"
    yield "\n]}}\n"


def dump_entries(
    entries: Sequence[LogEntry], params: Mapping[str, object], session_id: str = "", shown_id: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield entries as JSON, without streamed output. shown_id: what stands for the session's id."""
    for entry in entries:
        event = ev.decode_event(entry.payload)
        if isinstance(event, ev.AgentDelta):
            continue
        fields = redact_event(event, params).model_dump(mode="json")
        if fields.get("session_id") == session_id:
            fields["session_id"] = shown_id
        jobs = [job.model_dump(mode="json", include=_OF_JOBS) for job in entry.recordings]
        yield {"seq": entry.seq, "turn": entry.turn, "event": fields, "jobs": jobs}


def redact_event(event: ev.Event, params: Mapping[str, object]) -> ev.Event:
    """Return the event as an export has it. params: see `write_log`."""
    fields = ev.hide_private_fields(event).model_dump(mode="json")
    texts = {name: value for name, value in fields.items() if name not in STRUCTURE}
    if isinstance(event, ev.ParamRequested | ev.TurnWaiting):  # what it asks for was not given yet
        params = {name: value for name, value in params.items() if name != event.param}
    return ev.read_event(fields | redact_values(mask_values(texts, params)))


@dataclass(frozen=True, slots=True)
class PortableSession:
    """A session as an export has it, under its exported id."""

    session: SessionRecord
    entries: tuple[LogEntry, ...] = field(repr=False)
    abandoned: tuple[int, ...]
    files: Mapping[str, bytes] = field(repr=False)
    """By the SHA-256 of their bytes."""

    def list_entries(self, session_id: str, *, facts: bool) -> list[LogEntry]:
        """Return the log under another id, to be recorded. What was forgotten stays so. facts: as for an import."""
        no_facts = None if facts else WITHOUT_FACTS
        return [rename_entry(entry, self.session.session_id, session_id, no_facts) for entry in self.entries]

    def describe(self, session_id: str, owner: Owner, group: str) -> SessionCopy:
        """Return what the session is beside its log, for a new owner. group: see `memory_group`."""
        changes = {"session_id": session_id, "user_id": owner.user_id, "memory_group": group}
        session = self.session.model_copy(update=changes | {"config_path": "", "history_hash": ""})
        return SessionCopy(
            session=session, state=SessionState(), abandoned=self.abandoned, files=tuple(sorted(self.files))
        )


def read_portable(export: Mapping[str, Any]) -> PortableSession | None:
    """Return the session of an export; None: it has no log.

    Raises ValueError, TypeError, LookupError: its log cannot be read.
    """
    if not export.get("log"):
        return None
    log = json.loads(dump_json(clean_json(export["log"])), parse_int=_read_number)
    known = {name: value for name, value in export["session"].items() if name in SessionRecord.model_fields}
    session = SessionRecord.model_validate(clean_json(known))
    entries = tuple(_read_entry(session.session_id, entry) for entry in log["entries"])
    numbers = [entry.seq for entry in entries]
    in_order = entries and numbers == sorted({*numbers}) and numbers[0] > 0 and numbers[-1] < _MOST
    if not in_order or any(not 0 <= entry.turn < _MOST for entry in entries) or session.status == "deleting":
        raise ValueError("the log is empty, or not in order")
    files = [b64decode(file["data"]) for turn in export["turns"] for file in turn.get("files", ())]
    by_hash = {sha256(data).hexdigest(): data for data in files}
    return PortableSession(session, entries, tuple(map(int, log["abandoned"])), by_hash)


def _read_number(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError("a number is too large for a database")
    return int(text)


def _read_entry(session_id: str, entry: Mapping[str, Any]) -> LogEntry:
    place = {"session_id": session_id, "turn": entry["turn"], "attempts": 0}
    jobs = tuple(
        RecordingJob.model_validate(job | place | {"message_id": make_message_id(session_id, job["seq"])})
        for job in entry["jobs"]
    )
    payload = ev.decode_event(dump_json(entry["event"])).model_dump_json()
    return LogEntry(seq=entry["seq"], turn=entry["turn"], payload=payload, recordings=jobs)


def list_forgotten(entries: Sequence[LogEntry]) -> set[str]:
    """Return the ids of messages that are no memories any more."""
    jobs = (job for entry in entries for job in entry.recordings)
    return {job.message_id for job in jobs if job.kind == "episode" and job.status == "forgotten"}
