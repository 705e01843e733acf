"""An evaluation: every team answers every question, is graded, and compared with the others."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import reduce
from operator import add

from massmem.core.errors import InputError
from massmem.core.evaluation import EvaluationReport
from massmem.core.messages import Usage
from massmem.evaluation.items import Item, score
from massmem.evaluation.report import (
    Answers,
    choose_most_common,
    compare,
    grade_by_score,
    report_entrant,
)
from massmem.evaluation.runner import Entrant, Judge, Progress, Result, Runner, open_team

ShowProgress = Callable[[str], AbstractContextManager[Progress]]
"""Returns what shows the progress of the task with this name."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The outcome of an evaluation."""

    report: EvaluationReport
    answers: list[Answers]
    """Behind the report, in the order of its teams."""


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Runs an evaluation."""

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
        by_rule = all(item.scorer != "judge" for item in items)
        report = EvaluationReport(
            questions=len(items),
            teams=[report_entrant(one, grade_by_score if by_rule else None) for one in answers],
            comparisons=[compare(first, second) for first, second in pairs],
            judging=judge.usage if judge else Usage(),
        )
        return Evaluation(report, answers)

    @asynccontextmanager
    async def _open_judge(self, items: Sequence[Item]) -> AsyncGenerator[Judge | None]:
        if all(item.scorer != "judge" for item in items):
            yield None
            return
        if self.judge is None:
            raise InputError(
                "a question is to be judged by a model, and none is named",
                "name one: --judge judge.yaml, a configuration with one agent",
            )
        async with open_team(self.judge, self.runner) as team:
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
        best = max(alone, key=lambda agent_id: (sum(alone[agent_id].right), -_count_tokens(alone[agent_id])))
        majority = await self._run_majority(single[best], items, team, judge)
        return [team, *alone.values(), majority]

    async def _run(self, entrant: Entrant, items: Sequence[Item], judge: Judge | None) -> Answers:
        with self.show_progress(entrant.name) as progress:
            results = await self.runner.run(entrant, items, progress)
        return await self._grade(entrant.name, items, results, judge)

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

    async def _grade(self, name: str, items: Sequence[Item], results: Sequence[Result], judge: Judge | None) -> Answers:
        async def grade(item: Item, result: Result) -> bool:
            if result.error:
                return False
            if item.scorer == "judge" and judge is not None:
                async with slots:
                    return await judge.grade(item, result.answer)
            return score(item, result.answer).right

        slots = asyncio.Semaphore(self.runner.concurrency)
        right = await asyncio.gather(*(grade(item, result) for item, result in zip(items, results, strict=True)))
        return Answers(name, items, results, right)


def _build_majority(item: Item, samples: Sequence[Result]) -> Result:
    """Return the first sample whose answer comes to the most common value, with what all of them cost."""
    values = [score(item, sample.answer).value for sample in samples]
    common = choose_most_common(values)
    chosen = samples[values.index(common)] if common else samples[0]
    usage = reduce(add, (sample.usage for sample in samples))
    seconds = sum(sample.seconds for sample in samples)
    return chosen.model_copy(update={"usage": usage, "seconds": seconds, "members": {}, "confidence": None})


def _count_tokens(answers: Answers) -> int:
    return sum(result.tokens for result in answers.results)
