"""Forgets statements everywhere: log, state, files, debug files, backups and indexes; then looks for them.

Everywhere is what the owner owns. This machine's user also owns the files of this machine beside store and index; for a
user of the service these are not even read, so that no receipt and no delay tells what others have said.

A mark in the home says what is to be forgotten, until it is. When the process dies before, whoever opens the store next
finishes it, and shows nothing of the owner until then (`finish_forgetting`). A session is rewritten in one transaction.
Nothing is changed while a turn of one of the sessions is under way.

The receipt says what was deleted, where, and how that was checked. It has no content.
"""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from massmem.config.home import explain_write_error, list_files, make_folder, replace_file
from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, MassmemError, MemoryUnavailable
from massmem.core.events import decode_event, now
from massmem.core.records import (
    COMMAND_LINE_USER,
    EVERYBODY,
    Everybody,
    LogEntry,
    Owner,
    RecordingJob,
    SessionFilter,
    SessionState,
)
from massmem.memory.opening import IndexFolders, index_root
from massmem.memory.persistent import USER, Memory, RecallOptions, Scope, Selection
from massmem.memory.points import StatementQuery
from massmem.recording.forgetting import (
    MAX_STATEMENTS,
    OWN_SHARE,
    LogRedactor,
    ParaphraseFinder,
    Redactor,
    choose_statements,
    encode_texts,
    fingerprint_fact,
    has_only_marks,
    list_sentences,
    list_stems,
    resolve_ids,
    unknown_memory,
    write_questions,
)
from massmem.recording.jobs import read_change
from massmem.recording.worker import Recorder
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.owners import hash_user, list_own_sessions, restrict_selection
from massmem.session.recall import recall_by_words
from massmem.session.registry import FORGETTING, Registry
from massmem.session.traces import Progress, TraceCounts, Traces, find_database, has_any
from massmem.store.lookup import read_log_pages, read_message_pages
from massmem.store.ports import SessionStore
from massmem.store.projection import InsertRow, project
from massmem.tools.documents import File, read_document, read_files

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

P = ParamSpec("P")
T = TypeVar("T")

_THREAD = ThreadPoolExecutor(1, "massmem-forgetting")
"""Reads texts, a page at a time. One thread of the process: what others ask has the interpreter for half of the time at
least, however many statements are forgotten at once."""


@dataclass(frozen=True, slots=True)
class Near:
    """A sentence that may say a statement in other words."""

    session_id: str
    turn: int
    memory_id: str | None
    """None: it is in the log alone."""
    agent_id: str
    text: str = field(repr=False)


@dataclass(slots=True)
class Deletions:
    memories: int = 0
    """Passages and facts of the index that is in use; what else was said in a passage is recorded again."""
    other_indexes: int = 0
    """The same in indexes of other embedders, and damaged indexes that had been set aside."""
    sessions: list[str] = field(default_factory=list[str])
    """Whose log was changed."""
    events: int = 0
    """Events of these logs in which a mark took the place of a sentence."""
    values: int = 0
    """Parts of a session's state: values that the user gave, results."""
    names: int = 0
    """Names of sessions."""
    files: int = 0
    """Files that questions came with."""
    traces: TraceCounts = field(default_factory=TraceCounts)
    """Files of this machine beside store and index."""


@dataclass(slots=True)
class Checks:
    """Counts of what was read afterwards, and of the statements that were still there."""

    messages: int = 0
    """Of the owner's sessions, read again."""
    sessions_found: int = 0
    """Sessions in which a statement is left."""
    memories_found: int = 0
    """Listed in an index."""
    questions: int = 0
    """Asked as every agent recalls, without the rule of winners, and of the log by words."""
    questions_found: int = 0
    files: int = 0
    """Files of store, index and home that were read byte by byte."""
    files_found: list[str] = field(default_factory=list[str])
    elsewhere: bool = False
    """The bytes that were found belong to a conversation of somebody else."""
    bytes_erased: bool = True
    """False: the store could not be rewritten now; parts may stay in its free space."""

    @property
    def is_clean(self) -> bool:
        count = self.sessions_found + self.memories_found + self.questions_found
        return count == 0 and self.bytes_erased and (self.elsewhere or not self.files_found)


@dataclass(frozen=True, slots=True)
class Receipt:
    forgotten_at: datetime
    memory_ids: Sequence[str]
    """Those that were named."""
    statements: int
    """Sentences that were looked for."""
    deleted: Deletions
    checks: Checks
    near: Sequence[Near] = ()
    """They stay; each place once."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON, without what was said."""
        near = [{"session_id": n.session_id, "turn": n.turn, "memory_id": n.memory_id} for n in self.near]
        values = asdict(self) | {"forgotten_at": self.forgotten_at.isoformat(), "near": near}
        return {"complete": self.checks.is_clean, **values}


_BEGUN, _AGAIN = ".begun", ".again"
"""Endings of marks: somebody forgets; somebody finishes what was cut off."""
_MAX_ASKED = 20
"""Statements that are asked for afterwards, those with most words."""
_MAX_NEAR = 20
"""Near paraphrases that are named."""
_NEAREST = 20
"""Memories that are looked at for each statement, by words and by meaning."""
_MIN_COSINE = 0.6
"""Of a memory that may say the same in other words."""
_MIN_TELLING = 2
"""Telling words of a sentence that is looked for everywhere, when its memory has others that say more."""
_MAX_TOKENS = 4_000
"""Of what is recalled for a question."""
_LEASE_WAIT = 2.0
"""Seconds to wait for a turn that is under way."""
_REASON = "a part of it was forgotten; the rest is recorded again"
_HELD = timedelta(minutes=10)
"""How long recording leaves changed messages alone: until their old passages are deleted."""


@dataclass(frozen=True, slots=True)
class Order:
    """Statements to be forgotten that came from one session."""

    statements: tuple[str, ...]
    session_id: str | None = None
    """Where it came from; None: the user has written it."""
    memories: tuple[Memory, ...] = ()
    """Those that were named."""
    short_sentences: Mapping[int, Sequence[str]] = field(default_factory=dict[int, Sequence[str]])
    """Short sentences of theirs, by turn, that say too little to be looked for elsewhere: "Yes, please." """


@dataclass(frozen=True, slots=True)
class Findings:
    """Where the statements are, and what may say the same in other words."""

    sentences: Sequence[str]
    """As they stand in the log."""
    sessions: Sequence[str]
    memories: Sequence[Memory]
    near: Sequence[Near]
    messages: int
    """That were read."""
    files: int = 0
    """Debug folders and files of this machine in which something of it stands."""


@dataclass(slots=True)
class _SessionChange:
    entries: Sequence[LogEntry] = ()
    files: Sequence[str] = ()
    state: SessionState | None = None
    values: int = 0
    title: str | None = None
    memory_changes: Sequence[LogEntry] = ()
    """Changes of memories by the user, which stay: they are carried out again on what is recorded again."""

    @property
    def is_empty(self) -> bool:
        return not (self.entries or self.files or self.state or self.title)


@dataclass(frozen=True, slots=True)
class Eraser:
    """Forgets what one owner has said, or what was said to them."""

    config: TeamConfig
    home: Path
    folder: Path
    """The working directory, in which debug files may be."""
    store: SessionStore
    memory: "IndexedMemory"
    owner: Owner

    async def read_orders(self, memory_ids: Sequence[str], texts: Sequence[str]) -> list[Order]:
        """Return what the memories with these ids say, and the texts, as orders to be carried out one by one.

        Raises InputError: there is no such memory, or a text has no word to recognise it by.
        """
        for text in texts:
            sentences = list_sentences(text)
            if not any(list_stems(sentence) or not sentence.isascii() for sentence in sentences):
                raise InputError("the text has no word to recognise it by", "write the whole statement: --text TEXT")
            if len(sentences) > MAX_STATEMENTS:
                raise InputError(f"the text has more than {MAX_STATEMENTS} sentences", "forget it in several parts")
        among = await self._select()
        memory_ids = await resolve_ids(self.memory, memory_ids, among)
        selection = replace(among, ids=memory_ids)
        memories: Sequence[Memory] = await self.memory.list(selection, len(memory_ids)) if memory_ids else ()
        for missing in set(memory_ids) - {memory.id for memory in memories}:
            raise unknown_memory(missing)
        orders = [Order(tuple(texts))] if texts else []
        for session_id in sorted({memory.session_id for memory in memories}):
            named = tuple(memory for memory in memories if memory.session_id == session_id)
            statements, short_sentences = list[str](), dict[int, list[str]]()
            for memory in named:
                sentences = await self._read_statements(memory)
                telling = [sentence for sentence in sentences if len(list_stems(sentence)) >= _MIN_TELLING] or sentences
                statements += telling
                short_sentences.setdefault(memory.turn, []).extend(s for s in sentences if s not in telling)
            orders.append(Order(tuple(dict.fromkeys(statements)), session_id, named, short_sentences))
        return orders

    async def _read_statements(self, memory: Memory) -> Sequence[str]:
        """Return what a memory says, in the words of the messages that it came from where these are known."""
        messages = await self.store.get_messages(memory.message_ids)
        changes = [read_change(message) for message in await self.store.get_messages(memory.changes)]
        texts = [*dict.fromkeys((memory.text, *(text for c in changes for text in (c.old, c.text))))]
        return await _analyse(choose_statements, memory.kind == "fact", texts, [m.content for m in messages])

    async def find(self, orders: Sequence[Order], on_progress: Progress | None = None) -> Findings:
        """Return what would go. on_progress: called with sessions. Raises StoreError, MemoryUnavailable."""
        redactor = Redactor(statement for order in orders for statement in order.statements)
        finder = ParaphraseFinder(redactor)
        sessions: list[str] = []
        count, own = 0, await self._list_sessions()
        for number, session_id in enumerate(own):
            if on_progress is not None:
                on_progress(number, len(own))
            if not (await self._plan(session_id, redactor)).is_empty:
                sessions.append(session_id)
            async for page in read_message_pages(self.store, session_id):
                count += len(page)
                await _analyse(finder.add, page)
        memories = await self.memory.find_statements(await self._query(redactor))
        near: list[Near] = []
        for message, sentence in finder.list_best(_MAX_NEAR):
            passages = await self.memory.list(Selection(message.session_id, message_ids=(message.id,)), _NEAREST)
            memory_id = next((m.id for m in passages if sentence in m.text), None)
            near.append(Near(message.session_id, message.turn, memory_id, message.agent_id or USER, sentence))
        near += await self._find_near_memories(redactor)
        unique = [*{(one.session_id, one.turn, one.text): one for one in reversed(near)}.values()][::-1]
        traces = await _analyse(self._traces.find, encode_texts(redactor)) if self._is_operator else ()
        files = sum(map(len, traces))
        return Findings(sorted(redactor.removed), sessions, memories, unique[:_MAX_NEAR], count, files)

    async def _find_near_memories(self, redactor: Redactor) -> list[Near]:
        """Return memories that are near in meaning, and facts that share words with a statement."""
        near: list[Near] = []
        selection = await self._select()
        for statement in redactor.statements[:_MAX_ASKED]:
            for memory in await self.memory.find_near(statement.text, selection, _NEAREST):
                shared = len(statement.stems & list_stems(memory.text)) / max(len(statement.stems), 1)
                is_near = memory.score >= _MIN_COSINE or (memory.kind == "fact" and shared >= OWN_SHARE)
                if is_near and not redactor.mentions(memory.text):
                    near.append(Near(memory.session_id, memory.turn, memory.id, memory.agent_id, memory.text))
        return near

    async def erase(
        self, orders: Sequence[Order], findings: Findings | None = None, on_progress: Progress | None = None
    ) -> Receipt:
        """Forget; return what was deleted and how that was checked.

        findings: of these orders. on_progress: as for `find`.

        Raises:
            SessionBusyError: a turn of one of the sessions is under way; nothing was changed.
            MemoryUnavailable, StoreError, HomeError: what is left goes when this owner's data is used again.
        """
        findings = findings or await self.find(orders, on_progress)
        name = f"{name_marks(self.config.store.url, self.owner)}.{secrets.token_hex(8)}{_BEGUN}"
        with Mark(self.home / FORGETTING / name) as mark:
            return await self.carry_out(orders, findings, mark, on_progress)

    async def carry_out(
        self, orders: Sequence[Order], findings: Findings, mark: "Mark", on_progress: Progress | None = None
    ) -> Receipt:
        """As `erase`. mark: says what is to be forgotten until it is."""
        was_cut_off, held = mark.was_cut_off, list[RecordingJob]()
        sources = [order.session_id for order in orders if order.session_id is not None]
        sessions = [name for name in await self._list_sessions() if name in {*findings.sessions, *sources}]
        deleted = Deletions()
        everything = Redactor(statement for order in orders for statement in order.statements)
        everything.removed.update(findings.sentences)
        async with AsyncExitStack() as leases:
            process = ProcessLock(self.home)
            leases.callback(process.close)
            for session_id in sessions:
                await leases.enter_async_context(hold_lease(self.store, process, session_id, _LEASE_WAIT))
            mark.begin(Forgetting(self.owner.user_id, tuple(orders)))
            if self._is_operator:
                deleted.traces = await _analyse(self._traces.delete, encode_texts(everything))
                registry = Registry(self.home)
                entries = await asyncio.to_thread(registry.read_entries)
                titles = [replace(entry, description=everything.redact_title(entry.description)) for entry in entries]
                await asyncio.to_thread(registry.upsert, *titles)
            for order in orders:
                held += await self._rewrite(order, sessions, deleted)
        erased = await self.store.erase_deleted()
        held += await self._list_held() if was_cut_off else []
        await self._erase_memories(orders, everything, deleted, held, was_cut_off=was_cut_off)
        rest = await self.find(orders, on_progress)
        receipt = Receipt(
            now(),
            [memory.id for order in orders for memory in order.memories],
            len(everything.statements),
            deleted,
            await self._check(everything, rest, erased=erased),
            [*{(near.session_id, near.turn, near.memory_id): near for near in rest.near}.values()],
        )
        mark.end()
        return receipt

    @property
    def _is_operator(self) -> bool:
        """Whether the files of this machine beside store and index are the owner's."""
        return self.owner == COMMAND_LINE_USER

    @property
    def _traces(self) -> Traces:
        return Traces(self.config, self.home, self.folder)

    # Log

    async def _rewrite(self, order: Order, session_ids: Sequence[str], deleted: Deletions) -> list[RecordingJob]:
        """Take the statements of an order out of the sessions, out of the one that it came from last.

        Returns what is to be recorded again.
        """
        redactor, held = Redactor(order.statements), list[RecordingJob]()
        for session_id in sorted(session_ids, key=lambda name: (name == order.session_id, name)):
            change = await self._plan(
                session_id, redactor, order.short_sentences if session_id == order.session_id else None
            )
            if change.is_empty:
                continue
            await self.store.delete_files(session_id, change.files)
            if change.state is not None:
                await self.store.save_state(session_id, change.state)
            changed = sorted((*change.entries, *change.memory_changes), key=lambda entry: entry.seq)
            entries = await _analyse(list[LogEntry], map(_requeue, changed))
            await self.store.rewrite_log(session_id, entries)
            held += [job for entry in entries for job in entry.recordings if job.reason == _REASON]
            if change.title is not None and (session := await self.store.get_session(session_id)) is not None:
                await self.store.rename_session(session_id, redactor.redact_title(session.title))
            if session_id not in deleted.sessions:
                deleted.sessions.append(session_id)
            deleted.events += len(change.entries)
            deleted.files += len(change.files)
            deleted.values += change.values
            deleted.names += change.title is not None
        return held

    async def _plan(
        self, session_id: str, redactor: Redactor, short_sentences: Mapping[int, Sequence[str]] | None = None
    ) -> _SessionChange:
        """Return what is to be changed in a session. short_sentences: see Order."""
        log = LogRedactor(redactor, {turn: Redactor(sentences) for turn, sentences in (short_sentences or {}).items()})
        async for page in read_log_pages(self.store, session_id, with_trimmed=True):
            await _analyse(log.add, page)
        await _analyse(log.close)
        copy = await self.store.export_session(session_id)
        if copy is None:
            return _SessionChange()
        files = [name for name in copy.files if name in log.files or await self._is_in_file(session_id, name, redactor)]
        state, values = await _analyse(_redact_state, copy.state, redactor)
        title = redactor.redact_title(copy.session.title)
        changed = {entry.seq for entry in log.changed}
        return _SessionChange(
            log.changed,
            files,
            state,
            values,
            None if title == copy.session.title else title,
            [entry for entry in log.memory_changes if entry.seq not in changed],
        )

    async def _is_in_file(self, session_id: str, name: str, redactor: Redactor) -> bool:
        """Return whether the bytes of a file, or its text, say a statement."""
        data = (await self.store.load_files(session_id, [name])).get(name, b"")
        texts = [data.decode("utf-8", "replace")]
        with suppress(InputError):
            [document] = await read_files([File(read_document, name, data)])
            texts.append(document.text)
        return await _analyse(any, map(redactor.mentions, texts))

    # Indexes

    async def _erase_memories(
        self,
        orders: Sequence[Order],
        redactor: Redactor,
        deleted: Deletions,
        held: Sequence[RecordingJob],
        *,
        was_cut_off: bool,
    ) -> None:
        """Delete the memories from every index, and record what else was said in their messages."""
        named = [memory for order in orders for memory in order.memories]
        message_ids = tuple(dict.fromkeys(job.message_id for job in held))
        query = replace(await self._query(redactor), message_ids=message_ids)
        memories = await self.memory.find_statements(query)
        for memory in (*memories, *named):
            if memory.kind == "fact":
                words = fingerprint_fact(memory.text)
                await self.store.forget_fact(memory.session_id, memory.agent_id, memory.message_ids, words)
        indexes = IndexFolders()
        try:
            await asyncio.to_thread(indexes.open, index_root(self.config.memory, self.home), self.memory.folder)
            deleted.other_indexes = await asyncio.to_thread(indexes.erase_statements, query)
            if was_cut_off:
                await asyncio.to_thread(indexes.erase_deleted)
        finally:
            await asyncio.to_thread(indexes.close)
        ids = tuple(dict.fromkeys(memory.id for memory in (*memories, *named)))
        deleted.memories = await self.memory.forget(Selection(ids=ids)) if ids else 0
        if was_cut_off:
            await self.memory.erase_deleted()
        for job in held:
            await self.store.extend_claim(job, None)
        await Recorder(self.store, self.memory, leaves_facts=True).drain()

    async def _list_held(self) -> list[RecordingJob]:
        """Return what recording was to leave alone when a forgetting was cut off."""
        return [
            job
            for session_id in await self._list_sessions()
            async for page in read_log_pages(self.store, session_id, with_trimmed=True)
            for entry in page
            for job in entry.recordings
            if job.status == "pending" and job.reason == _REASON
        ]

    async def _query(self, redactor: Redactor) -> StatementQuery:
        texts = [statement.text for statement in redactor.statements]
        return StatementQuery(texts, redactor.mentions, await self._select())

    async def _select(self) -> Selection:
        return await restrict_selection(self.store, Selection(), self.owner)

    async def _list_sessions(self) -> tuple[str, ...]:
        return await list_own_sessions(self.store, self.owner)

    # Checks

    async def _check(self, redactor: Redactor, rest: Findings, *, erased: bool) -> Checks:
        """Look for the statements everywhere, and ask for them. rest: what is found afterwards."""
        checks = Checks(rest.messages, len(rest.sessions), len(rest.memories), bytes_erased=erased)
        await self._ask(redactor, checks)
        if self._is_operator:
            checks.files, checks.files_found = await _analyse(self._search_files, encode_texts(redactor))
        if checks.files_found:
            checks.elsewhere = await self._is_elsewhere(redactor)
        return checks

    async def _ask(self, redactor: Redactor, checks: Checks) -> None:
        """Ask questions in the words of the statements, as each agent recalls, without the rule, and of the log."""
        selection, sessions = await self._select(), await self._list_sessions()
        options = RecallOptions(_MAX_TOKENS, abstain=False)
        readers = [USER, *(agent.id for agent in self.config.agents)]
        scopes = [Scope("", reader, 1, others=sessions) for reader in readers]
        asked = sorted(redactor.statements, key=lambda statement: -len(statement.stems))[:_MAX_ASKED]
        for question in [question for statement in asked for question in write_questions(statement)]:
            replies = [(await self.memory.recall(question, scope, options)).text for scope in scopes]
            replies += [memory.text for memory in await self.memory.find_near(question, selection, _NEAREST)]
            replies.append((await recall_by_words(self.store, question, scopes[0], options)).text)
            checks.questions += 1
            checks.questions_found += await _analyse(any, map(redactor.mentions, replies))

    def _search_files(self, texts: Sequence[bytes]) -> tuple[int, list[str]]:
        """Return how many files were read, and the paths of those that have one of the texts. Blocking."""
        folders = [self.home, index_root(self.config.memory, self.home)]
        paths = {path for folder in folders for path in list_files(folder) if path.is_file()}
        database = find_database(self.config)
        if database is not None:
            paths |= {path for path in database.parent.glob(f"{database.name}*") if path.is_file()}
        paths = {p for p in paths if not any(p.is_relative_to(self.home / name) for name in ("models", FORGETTING))}
        return len(paths), sorted(str(path) for path in paths if has_any(path, texts))

    async def _is_elsewhere(self, redactor: Redactor) -> bool:
        """Return whether a conversation of another owner says one of the statements."""
        own = set(await self._list_sessions())
        for listed in await self.store.find_sessions(SessionFilter(owner=EVERYBODY)):
            session_id = listed.session.session_id
            if session_id not in own and not (await self._plan(session_id, redactor)).is_empty:
                return True
        return False


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The content of a mark: who forgets what."""

    user_id: str | None
    orders: tuple[Order, ...]


_FORGETTING = TypeAdapter(Forgetting)


def name_marks(url: str, owner: Owner | Everybody) -> str:
    """Return what the names of an owner's marks begin with; for EVERYBODY, a pattern. url: of the store."""
    user = "*" if isinstance(owner, Everybody) else "local" if owner.user_id is None else hash_user(owner.user_id)
    return f"{sha256(url.encode()).hexdigest()[:16]}.{user}"


async def finish_forgetting(
    config: TeamConfig,
    home: Path,
    store: SessionStore,
    open_index: Callable[[], AbstractAsyncContextManager["IndexedMemory"]],
    owner: Owner | Everybody,
) -> list[Receipt]:
    """Finish what was to be forgotten of an owner, of EVERYBODY, when a process was killed.

    Call it before anything of the owner is shown.

    Raises MemoryUnavailable: it cannot be finished now, or another process is at it. Nothing is to be shown then.
    """
    name = name_marks(config.store.url, owner)
    paths = [path for ending in (_AGAIN, _BEGUN) for path in (home / FORGETTING).glob(f"{name}.*{ending}")]
    receipts: list[Receipt] = []
    try:
        for path in paths:
            with Mark(path) as mark:
                if not mark.is_locked and path.suffix == _AGAIN:
                    raise MemoryUnavailable("another process is at it")
                if not mark.is_locked or (forgetting := mark.resume()) is None:
                    continue
                async with open_index() as index:
                    eraser = Eraser(config, home, Path.cwd(), store, index, Owner(forgetting.user_id))
                    findings = await eraser.find(forgetting.orders)
                    receipts.append(await eraser.carry_out(forgetting.orders, findings, mark))
        _remove_leftovers(home / FORGETTING)
    except MassmemError as e:
        hint = e.hint or "run the command again in a moment"
        raise MemoryUnavailable(f"what was to be forgotten is not forgotten yet: {e.message}", hint) from e
    return receipts


class Mark:
    """A file that says what is to be forgotten. It is locked as long as a process works on that."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FileLock(path.with_suffix(".lock"), mode=0o600, thread_local=False)
        self.was_cut_off = path.suffix == _AGAIN

    @property
    def is_locked(self) -> bool:
        """Whether this process has it. False: another one does."""
        return self._lock.is_locked

    def __enter__(self) -> Self:
        try:
            make_folder(self._path.parent)
            with suppress(Timeout):
                self._lock.acquire(blocking=False)
        except OSError as e:
            raise explain_write_error(self._path, e) from e
        return self

    def __exit__(self, *_: object) -> None:
        if self._lock.is_locked:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()
            with suppress(OSError):
                self._path.parent.rmdir()  # once there is no other

    def begin(self, forgetting: Forgetting) -> None:
        """Write it, unless it is there."""
        try:
            if not self.was_cut_off:
                replace_file(self._path, _FORGETTING.dump_json(forgetting))
        except OSError as e:
            raise explain_write_error(self._path, e) from e

    def resume(self) -> Forgetting | None:
        """Say that this process finishes it, and return what it says; None: it is gone."""
        with suppress(FileNotFoundError):
            self._path = self._path.rename(self._path.with_suffix(_AGAIN))
            self.was_cut_off = True
            return _FORGETTING.validate_json(self._path.read_bytes())
        return None

    def end(self) -> None:
        self._path.unlink(missing_ok=True)


def _remove_leftovers(folder: Path) -> None:
    """Remove what processes left that were killed before their mark was whole, or after it had gone."""
    for lock in folder.glob("*.lock"):
        if not any(lock.with_suffix(ending).exists() for ending in (_BEGUN, _AGAIN)):
            with Mark(lock) as mark:
                if mark.is_locked:
                    lock.with_suffix(f"{_BEGUN}.new").unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()


async def _analyse(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(_THREAD, partial(function, *args, **kwargs))


def _requeue(entry: LogEntry) -> LogEntry:
    """Return a changed entry with its message queued once more, unless nothing is left of it."""
    event = decode_event(entry.payload)
    rows = [
        change.row
        for job in entry.recordings[:1]
        for change in project(job.session_id, entry.turn, entry.seq, event)
        if isinstance(change, InsertRow) and change.table == "chat_messages"
    ]
    texts = {row["id"]: row["content"] for row in rows}
    jobs = [_requeue_job(job, texts.get(job.message_id, "")) for job in entry.recordings]
    return entry.model_copy(update={"recordings": tuple(jobs)})


def _requeue_job(job: RecordingJob, text: str) -> RecordingJob:
    if job.kind != "episode" or job.status == "forgotten":
        return job
    if has_only_marks(text):
        changes: dict[str, object] = {"status": "forgotten", "reason": None, "next_attempt_at": None}
    else:
        changes = {"status": "pending", "attempts": 0, "reason": _REASON, "next_attempt_at": now() + _HELD}
    return job.model_copy(update=changes)


def _redact_state(state: SessionState, redactor: Redactor) -> tuple[SessionState | None, int]:
    """Return the state without what is to be forgotten, None when nothing is, and how many parts that changes.

    A value that the user gave goes whole: agents ask for it again.
    """
    params = {name: value for name, value in state.params.items() if redactor.redact_value(value) == value}
    new = {"params": params} | {
        name: redactor.redact_value(getattr(state, name)) for name in ("plan_execution", "last_result")
    }
    changed = state.model_copy(update=new)
    parts = len(state.params) - len(params) + sum(getattr(state, name) != new[name] for name in new if name != "params")
    return (changed, parts) if parts else (None, 0)
