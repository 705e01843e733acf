#!/usr/bin/env python3
"""Checks the memory of a configuration, step by step: keys, embedder, extraction model, index, and all together.

    python scripts/test_memory_setup.py [--config FILE]

The default configuration is that of `massmem`. Exit code 1 when a check fails. `massmem doctor` has the same checks
among others.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from massmem.cli import checks
from massmem.cli.checks import Check, CheckResult, DoctorContext, run_check
from massmem.cli.setup import load_team, read_dotenv
from massmem.cli.streams import prepare_streams
from massmem.config.home import massmem_home
from massmem.config.models import TeamConfig
from massmem.core.errors import MassmemError

LINE = "=" * 60
MARKS = {"ok": "✅", "failed": "❌", "skipped": "➖"}


def main() -> int:
    parser = argparse.ArgumentParser(description="Check the memory of a configuration.")
    parser.add_argument("--config", metavar="FILE", help="the team; default: as massmem without --config")
    arguments = parser.parse_args()
    prepare_streams()
    try:
        read_dotenv(Path(".env"))
        home = massmem_home()
        config = load_team(arguments.config, home)
    except MassmemError as e:
        print(f"❌ {e.message}\n   {e.hint}", file=sys.stderr)
        return e.exit_code
    return asyncio.run(run(DoctorContext(home, os.environ, config), config))


async def run(context: DoctorContext, config: TeamConfig) -> int:
    print("🧪 MEMORY SYSTEM TEST SUITE")
    llm = config.memory.persistent_memory.llm
    model = "" if llm is None else f" ({llm.model or llm.provider})"
    embedding = config.memory.persistent_memory.embedding.provider
    steps: tuple[tuple[str, Check], ...] = (
        ("Environment Variables", checks.check_keys),
        ("OpenAI Embedding API" if embedding == "openai" else f"Embedding ({embedding})", checks.check_embedding),
        (f"mem0 LLM API{model}", checks.check_extraction),
        ("Qdrant Connection", checks.check_index),
        ("Full Memory Integration", checks.check_recall),
    )
    failures = 0
    for number, (title, check) in enumerate(steps, start=1):
        print(f"\n{LINE}\nTEST {number}: {title}\n{LINE}")
        results = await run_check(title, check, context)
        for result in results:
            print_result(result)
        failures += any(result.status == "failed" for result in results)
    print(f"\n{LINE}\n" + ("✅ All checks passed" if not failures else f"❌ {failures} of {len(steps)} checks failed"))
    return 1 if failures else 0


def print_result(result: CheckResult) -> None:
    lines = [*result.details, *([result.fix] if result.fix else [])]
    print("\n".join([f"{MARKS[result.status]} {result.text}", *(f"   {line}" for line in lines)]))


if __name__ == "__main__":
    sys.exit(main())
