"""Whether a promise about errors holds: recorded answers are replayed, a random half for calibration, the other asked.

No model is asked. DIR: recordings of your own, see `scripts.benches.recorded`; left out: those that ship.
`python -m scripts.benches.verdict > docs/verdict.svg` draws how many answers are wrong among the surest ones.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from statistics import mean

from massmem.core.verdict import Calibration, Outcomes, Rank
from massmem.evaluation.calibration import Graded, Replayed, count_outcomes, replay_result
from massmem.evaluation.evaluate import difference_interval, trace_risk
from massmem.evaluation.runner import Result
from scripts.benches.recorded import FOLDER, Question, Recording, make_council, read_recordings
from scripts.benches.rows import Row, at_least, at_most

PROMISES = (0.05, 0.1, 0.2)
HALVES = 1_000
_SAVED = 0.3
_LOST = 0.005
"""Accuracy that adaptive depth may cost."""


def run(data: Path = FOLDER, halves: int = HALVES) -> list[Row]:
    """Return rows for each recording in the folder and for two councils that do not exist.

    Raises:
        BenchError: there are no recordings.
    """
    return [row for one in (*read_recordings(data), *make_councils()) for row in _report(one, halves)]


def make_councils() -> tuple[Recording, Recording]:
    """Return one whose agents err on their own, and one whose agents err together on a quarter of the questions."""
    independent = make_council("independent", shared_errors=0.0, accuracy=0.8)
    return independent, make_council("shared", shared_errors=0.25, accuracy=0.9)


def _report(recording: Recording, halves: int) -> list[Row]:
    replayed = [_replay(recording, question) for question in recording.questions]
    graded = [_grade(question, one) for question, one in zip(recording.questions, replayed, strict=True)]
    single = [next(iter(count_outcomes([one])), None) for one in graded]  # None: nobody answered
    requests = [len(question.results) + len(question.ballots) for question in recording.questions]
    tries = {(depth, promised): _Tries() for depth in ("full", "adaptive") for promised in PROMISES}
    for known, asked in _draw_halves(len(graded), halves):
        calibration = _calibrate([graded[i] for i in known])
        for (depth, promised), one in tries.items():
            rank = calibration.find_threshold(promised, adaptive=depth == "adaptive")
            one.add([single[i] for i in asked], [requests[i] for i in asked], rank, adaptive=depth == "adaptive")
    rows = _compare_depths(recording, graded, requests)
    return rows + [one.report(recording.name, depth, promised) for (depth, promised), one in tries.items()]


def _draw_halves(size: int, halves: int) -> Iterator[tuple[list[int], list[int]]]:
    draw, order = Random(0), list(range(size))
    for _ in range(halves):
        draw.shuffle(order)
        yield order[: size // 2], order[size // 2 :]


def _replay(recording: Recording, question: Question) -> Replayed:
    members, ballots, cut = dict(question.results), dict(question.ballots), tuple(question.cut)
    result = Result(team="", item="", seed=0, members=members, ballots=ballots, cut=cut)
    return replay_result(recording.agents, recording.first, result)


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


@dataclass
class _Tries:
    """What came of a promise in halves that no calibration has seen, as shares."""

    wrong: list[float] = field(default_factory=list[float])
    """Of the answers that the team gave; 0 where none was."""
    answered: list[float] = field(default_factory=list[float])
    saved: list[float] = field(default_factory=list[float])

    def add(
        self, asked: Sequence[Outcomes | None], requests: Sequence[int], rank: Rank | None, *, adaptive: bool
    ) -> None:
        counts = [None if one is None else one.count_right(rank, adaptive=adaptive) for one in asked]
        answers = [count for count in counts if count is not None]
        self.wrong.append(1 - mean(answers) if answers else 0.0)
        self.answered.append(len(answers) / len(asked))
        enough = [adaptive and one is not None and one.is_first_enough(rank) for one in asked]
        needed = (2 if is_enough else all_ for is_enough, all_ in zip(enough, requests, strict=True))
        self.saved.append(1 - sum(needed) / sum(requests))

    def report(self, name: str, depth: str, promised: float) -> Row:
        error, answered, saved = mean(self.wrong), mean(self.answered), mean(self.saved)
        where_any = [wrong for wrong, share in zip(self.wrong, self.answered, strict=True) if share]
        figures: dict[str, float | str] = {"set": name, "depth": depth, "promised": promised, "error": error}
        figures |= {"answered": answered, "saved": saved, "error_where_any": mean(where_any) if where_any else 0.0}
        note = f"answered {answered:.3f}; requests saved {saved:.3f}"
        if len(where_any) < len(self.wrong):
            note += f"; {len(where_any)} of {len(self.wrong)} halves answer any"
            note += f", and of those {mean(where_any):.3f} are wrong" if where_any else ""
        return at_most(f"{name}, {depth}: wrong among answered", error, "", promised, note).with_figures(figures)


def _calibrate(graded: Sequence[Graded]) -> Calibration:
    outcomes = count_outcomes(graded)
    return Calibration(fingerprint="", team="", data="", created_at=datetime.now(UTC), outcomes=outcomes, members={})


# The plot of the documentation


def plot(recordings: Iterable[Recording]) -> str:
    """Return an SVG: for each recording, the share of wrong answers among the surest ones, from a few to all."""
    colours = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#52606d")
    parts: list[str] = []
    for number, (recording, colour) in enumerate(zip(recordings, colours, strict=False)):
        graded = [_grade(question, _replay(recording, question)) for question in recording.questions]
        risk = trace_risk((one.replayed.full.rank, one.right) for one in graded)
        points = [f"{60 + 520 * point.coverage:.1f},{280 - 250 * point.error:.1f}" for point in risk]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(points)}" />')
        parts += (f'<circle fill="{colour}" r="3" cx="{x}" cy="{y}" />' for x, y in (p.split(",") for p in points))
        parts.append(f'<text fill="{colour}" x="600" y="{40 + 20 * number}">{recording.name}</text>')
    for tick in range(5):
        parts.append(f'<text fill="#52606d" x="52" y="{284 - 62.5 * tick}" text-anchor="end">{25 * tick} %</text>')
        parts.append(f'<text fill="#52606d" x="{60 + 130 * tick}" y="300" text-anchor="middle">{25 * tick} %</text>')
    axes = '<path fill="none" stroke="#9aa5b1" d="M60 30V280H580" />'
    labels = '<text fill="#52606d" x="320" y="320" text-anchor="middle">share of the questions that is answered</text>'
    labels += '<text fill="#52606d" x="60" y="18">wrong among these</text>'
    head = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 330" font-family="sans-serif" font-size="13">'
    return f"{head}\n{axes}\n{labels}\n" + "\n".join(parts) + "\n</svg>\n"


if __name__ == "__main__":
    sys.stdout.write(plot([*read_recordings(), *make_councils()]))
