"""The file of results: nothing that was paid for is lost, and nothing else is taken for a result."""

import json
from pathlib import Path

import pytest

from massmem.core.errors import InputError
from massmem.core.messages import Usage
from massmem.evaluation.runner import ItemResult, JudgeVerdict, open_results, read_verdict

RESULT = ItemResult(
    team="t", item="i", seed=0, answer="42", members={"a": "42"}, usage=Usage(3, 4, requests=1, cost=0.5)
)


def test_results_are_there_after_reopening(tmp_path: Path):
    path = tmp_path / "folder" / "results.jsonl"
    with open_results(path) as file:
        file.add(RESULT)
        file.add(JudgeVerdict(key="k", right=True))
    assert path.stat().st_mode & 0o077 == 0
    with open_results(path) as file:
        assert file.get("t", "i", 0) == RESULT
        assert file.get("t", "i", 1) is None
        assert file.verdicts.get("k") == JudgeVerdict(key="k", right=True)


def test_line_that_a_kill_has_cut_is_dropped(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with open_results(path) as file:
        file.add(RESULT)
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:20])
    with open_results(path) as file:
        file.add(RESULT.model_copy(update={"item": "j"}))
    with open_results(path) as file:
        assert file.get("t", "i", 0) == RESULT
        assert file.get("t", "j", 0) is not None
    assert path.read_bytes().startswith(whole)


def test_file_of_something_else_is_left_alone(tmp_path: Path):
    path = tmp_path / "notes.jsonl"
    path.write_text("my notes\n")
    with pytest.raises(InputError, match=r"notes.jsonl:1 is no result"), open_results(path):
        pass
    assert path.read_text() == "my notes\n"


def test_two_evaluations_do_not_share_a_file(tmp_path: Path):
    path = tmp_path / "results.jsonl"
    with open_results(path), pytest.raises(InputError, match="another evaluation"), open_results(path):
        pass


REPLIES = Path(__file__).with_name("judge_replies.jsonl")
"""What judges write, and their verdict as a careful reader finds it."""


@pytest.mark.parametrize("line", REPLIES.read_text("utf-8").splitlines())
def test_verdict_of_a_reply(line: str):
    case = json.loads(line)
    assert {True: "right", False: "wrong", None: "none"}[read_verdict(case["reply"])] == case["verdict"]
