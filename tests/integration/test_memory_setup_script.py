"""scripts/test_memory_setup.py as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from massmem.memory.persistent import Selection
from tests.support.memories import open_disk_memory

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "scripts" / "test_memory_setup.py"
TEAM = "agents: [{id: ann, backend: {type: scripted, script: {answer: Hello.}}}]\n"
LLM = ", llm: {provider: openai, model: m, api_key: sk-verysecret0123456789, base_url: 'http://127.0.0.1:9/v1'}"
REMOTE = TEAM + "memory: {persistent_memory: {embedding: {provider: openai, base_url: 'http://127.0.0.1:9/v1'}%s}}\n"


def run(tmp_path: Path, config: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    (tmp_path / "team.yaml").write_text(config)
    command = [sys.executable, str(SCRIPT), "--config", "team.yaml"]
    env = os.environ | environ
    return subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)


async def test_with_nothing_configured_it_passes_and_leaves_nothing(tmp_path: Path, home: Path) -> None:
    ran = run(tmp_path, TEAM + "memory: {persistent_memory: {embedding: {model: none}}}\n")
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    line = "=" * 60
    assert ran.stdout.startswith(f"🧪 MEMORY SYSTEM TEST SUITE\n\n{line}\nTEST 1: Environment Variables\n{line}\n✅ ")
    titles = [text.partition(": ")[2] for text in ran.stdout.splitlines() if text.startswith("TEST ")]
    assert titles == [
        "Environment Variables", "Embedding (local)", "mem0 LLM API", "Qdrant Connection", "Full Memory Integration"
    ]  # fmt: skip
    assert "✅ PersistentMemory created!\n✅ Messages recorded!\n✅ Messages recalled!\n" in ran.stdout
    memory = open_disk_memory(home / ".massmem" / "memory" / "words")
    assert await memory.list(Selection()) == []
    await memory.close()


def test_failure_is_named_and_no_key_is_shown(tmp_path: Path) -> None:
    without = run(tmp_path, REMOTE % LLM)
    assert without.returncode == 1
    assert "❌ OPENAI_API_KEY is not set, and embedding needs it\n   run `export OPENAI_API_KEY=...`" in without.stdout
    assert "✅ llm.api_key is configured (starts with: sk-ve...)" in without.stdout
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
    refused = run(tmp_path, REMOTE % "", OPENAI_API_KEY=key)
    assert refused.returncode == 1
    assert "✅ OPENAI_API_KEY found (starts with: sk-proj...)" in refused.stdout
    assert "TEST 2: OpenAI Embedding API" in refused.stdout
    for ran in (without, refused):
        assert "Traceback" not in ran.stderr
        for secret in (key[:12], "verysecret"):
            assert secret not in ran.stdout + ran.stderr


def test_a_configuration_that_is_none(tmp_path: Path) -> None:
    ran = run(tmp_path, "agents: 3\n")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("❌ team.yaml:1: ")
