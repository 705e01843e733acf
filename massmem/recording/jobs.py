"""Carries out queue rows: messages are recorded word for word, memories changed, turns completed, facts extracted.

A row is done, or it failed and is tried again later, or given up. Large results of tools are summarised first where
the configuration says so.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, MutableMapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta

from massmem.config.models import RecordingConfig
from massmem.core.errors import (
    ContentRefused,
    ContextOverflow,
    EmbeddingError,
    InputError,
    LimitReached,
    MalformedResponse,
    MassmemError,
    MemoryUnavailable,
    ProviderError,
    StoreError,
)
from massmem.core.events import UsageBooked, now
from massmem.core.messages import Usage
from massmem.core.records import MessageRecord, MessageToRecord, RecordingJob
from massmem.core.redact import redact
from massmem.core.turn_result import TurnResult
from massmem.memory.extraction.extractor import NO_MODEL, Extractor, Summarize
from massmem.memory.extraction.facts import cut_middle
from massmem.memory.extraction.prompts import Extraction, Origin, RecordedMessage
from massmem.memory.origins import IMPORT
from massmem.memory.persistent import (
    USER,
    CompletedTurn,
    Fact,
    Memory,
    MemoryChange,
    PersistentMemory,
    Scope,
    Selection,
)
from massmem.recording.forgetting import fingerprint_fact, is_forgotten, is_same
from massmem.recording.rules import (
    Conversation,
    Turns,
    belongs,
    find_message_origin,
    list_places,
    list_winners,
    make_conversation,
    make_episodes,
    mark_facts,
    mask_params,
    read_tool_words,
)
from massmem.store.ports import SessionStore

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 8

OUTAGE = (MemoryUnavailable, StoreError)
"""Errors that are not the row's fault: the drain ends, and the row stays as it is."""

ROW_ERRORS = (MassmemError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, OSError)
"""Errors that a row may be the reason of; anything else is a bug and shows as one."""

_DEATH, _MOST_DEATHS = 1_000, 5
"""Failed attempts that the death of the process counts for: others never come to so many. After one death the row is
worked on alone, and those with more of them last, so that a row that was only beside another is not given up."""
_DIED = "the process died again and again while it worked on this"
_NEW = timedelta(seconds=30)

_FIRST_DELAY = 30.0
_MAX_DELAY = 3600.0
_REASON_LENGTH = 300


@dataclass(slots=True)
class DrainCounts:
    episodes: int = 0
    turns: int = 0
    extractions: int = 0
    facts: int = 0
    retried: int = 0
    failed: int = 0
    unavailable: str = ""
    """Why the memory could not be used; the rows that are left stay pending."""
    problems: list[str] = field(default_factory=list[str])
    """Why rows were retried or given up."""


def retry_delay(attempt: int) -> timedelta:
    """Return how long to wait before this repetition, counted from 1."""
    return timedelta(seconds=min(_MAX_DELAY, _FIRST_DELAY * 2 ** min(attempt - 1, 10)))


async def book(
    store: SessionStore,
    memory: PersistentMemory,
    rows: Sequence[RecordingJob],
    spent: Mapping[str, Usage],
) -> None:
    """Store what was sent for rows in the logs of their turns; one request for several turns is divided by their rows.

    spent: by purpose, beside the embedding of what was written.
    """
    turns = Counter((row.session_id, row.turn) for row in rows)
    for purpose, left in {**spent, "embed": memory.take_usage()}.items():
        rest = len(rows)
        for (session_id, turn), number in turns.items() if left.requests else ():
            part = left
            if number < rest:
                cost = None if left.cost is None else left.cost * number / rest
                part = Usage(left.prompt * number // rest, reported=left.reported, cost=cost)
            left, rest = left - part, rest - number
            with suppress(StoreError):  # the session was deleted meanwhile
                await store.append(session_id, turn, [UsageBooked(purpose=purpose, usage=part)])


async def finish(
    store: SessionStore, memory: PersistentMemory, rows: Sequence[RecordingJob], reason: str | None = None
) -> None:
    """Bring to the disk what the memory has stored, then mark its rows as done. reason: a note on them."""
    await memory.sync()
    await mark_done(store, memory, rows, reason)


async def mark_done(
    store: SessionStore, memory: PersistentMemory, rows: Sequence[RecordingJob], reason: str | None = None
) -> None:
    """Mark rows whose memories are on the disk as done.

    A memory that ends with this process only holds them for a run that keeps its memories.
    """
    if memory.temporary:
        reason = "kept for one run only: persistent_memory.on_disk is false"
    await store.finish_recordings(rows, reason, lasting=not memory.temporary)


async def mark_failed(
    store: SessionStore, row: RecordingJob, error: Exception, counts: DrainCounts, *, give_up: bool = True
) -> None:
    """Count a failed attempt and set when the next one is due. give_up: the last attempt is final."""
    attempt = row.attempts % _DEATH + 1
    text = error.message if isinstance(error, MassmemError) else f"{type(error).__name__}: {error}"
    reason = " ".join(redact(text).split())[:_REASON_LENGTH]
    final = give_up and attempt >= MAX_ATTEMPTS
    await store.fail_recording(row, reason, None if final else now() + retry_delay(attempt))
    counts.failed += final
    counts.retried += not final
    outcome = "given up" if final else "tried again later"
    counts.problems.append(reason)
    log.warning("%s of %s turn %d not recorded (%s): %s", row.kind, row.session_id, row.turn, outcome, error)


_ALL_ALIKE = 3
"""Texts in a row that an embedder must refuse to count as unavailable."""


async def is_undone(store: SessionStore, row: RecordingJob) -> bool:
    """Return whether the user has taken back the turn that the row is of."""
    turns = await store.list_turns(row.session_id, row.turn - 1, 1)
    return bool(turns) and (turns[0].turn, turns[0].status) == (row.turn, "undone")


class EpisodeWriter:
    """Records rows of the kinds "episode" and "complete", of any number of sessions.

    Rows of the kind "extract" that no model is configured for are marked as done.
    """

    def __init__(self, store: SessionStore, memory: PersistentMemory) -> None:
        self._store = store
        self._memory = memory
        self._remembered = set[str]()  # of the last batch

    async def write(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> None:
        """Write the rows and mark them. What is wrong with a row is stored with it.

        Raises MemoryUnavailable, StoreError: neither is the fault of a row, so the rows stay as they are.
        """
        for row in [row for row in rows if row.attempts >= _MOST_DEATHS * _DEATH]:
            await self._store.fail_recording(row, _DIED, None)
            counts.failed += 1
            counts.problems.append(_DIED)
        left = sorted(
            (row for row in rows if row.attempts < _MOST_DEATHS * _DEATH), key=lambda row: row.attempts // _DEATH
        )
        suspects = [row for row in left if row.attempts >= _DEATH]
        for part in (left[: len(left) - len(suspects)], *([row] for row in suspects)):
            async with self._count_death(part):
                await self._write_part(part, counts)
            if part:
                await book(self._store, self._memory, part, {})

    @asynccontextmanager
    async def _count_death(self, rows: Sequence[RecordingJob]) -> AsyncGenerator[None]:
        """Count it as failed attempts when the process dies in the block; one of the rows may be why.

        Rows that are new are not counted: that would be a write more for each turn.
        """
        counted = [row for row in rows if row.attempts or now() - row.created_at > _NEW]
        await self._store.add_attempts(counted, _DEATH)
        try:
            yield
        finally:
            with suppress(StoreError):
                await self._store.add_attempts(counted, -_DEATH)

    async def _write_part(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> None:
        episodes = await self._record_episodes([row for row in rows if row.kind == "episode"], counts)
        turns = await self._complete_turns([row for row in rows if row.kind == "complete"], counts)
        idle = [row for row in rows if row.kind == "extract"]
        if episodes or turns:
            await self._memory.sync()
        empty = [row for row in episodes if row.message_id not in self._remembered]
        await mark_done(self._store, self._memory, empty, "a vote, or said already")
        await asyncio.gather(  # one transaction
            mark_done(self._store, self._memory, [*episodes, *turns]), self._store.finish_recordings(idle, NO_MODEL)
        )
        counts.episodes += len(episodes)
        counts.turns += len(turns)

    async def _record_episodes(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Record the rows; return those that are yet to be marked."""
        try:
            await self._write_episodes(rows)
        except ROW_ERRORS as e:
            if isinstance(e, OUTAGE) and not isinstance(e, EmbeddingError):
                raise
            await self._record_apart(rows, e, counts)
            return ()
        return rows

    async def _record_apart(self, rows: Sequence[RecordingJob], error: Exception, counts: DrainCounts) -> None:
        """Record the rows one by one, to find those that cannot be.

        When none can be embedded it is not their fault; the first waits all the same, lest it hold up the queue.
        """
        bad: list[tuple[RecordingJob, Exception]] = [(rows[0], error)] if len(rows) == 1 else []
        before = counts.episodes
        for row in rows if not bad else ():
            try:
                await self._write_episodes([row])
            except ROW_ERRORS as e:
                is_refused = isinstance(e, EmbeddingError)
                if isinstance(e, OUTAGE) and not is_refused:
                    raise
                bad.append((row, e))
                if is_refused and counts.episodes == before and len(bad) == _ALL_ALIKE:
                    break
            else:
                await finish(self._store, self._memory, [row])
                counts.episodes += 1
        for row, e in bad:
            away = isinstance(e, EmbeddingError) and counts.episodes == before
            await mark_failed(self._store, row, e, counts, give_up=not away)
            if away:
                raise e

    async def _write_episodes(self, rows: Sequence[RecordingJob]) -> None:
        if not rows:
            return
        to_record = await self._read([row.message_id for row in rows])
        changes = [entry for entry in to_record if is_change(entry.message)]
        to_record = [entry for entry in to_record if not is_change(entry.message)]
        turns = await self._read_turns(rows, {entry.message.id: entry.message for entry in to_record})
        if episodes := make_episodes(rows, to_record, turns):
            known = list(map(read_change, mask_params(changes)))
            await self._memory.record(
                [replace(e, changes=tuple(c for c in known if e.message_id in c.message_ids)) for e in episodes]
                if known
                else episodes
            )
        for change in changes:
            await carry_out_change(self._store, self._memory, change)
        self._remembered = {e.message_id for e in episodes}.union(change.message.id for change in changes)
        recorded = {entry.message.id for entry in to_record}
        if recorded and (gone := recorded - {entry.message.id for entry in await self._read([*recorded])}):
            # Forgotten, or deleted with its session, while it was written: whoever did that may have looked before.
            await self._memory.forget(Selection(message_ids=tuple(gone)))

    async def _read(self, message_ids: Sequence[str]) -> list[MessageToRecord]:
        entries = await self._store.get_messages_to_record(message_ids)
        return [entry for entry in entries if not entry.is_forgotten]

    async def _read_turns(self, rows: Sequence[RecordingJob], messages: Mapping[str, MessageRecord]) -> Turns:
        """Return what tools gave back in the turns of what agents wrote and called."""
        by_agents = {
            (row.session_id, row.turn)
            for row in rows
            if row.agent_id and row.message_id in messages and find_message_origin(messages[row.message_id]) != IMPORT
        }
        return {place: await read_tool_words(self._store, *place) for place in sorted(by_agents)}

    async def _complete_turns(self, rows: Sequence[RecordingJob], counts: DrainCounts) -> Sequence[RecordingJob]:
        """Tell the memory who won, or that a turn was undone; return the rows that are yet to be marked."""
        try:
            for row in [row for row in rows if not row.agent_id and await is_undone(self._store, row)]:
                selection = Selection(row.session_id, turn=row.turn)
                await self._store.forget_recordings(selection)
                await self._memory.forget(selection)
            if rows:
                await self._memory.complete_turns(
                    [CompletedTurn(row.session_id, row.turn, row.agent_id or "") for row in rows]
                )
        except OUTAGE:
            raise
        except ROW_ERRORS as e:
            if len(rows) == 1:
                await mark_failed(self._store, rows[0], e, counts)
                return ()
            return [other for row in rows for other in await self._complete_turns([row], counts)]
        return rows


_MOST_OF_A_MESSAGE = 10_000
"""Memories that came from the same messages."""


def is_change(message: MessageRecord) -> bool:
    """Return whether the message says that the user changed a memory."""
    return "memory_change" in message.metadata


def read_change(message: MessageRecord) -> MemoryChange:
    change = message.metadata["memory_change"]
    return MemoryChange(
        id=message.id,
        session_id=message.session_id,
        text=message.content,
        created_at=message.created_at,
        **change | {"message_ids": tuple(change["message_ids"])},
    )


async def carry_out_change(store: SessionStore, memory: PersistentMemory, row: MessageToRecord) -> None:
    """Carry out a change, once however often this is called.

    A fact that a model did not find again is stored as it was. What is left of a memory whose messages are gone, too,
    is nothing.

    Raises:
        LookupError: the memory is not there yet.
        MemoryUnavailable, StoreError
    """
    message = mask_params([row])[0]
    change = read_change(message)
    memories = await _list_of_messages(memory, change)
    target = _choose(memories, change)
    if target is None:
        sources = await store.get_messages_to_record(change.message_ids)
        if not sources:
            return
        if change.kind == "episode":
            raise LookupError("the memory that was changed is not recorded yet")
        await memory.add_facts([_make_fact(sources, change)])
        target = _choose(await _list_of_messages(memory, change), change)
    if change.kind == "fact" and change.action == "edit":
        words = fingerprint_fact(change.old)
        await store.forget_fact(change.session_id, change.agent_id, change.message_ids, words)
    if target is not None:
        await memory.change(target.id, change)


async def _list_of_messages(memory: PersistentMemory, change: MemoryChange) -> Sequence[Memory]:
    selection = Selection(change.session_id, kind=change.kind, message_ids=change.message_ids)
    return await memory.list(selection, _MOST_OF_A_MESSAGE)


def _choose(memories: Sequence[Memory], change: MemoryChange) -> Memory | None:
    """Return the memory that was changed: it has the text of then, or, of a fact, says the same."""
    noted = [memory for memory in memories if change.id in memory.changes]
    exact = [memory for memory in memories if memory.text == change.old]
    alike: list[Memory] = []
    if change.kind == "fact":
        words = set(fingerprint_fact(change.old))
        own = [memory for memory in memories if memory.agent_id == change.agent_id]
        alike = [memory for memory in own if is_same(words, set(fingerprint_fact(memory.text)))]
    return next(iter([*noted, *exact, *alike]), None)


def _make_fact(sources: Sequence[MessageToRecord], change: MemoryChange) -> Fact:
    """Return the fact as it was before the change. sources: its messages, as far as they exist."""
    last = sources[-1]
    return Fact(
        session_id=change.session_id,
        turn=change.turn,
        agent_id=change.agent_id,
        text=change.old,
        message_ids=change.message_ids,
        created_at=last.message.created_at,
        won=last.winner == change.agent_id,
        group=last.group,
        project=last.project,
    )


# After any other failure of a provider the next request would fare no better.
_ITS_OWN_FAULT = (MalformedResponse, ContentRefused, ContextOverflow)


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
    """Work of a model that is paid and that the memory has not confirmed."""

    extraction: Extraction | None = None
    unread: frozenset[str] | None = None
    """Ids of the messages that the last extraction left out, None before it."""
    summaries: dict[str, str] = field(default_factory=dict[str, str])
    """Of large results, by message id."""
    note: str = ""
    """For the user, once the row is done."""


class FactWriter:
    """Records rows of the kind "extract", one at a time."""

    def __init__(
        self,
        store: SessionStore,
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
            except LimitReached as e:
                counts.problems.append(reason := f"no facts were extracted from all of it: {e.message}")
                await self._finish(row, reason)
            except ROW_ERRORS as e:
                await mark_failed(self._store, row, e, counts)
                return not isinstance(e, ProviderError | InputError) or isinstance(e, _ITS_OWN_FAULT)
            finally:
                await book(self._store, self._memory, [row], self._extractor.budget.take())
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
                    await self._store.extend_claim(row, None)

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
        if (budget := self._extractor.budget).is_limited:
            budget.begin_another(TurnResult.of(await self._store.read_turn_events(row.session_id, row.turn)).usage)
        if paid.extraction is None:
            conversation = await self._load_conversation(row, paid)
            if conversation is None:
                await self._finish(row, "nothing to extract from")
                return
            # A repetition reads what was not read before, not what has given its facts already.
            messages = [m for m in conversation.messages if paid.unread is None or m.message_id in paid.unread]
            extraction = await self._extract_and_log(messages, conversation.origin)
            paid.extraction = replace(extraction, facts=mark_facts(extraction.facts, conversation))
        if await is_undone(self._store, row):
            await self._finish(row, "the turn was undone")
            return
        extraction = paid.extraction
        facts = [fact for fact in extraction.facts if not is_forgotten(fact.text, row.forgotten)]
        counts.facts += await self._memory.add_facts(facts)
        paid.extraction = None
        if extraction.problem is not None:
            paid.unread = frozenset(extraction.unread)
            raise extraction.problem
        await self._finish(row, extraction.note or paid.note or None)
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
        if not extraction.facts and extraction.problem is None and not extraction.note:
            log.warning(
                "Extracted 0 facts (%s): %d of its statements were known already; "
                "otherwise check the content, or use a stronger model",
                where, extraction.duplicates,
            )  # fmt: skip
        return extraction

    async def _finish(self, row: RecordingJob, reason: str | None) -> None:
        await finish(self._store, self._memory, [row], reason)
        self._paid.pop((row.session_id, row.seq, row.agent_id), None)

    async def _load_conversation(self, row: RecordingJob, paid: _PaidWork) -> Conversation | None:
        of_turn = await self._store.read_turn_messages(row.session_id, row.turn)
        to_record = await self._store.get_messages_to_record([message.id for message in of_turn])
        turn, place = mask_params(to_record), list_places(to_record).get(row.session_id, ("", ""))
        settings = self._settings.get(row.agent_id or "", RecordingConfig())
        turn, paid.note = await summarize_results(turn, row, settings, self._extractor.summarize, paid.summaries)
        words = await read_tool_words(self._store, row.session_id, row.turn, of_turn)
        conversation = make_conversation(row, turn, settings, list_winners(to_record), place, words)
        if conversation is None:
            return None
        hidden = await self._store.list_hidden(Scope(row.session_id, USER, row.turn))
        origin = replace(conversation.origin, hidden=frozenset(turn for _, turn in hidden if turn != row.turn))
        return replace(conversation, origin=origin)


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
                log.warning("a large tool result was not summarised: %s", e)
        problem = problem or (reason if message.id not in known else "")
        if message.id in known:
            text = f"[Summary of a result of {len(message.content):,} characters]\n{known[message.id]}"
        else:
            text = cut_middle(message.content, _MAX_CUT, f", not summarised: {reason}")
        messages.append(message.model_copy(update={"content": text}))
    return messages, f"a tool result was cut and not summarised: {problem}" if problem else ""


def _is_large(message: MessageRecord) -> bool:
    return message.kind == "tool_result" and len(message.content.encode("utf-8", "replace")) > LARGE
