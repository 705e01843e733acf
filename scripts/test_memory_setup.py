#!/usr/bin/env python3
"""Checks the memory of a configuration, step by step: keys, embedder, extraction model, index, and all together.

    python scripts/test_memory_setup.py [--config FILE]

Without --config: what `massmem` itself would use. Exit code 1 when a check that is needed fails.
"""

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from massmem.cli.home import massmem_home
from massmem.cli.streams import prepare_streams
from massmem.cli.team import load_team, read_dotenv
from massmem.config.models import MemoryConfig
from massmem.errors import MassmemError
from massmem.events import now
from massmem.extractor import open_extractor
from massmem.memory import open_memory
from massmem.memory.extraction.task import Origin, RecordedMessage
from massmem.memory.memories import Episode, Selection, Wanted
from massmem.memory.persistent import PersistentMemory, Scope
from massmem.redact import redact

LINE = "=" * 60
SHOWN = 7
SAID = "The lighthouse of Skerryvore was lit on 1 February 1844 and stands 48 metres tall."
ASKED = "When was Skerryvore's lighthouse lit?"


@dataclass(frozen=True)
class Setup:
    """What is checked."""

    memory: MemoryConfig
    home: Path
    environ: Mapping[str, str]


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the memory of a configuration.")
    parser.add_argument("--config", metavar="FILE", help="the team; default: as massmem without --config")
    arguments = parser.parse_args()
    prepare_streams()
    try:
        read_dotenv(Path(".env"))
        home = massmem_home()
        setup = Setup(load_team(arguments.config, home).memory, home, os.environ)
    except MassmemError as e:
        print(f"❌ {e.message}\n   {e.hint}", file=sys.stderr)
        return e.exit_code
    return asyncio.run(run(setup))


async def run(setup: Setup) -> int:
    print("🧪 MEMORY SYSTEM TEST SUITE")
    llm = setup.memory.persistent_memory.llm
    model = "" if llm is None else f" ({llm.model or llm.provider})"
    embedding = setup.memory.persistent_memory.embedding.provider
    checks = (
        ("Environment Variables", check_environment),
        ("OpenAI Embedding API" if embedding == "openai" else f"Embedding ({embedding})", check_embedding),
        (f"mem0 LLM API{model}", check_llm),
        ("Qdrant Connection", check_index),
        ("Full Memory Integration", check_all),
    )
    failed = 0
    for number, (title, check) in enumerate(checks, start=1):
        print(f"\n{LINE}\nTEST {number}: {title}\n{LINE}")
        try:
            ok = await check(setup)
        except MassmemError as e:
            problem(e.message, e.hint)
            ok = False
        failed += not ok
    print(f"\n{LINE}\n" + ("✅ All checks passed" if not failed else f"❌ {failed} of {len(checks)} checks failed"))
    return 1 if failed else 0


def good(text: str, *more: str) -> None:
    print("\n".join([f"✅ {text}", *(f"   {line}" for line in more)]))


def problem(text: str, hint: str = "") -> None:
    print(f"❌ {redact(text)}" + (f"\n   {hint}" if hint else ""))


def skipped(text: str) -> None:
    print(f"➖ {text}")


def beginning(secret: str) -> str:
    """The first characters of a secret, a quarter of it at most."""
    return f"{secret[: min(SHOWN, len(secret) // 4)]}..."


async def check_environment(setup: Setup) -> bool:
    """A key for each provider that needs one."""
    from massmem.memory.embedders import mem0_embedder
    from massmem.memory.extraction import mem0_models

    settings = setup.memory.persistent_memory
    embedding = mem0_embedder.KINDS.get(settings.embedding.provider)
    wanted = [(settings.embedding.api_key, "embedding", embedding.keys if embedding else ())]
    if settings.llm is not None:
        llm = mem0_models.KINDS.get(settings.llm.provider)
        wanted.append((settings.llm.api_key, "llm", llm.keys if llm else ()))
    missing = 0
    told: set[str] = set()
    for given, section, names in wanted:
        found = next((name for name in names if setup.environ.get(name)), None)
        if given is not None:
            good(f"{section}.api_key is configured (starts with: {beginning(given.get_secret_value())})")
        elif found is not None:
            if found not in told:
                good(f"{found} found (starts with: {beginning(setup.environ[found])})")
            told.add(found)
        elif names:
            problem(f"{' or '.join(names)} is not set, and {section} needs it", f"run `export {names[0]}=...` first")
            missing += 1
        else:
            good(f"{section}: no key is needed")
    return not missing


async def check_embedding(setup: Setup) -> bool:
    """A text to a vector."""
    from massmem.memory.embedders import open_embedder

    config = setup.memory.persistent_memory.embedding
    embedder = await asyncio.to_thread(open_embedder, config, setup.environ, setup.home)
    if embedder is None:
        skipped("not configured: memories are found by words alone")
        return True
    vector = (await asyncio.to_thread(embedder.embed, [SAID]))[0]
    good("Embedding successful!", f"Vector dimensions: {len(vector)}")
    return True


async def check_llm(setup: Setup) -> bool:
    """Facts out of a message."""
    async with open_extractor(setup.memory.persistent_memory.llm, setup.home) as extractor:
        if extractor is None:
            skipped("not configured: messages are remembered word for word, no facts are extracted")
            return True
        said = [RecordedMessage("user", SAID, "m1", now())]
        found = await extractor.extract(said, Origin(a_session(), "setup_check", 1))
    if found.problem is not None:
        problem(found.problem.message, found.problem.hint)
        return False
    good("LLM call successful!", *(fact.text for fact in found.facts))
    return True


async def check_index(setup: Setup) -> bool:
    """The index can be opened."""
    async with opened(setup) as memory:
        stats = await memory.stats()
    server = setup.memory.persistent_memory.qdrant.mode == "server"
    good("Qdrant server connected!" if server else "Embedded Qdrant index opened!", stats.location)
    return True


async def check_all(setup: Setup) -> bool:
    """A message in and out again; nothing of it stays."""
    session_id = a_session()
    async with opened(setup) as memory:
        good("PersistentMemory created!")
        try:
            await memory.record([Episode(session_id, f"{secrets.randbits(128):032x}", 0, 1, "user", SAID, now())])
            good("Messages recorded!")
            found = await memory.recall(ASKED, Scope(session_id, "setup_check", 2), Wanted(200))
        finally:
            await memory.forget(Selection(session_id=session_id))
    if SAID not in [hit.text for hit in found.memories]:
        problem("what was recorded was not found again")
        return False
    good("Messages recalled!")
    return True


def a_session() -> str:
    return f"memory_setup_check_{secrets.token_hex(4)}"


@asynccontextmanager
async def opened(setup: Setup) -> AsyncIterator[PersistentMemory]:
    memory = await open_memory(setup.memory, setup.home, setup.environ)
    try:
        yield memory
    finally:
        await memory.close()


if __name__ == "__main__":
    sys.exit(main())
