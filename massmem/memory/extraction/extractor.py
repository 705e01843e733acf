"""The port of extraction: messages in, facts out. Opens the configured model, and limits what an extraction costs."""

import asyncio
import json
import logging
import os
import re
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.config.home import explain_write_error, make_folder
from massmem.config.models import BackendConfig, MemoryLlmConfig, PersistentMemoryConfig
from massmem.config.presets import PRESETS
from massmem.core.errors import ContentRefused, ContextOverflow, MalformedResponse, MassmemError, ProviderTimeout
from massmem.core.events import now
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    Purpose,
    Reply,
    TextChunk,
    clean_text,
)
from massmem.core.redact import redact_values
from massmem.memory.budget import Budget
from massmem.memory.extraction.facts import (
    ParsedReply,
    Statement,
    clean_fact,
    cut_middle,
    cut_text,
    is_grounded,
    is_knowledge,
    normalize_fact,
    parse_reply,
    repeats,
)
from massmem.memory.extraction.prompts import (
    SCHEMA,
    SUMMARY_SYSTEM,
    Chunk,
    Extraction,
    Known,
    KnownFacts,
    Origin,
    Piece,
    Reading,
    RecordedMessage,
    halve,
    list_message_ids,
    make_fact,
    split_into_chunks,
    write_mem0_prompts,
    write_prompts,
)
from massmem.memory.mem0 import (
    MEM0_LLMS,
    OWN_NAMES,
    as_backend,
    explain_unknown_provider,
    find_backend_type,
    import_mem0,
    list_key_variables,
    name_section,
)
from massmem.memory.persistent import Fact, Selection
from massmem.memory.points import fact_id
from massmem.providers import Providers
from massmem.providers.retry import Pauses

if TYPE_CHECKING:
    from massmem.providers.base import ChatProvider

SETTING = "memory.persistent_memory.llm"

_CUT = " [...]"
"""At the end of a summary that the model did not end."""
_SUMMARY_DEADLINE = 120.0
"""Seconds for one summary, all attempts together."""
_SUMMARY_TOKENS = 1_000
LONGEST_SUMMARY = 3_000
"""Characters."""
_MOST_READ, _MOST_READ_COMPACT = 48_000, 8_000
"""Characters of a result that a model is sent; the middle of a longer one is left out."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one request."""

    timeout: float = 60
    """Seconds without any byte from the server."""
    retries: int = 2
    """Attempts after the first."""


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """A model that reads messages for memories."""

    chat: "ChatProvider"
    compact: bool
    """It runs on the user's machine, and is small: it is sent less at once, and its replies are held to a JSON
    Schema."""
    backend: BackendConfig | None = None
    """None: one of mem0's clients."""

    async def ask(self, system: str, user: str, max_tokens: int, purpose: Purpose, agent_id: str = "") -> Reply:
        """Send one request. A reply to "extract" that starts to repeat itself is ended there.

        Raises ProviderError: the request failed, or the model refused.
        """
        messages = (ChatMessage("system", system), ChatMessage("user", user))
        schema = SCHEMA if self.compact and purpose == "extract" else None
        request = ChatRequest(messages, purpose, agent_id, schema=schema, temperature=0.0, max_tokens=max_tokens)
        reply = Reply()
        async with aclosing(self.chat.stream(request)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
                may_repeat = purpose == "extract" and isinstance(chunk, TextChunk) and "}" in chunk.text
                if may_repeat and repeats(reply.text):
                    # A small model that starts over does so until its last token, minutes later.
                    return Reply(f"{reply.text.rpartition('}')[0]}}}]}}", finish="stop")
        if reply.finish == "content_filter":
            raise ContentRefused("the model refused to read this for memories")
        return reply

    async def summarize(self, text: str) -> str:
        """Return what matters in the result of a tool, in at most LONGEST_SUMMARY characters.

        Raises ProviderError: the request failed or took too long, the model refused, or its summary is empty.
        """
        excerpt = cut_middle(clean_text(text), _MOST_READ_COMPACT if self.compact else _MOST_READ)
        try:
            async with asyncio.timeout(_SUMMARY_DEADLINE):
                reply = await self.ask(SUMMARY_SYSTEM, excerpt, _SUMMARY_TOKENS, "summary")
        except TimeoutError as e:
            raise ProviderTimeout(f"summarising a tool result took longer than {_SUMMARY_DEADLINE:g} seconds") from e
        summary = reply.text.rpartition("</think>")[2].partition("<think>")[0].strip()
        if not summary:
            raise MalformedResponse("the model's summary of a tool result was empty")
        if reply.is_truncated:
            summary = f"{summary[: LONGEST_SUMMARY - len(_CUT)]}{_CUT}"
        return cut_text(clean_text(summary), LONGEST_SUMMARY)


async def open_model(
    llm: MemoryLlmConfig, providers: Providers, environ: Mapping[str, str], bounds: Bounds
) -> MemoryModel:
    """Open the configured model.

    Raises:
        InputError: no such provider, its package is missing, or its endpoint or model is missing or wrong.
        MissingKeyError: no API key.
        MissingModelError: the local model is not on disk.
    """
    if llm.provider in MEM0_LLMS:
        from massmem.memory.mem0_clients import Mem0Chat

        return MemoryModel(await asyncio.to_thread(Mem0Chat, llm), compact=False)
    backend = find_backend_type(llm.provider)
    if backend is None:
        raise explain_unknown_provider(SETTING, llm.provider, {*PRESETS, *OWN_NAMES, *MEM0_LLMS})
    preset = PRESETS[backend]
    settings = as_backend(
        llm, "llm", preset.memory_model or preset.default_model, environ,
        timeout=bounds.timeout, max_retries=bounds.retries,
    )  # fmt: skip
    without = "then messages are remembered word for word, without extracted facts"
    with name_section(SETTING, list_key_variables(llm.provider, "llm"), without):
        return MemoryModel(await providers.open(settings), not preset.needs_key, settings)


_TOOL = re.compile(r"^\[Tool Call: ([^\]\n]{1,200})\]$", re.MULTILINE)


def make_debug_record(
    messages: Sequence[RecordedMessage], origin: Origin, facts: Sequence[Fact], moment: datetime
) -> dict[str, Any]:
    """Return one extraction as it is written. facts: what came of it; their ids are those of the index."""
    tools = list(dict.fromkeys(name for message in messages for name in _TOOL.findall(message.text)))
    return {
        "timestamp": moment.isoformat(),
        "agent_id": origin.agent_id,
        "session_id": origin.session_id,
        "turn": origin.turn,
        "metadata": {"tools_used": tools, "has_tools": bool(tools), "message_count": len(messages)},
        "messages_sent": [{"role": message.role, "content": message.text} for message in messages],
        "facts_extracted": [
            {"id": str(fact_id(fact, normalize_fact(fact.text))), "memory": fact.text, "event": "ADD"} for fact in facts
        ],
        "extraction_count": len(facts),
    }


def write_debug(log_folder: Path, attempt: int, record: dict[str, Any], prefix: str = "") -> Path:
    """Write a record, without secrets, to a new file that only its owner may read; returns its path.

    log_folder: of this run. attempt: the round of the turn, from 1. prefix: of the file's name.

    Raises HomeError, StoreError: it cannot be written.
    """
    folder = log_folder / f"attempt_{attempt}" / "memory_debug" / record["agent_id"]
    make_folder(folder)
    stamp = f"{datetime.fromisoformat(record['timestamp']):%Y%m%d_%H%M%S}"
    text = json.dumps(redact_values(record), ensure_ascii=False, indent=2)
    path, descriptor = _create_file(folder, f"{prefix}turn_{record['turn']}_{stamp}")
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{text}\n")
    return path


def _create_file(folder: Path, name: str) -> tuple[Path, int]:
    number = 1
    while True:
        path = folder / f"{name}{f'_{number}' if number > 1 else ''}.json"
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            number += 1  # a second extraction within the second
        except OSError as e:
            raise explain_write_error(path, e) from e


log = logging.getLogger(__name__)

Extract = Callable[[Sequence[RecordedMessage], Origin], Awaitable[Extraction]]
"""Asks a model for the facts in messages. Raises MassmemError."""

Summarize = Callable[[str, str | None], Awaitable[str]]
"""Summarises a text with the named model, None for the one that extracts. Raises MassmemError."""


@dataclass(frozen=True, slots=True)
class Extractor:
    extract: Extract
    summarize: Summarize
    """Shortens the large result of a tool."""
    budget: Budget = field(default_factory=Budget)
    """Books what both send."""


@asynccontextmanager
async def open_extractor(
    settings: PersistentMemoryConfig,
    home: Path,
    known: KnownFacts | None = None,
    environ: Mapping[str, str] = os.environ,
    pauses: Pauses | None = None,
    budget: Budget | None = None,
) -> AsyncGenerator[Extractor | None]:
    """Open the configured model; yield None when none can extract: then messages are all that is remembered.

    home: folder of massmem's own files. known: what the memory holds, so that the model is shown it and does not say
    it again. pauses: of models that want no requests. budget: books and limits the requests.

    Raises InputError: the model cannot be used: see open_model; mem0, whose prompt is wanted, is not installed.
    """
    llm = settings.llm
    if llm is None:
        yield None
        return
    providers = Providers(pauses=pauses)
    models: dict[str | None, MemoryModel] = {}
    budget = budget or Budget()

    async def open_named(name: str | None) -> MemoryModel:
        if name not in models:
            config = llm if name is None else llm.model_copy(update={"model": name})
            model = await open_model(config, providers, environ, Bounds())
            backend = model.backend or BackendConfig(type="openai")
            models[name] = replace(model, chat=budget.limit("", backend, model.chat))
        return models[name]

    async def summarize(text: str, name: str | None) -> str:
        return await (await open_named(name)).summarize(text)

    try:
        model, mem0 = await open_named(None), None
        if settings.extraction.prompt == "mem0":
            mem0 = await asyncio.to_thread(import_mem0, "configs.prompts", home)
        yield Extractor(FactExtractor(model, known, mem0=mem0).extract, summarize, budget)
    finally:
        await providers.close()


def failing_extractor(error: MassmemError) -> Extractor:
    """Return an extractor for a model that could not be opened: facts wait in the queue, and each attempt says why."""

    async def fail(*_: object) -> Any:
        raise error

    return Extractor(fail, fail)


NO_MODEL = "no llm that can extract is configured"


def with_debug_files(
    extractor: Extractor | None, folder: Path, model: str, list_ids: Callable[[Selection], Awaitable[Sequence[int]]]
) -> Extractor:
    """Return the extractor with a debug file for each extraction, also where there is none, and nothing is found.

    list_ids: of memories that are selected.
    """

    async def extract(messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        result, reason = Extraction(), "it was cut off"
        try:
            result = await extractor.extract(messages, origin) if extractor else Extraction(note=NO_MODEL)
            problem = result.problem.message if result.problem else ""
            reason = result.note or problem or ("" if result.facts else "the model found no new facts")
        except MassmemError as e:
            reason = e.message
            raise
        finally:  # an extraction that fails is the one that somebody wants to look at
            record = make_debug_record(messages, origin, result.facts, now()) | {"model": model, "reason": reason}
            try:
                of_messages = tuple(message.message_id for message in messages)
                record["memories"] = [str(i) for i in await list_ids(Selection(message_ids=of_messages))]
                await asyncio.to_thread(write_debug, folder, origin.attempt, record)
            except MassmemError as e:
                log.warning("no debug file of this extraction: %s", e.message)
        return result

    return replace(extractor or failing_extractor(MassmemError(NO_MODEL)), extract=extract)


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one extraction. The compact ones are for models on the user's machine."""

    deadline: float = 300
    """Seconds for all of it."""
    chunk: int = 12_000
    """Characters of messages in one request."""
    compact_chunk: int = 4_000
    max_tokens: int = 8_000
    """Of one reply."""
    compact_max_tokens: int = 1_200
    requests: int = 24
    """Messages that this many requests did not reach are reported as unread."""


class FactExtractor:
    """Extracts facts from what agents and users said. Safe to use from several tasks of one event loop at a time."""

    def __init__(
        self, model: MemoryModel, known: KnownFacts | None = None, limits: Limits | None = None, mem0: Any = None
    ) -> None:
        """mem0: its module of prompts, which are sent instead of ours; None: ours."""
        self._model = model
        self._known = known
        self._limits = limits or Limits()
        self._mem0 = mem0

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        """Return the new facts in one agent's messages of one turn.

        Raises, when nothing could be read; when part of it could, `Extraction.problem` says what stopped the rest:
            ProviderError: a request failed or took too long, the model refused, or its reply holds no facts.
            MemoryUnavailable: the index cannot be used now.
        """
        limits, compact = self._limits, self._model.compact
        chunks = split_into_chunks(messages, limits.compact_chunk if compact else limits.chunk)
        if not chunks:
            return Extraction()
        max_tokens = limits.compact_max_tokens if compact else limits.max_tokens

        async def ask(reading: Reading) -> Reply:
            mem0 = self._mem0
            system, user = write_mem0_prompts(reading, mem0) if mem0 else write_prompts(reading)
            return await self._model.ask(system, user, max_tokens, "extract", origin.agent_id)

        run = _Run(ask, origin, self._known, compact, deque(chunks), limits.requests)
        try:
            async with asyncio.timeout(limits.deadline):
                await run.read_all()
        except TimeoutError:
            run.stop(ProviderTimeout(f"extracting memories took longer than {limits.deadline:g} seconds"))
        return run.result()


@dataclass(slots=True)
class _Run:
    ask: Callable[[Reading], Awaitable[Reply]]
    origin: Origin
    known: KnownFacts | None
    compact: bool
    todo: deque[Chunk]
    most_requests: int
    earlier: list[Piece] = field(default_factory=list[Piece])
    """Pieces that have been read."""
    seen: set[str] = field(default_factory=set[str])
    """Facts that are duplicates when the model states them again, in the form of normalize_fact."""
    facts: list[Fact] = field(default_factory=list[Fact])
    duplicates: int = 0
    requests: int = 0
    answered: int = 0
    problem: MassmemError | None = None
    unread: dict[str, None] = field(default_factory=dict[str, None])

    async def read_all(self) -> None:
        """Read one chunk after the other; stop at what would stop the next one as well."""
        while self.todo:
            if self.requests == self.most_requests:
                self.stop(MassmemError(f"too long to extract memories from all of it: {self.requests} parts were read"))
                return
            self.requests += 1
            chunk = self.todo[0]
            try:
                reply = await self._read(chunk)
            except ContextOverflow as e:
                self.todo.popleft()
                if (smaller := halve(chunk)) is None:
                    self._skip(chunk, e)
                else:
                    self.todo.extendleft(reversed(smaller))
            except (MalformedResponse, ContentRefused) as e:
                self.todo.popleft()
                self._skip(chunk, e)
            except MassmemError as e:
                self.stop(e)
            else:
                self.todo.popleft()
                self._add(reply, chunk)

    def stop(self, problem: MassmemError) -> None:
        """Leave the rest unread."""
        while self.todo:
            self._skip(self.todo.popleft(), problem)

    def result(self) -> Extraction:
        """Return the extraction; raise the problem when there is nothing else."""
        if self.problem is not None and not self.answered:
            raise self.problem
        return Extraction(tuple(self.facts), self.duplicates, self.answered, self.problem, tuple(self.unread))

    async def _read(self, chunk: Chunk) -> ParsedReply:
        known = Known()
        if self.known is not None:
            text = "\n".join(piece.text for piece in chunk)
            known = await asyncio.to_thread(partial(self.known.find_near, text, self.origin))
            self.seen.update(map(normalize_fact, known.facts))
        reply = await self.ask(Reading(chunk, self.earlier, known.facts, known.topics))
        try:
            return parse_reply(reply.text, cut=reply.is_truncated)
        except MalformedResponse as e:
            if reply.is_truncated:
                raise MalformedResponse(f"the reply was cut off before its first fact ended; {e.message}") from e
            raise

    def _add(self, reply: ParsedReply, chunk: Chunk) -> None:
        self.answered += 1
        self.earlier.extend(chunk)
        for statement in reply.statements:
            fact = replace(statement, text=clean_fact(statement.text))
            if not self._is_worth_it(fact, chunk):
                continue
            key = normalize_fact(fact.text)
            if key in self.seen:
                self.duplicates += 1
            else:
                self.seen.add(key)
                self.facts.append(make_fact(fact, chunk, self.origin))
        if not reply.complete:
            self._skip(chunk, MalformedResponse("the model's reply broke off, or held items that cannot be read"))

    def _is_worth_it(self, statement: Statement, chunk: Chunk) -> bool:
        texts = (piece.text for piece in chunk)
        return is_knowledge(statement.text) and (not self.compact or is_grounded(statement.text, texts))

    def _skip(self, chunk: Chunk, problem: MassmemError) -> None:
        self.problem = self.problem or problem
        self.unread.update(dict.fromkeys(list_message_ids(chunk)))
