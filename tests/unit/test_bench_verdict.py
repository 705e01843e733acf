"""scripts/bench verdict: promises on recorded answers, and the recordings that ship."""

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from massmem.core.short_answers import read_short_answer
from scripts.benches.process import BenchError
from scripts.benches.recorded import FOLDER, make_council, pack, read_recordings
from scripts.benches.simulated import DESIGN, TEST, simulate
from scripts.benches.verdict import PROMISES, run


def test_promises_hold_on_what_ships_and_a_council_with_shared_errors_is_never_sure():
    rows = run(halves=40, profiles=())
    figures = [row.figures for row in rows if "promised" in row.figures]
    sets = {str(figure["set"]) for figure in figures}
    assert {"independent", "shared", "gsm8k-150", "gsm8k-200", "bbh-156"} <= sets
    assert len(figures) == len(sets) * len(PROMISES) * 2 * 2
    for figure in figures:
        assert float(figure["error"]) <= float(figure["promised"]) + 0.03, figure
    # What all five say may be a shared error; what four of them say never is.
    shared = [figure for figure in figures if figure["set"] == "shared" and float(figure["promised"]) <= 0.1]
    assert {figure["error"] for figure in shared} == {0.0}
    assert all(0.2 < float(figure["answered"]) < 0.5 for figure in shared)
    independent = [figure for figure in figures if figure["set"] == "independent"]
    assert all(float(figure["answered"]) > 0.9 for figure in independent)
    assert all(float(row.figures["saved"]) > 0 for row in rows if "adaptive" in row.figures)


def test_who_agrees_says_more_than_how_many_where_skills_differ():
    rows = run(halves=20, profiles=[replace(DESIGN[0], size=600), replace(TEST[1], size=600)])
    for profile in (DESIGN[0], TEST[1]):
        figures = [row.figures for row in rows if row.figures.get("set") == profile.name and "promised" in row.figures]
        answered = {(one["depth"], one["voices"], one["promised"]): float(one["answered"]) for one in figures}
        assert all(float(one["error"]) <= float(one["promised"]) + 0.02 for one in figures), figures
        assert answered["full", "equal", 0.2] > 0.4
    (cost,) = [row.value for row in rows if row.what == "sim one expert: accuracy that measured voices cost"]
    assert cost is not None and cost < -0.3


def test_made_up_models_are_as_good_as_they_should_be():
    for profile in (*DESIGN, *TEST):
        council = simulate(replace(profile, size=3_000, unread={}), 0)
        for agent, skill in profile.skills.items():
            right = mean(agent in question.right for question in council.questions)
            assert right == pytest.approx(skill, abs=0.03), (profile.name, agent)


def test_recordings_hold_short_results_only():
    sizes = {one.name: len(one.questions) for one in read_recordings()}
    assert sizes == {"bbh-156": 156, "gsm8k-150": 150, "gsm8k-200": 200}
    for recording in read_recordings():
        assert recording.first == recording.agents[:2]
        for question in recording.questions:
            assert question.right <= question.results.keys() <= set(recording.agents)
            assert all(len(text) <= 100 for text in question.results.values())


def test_a_packed_recording_keeps_results_and_who_is_right(tmp_path: Path):
    data, answers = tmp_path / "data.jsonl", tmp_path / "answers.jsonl"
    data.write_text(json.dumps({"id": "one", "question": "What is 6 x 7?", "answer": 42, "group": "sums"}) + "\n")
    long = "Let me think about it. " * 50
    members = {"ann": f"{long}\nAnswer: 42", "bob": f"{long}\nIt is 42 in total", "cy": f"{long}\nAnswer: 7"}
    row = {"team": "t", "id": "one", "members": members, "ballots": {"cy": "ann"}, "cut": ["bob"]}
    answers.write_text(json.dumps(row) + "\n")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "mine.jsonl").write_text("\n".join(pack(data, answers, "a test")))
    (recording,) = read_recordings(tmp_path / "packed")
    (question,) = recording.questions
    assert (recording.name, recording.agents) == ("mine", ("ann", "bob", "cy"))
    assert (question.right, question.ballots, question.cut) == ({"ann", "bob"}, {"cy": "ann"}, {"bob"})
    assert read_short_answer(question.results["ann"]).key == "42"
    assert str(read_short_answer(question.results["bob"]).result) == "42"
    assert "think" not in "".join(question.results.values())


def test_a_folder_without_recordings_is_refused(tmp_path: Path):
    with pytest.raises(BenchError, match="no recorded answers"):
        list(read_recordings(tmp_path))
    (tmp_path / "bad.jsonl").write_text('{"agents": 1}\n')
    with pytest.raises(BenchError, match=r"bad\.jsonl is no recording of answers"):
        list(read_recordings(tmp_path))


def test_a_made_council_is_the_same_each_time():
    assert make_council("one", shared_errors=0.2, accuracy=0.9) == make_council("one", shared_errors=0.2, accuracy=0.9)
    assert FOLDER.is_dir()
