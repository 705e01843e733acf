"""Extracts facts from what agents did: one row of the queue at a time through a model.

Large results of tools are summarised first where the configuration says so.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from massmem.config.models import RecordingConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    InputError,
    MalformedResponse,
    MassmemError,
    ProviderError,
    StoreError,
)
from massmem.core.events import now
from massmem.core.records import MessageRecord, RecordingJob
from massmem.core.redact import redact
from massmem.memory.extraction.extractor import Extractor, Summarize
from massmem.memory.extraction.facts import cut_middle
from massmem.memory.extraction.prompts import Extraction, Origin, RecordedMessage
from massmem.memory.persistent import PersistentMemory
from massmem.recording.forgetting import is_forgotten
from massmem.recording.queue import OUTAGE, ROW_ERRORS, DrainCounts, finish, mark_failed
from massmem.recording.rules import (
    Conversation,
    belongs,
    list_groups,
    list_winners,
    make_conversation,
    mark_facts,
    mask_params,
)
from massmem.recording.turn_words import read_tool_words

if TYPE_CHECKING:
    from massmem.store.ports import SessionStore

# After any other failure of a provider the next request would fare no better.
_ITS_OWN_FAULT = (MalformedResponse, ContentRefused, ContextOverflow)

log = logging.getLogger(__name__)

CLAIM = timedelta(minutes=1)
"""How long other processes leave a row alone once its process is dead. Clocks may differ by 45 seconds."""

_RENEWAL = 15.0
"""Seconds after which a process that works on a row claims it anew."""

LARGE = 5_000
"""Bytes above which the result of a tool is summarised."""

_MAX_CUT = 3_000
"""Characters of a large result that are read when it cannot be summarised."""


@dataclass(slots=True)
class _PaidWork:
    """What a model was paid for and the memory has not confirmed."""

    extraction: Extraction | None = None
    unread: frozenset[str] | None = None
    """Ids of the messages that the last extraction left out, None before it."""
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    """Of large results, by message id."""
    note: str = ""
    """What the user may want to know of the row once it is done."""


class FactWriter:
    """Records rows of the kind "extract", one at a time."""

    def __init__(
        self,
        store: "SessionStore",
        memory: PersistentMemory,
        extractor: Extractor,
        settings: Mapping[str, RecordingConfig],
    ) -> None:
        """settings: by agent id."""
        self._store = store
        self._memory = memory
        self._extractor = extractor
        self._settings = settings
        self._paid: dict[tuple[str, int, str | None], _PaidWork] = {}

    async def write_next(self, session_id: str | None, counts: DrainCounts) -> bool:
        """Work on the oldest row that is due; return whether to go on with the next."""
        rows = await self._store.list_due_recordings("extract", 1, session_id)
        return bool(rows) and await self._claim_and_write(rows[0], counts)

    async def _claim_and_write(self, row: RecordingJob, counts: DrainCounts) -> bool:
        async with self._claim(row) as is_claimed:
            if not is_claimed:
                return True  # another process pays for this one
            try:
                async with self._renew_claim(row):
                    await self._write(row, counts)
            except OUTAGE:
                raise
            except ROW_ERRORS as e:
                await mark_failed(self._store, row, e, counts)
                return not isinstance(e, ProviderError | InputError) or isinstance(e, _ITS_OWN_FAULT)
        return True

    @asynccontextmanager
    async def _claim(self, row: RecordingJob) -> AsyncGenerator[bool]:
        """Keep other processes from the row in the block; yield False when one works on it. A failure releases it."""
        is_claimed = await self._store.claim_recording(row, now() + CLAIM)
        settled = False
        try:
            yield is_claimed
            settled = True
        finally:
            if is_claimed and not settled:
                with suppress(StoreError):  # then it is due when the claim ends
                    await self._store.release_recording(row)

    @asynccontextmanager
    async def _renew_claim(self, row: RecordingJob) -> AsyncGenerator[None]:
        """Renew the claim again and again in the block: a model may take minutes."""
        ended = asyncio.Event()

        async def renew() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    await asyncio.wait_for(ended.wait(), _RENEWAL)
                    return
                with suppress(StoreError):  # at worst another process pays for the row as well
                    await self._store.extend_claim(row, now() + CLAIM)

        renewing = asyncio.create_task(renew())
        try:
            yield
        finally:
            # Not cancelled: a renewal under way must not come after what the end of the block brings.
            ended.set()
            await renewing

    async def _write(self, row: RecordingJob, counts: DrainCounts) -> None:
        paid = self._paid.setdefault((row.session_id, row.seq, row.agent_id), _PaidWork())
        if paid.extraction is None:
            conversation = await self._load_conversation(row, paid)
            if conversation is None:
                await self._finish(row, "nothing to extract from")
                return
            # A repetition reads what was not read before, not what has given its facts already.
            messages = [m for m in conversation.messages if paid.unread is None or m.message_id in paid.unread]
            extraction = await self._extract_and_log(messages, conversation.origin)
            paid.extraction = replace(extraction, facts=mark_facts(extraction.facts, conversation))
        if await self._is_undone(row):
            await self._finish(row, "the turn was undone")
            return
        extraction = paid.extraction
        facts = [fact for fact in extraction.facts if not is_forgotten(fact.text, row.forgotten)]
        counts.facts += await self._memory.add_facts(facts)
        paid.extraction = None
        if extraction.problem is not None:
            paid.unread = frozenset(extraction.unread)
            raise extraction.problem
        await self._finish(row, paid.note or None)
        counts.extractions += 1

    async def _extract_and_log(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        """Ask the model, and log what for and with which result. The log holds no content."""
        where = f"agent={origin.agent_id}, session={origin.session_id}, turn={origin.turn}"
        length = sum(len(message.text) for message in messages)
        log.debug(
            "Recording facts (%s): %d message(s), combined content length: %d chars", where, len(messages), length
        )
        extraction = await self._extractor.extract(messages, origin)
        log.debug("Extracted %d fact(s) (%s)", len(extraction.facts), where)
        if not extraction.facts and extraction.problem is None:
            log.warning(
                "Extracted 0 facts (%s): %d of its statements were known already; "
                "otherwise check the content, or use a stronger model",
                where, extraction.duplicates,
            )  # fmt: skip
        return extraction

    async def _is_undone(self, row: RecordingJob) -> bool:
        """Whether the user has taken the turn back while a model read it."""
        turns = await self._store.list_turns(row.session_id, row.turn - 1, 1)
        return bool(turns) and (turns[0].turn, turns[0].status) == (row.turn, "undone")

    async def _finish(self, row: RecordingJob, reason: str | None) -> None:
        await finish(self._store, self._memory, [row], reason)
        self._paid.pop((row.session_id, row.seq, row.agent_id), None)

    async def _load_conversation(self, row: RecordingJob, paid: _PaidWork) -> Conversation | None:
        of_turn = await self._store.read_turn_messages(row.session_id, row.turn)
        to_record = await self._store.get_messages_to_record([message.id for message in of_turn])
        turn, group = mask_params(to_record), list_groups(to_record).get(row.session_id, "")
        settings = self._settings.get(row.agent_id or "", RecordingConfig())
        turn, paid.note = await summarize_results(turn, row, settings, self._extractor.summarize, paid.summaries)
        words = await read_tool_words(self._store, row.session_id, row.turn, of_turn)
        return make_conversation(row, turn, settings, list_winners(to_record), group, words)


async def summarize_results(
    turn: Sequence[MessageRecord],
    row: RecordingJob,
    settings: RecordingConfig,
    summarize: Summarize,
    known: MutableMapping[str, str],
) -> tuple[list[MessageRecord], str]:
    """Return the turn with summaries in place of the large results that the row is about, if the settings ask for them.

    A result that cannot be summarised is cut; why is the second part of what is returned, "" when all could be. After
    one failure no further summary is asked for. known: summaries by message id, of an earlier attempt; new ones are
    added to it.
    """
    messages: list[MessageRecord] = []
    reason = problem = ""
    for message in turn:
        if not (settings.summarize_large_results and belongs(message, row, settings) and _is_large(message)):
            messages.append(message)
            continue
        if not reason and message.id not in known:
            try:
                known[message.id] = await summarize(message.content, settings.summary_model)
            except MassmemError as e:
                reason = " ".join(redact(e.message).split())
                log.warning("a large tool result was not summarised: %s", reason)
        problem = problem or (reason if message.id not in known else "")
        if message.id in known:
            text = f"[Summary of a result of {len(message.content):,} characters]\n{known[message.id]}"
        else:
            text = cut_middle(message.content, _MAX_CUT, f", not summarised: {reason}")
        messages.append(message.model_copy(update={"content": text}))
    return messages, f"a tool result was cut and not summarised: {problem}" if problem else ""


def _is_large(message: MessageRecord) -> bool:
    return message.kind == "tool_result" and len(message.content.encode("utf-8", "replace")) > LARGE
