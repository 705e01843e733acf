"""`--debug` keeps what went to the model that extracts facts and what came back, field by field, without secrets."""

import json
import stat
from pathlib import Path

from tests.support.cli import massmem

TEAM = """
agents:
  - {id: ann, backend: {type: scripted, script: {answer: "The budget of project Orion is 40,000 euros. sk-abcdefghijklmnopqrstuvwx1234"}}}
memory:
  persistent_memory:
    llm: {provider: scripted, model: ""}
"""  # noqa: E501 - a YAML line

FIELDS = [
    "timestamp", "agent_id", "session_id", "turn", "metadata", "messages_sent", "facts_extracted", "extraction_count",
    "model", "reason", "memories",
]  # fmt: skip


def test_debug_files_have_the_documented_fields_and_no_secret(tmp_path: Path, home: Path):
    (tmp_path / "team.yaml").write_text(TEAM)
    result = massmem("--debug", "--config", "team.yaml", "What is the budget of Orion?", cwd=tmp_path, timeout=60)
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
