"""An evaluation: every team answers every question, is graded, and compared with the others.

What the answers come to: accuracies, paired differences, what the council made of its members' answers. The rules that
choose among the answers of a council are computed from what it recorded: trying them costs no request.
"""

import asyncio
import math
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import reduce
from itertools import combinations, groupby, product
from operator import add, itemgetter
from statistics import fmean
from typing import Any

from massmem.core.errors import InputError
from massmem.core.evaluation import (
    Council,
    EvaluatedTeam,
    EvaluationReport,
    Interval,
    ItemFigures,
    OpenFigures,
    PerQuestion,
    Presentation,
    RiskPoint,
    Share,
    TeamComparison,
    Variant,
)
from massmem.core.messages import Usage
from massmem.core.verdict import Member, Rank, weigh_voices
from massmem.evaluation.calibration import build_share, choose_winner, measure_alternatives, replay_result
from massmem.evaluation.items import Item, Score, score
from massmem.evaluation.runner import Answers, Entrant, ItemResult, Judge, Progress, Runner, open_team
from massmem.evaluation.tasks import Matches, TaskGrade

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Returns what shows the progress of the task with this name."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    report: EvaluationReport
    answers: list[Answers]
    """Behind the report, in the order of its teams."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    runner: Runner
    show_progress: ShowProgress
    judge: Entrant | None = None
    """A team of one, for the questions that a model has to judge."""

    async def evaluate(
        self, entrants: Sequence[Entrant], items: Sequence[Item], *, equal_budget: bool = False
    ) -> Evaluation:
        """Let the teams answer the questions; return how they did.

        equal_budget: also each agent of a team alone, and as many answers of the best of them as the team's tokens buy.

        Raises:
            InputError: a question needs a judge, and there is none.
            MassmemError: as `Runner.run`.
        """
        async with self._open_judge(items) as judge:
            groups = [await self._evaluate(entrant, items, judge, equal_budget=equal_budget) for entrant in entrants]
        firsts = [group[0] for group in groups]
        pairs = [(firsts[0], other) for other in firsts[1:]]
        pairs += [(group[0], other) for group in groups for other in group[1:]]
        answers = [one for group in groups for one in group]
        by_rule = all(item.scorer not in ("judge", "open") for item in items)
        report = EvaluationReport(
            questions=len(items),
            teams=[report_entrant(one, by_rule=by_rule) for one in answers],
            comparisons=[compare(first, second) for first, second in pairs],
            judging=judge.usage if judge else Usage(),
        )
        return Evaluation(report, answers)

    @asynccontextmanager
    async def _open_judge(self, items: Sequence[Item]) -> AsyncGenerator[Judge | None]:
        if not any(item.scorer == "judge" or (item.task and item.task.rubric) for item in items):
            yield None
            return
        if self.judge is None:
            raise InputError(
                "a question is to be judged by a model, and none is named",
                "name one: --judge judge.yaml, a configuration with one agent",
            )
        async with open_team(self.judge, self.runner, "judge") as team:
            yield Judge(self.judge, self.runner.results, self.runner.spending, team)

    async def _evaluate(
        self, entrant: Entrant, items: Sequence[Item], judge: Judge | None, *, equal_budget: bool
    ) -> list[Answers]:
        """Return the answers of the team, then those of what it is compared with at an equal budget."""
        team = await self._run(entrant, items, judge)
        if not equal_budget or len(entrant.config.agents) == 1:
            return [team]
        single = {agent.id: entrant.select_agent(agent.id) for agent in entrant.config.agents}
        alone = {agent_id: await self._run(one, items, judge) for agent_id, one in single.items()}
        tokens = {name: sum(one.tokens for one in answers.results) for name, answers in alone.items()}
        best = max(alone, key=lambda name: (alone[name].right.count(True), -tokens[name]))
        majority = await self._run_majority(single[best], items, team, judge)
        return [team, *alone.values(), majority]

    async def _run(self, entrant: Entrant, items: Sequence[Item], judge: Judge | None) -> Answers:
        with self.show_progress(entrant.name) as progress:
            results = await self.runner.run(entrant, items, progress)
        answers = await self._grade(entrant.name, items, results, judge)
        is_full = entrant.config.coordination.depth == "full"
        return replace(answers, agents=tuple(agent.id for agent in entrant.config.agents), is_full=is_full)

    async def _run_majority(
        self, entrant: Entrant, items: Sequence[Item], team: Answers, judge: Judge | None
    ) -> Answers:
        """Return the most common of several answers of one agent to each question (self-consistency).

        team: the answers whose tokens are the budget.
        """
        budgets = [result.tokens for result in team.results]
        name = f"{entrant.name}, majority"
        with self.show_progress(name) as progress:
            samples = await self.runner.sample(entrant, items, budgets, progress)
        results = [_build_majority(item, drawn) for item, drawn in zip(items, samples, strict=True)]
        mean = sum(map(len, samples)) / len(samples) if samples else 0.0
        return await self._grade(f"{name} of {mean:.1f}", items, results, judge)

    async def _grade(
        self, name: str, items: Sequence[Item], results: Sequence[ItemResult], judge: Judge | None
    ) -> Answers:
        async def grade(item: Item, result: ItemResult) -> bool | TaskGrade | None:
            text, task, met = "" if result.error else result.claim, item.task, list[bool | None]()
            rubric = [one.text for one in task.rubric] if task else []
            if (item.scorer == "judge" or rubric) and judge is not None:
                async with slots:
                    met += await judge.grade(item, text, rubric)
            if task is not None:
                return task.grade(text, result.items or (), met)
            return met[0] if met else not result.error and score(item, text).right

        slots = asyncio.Semaphore(self.runner.concurrency)
        grades = await asyncio.gather(*(grade(item, result) for item, result in zip(items, results, strict=True)))
        tasks = [one if isinstance(one, TaskGrade) else None for one in grades]
        return Answers(name, items, results, [None if isinstance(one, TaskGrade) else one for one in grades], tasks)


def _build_majority(item: Item, samples: Sequence[ItemResult]) -> ItemResult:
    """Return the first sample whose answer comes to the most common value, with what all of them cost."""
    values = [score(item, sample.answer).value for sample in samples]
    counts = Counter(filter(None, values))
    chosen = samples[values.index(max(counts, key=counts.__getitem__))] if counts else samples[0]
    usage = reduce(add, (sample.usage for sample in samples))
    seconds = sum(sample.seconds for sample in samples)
    return chosen.model_copy(update={"usage": usage, "seconds": seconds, "members": {}, "confidence": None})


def mcnemar_p(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p of McNemar's test: how likely so uneven a split is when both are equally good.

    only_first, only_second: questions that only the one, or only the other, answered rightly.
    """
    total = only_first + only_second
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, k) for k in range(min(only_first, only_second) + 1)) / 2**total
    return min(1.0, 2 * tail)


def difference_interval(first: Sequence[bool], second: Sequence[bool], resamples: int = 10_000) -> Interval:
    """Return the 95 % interval of the difference of two accuracies on the same questions (paired bootstrap).

    first, second: whether each question was answered rightly, in the same order. The difference is first - second.
    """
    differences = [int(a) - int(b) for a, b in zip(first, second, strict=True)]
    if not differences:
        return (-1.0, 1.0)
    draw, size = random.Random(0), len(differences)
    means = sorted(sum(draw.choices(differences, k=size)) / size for _ in range(resamples))
    return (means[int(0.025 * resamples)], means[int(0.975 * resamples) - 1])


def trace_risk(ranked: Iterable[tuple[Rank, bool]]) -> list[RiskPoint]:
    """Return the risk-coverage curve, a point for each rank, the highest first.

    ranked: of each answer how much speaks for it, and whether it is right.
    """
    answers = sorted(ranked, reverse=True)
    points: list[RiskPoint] = []
    answered = wrong = 0
    for _, same in groupby(answers, key=itemgetter(0)):
        right = [is_right for _, is_right in same]
        answered, wrong = answered + len(right), wrong + right.count(False)
        coverage = answered / len(answers)
        points.append(RiskPoint(answered=answered, wrong=wrong, coverage=coverage, error=wrong / answered))
    return points


RULES: Mapping[str, Callable[[int, int], Any]] = {
    "the first agent's answer": lambda _authors, _votes: 0,
    "the answer that most gave": lambda authors, _votes: authors,
    "the same, ballots decide between equals": lambda authors, votes: (authors, votes),
    "the answer with most ballots": lambda authors, votes: (votes, authors),
    "authors and ballots together": lambda authors, votes: authors + votes,
}
"""By name: the rank of an answer by the numbers of its authors and of the ballots for them."""


def choose_score(rule: str, scores: Mapping[str, Score], ballots: Mapping[str, str]) -> Score:
    """Return the answer of the highest rank, of equals the one that is listed first.

    rule: of `RULES`. scores: by agent; an answer that comes to nothing has no authors and no ballots. ballots: voter to
    the agent that it voted for.
    """
    values = {agent: one.value for agent, one in scores.items()}
    authors = Counter(filter(None, values.values()))
    votes = Counter(filter(None, map(values.get, ballots.values())))
    best = max(scores.values(), key=lambda one: RULES[rule](authors[one.value], votes[one.value]), default=None)
    return best or Score(right=False, value="")


def report_entrant(answers: Answers, *, by_rule: bool = True) -> EvaluatedTeam:
    """Return how a team did. by_rule: no model judges a question, so that the members' answers are scored, too."""
    results = answers.results
    groups: dict[str, list[bool | None]] = {}
    for item, is_right in zip(answers.items, answers.right, strict=True):
        groups.setdefault(item.group, []).append(is_right)
    is_council = any(len(result.members) > 1 for result in results)
    answered = [right for result, right in zip(results, answers.right, strict=True) if result.verdict == "answered"]
    tasks = _report_tasks([grade for grade in answers.tasks if grade])
    costs = [result.usage.cost for result in results if not result.error]
    return EvaluatedTeam(
        name=answers.name,
        accuracy=_share(answers.right),
        selective=None if len(answered) == len(results) else _share(answered),
        coverage=None if len(answered) == len(results) else build_share(len(answered), len(results)),
        groups={name: _share(right) for name, right in sorted(groups.items()) if len(groups) > 1},
        failed=sum(1 for result in results if result.error),
        ungraded=answers.right.count(None) - sum(map(bool, answers.tasks)) + (tasks.ungraded if tasks else 0),
        open=tasks,
        fallbacks=dict(Counter(_name_member(result, agent) for result in results for agent in result.fallbacks)),
        per_question=PerQuestion(
            tokens=_mean([result.tokens for result in results]),
            seconds=_mean([result.seconds for result in results]),
            requests=_mean([result.usage.requests for result in results]),
        ),
        cost=None if not costs or None in costs else sum(cost or 0.0 for cost in costs),
        council=_report_council(answers) if is_council and by_rule else None,
    )


def _report_tasks(grades: Sequence[TaskGrade]) -> OpenFigures | None:
    criteria = [criterion for grade in grades for criterion in grade.criteria]
    met, lists = [one.met for one in criteria], [grade.items for grade in grades if grade.items]
    total = sum(one.weight for one in criteria if one.met is not None)
    score = sum(one.weight for one in criteria if one.met) / total if total else None
    items = {name: compare_sets([items[name] for items in lists]) for name in (*lists, {})[0]}
    return OpenFigures(score=score, criteria=_share(met), ungraded=met.count(None), items=items) if grades else None


def compare_sets(matches: Sequence[Matches]) -> ItemFigures:
    """Return how listed items compare with known ones, over all tasks."""
    matched, listed, known = (sum(getattr(one, name) for one in matches) for name in ("matched", "listed", "known"))
    # F1 grows with the share of what is matched in all items, listed or known, and so do its bounds.
    shared = build_share(matched, listed + known - matched)
    f1, low, high = (2 * share / (1 + share) for share in (shared.value, *shared.interval))
    shares = {"precision": build_share(matched, listed), "recall": build_share(matched, known)}
    shares["f1"] = Share(count=2 * matched, total=listed + known, value=f1, interval=(low, high))
    return ItemFigures(**shares, uncompared=sum(one.uncompared for one in matches))


def compare(first: Answers, second: Answers) -> TeamComparison:
    """Return how two teams differ on the questions that both were asked."""
    graded = {item.key: is_right for item, is_right in zip(second.items, second.right, strict=True)}
    pairs = [
        (is_right, bool(graded[item.key]))
        for item, is_right in zip(first.items, first.right, strict=True)
        if is_right is not None and graded.get(item.key) is not None
    ]
    counts = Counter(pairs)
    only_first, only_second = counts[True, False], counts[False, True]
    return TeamComparison(
        first=first.name,
        second=second.name,
        total=len(pairs),
        only_first=only_first,
        only_second=only_second,
        difference=(only_first - only_second) / len(pairs) if pairs else 0.0,
        interval=difference_interval([a for a, _ in pairs], [b for _, b in pairs]),
        p=mcnemar_p(only_first, only_second),
    )


def _report_council(answers: Answers) -> Council:
    agents = list(answers.agents or dict.fromkeys(agent for result in answers.results for agent in result.members))
    scores = [
        {agent: score(item, text) for agent, text in result.members.items()}
        for item, result in zip(answers.items, answers.results, strict=True)
    ]
    records = list(zip(answers.results, scores, strict=True))
    grades = [{one.right for one in scored.values()} for scored in scores]
    winners = [result.winner in scored and scored[result.winner].right for result, scored in records]
    members: dict[str, list[bool]] = {}
    for (result, scored), agent in product(records, agents):
        members.setdefault(_name_member(result, agent), []).append(agent in scored and scored[agent].right)
    same = [[a.value == b.value != "" for a, b in combinations(scored.values(), 2)] for scored in scores]
    changes = Counter(zip(winners, answers.right, strict=True))
    return Council(
        members={agent: _share(right) for agent, right in members.items()},
        agreement=_mean([_mean(pairs) for pairs in same if pairs]),
        oracle=_share([True in seen for seen in grades]),
        chosen=_share([winner for winner, seen in zip(winners, grades, strict=True) if len(seen) > 1]),
        rules={
            rule: _share([choose_score(rule, scored, result.ballots).right for result, scored in records])
            for rule in RULES
        },
        presentation=Presentation(mended=changes[False, True], spoiled=changes[True, False]),
        risk=trace_risk(
            (replay_result(agents, (), result).full.rank, is_right)
            for result, is_right in zip(answers.results, answers.right, strict=True)
            if not result.error and is_right is not None
        ),
        **(_vary(records, agents) if answers.is_full and len(agents) > 2 else {}),
    )


def _vary(answered: Iterable[tuple[ItemResult, Mapping[str, Score]]], agents: Sequence[str]) -> dict[str, Any]:
    """Return what the questions that all agents answered would have come to without each agent, and by weights."""
    records = [(result, graded) for result, graded in answered if graded.keys() >= {*agents}]
    if not records:
        return {}
    size, equal = len(records), dict.fromkeys(agents, 1.0)
    alternatives = measure_alternatives(graded.values() for _, graded in records)
    counts = {agent: sum(graded[agent].right for _, graded in records) for agent in agents}

    def vote(voices: Sequence[Mapping[str, float]]) -> list[bool]:
        winners = (choose_winner(weights, result) for weights, (result, _) in zip(voices, records, strict=True))
        return [graded[winner].right for winner, (_, graded) in zip(winners, records, strict=True)]

    def vary(voices: Sequence[Mapping[str, float]], weights: dict[str, float]) -> Variant:
        right = vote(voices)
        spent = [sum(count for agent, count in one.spent.items() if agent not in weights) for one, _ in records]
        return Variant(
            right=_share(right),
            difference=(sum(right) - sum(base)) / size,
            interval=difference_interval(right, base, 2_000),
            tokens=_mean(spent),
            weights=weights,
        )

    def weigh(asked: int, right: Mapping[str, int]) -> dict[str, float]:
        weights = weigh_voices({agent: Member(asked=asked, right=right[agent]) for agent in agents}, alternatives)
        return weights if any(weights.values()) else equal  # as a turn does

    base = vote([equal] * size)
    left = {agent: {other: 1.0 for other in agents if other != agent} for agent in agents}
    # The weights for a question come from all others.
    voices = [weigh(size - 1, {a: counts[a] - graded[a].right for a in agents}) for _, graded in records]
    return {
        "without": {agent: vary([others] * size, others) for agent, others in left.items()},
        "weighed": vary(voices, weigh(size, counts)),
    }


def _name_member(result: ItemResult, agent: str) -> str:
    return f"{agent} ({result.fallbacks[agent]})" if agent in result.fallbacks else agent


def _share(flags: Sequence[bool | None]) -> Share:
    return build_share(flags.count(True), len(flags) - flags.count(None))


def _mean(numbers: Sequence[float]) -> float:
    return fmean(numbers) if numbers else 0.0
