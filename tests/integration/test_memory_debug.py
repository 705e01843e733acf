"""`--debug` keeps what went to the model that extracts facts and what came back, field by field, without secrets."""

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

from tests.support.extraction_stub import extraction_server

TEAM = """
agents:
  - {id: ann, backend: {type: scripted, script: {answer: "The budget of project Orion is 40,000 euros. sk-abcdefghijklmnopqrstuvwx1234"}}}
memory:
  persistent_memory:
    llm: {provider: scripted, model: ""}
"""  # noqa: E501 - a YAML line

FIELDS = [
    "timestamp", "agent_id", "session_id", "turn", "metadata", "messages_sent", "facts_extracted", "extraction_count",
]  # fmt: skip


def test_debug_files_have_the_documented_fields_and_no_secret(tmp_path: Path, home: Path):
    (tmp_path / "team.yaml").write_text(TEAM)
    command = [sys.executable, "-m", "massmem", "--debug", "--config", "team.yaml", "What is the budget of Orion?"]
    result = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    (path,) = (tmp_path / ".massmem" / "massmem_logs").glob("log_*/attempt_1/memory_debug/ann/turn_1_*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    record = json.loads(path.read_text())
    assert list(record) == FIELDS
    assert (record["agent_id"], record["turn"], record["metadata"]["has_tools"]) == ("ann", 1, False)
    assert record["extraction_count"] == len(record["facts_extracted"])
    assert any("Orion" in m["content"] for m in record["messages_sent"])
    written = "".join(p.read_text() for p in (tmp_path / ".massmem").rglob("*") if p.is_file())
    assert "sk-abcdefghijklmnopqrstuvwx1234" not in written


def ask(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "massmem", "--config", "team.yaml", *arguments]
    return subprocess.run(command, cwd=folder, env=os.environ, capture_output=True, text=True, timeout=60, check=False)


def read_debug_log(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted((folder / ".massmem").glob("massmem_logs/log_*/massmem.log")))


def test_the_debug_log_names_each_memory_operation_once_and_no_content(tmp_path: Path, home: Path):
    facts = json.dumps({"memory": [{"text": "The budget of project Orion is 40,000 euros.", "attributed_to": "user"}]})
    with extraction_server(facts) as url:
        llm = f'{{provider: openai, model: stub, api_key: sk-stub, base_url: "{url}"}}'
        (tmp_path / "team.yaml").write_text(TEAM.replace('{provider: scripted, model: ""}', llm))
        assert ask(tmp_path, "--debug", "What is the budget of Orion?").returncode == 0
        first = read_debug_log(tmp_path)
        shutil.rmtree(tmp_path / ".massmem")
        assert ask(tmp_path, "--debug", "--continue", "And what was the budget of project Orion?").returncode == 0
        second = read_debug_log(tmp_path)
    operations = ["Searching memories (agent=ann", "Recording to mem0 (agent=ann", "combined content length: "]
    assert [first.count(text) for text in operations] == [1, 1, 1]
    assert first.count("No relevant memories found (agent=ann)") == 1
    assert first.count("mem0 extracted 1 fact(s) (agent=ann") == 1
    assert [second.count(text) for text in operations] == [1, 1, 1]
    assert "memories (agent=ann, " in second.partition("Found ")[2]
    assert second.count("mem0 extracted 0 facts (agent=ann") == 1
    assert "40,000" not in first + second


def test_a_reply_of_the_extraction_model_that_breaks_off_is_reported(tmp_path: Path, home: Path):
    with extraction_server('{"memory": [{"text": "The budget of proj') as url:
        llm = f'{{provider: openai, model: stub, api_key: sk-stub, base_url: "{url}"}}'
        (tmp_path / "team.yaml").write_text(TEAM.replace('{provider: scripted, model: ""}', llm))
        result = ask(tmp_path, "--debug", "What is the budget of Orion?")
    assert result.returncode == 0
    assert "not everything is remembered: no fact in the model's reply could be read" in result.stderr
    assert "not recorded (tried again later): no fact in the model's reply could be read" in read_debug_log(tmp_path)
