"""Whether a promise about errors holds: recorded answers are replayed, a random half for calibration, the other asked.

No model is asked. DIR: recordings of your own, see `scripts.benches.recorded`; left out: those that ship.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import mean

from massmem.core.verdict import Calibration, Rank
from massmem.evaluation.calibration import Graded, Replayed, count_outcomes, replay_patterns
from massmem.evaluation.evaluate import difference_interval
from scripts.benches.recorded import FOLDER, Question, Recording, make_council, read_recordings
from scripts.benches.rows import Row, at_least, at_most, reported

PROMISES = (0.05, 0.1, 0.2)
HALVES = 1_000
_SAVED = 0.3
_LOST = 0.005
"""Accuracy that adaptive depth may cost."""


def run(data: Path = FOLDER) -> list[Row]:
    """Return rows for each recording in the folder and for two councils that do not exist.

    Raises:
        BenchError: there are no recordings.
    """
    independent = make_council("independent", shared_errors=0.0, accuracy=0.8)
    shared = make_council("shared", shared_errors=0.25, accuracy=0.9)
    return [row for one in (*read_recordings(data), independent, shared) for row in _report(one)]


def _report(recording: Recording) -> list[Row]:
    replayed = [_replay(recording, question) for question in recording.questions]
    graded = [_grade(question, one) for question, one in zip(recording.questions, replayed, strict=True)]
    requests = [len(question.results) + len(question.ballots) for question in recording.questions]
    rows = _compare_depths(recording, graded, requests)
    for promised in PROMISES:
        for adaptive in (False, True):
            rows.append(_keep_promise(recording.name, graded, requests, promised, adaptive=adaptive))
    return rows


def _replay(recording: Recording, question: Question) -> Replayed:
    return replay_patterns(recording.agents, recording.first, question.results, question.ballots, question.cut)


def _grade(question: Question, replayed: Replayed) -> Graded:
    right_first, right = replayed.first_winner in question.right, replayed.full_winner in question.right
    return Graded(question.group, replayed, right_first, right)


def _compare_depths(recording: Recording, graded: Sequence[Graded], requests: Sequence[int]) -> list[Row]:
    """Return what asking two agents first saves, and costs in accuracy."""
    name, agents = recording.name, len(recording.agents)
    full = [one.right for one in graded]
    adaptive = [one.right_first if one.replayed.first.agrees else one.right for one in graded]
    needed = [2 if one.replayed.first.agrees else all_ for one, all_ in zip(graded, requests, strict=True)]
    saved, lost = 1 - sum(needed) / sum(requests), mean(full) - mean(adaptive)
    low, high = (100 * bound for bound in difference_interval(full, adaptive))
    figures = {"set": name, "questions": len(graded), "agents": agents, "saved": saved}
    figures |= {"full": mean(full), "adaptive": mean(adaptive)}
    note = f"{agents} agents; {len(graded)} questions; right in full {mean(full):.3f}, adaptive {mean(adaptive):.3f}"
    return [
        at_least(f"{name}: requests saved by adaptive depth", saved, "", _SAVED, note).with_figures(figures),
        at_most(f"{name}: accuracy that it costs", lost, "", _LOST, f"95 %: {low:+.1f} to {high:+.1f} points"),
    ]


def _keep_promise(
    name: str, graded: Sequence[Graded], requests: Sequence[int], promised: float, *, adaptive: bool
) -> Row:
    """Return the share of wrong answers among those that are given, over halves that no calibration has seen."""
    draw, order = Random(0), list(range(len(graded)))
    errors: list[float] = []
    answered: list[float] = []
    saved: list[float] = []
    for _ in range(HALVES):
        draw.shuffle(order)
        known, asked = order[: len(order) // 2], order[len(order) // 2 :]
        rank = _calibrate([graded[i] for i in known]).find_threshold(promised, adaptive=adaptive)
        given = [right for i in asked if (right := _decide(graded[i], rank, adaptive=adaptive)) is not None]
        answered.append(len(given) / len(asked))
        if given:
            errors.append(1 - mean(given))
        needed = sum(2 if adaptive and _stops(graded[i], rank) else requests[i] for i in asked)
        saved.append(1 - needed / sum(requests[i] for i in asked))
    depth = "adaptive" if adaptive else "full"
    figures = {"set": name, "depth": depth, "promised": promised, "error": mean(errors) if errors else 0.0}
    figures |= {"answered": mean(answered), "saved": mean(saved), "halves_that_answer": len(errors)}
    note = f"answered {mean(answered):.3f}, in {len(errors)} of {HALVES} halves any; requests saved {mean(saved):.3f}"
    what = f"{name}, {depth}: error among answered questions"
    if not errors:
        return reported(what, 0.0, note=f"promised {promised:g}: nothing is sure enough").with_figures(figures)
    return at_most(what, mean(errors), "", promised, note).with_figures(figures)


def _calibrate(graded: Sequence[Graded]) -> Calibration:
    outcomes = count_outcomes(graded)
    return Calibration(fingerprint="", team="", data="", at=datetime.now(UTC), outcomes=outcomes, members={})


def _stops(one: Graded, rank: Rank | None) -> bool:
    return rank is not None and one.replayed.first.agrees and one.replayed.first.rank >= rank


def _decide(one: Graded, rank: Rank | None, *, adaptive: bool) -> bool | None:
    """Return whether the answer is right that the team would give; None: it would give none."""
    if adaptive and _stops(one, rank):
        return one.right_first
    return one.right if rank is not None and one.replayed.full.rank >= rank else None
