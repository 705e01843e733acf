"""The benches of memory: what they measure is what their rows claim."""

import json
from pathlib import Path

import pytest

from scripts.benches import main as bench
from scripts.benches.chats import CHATS, play
from scripts.benches.chats import run as run_chats
from scripts.benches.memory_adapter import Adapter, massmem, massmem_words
from scripts.benches.memory_recall import measure
from scripts.benches.process import BenchError
from scripts.benches.rows import as_table, at_least

REMARKS = [
    ("Ana", "I went to a pottery class on Tuesday with my sister."),
    ("Ben", "Which glaze did you use for the bowl?"),
    ("Ana", "A green one, it looks like the sea near Split."),
    ("Ben", "My marathon in Lisbon was cancelled because of the storm."),
    ("Ana", "What a pity, you trained for ten months!"),
    ("Ben", "I adopted a greyhound called Pickle instead."),
]
QUESTIONS = [
    {"question": "Which glaze did Ana use?", "answer": "green", "category": "single", "evidence": ["m2"]},
    {"question": "What did Ben adopt?", "answer": "a greyhound", "category": "single", "evidence": ["m5"]},
    {"question": "Who won?", "answer": "nobody", "category": "adversarial", "evidence": ["m0"]},
    {"question": "Where is Split?", "answer": "", "category": "abstention", "evidence": []},
]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three conversations of our own, named like those of the sets."""
    folder = tmp_path / "data"
    folder.mkdir()
    messages = [
        {
            "id": f"m{i}",
            "session": 1,
            "turn": i,
            "agent": who,
            "role": "user",
            "ts": "2026-05-08T09:00:00",
            "text": text,
        }
        for i, (who, text) in enumerate(REMARKS)
    ]
    for name in ("conv-1", "conv-2"):
        (folder / f"{name}.json").write_text(json.dumps({"messages": messages, "questions": QUESTIONS}))
    of_session = [{**q, "evidence": [], "evidence_sessions": ["S1"]} for q in QUESTIONS[:1]]
    moved = [{**m, "id": f"S1:{m['id']}"} for m in messages]
    (folder / "lme-1.json").write_text(json.dumps({"messages": moved, "questions": of_session}))
    (folder / "other.json").write_text("{}")
    return folder


def test_recall_is_measured_per_set(data: Path):
    sets = measure(data, lambda folder: massmem_words(str(folder)))
    assert list(sets) == ["locomo", "lme"]
    locomo = sets["locomo"]
    assert (locomo["conversations"], locomo["questions"]) == (2, 4)
    assert locomo["recall@1000tok"] == locomo["answer@1000tok"] == 1
    assert locomo["categories"] == {"single": {"recall@1000tok": 1, "low": 1, "high": 1, "questions": 4}}
    assert 0.9 < locomo["claimed_words@1000tok"] <= 1
    assert 0 < locomo["tokens@1000tok"] < 1000
    assert sets["lme"]["recall@1000tok"] == 1


def test_recalled_ids_without_their_text_lower_the_claimed_words(data: Path):
    class Liar(Adapter):
        def context(self, query: str, budget: int) -> tuple[str, set[str]]:
            return "nothing of it", {"m2", "m5"}

    (data / "lme-1.json").unlink()
    figures = measure(data, Liar)["locomo"]
    assert figures["recall@1000tok"] == 1
    assert figures["claimed_words@1000tok"] < 0.2
    assert figures["answer@1000tok"] == 0


def test_context_above_the_budget_stops_the_bench(data: Path):
    class Spender(Adapter):
        def context(self, query: str, budget: int) -> tuple[str, set[str]]:
            return "word " * (budget + 10), set()

    with pytest.raises(BenchError, match="within a budget"):
        measure(data, Spender)


def test_folder_without_conversations_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert bench.main(["memory", str(tmp_path)]) == 1
    assert "conv-*.json" in capsys.readouterr().err
    assert bench.main(["startup", str(tmp_path)]) == 1


def test_report_has_rows_for_each_set(data: Path, capsys: pytest.CaptureFixture[str]):
    assert bench.main(["memory", str(data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {row["what"]: row for row in report["rows"]}
    for name in ("locomo", "lme"):
        assert rows[f"{name}: search_cpu_p50_ms"]["value"] > 0
        assert rows[f"{name} without embedder: recall@1000tok"]["value"] <= 1
    assert rows["locomo: recall@1000tok"]["bound"] == 0.85


def test_adapter_records_and_fills_a_context(tmp_path: Path):
    memory = massmem(str(tmp_path))
    message = {
        "id": "m",
        "session": 3,
        "turn": 0,
        "agent": "user",
        "ts": "2026-05-08T09:00:00",
        "text": "Kites are red.",
    }
    memory.add([message, {**message, "id": "n", "turn": 1, "text": "Oaks are old."}])
    text, claimed = memory.context("kites", 1000)
    assert (text.splitlines()[1], claimed) == ("09:00 User: Kites are red.", {"m"})
    memory.close()


def test_lower_bound_is_shown_as_lower_bound():
    rows = [at_least("recall", 0.9, "", 0.85), at_least("recall", 0.8, "", 0.85)]
    assert [row.ok for row in rows] == [True, False]
    assert ">= 0.85" in as_table(rows)


def test_faults_of_a_recall_are_named():
    chat = {"chat": [[1, "user", "I drive a Skoda."]], "question": "Do I drive a Skoda?"}
    checks = {"want": ["Zoe"], "stale": ["Skoda"], "not_held": [], "current": []}
    fault, others = play(chat | checks)
    assert fault == "Do I drive a Skoda? Zoe is missing, Skoda is not marked"
    assert others == 0


@pytest.mark.parametrize("step", [12, pytest.param(1, marks=pytest.mark.full)])
def test_chats_are_recalled_rightly(tmp_path: Path, step: int):
    file = tmp_path / "chats.jsonl"
    file.write_text("\n".join(CHATS.read_text(encoding="utf-8").splitlines()[::step]), encoding="utf-8")
    assert (run_chats(file)[0].value or 0) >= 0.85


def test_a_file_that_is_not_there_is_told(tmp_path: Path):
    with pytest.raises(BenchError, match="no file of chats"):
        run_chats(tmp_path / "none")
