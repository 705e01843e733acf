"""Whether a promise about errors holds: recorded answers are replayed, a random half for calibration, the other asked.

No model is asked. DIR: recordings of your own, see `scripts.benches.recorded`; left out: those that ship.
`python -m scripts.benches.verdict > docs/verdict.svg` draws how many answers are wrong among the surest ones.
"""

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import combinations, product, repeat
from pathlib import Path
from random import Random
from statistics import mean

from massmem.core.short_answers import read_short_answer
from massmem.core.verdict import Calibration, Member, Outcomes, Pattern, Threshold, weigh_voices
from massmem.core.voting import Tally
from massmem.evaluation.calibration import (
    Graded,
    Replayed,
    choose_pair,
    count_outcomes,
    measure_alternatives,
    read_state,
    replay_answers,
    replay_first,
)
from massmem.evaluation.evaluate import difference_interval, trace_risk
from massmem.evaluation.items import Score
from massmem.evaluation.runner import ItemResult
from scripts.benches.recorded import FOLDER, Question, Recording, make_council, read_recordings
from scripts.benches.rows import Row, at_least, at_most
from scripts.benches.simulated import DESIGN, TEST, Profile, simulate

PROMISES = (0.05, 0.1, 0.2)
HALVES = 1_000
_SAVED = 0.3
_LOST = 0.005
"""Accuracy that adaptive depth may cost."""
_NOISE = 0.03
"""Accuracy that measured voices may cost: where all are about as good, they are noise."""


def run(data: Path = FOLDER, halves: int = HALVES, profiles: Iterable[Profile] = (*DESIGN, *TEST)) -> list[Row]:
    """Return rows for each recording in the folder and for councils that do not exist.

    profiles: of those with models of very different skill; they are played beside the recordings that ship alone, and
    with a fifth of the halves.

    Raises:
        BenchError: there are no recordings.
    """
    rows = [row for one in (*read_recordings(data), *make_councils()) for row in _report(one, halves)]
    made_up = [simulate(profile, 0) for profile in profiles] if data == FOLDER else []
    return rows + [row for one in made_up for row in _report(one, max(halves // 5, 1))]


def make_councils() -> tuple[Recording, Recording]:
    """Return one whose agents err on their own, and one whose agents err together on a quarter of the questions."""
    independent = make_council("independent", shared_errors=0.0, accuracy=0.8)
    return independent, make_council("shared", shared_errors=0.25, accuracy=0.9)


def _report(recording: Recording, halves: int) -> list[Row]:
    """Return what the promises come to with equal voices, and with voices that count by measured skill."""
    graded = _Graded(recording)
    requests = [len(question.results) + len(question.ballots) for question in recording.questions]
    right = {voices: list[float]() for voices in ("", "measured voices")}
    tries = {key: _Tries() for key in product(right, ("full", "adaptive"), PROMISES)}
    for known, asked in _draw_halves(len(recording.questions), halves):
        members, alternatives, first = graded.measure(known)
        for voices in right:
            weights = weigh_voices(members, alternatives) if voices else {}
            questions = graded.replay(first, weights if len({*weights.values()}) > 1 else {})
            counted = count_outcomes(questions[i] for i in known)
            calibration = _calibrate(counted, members, alternatives)
            spent = _add_up(questions, requests, asked)
            right[voices].append(mean(questions[i].right for i in asked))
            for depth, promised in product(("full", "adaptive"), PROMISES):
                threshold = calibration.find_threshold(promised, adaptive=depth == "adaptive")
                tries[voices, depth, promised].add(calibration, threshold, spent, adaptive=depth == "adaptive")
    rows = _compare_depths(recording, graded, requests)
    for (voices, depth, promised), one in tries.items():
        rows.append(one.report(f"{recording.name}, {depth}{voices and ', '}{voices}", recording.name, depth, promised))
        rows[-1] = rows[-1].with_figures({**rows[-1].figures, "voices": voices or "equal"})
    equal, measured = (mean(shares) for shares in right.values())
    note = f"right with equal voices {equal:.3f}, with measured ones {measured:.3f}"
    rows.append(at_most(f"{recording.name}: accuracy that measured voices cost", equal - measured, "", _NOISE, note))
    return rows


_State = tuple[Pattern, str]


class _Graded:
    """What the answers to the questions of a recording are worth, whoever is asked first and whatever voices weigh."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self._cached, self._full = recording, dict[object, list[Graded]](), dict[object, list[_State]]()
        results, equal = (
            [_read_result(question) for question in recording.questions],
            dict.fromkeys(recording.agents, 1.0),
        )
        self._tallies = [replay_answers(equal, result.members, result.ballots, result) for result in results]
        self._scores = [_score(question) for question in recording.questions]
        pairs: list[tuple[str, ...]] = list(combinations(recording.agents, 2))
        self._first = {pair: [replay_first(recording.agents, pair, one) for one in results] for pair in pairs}
        self._agreed = {pair: self.replay(pair, {}) for pair in pairs}

    def measure(self, known: Sequence[int]) -> tuple[dict[str, Member], float, tuple[str, ...]]:
        """Return the skills, the alternatives and the two to ask first, by these questions."""
        scores = [self._scores[i] for i in known]
        members = {
            agent: Member(asked=len(own), right=sum(own))
            for agent in self.recording.agents
            if (own := [one[agent].right for one in scores if agent in one])
        }
        agreed = {pair: [questions[i] for i in known] for pair, questions in self._agreed.items()}
        first = choose_pair(self.recording.first, agreed, dict.fromkeys(self.recording.agents, 1.0))
        return members, measure_alternatives(one.values() for one in scores), first

    def replay(self, first: tuple[str, ...], voices: dict[str, float]) -> list[Graded]:
        key = first, tuple(voices.items())
        if key not in self._cached:
            if key[1] not in self._full:
                self._full[key[1]] = list(map(self._read_full, self._tallies, repeat(voices)))
            rows = zip(self.recording.questions, self._first[first], self._full[key[1]], strict=True)
            self._cached[key] = [_grade(question, Replayed(*early, *full)) for question, early, full in rows]
        return self._cached[key]

    def _read_full(self, tally: Tally, voices: dict[str, float]) -> tuple[Pattern, str]:
        tally.weights = voices
        return read_state(tally)


def _read_result(question: Question) -> ItemResult:
    members, ballots, cut = dict(question.results), dict(question.ballots), tuple(question.cut)
    return ItemResult(team="", item="", seed=0, members=members, ballots=ballots, cut=cut)


def _score(question: Question) -> dict[str, Score]:
    keys = {agent: read_short_answer(text).key for agent, text in question.results.items()}
    return {agent: Score(right=agent in question.right, value=key) for agent, key in keys.items()}


def _add_up(questions: Sequence[Graded], requests: Sequence[int], asked: Sequence[int]) -> list[tuple[Outcomes, int]]:
    """Return how often which patterns come up, and how many requests all of these questions took."""
    spent = Counter[tuple[str, Pattern, Pattern]]()
    for i in asked:
        spent[questions[i].group, questions[i].replayed.first, questions[i].replayed.full] += requests[i]
    rows = [(one, spent.pop((one.group, one.first, one.full))) for one in count_outcomes(questions[i] for i in asked)]
    nobody = Pattern((), 0, 0, voted=False, cut=True, kind="text")
    unanswered = len(asked) - sum(one.asked for one, _ in rows)
    lost = Outcomes(group="", first=nobody, full=nobody, asked=unanswered, right_first=0, right=0)
    return [*rows, *([(lost, spent.total())] if unanswered else [])]


def _draw_halves(size: int, halves: int) -> Iterator[tuple[list[int], list[int]]]:
    draw, order = Random(0), list(range(size))
    for _ in range(halves):
        draw.shuffle(order)
        yield order[: size // 2], order[size // 2 :]


def _grade(question: Question, replayed: Replayed) -> Graded:
    right_first, right = replayed.first_winner in question.right, replayed.full_winner in question.right
    return Graded(question.group, replayed, right_first, right)


def _compare_depths(recording: Recording, graded: _Graded, requests: Sequence[int]) -> list[Row]:
    """Return what asking two agents first saves, and costs in accuracy, with the two that the other half chooses."""
    name, agents, size = recording.name, len(recording.agents), len(recording.questions)
    halves = list(_draw_halves(size, 1))
    halves += [(asked, known) for known, asked in halves]
    chosen = [(graded.replay(graded.measure(known)[2], {}), asked) for known, asked in halves]
    rows = [(questions[i], requests[i]) for questions, asked in chosen for i in asked]
    full = [one.right for one, _ in rows]
    adaptive = [one.right_first if one.replayed.first.agrees else one.right for one, _ in rows]
    needed = [2 if one.replayed.first.agrees else all_ for one, all_ in rows]
    saved, lost = 1 - sum(needed) / sum(requests), mean(full) - mean(adaptive)
    low, high = (100 * bound for bound in difference_interval(full, adaptive))
    figures = {"set": name, "questions": size, "agents": agents, "saved": saved}
    figures |= {"full": mean(full), "adaptive": mean(adaptive)}
    note = f"{agents} agents; {size} questions; right in full {mean(full):.3f}, adaptive {mean(adaptive):.3f}"
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
        self,
        calibration: Calibration,
        threshold: Threshold | None,
        asked: Sequence[tuple[Outcomes, int]],
        *,
        adaptive: bool,
    ) -> None:
        counts = [(one, calibration.count_right(one, threshold, adaptive=adaptive)) for one, _ in asked]
        answered = sum(one.asked for one, right in counts if right is not None)
        right = sum(right for _, right in counts if right is not None)
        self.wrong.append(1 - right / answered if answered else 0.0)
        self.answered.append(answered / sum(one.asked for one, _ in asked))
        enough = (
            adaptive and one.first.agrees and calibration.is_sure(one.first, threshold, of_first=True)
            for one, _ in asked
        )
        needed = (2 * one.asked if is_enough else spent for is_enough, (one, spent) in zip(enough, asked, strict=True))
        self.saved.append(1 - sum(needed) / sum(spent for _, spent in asked))

    def report(self, title: str, name: str, depth: str, promised: float) -> Row:
        error, answered, saved = mean(self.wrong), mean(self.answered), mean(self.saved)
        where_any = [wrong for wrong, share in zip(self.wrong, self.answered, strict=True) if share]
        figures: dict[str, float | str] = {"set": name, "depth": depth, "promised": promised, "error": error}
        figures |= {"answered": answered, "saved": saved, "error_where_any": mean(where_any) if where_any else 0.0}
        note = f"answered {answered:.3f}; requests saved {saved:.3f}"
        if len(where_any) < len(self.wrong):
            note += f"; {len(where_any)} of {len(self.wrong)} halves answer any"
            note += f", and of those {mean(where_any):.3f} are wrong" if where_any else ""
        return at_most(f"{title}: wrong among answered", error, "", promised, note).with_figures(figures)


def _calibrate(outcomes: tuple[Outcomes, ...], members: dict[str, Member], alternatives: float) -> Calibration:
    return Calibration(
        fingerprint="",
        team="",
        data="",
        created_at=datetime.now(UTC),
        outcomes=outcomes,
        members=members,
        alternatives=alternatives,
    )


# The plot of the documentation


def plot(recordings: Iterable[Recording]) -> str:
    """Return an SVG: for each recording, the share of wrong answers among the surest ones, from a few to all."""
    colours = ("#2563eb", "#c2410c", "#15803d", "#7c3aed", "#52606d")
    parts: list[str] = []
    for number, (recording, colour) in enumerate(zip(recordings, colours, strict=False)):
        graded = _Graded(recording).replay(recording.agents[:2], {})
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
