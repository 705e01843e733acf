"""Facts out of what agents did: rows of the queue through a model that extracts them."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from massmem.config.models import RecordingConfig
from massmem.errors import ContentRefused, ContextOverflow, InputError, MalformedResponse, ProviderError
from massmem.memory.extraction.task import Extraction, Origin, RecordedMessage
from massmem.memory.persistent import PersistentMemory
from massmem.memory.recording.attempts import BAD_ROW, NOT_THE_ROW, Counts, failed
from massmem.memory.recording.episodes import group_of
from massmem.memory.recording.recorded import Conversation, conversation_of
from massmem.records import RecordingRecord

if TYPE_CHECKING:
    from massmem.store.base import SessionStore

Extract = Callable[[Sequence[RecordedMessage], Origin], Awaitable[Extraction]]
"""Asks a model for facts. Raises MassmemError."""

# After any other failure of a provider the next request would fare no better.
_ITS_OWN_FAULT = (MalformedResponse, ContentRefused, ContextOverflow)
_WITHOUT_MODEL = 128


class FactWriter:
    """Records rows of the kind "extract", one at a time. extract None: no model is configured, there is nothing to do.

    settings: of each agent, by its id.
    """

    def __init__(
        self,
        store: "SessionStore",
        memory: PersistentMemory,
        extract: Extract | None,
        settings: Mapping[str, RecordingConfig],
    ) -> None:
        self._store = store
        self._memory = memory
        self._extract = extract
        self._settings = settings
        # What a model was paid for and the memory has not confirmed, and what it did not read.
        self._found: dict[tuple[str, int, str | None], Extraction] = {}
        self._unread: dict[tuple[str, int, str | None], frozenset[str]] = {}

    async def write_next(self, session_id: str | None, counts: Counts) -> bool:
        """Work on the oldest row that is due; whether to go on with the next."""
        rows = await self._store.due_recordings("extract", 1 if self._extract else _WITHOUT_MODEL, session_id)
        if rows and self._extract is None:
            await self._store.finish_recordings(rows, "no llm is configured for extraction")
        elif rows and self._extract is not None:
            try:
                await self._facts(rows[0], self._extract, counts)
            except NOT_THE_ROW:
                raise
            except BAD_ROW as e:
                await failed(self._store, rows[0], e, counts)
                return not isinstance(e, ProviderError | InputError) or isinstance(e, _ITS_OWN_FAULT)
        return bool(rows)

    async def _facts(self, row: RecordingRecord, extract: Extract, counts: Counts) -> None:
        conversation = await self._conversation(row)
        if conversation is None:
            await self._store.finish_recordings([row], "nothing to extract from")
            return
        place = (row.session_id, row.seq, row.agent_id)
        found = self._found.get(place)
        if found is None:
            # A repetition reads what was not read before, not what has given its facts already.
            unread = self._unread.get(place)
            messages = [m for m in conversation.messages if unread is None or m.message_id in unread]
            found = self._found[place] = await extract(messages, conversation.origin)
        counts.facts += await self._memory.add_facts(found.facts)
        del self._found[place]
        self._unread.pop(place, None)
        if found.problem is not None:
            self._unread[place] = frozenset(found.unread)
            raise found.problem
        await self._store.finish_recordings([row])
        counts.extractions += 1

    async def _conversation(self, row: RecordingRecord) -> Conversation | None:
        turn = await self._store.turn_messages(row.session_id, row.turn)
        settings = self._settings.get(row.agent_id or "", RecordingConfig())
        winners = await self._store.winners([row.session_id])
        return conversation_of(row, turn, settings, winners, await group_of(self._store, row.session_id))
