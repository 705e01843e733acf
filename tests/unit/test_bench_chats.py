"""Chats in plain words: what memory makes of them, on a few by default and on all in the full suite."""

import json
from pathlib import Path

import pytest

from scripts.benches.chats import CHATS, play, run
from scripts.benches.process import BenchError


def test_what_is_wrong_with_a_recall_is_named():
    chat = {"chat": [[1, "user", "I drive a Skoda."]], "question": "Do I drive a Skoda?"}
    checks = {"want": ["Zoe"], "stale": ["Skoda"], "not_held": [], "current": []}
    fault, others = play(chat | checks)
    assert fault == "Do I drive a Skoda? Zoe is missing, Skoda is not marked"
    assert others == 0


@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.full)])
def test_chats_are_recalled_rightly(tmp_path: Path, step: int):
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(CHATS.read_text(encoding="utf-8").splitlines()[::step]), encoding="utf-8")
    row = run(file)[0]
    assert json.loads(json.dumps(row.value)) >= 0.85


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(BenchError, match="no file of chats"):
        run(tmp_path / "none")
