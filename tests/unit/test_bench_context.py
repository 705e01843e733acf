"""The context bench: a harness from elsewhere, and what its command line refuses."""

from pathlib import Path

import pytest

from scripts.benches import main as bench
from scripts.benches.context_more import of_harness
from scripts.benches.process import BenchError

HARNESS = """
def run(target, seeds=(1, 2), total_tokens=60_000):
    share = 1.0 if total_tokens == 60_000 else 0.96
    return {
        "retention": {"ALL": share, "corrected_last": share}, "limit": 8_000, "probe_prompt_tokens": 3_000,
        "refused": len(seeds), "overhead_tokens": 50_000, "lost_user_turns": 0,
    }
"""


def test_a_harness_in_another_folder_is_run_and_its_figures_get_their_bounds(tmp_path: Path):
    (tmp_path / "retention.py").write_text(HARNESS)
    rows = {row.what: row for row in of_harness(tmp_path)}
    assert rows["harness: facts in the last prompt"].ok is True
    assert rows["harness: refused and summary requests"].note == "2 refused"
    sixteen = rows["harness, 16 times: facts in the last prompt"]
    assert (sixteen.value, sixteen.bound, sixteen.ok) == (96.0, 97.0, False)
    assert rows["harness, 16 times: corrections are the last word"].ok is False


def test_a_folder_without_a_harness_is_named(tmp_path: Path):
    with pytest.raises(BenchError, match=r"retention\.py"):
        of_harness(tmp_path / "nothing")


def test_the_harness_is_for_one_bench(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert bench.main(["turn", "--retention", str(tmp_path)]) == 1
    assert "for the bench context alone" in capsys.readouterr().err
