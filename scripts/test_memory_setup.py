#!/usr/bin/env python3
"""Checks the memory of a configuration, step by step: keys, embedder, extraction model, index, and all together.

    python scripts/test_memory_setup.py [--config FILE]

Without --config: what `massmem` itself would use. Exit code 1 when a check that is needed fails. `massmem doctor` has
the same checks among others.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from massmem.cli.checks import Check, memory
from massmem.cli.checks.finding import Finding, Situation, failed
from massmem.cli.streams import prepare_streams
from massmem.cli.team import load_team, read_dotenv
from massmem.config.models import TeamConfig
from massmem.errors import MassmemError
from massmem.home import massmem_home

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
    return asyncio.run(run(Situation(home, os.environ, config), config))


async def run(situation: Situation, config: TeamConfig) -> int:
    print("🧪 MEMORY SYSTEM TEST SUITE")
    llm = config.memory.persistent_memory.llm
    model = "" if llm is None else f" ({llm.model or llm.provider})"
    embedding = config.memory.persistent_memory.embedding.provider
    checks: tuple[tuple[str, Check], ...] = (
        ("Environment Variables", memory.check_keys),
        ("OpenAI Embedding API" if embedding == "openai" else f"Embedding ({embedding})", memory.check_embedding),
        (f"mem0 LLM API{model}", memory.check_extraction),
        ("Qdrant Connection", memory.check_index),
        ("Full Memory Integration", memory.check_all),
    )
    wrong = 0
    for number, (title, check) in enumerate(checks, start=1):
        print(f"\n{LINE}\nTEST {number}: {title}\n{LINE}")
        try:
            findings = await check(situation)
        except MassmemError as e:
            findings = [failed(e.message, e.hint)]
        for finding in findings:
            tell(finding.of(title))
        wrong += any(finding.status == "failed" for finding in findings)
    print(f"\n{LINE}\n" + ("✅ All checks passed" if not wrong else f"❌ {wrong} of {len(checks)} checks failed"))
    return 1 if wrong else 0


def tell(finding: Finding) -> None:
    lines = [*finding.details, *([finding.fix] if finding.fix else [])]
    print("\n".join([f"{MARKS[finding.status]} {finding.text}", *(f"   {line}" for line in lines)]))


if __name__ == "__main__":
    sys.exit(main())
