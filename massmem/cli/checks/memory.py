"""The memory, step by step: keys, embedder, extraction model, index, and all together."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from massmem.cli.checks.files import holder
from massmem.cli.checks.finding import Finding, Situation, beginning, failed, ok, skipped, without_config
from massmem.config.models import MemoryConfig, PersistentMemoryConfig
from massmem.events import now
from massmem.memory import index_folder, open_memory
from massmem.memory.extraction.task import Origin, RecordedMessage
from massmem.memory.memories import Episode, Selection, Wanted
from massmem.memory.persistent import PersistentMemory, Scope
from massmem.session.extractor import open_extractor

SAID = "The lighthouse of Skerryvore was lit on 1 February 1844 and stands 48 metres tall."
ASKED = "When was Skerryvore's lighthouse lit?"

_OFF = "memory is switched off"
_HERE = ("local", "none", "fastembed", "huggingface")
"""Embedders that need no server."""


def _settings(situation: Situation) -> PersistentMemoryConfig | None:
    """None: nothing is kept that could be searched."""
    memory = situation.config.memory if situation.config else MemoryConfig()
    return memory.persistent_memory if memory.enabled and memory.persistent_memory.enabled else None


async def check_keys(situation: Situation) -> Sequence[Finding]:
    """A key for each provider that needs one."""
    from massmem.memory.embedders import mem0_embedder
    from massmem.memory.extraction import mem0_models

    settings = _settings(situation)
    if situation.config is None or settings is None:
        return without_config() if situation.config is None else [skipped(_OFF)]
    embedding = mem0_embedder.KINDS.get(settings.embedding.provider)
    wanted = [(settings.embedding.api_key, "embedding", embedding.keys if embedding else ())]
    if settings.llm is not None:
        llm = mem0_models.KINDS.get(settings.llm.provider)
        wanted.append((settings.llm.api_key, "llm", llm.keys if llm else ()))
    findings: list[Finding] = []
    told: set[str] = set()
    for given, section, names in wanted:
        found = next((name for name in names if situation.environ.get(name)), None)
        if given is not None:
            key = given.get_secret_value()
            findings.append(ok(f"{section}.api_key is configured (starts with: {beginning(key)})"))
        elif found is not None and found not in told:
            findings.append(ok(f"{found} found (starts with: {beginning(situation.environ[found])})"))
            told.add(found)
        elif names and found is None:
            text = f"{' or '.join(names)} is not set, and {section} needs it"
            findings.append(failed(text, f"run `export {names[0]}=...` first"))
        elif not names:
            findings.append(ok(f"{section}: no key is needed"))
    return findings


async def check_embedding(situation: Situation) -> Sequence[Finding]:
    """A text to a vector."""
    from massmem.memory.embedders import open_embedder

    settings = _settings(situation)
    if situation.config is None or settings is None:
        return without_config() if situation.config is None else [skipped(_OFF)]
    config = settings.embedding
    if situation.offline and config.provider not in _HERE:
        return [skipped(f"{config.provider}: not tried (--offline)")]
    embedder = await asyncio.to_thread(open_embedder, config, situation.environ, situation.home)
    if embedder is None:
        return [skipped("not configured: memories are found by words alone")]
    vector = (await asyncio.to_thread(embedder.embed, [SAID]))[0]
    return [ok("Embedding successful!", f"Vector dimensions: {len(vector)}", f"Embedder: {embedder.name}")]


async def check_extraction(situation: Situation) -> Sequence[Finding]:
    """Facts out of a message."""
    settings = _settings(situation)
    if situation.config is None or settings is None:
        return without_config() if situation.config is None else [skipped(_OFF)]
    if settings.llm is not None and situation.offline and settings.llm.provider != "local":
        return [skipped(f"{settings.llm.provider}: not tried (--offline)")]
    async with open_extractor(settings.llm, situation.home) as extractor:
        if extractor is None:
            text = "not configured: messages are remembered word for word, no facts are extracted"
            return [skipped(text)]
        said = [RecordedMessage("user", SAID, "m1", now())]
        found = await extractor.extract(said, Origin(_a_session(), "setup_check", 1))
    if found.problem is not None:
        return [failed(found.problem.message, found.problem.hint)]
    return [ok("LLM call successful!", *(fact.text for fact in found.facts))]


async def check_index(situation: Situation) -> Sequence[Finding]:
    """The index can be opened."""
    if (why := _untouchable(situation)) is not None:
        return [why]
    assert situation.config is not None  # told by _untouchable
    async with _opened(situation) as memory:
        stats = await memory.stats()
    server = situation.config.memory.persistent_memory.qdrant.mode == "server"
    text = "Qdrant server connected!" if server else "Embedded Qdrant index opened!"
    return [ok(text, stats.location, f"{stats.episodes:,} messages, {stats.facts:,} facts")]


async def check_all(situation: Situation) -> Sequence[Finding]:
    """A message in and out again; nothing of it stays."""
    if (why := _untouchable(situation)) is not None:
        return [why]
    session_id = _a_session()
    async with _opened(situation) as memory:
        try:
            await memory.record([Episode(session_id, f"{secrets.randbits(128):032x}", 0, 1, "user", SAID, now())])
            found = await memory.recall(ASKED, Scope(session_id, "setup_check", 2), Wanted(200))
        finally:
            await memory.forget(Selection(session_id=session_id))
    done = [ok("PersistentMemory created!"), ok("Messages recorded!")]
    if SAID not in [hit.text for hit in found.memories]:
        return [*done, failed("what was recorded was not found again", "run: massmem memory rebuild")]
    return [*done, ok("Messages recalled!")]


def _untouchable(situation: Situation) -> Finding | None:
    """Why the index is not to be opened now."""
    settings = _settings(situation)
    if situation.config is None:
        return without_config()[0]
    if settings is None:
        return skipped(_OFF)
    if situation.offline and (settings.qdrant.mode == "server" or settings.embedding.provider not in _HERE):
        return skipped("not tried (--offline)")
    if settings.qdrant.mode == "server":
        return None
    held = (holder(lock) for lock in index_folder(situation.config.memory, situation.home).glob("*/lock"))
    busy = next((pid for pid in held if pid is not None), None)
    text = f"in use by process {busy}, which is as it should be; until it ends others find memories by words"
    return None if busy is None else skipped(text)


@asynccontextmanager
async def _opened(situation: Situation) -> AsyncGenerator[PersistentMemory]:
    """The memory as it is configured; where nothing was remembered yet, one that leaves nothing behind."""
    assert situation.config is not None  # told by _untouchable
    config = situation.config.memory
    if not _exists(index_folder(config, situation.home)):
        persistent = config.persistent_memory.model_copy(update={"on_disk": False})
        config = config.model_copy(update={"persistent_memory": persistent})
    memory = await open_memory(config, situation.home, situation.environ)
    try:
        yield memory
    finally:
        await memory.close()


def _exists(folder: Path) -> bool:
    return any(folder.glob("*/shard"))


def _a_session() -> str:
    return f"memory_setup_check_{secrets.token_hex(4)}"
