"""A home after one turn: the next question is met with silence unless what was said matters for it."""

import json
from pathlib import Path

from tests.support.cli import massmem

TEAM = """
agents:
  - {id: ann, backend: {type: scripted, script: {answer: "Air scatters blue light more than red light, so the sky looks blue. At sunset red remains."}}}
  - {id: ben, backend: {type: scripted, script: {answer: "Molecules of air scatter short waves most. Sunsets are red because the blue is lost on the long way."}}}
  - {id: cyd, backend: {type: scripted, script: {answer: "The sky is blue by scattering. Sunsets are red: the light passes through more air, and dust adds to it."}}}
memory: {persistent_memory: {session_name: null}}
"""  # noqa: E501 - YAML lines


def recall_at(folder: Path, question: str) -> list[dict[str, object]]:
    """Return what the debug files of a new conversation say of the recalls for its question."""
    result = massmem("--debug", "--config", "team.yaml", question, cwd=folder, timeout=120)
    assert result.returncode == 0, result.stderr
    paths = (folder / ".massmem" / "massmem_logs").glob("log_*/attempt_1/memory_debug/*/recall_turn_1_*.json")
    records = [json.loads(path.read_text()) for path in paths]
    return [record for record in records if record["question"] == question]


def test_nothing_is_recalled_for_another_question_and_the_answers_for_one_that_they_matter_for(
    tmp_path: Path, home: Path
):
    (tmp_path / "team.yaml").write_text(TEAM)
    first = massmem("--config", "team.yaml", "Why is the sky blue, and why are sunsets red?", cwd=tmp_path, timeout=120)
    assert first.returncode == 0, first.stderr
    silent = recall_at(tmp_path, "What is the capital of Australia?")
    assert {record["agent_id"] for record in silent} == {"ann", "ben", "cyd"}
    for record in silent:
        assert record["shown"] == []
        assert str(record["reason"]).startswith("silent: ")
        assert record["score"] < record["threshold"]  # pyright: ignore[reportOperatorIssue]
    for question in ("What colour are sunsets?", "why did you say sunsets are red?"):
        shown = recall_at(tmp_path, question)
        assert len(shown) == 3
        assert all(record["shown"] for record in shown)
    search = massmem("memory", "search", "boil an egg", "--explain", "--config", "team.yaml", cwd=tmp_path, text=True)
    assert "silent: the best match has " in search.stderr
    assert "threshold " in search.stderr
