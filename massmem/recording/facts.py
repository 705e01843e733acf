"""Facts out of what agents did: rows of the queue through a model that extracts them."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from massmem.config.models import RecordingConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    InputError,
    MalformedResponse,
    ProviderError,
    StoreError,
)
from massmem.core.events import now
from massmem.core.records import RecordingJob
from massmem.memory.extraction.extractor import Extract, Summarize
from massmem.memory.extraction.messages import Extraction
from massmem.memory.persistent import PersistentMemory
from massmem.recording.forgetting import is_forgotten
from massmem.recording.masking import without_values
from massmem.recording.queue import OUTAGE, ROW_ERRORS, DrainCounts, finish, mark_failed
from massmem.recording.results import shortened
from massmem.recording.rules import Conversation, conversation_of, groups_of, winners_of

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

# After any other failure of a provider the next request would fare no better.
_ITS_OWN_FAULT = (MalformedResponse, ContentRefused, ContextOverflow)

CLAIM = timedelta(minutes=10)
"""For how long a row is nobody else's while a model is asked about it: longer than that takes, or due after a kill."""


@dataclass(slots=True)
class _Kept:
    """What a model was paid for and the memory has not confirmed.

    found: the last extraction. unread: the messages that it left out, None before it. summaries: of large results.
    note: what the user may want to know of a row that is done.
    """

    found: Extraction | None = None
    unread: frozenset[str] | None = None
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    note: str = ""


class FactWriter:
    """Records rows of the kind "extract", one at a time.

    summarize: for large results of tools. settings: of each agent, by its id.
    """

    def __init__(
        self,
        store: "SessionStore",
        memory: PersistentMemory,
        extract: Extract,
        summarize: Summarize | None,
        settings: Mapping[str, RecordingConfig],
    ) -> None:
        self._store = store
        self._memory = memory
        self._extract = extract
        self._summarize = summarize
        self._settings = settings
        self._kept: dict[tuple[str, int, str | None], _Kept] = {}

    async def write_next(self, session_id: str | None, counts: DrainCounts) -> bool:
        """Work on the oldest row that is due; whether to go on with the next."""
        rows = await self._store.list_due_recordings("extract", 1, session_id)
        return bool(rows) and await self._claimed(rows[0], counts)

    async def _claimed(self, row: RecordingJob, counts: DrainCounts) -> bool:
        async with self._claim(row) as mine:
            if not mine:
                return True  # another process pays for this one
            try:
                await self._facts(row, counts)
            except OUTAGE:
                raise
            except ROW_ERRORS as e:
                await mark_failed(self._store, row, e, counts)
                return not isinstance(e, ProviderError | InputError) or isinstance(e, _ITS_OWN_FAULT)
        return True

    @asynccontextmanager
    async def _claim(self, row: RecordingJob) -> AsyncGenerator[bool]:
        """Nobody else works on the row inside. Whatever ends that before its time lets go of it."""
        mine = await self._store.claim_recording(row, now() + CLAIM)
        settled = False
        try:
            yield mine
            settled = True
        finally:
            if mine and not settled:
                with suppress(StoreError):  # then it is due when the claim ends
                    await self._store.release_recording(row)

    async def _facts(self, row: RecordingJob, counts: DrainCounts) -> None:
        kept = self._kept.setdefault((row.session_id, row.seq, row.agent_id), _Kept())
        if kept.found is None:
            conversation = await self._conversation(row, kept)
            if conversation is None:
                await self._done(row, "nothing to extract from")
                return
            # A repetition reads what was not read before, not what has given its facts already.
            messages = [m for m in conversation.messages if kept.unread is None or m.message_id in kept.unread]
            kept.found = await self._extract(messages, conversation.origin)
        if await self._is_undone(row):
            await self._done(row, "the turn was undone")
            return
        found = kept.found
        wanted = [fact for fact in found.facts if not is_forgotten(fact.text, row.forgotten)]
        counts.facts += await self._memory.add_facts(wanted)
        kept.found = None
        if found.problem is not None:
            kept.unread = frozenset(found.unread)
            raise found.problem
        await self._done(row, kept.note or None)
        counts.extractions += 1

    async def _is_undone(self, row: RecordingJob) -> bool:
        """The user has taken the turn back while a model read it."""
        found = await self._store.list_turns(row.session_id, row.turn - 1, 1)
        return bool(found) and (found[0].turn, found[0].status) == (row.turn, "undone")

    async def _done(self, row: RecordingJob, reason: str | None) -> None:
        await finish(self._store, self._memory, [row], reason)
        self._kept.pop((row.session_id, row.seq, row.agent_id), None)

    async def _conversation(self, row: RecordingJob, kept: _Kept) -> Conversation | None:
        of_turn = await self._store.read_turn_messages(row.session_id, row.turn)
        read = await self._store.get_messages_to_record([message.id for message in of_turn])
        turn, group = without_values(read), groups_of(read).get(row.session_id, "")
        settings = self._settings.get(row.agent_id or "", RecordingConfig())
        turn, kept.note = await shortened(turn, row, settings, self._summarize, kept.summaries)
        return conversation_of(row, turn, settings, winners_of(read), group)
