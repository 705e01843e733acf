"""Asks teams the questions of an evaluation, some at the same time, and stores every answer before it counts."""

import asyncio
import hashlib
import json
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from massmem.config.models import NO_STORE, StoreConfig, TeamConfig
from massmem.core.errors import LimitReached, TurnError
from massmem.core.events import Event, TurnCompleted, TurnFailed, TurnWaiting
from massmem.core.messages import Usage
from massmem.core.voting import Tally
from massmem.evaluation.items import Item
from massmem.evaluation.results import Result, ResultFile
from massmem.session.session import Session
from massmem.session.team import Team

Progress = Callable[[int, int | None], None]
"""(done, total)"""

MAX_FAILURES = 5
"""Questions in a row that a team may fail to answer before it is given up."""
MAX_SAMPLES = 64
"""Answers of one agent to one question."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A team that takes part in an evaluation."""

    name: str
    config: TeamConfig

    @property
    def key(self) -> str:
        """What tells the team from others: equal for teams that would be asked in the same way."""
        fields = self.config.model_dump(mode="json", include={"agents", "coordination", "params"})
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]

    def select_agent(self, agent_id: str) -> "Entrant":
        """Return the team of this agent alone."""
        return Entrant(f"{self.name}: {agent_id} alone", self.config.select_agent(agent_id))


@dataclass(slots=True)
class Spending:
    """What the evaluation has cost in this run, and may cost."""

    max_cost: float | None = None
    """US dollars; None: no limit."""
    usage: Usage = field(default_factory=Usage)

    @property
    def is_over(self) -> bool:
        """Whether no further question may be asked."""
        return self.max_cost is not None and (self.usage.cost or 0.0) >= self.max_cost

    def check(self) -> None:
        """Raise LimitReached when the limit is reached."""
        if self.is_over:
            raise LimitReached(
                f"the evaluation has cost ${self.usage.cost or 0:.4f}, the most it may: {self.max_cost:g}",
                "run the same command again with a larger --max-cost: it goes on where it stopped",
            )


@dataclass(frozen=True, slots=True)
class Runner:
    """Answers that the results have already are not asked for again."""

    results: ResultFile
    home: Path
    seed: int = 0
    """Draws the order in which each agent is shown the answers of the others."""
    concurrency: int = 4
    """Questions that are asked at the same time."""
    spending: Spending = field(default_factory=Spending)

    async def run(self, entrant: Entrant, items: Sequence[Item], progress: Progress) -> list[Result]:
        """Return the team's answers to the questions, in their order.

        A question that was not answered has a result with an `error`.

        Raises:
            LimitReached: the cost is at its limit; what was answered is stored.
            TurnError: the team failed to answer several questions in a row.
            MassmemError: the team cannot be started, or a result cannot be stored.
        """
        answered: dict[str, Result] = {}
        unasked = [item for item in items if self.results.get(entrant.key, item.key, self.seed) is None]
        total, failures = len(items), 0
        progress(total - len(unasked), total)

        async def ask(team: Team, item: Item) -> None:
            nonlocal failures
            self.spending.check()
            result = await self._ask(team, entrant, item, 0)
            answered[item.key] = result
            failures = failures + 1 if result.error else 0
            if failures >= MAX_FAILURES:
                raise TurnError(f"{entrant.name} failed {failures} times in a row, the last time: {result.error}")
            progress(total - len(unasked) + len(answered), total)

        if unasked:
            await self._with_team(entrant, unasked, ask)
        results = (answered.get(item.key) or self.results.get(entrant.key, item.key, self.seed) for item in items)
        return [result for result in results if result is not None]

    async def sample(
        self, entrant: Entrant, items: Sequence[Item], budgets: Sequence[int], progress: Progress
    ) -> list[list[Result]]:
        """Return independent answers to each question, as many as its budget of tokens pays for; at least one.

        Raises: as `run`.
        """
        samples: dict[str, list[Result]] = {}
        budget_of = {item.key: budget for item, budget in zip(items, budgets, strict=True)}

        async def ask(team: Team, item: Item) -> None:
            drawn = samples.setdefault(item.key, [])
            while len(drawn) < MAX_SAMPLES:
                number = len(drawn)
                result = self.results.get(entrant.key, item.key, self.seed, number)
                if result is None:
                    self.spending.check()
                    result = await self._ask(team, entrant, item, number)
                drawn.append(result)
                spent = sum(result.tokens for result in drawn)
                if result.error or spent + spent / len(drawn) > budget_of[item.key]:
                    break
            progress(len(samples), len(items))

        await self._with_team(entrant, list(items), ask)
        return [samples.get(item.key, []) for item in items]

    async def _with_team(
        self, entrant: Entrant, items: Sequence[Item], ask: Callable[[Team, Item], Awaitable[None]]
    ) -> None:
        """Open the team and call `ask` for every question, several at the same time."""
        queue = iter(items)

        async def work(team: Team) -> None:
            for item in queue:
                await ask(team, item)

        async with open_team(entrant, self) as team:
            workers = [asyncio.create_task(work(team)) for _ in range(min(self.concurrency, len(items)))]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _ask(self, team: Team, entrant: Entrant, item: Item, sample: int) -> Result:
        """Ask the question in a session of its own, and store the answer."""
        started = time.monotonic()
        session = await Session.on(team)
        session.seed = _draw_seed(self.seed, sample, item.key)
        tally, end = Tally(), None
        try:
            async with aclosing(session.ask(item.question, answer_schema=item.schema)) as events:
                async for event in events:
                    tally.apply(event)
                    end = event
        finally:
            await session.close()
        where = {"team": entrant.key, "item": item.key, "seed": self.seed, "sample": sample}
        result = Result(**where, **_read_turn(tally, end), seconds=round(time.monotonic() - started, 3))
        self.spending.usage += result.usage
        if not result.error:
            self.results.add(result)
        return result


@asynccontextmanager
async def open_team(entrant: Entrant, runner: Runner) -> AsyncGenerator[Team]:
    """Open the team for the block, apart from all stored conversations. Raises MassmemError."""
    team = await Team.open(_isolate(entrant.config, runner.spending.max_cost), home=runner.home)
    try:
        await team.start()
        yield team
    finally:
        await team.close()


def _isolate(config: TeamConfig, max_cost: float | None) -> TeamConfig:
    """Return the team with a store in memory, which nothing is recalled from: no question may help with another.

    max_cost: also the most that one turn may cost, so that a model without a known price is refused.
    """
    changes: dict[str, object] = {"store": StoreConfig(url=NO_STORE), "session_id": None}
    if max_cost is not None:
        limit = min(filter(None, (max_cost, config.coordination.max_cost)))
        changes["coordination"] = config.coordination.model_copy(update={"max_cost": limit})
    return config.model_copy(update=changes)


def _draw_seed(*parts: object) -> int:
    return random.Random(":".join(map(str, parts))).getrandbits(32)


def _read_turn(tally: Tally, end: Event | None) -> dict[str, Any]:
    """Return the fields of a result that a turn comes to."""
    fields: dict[str, Any] = {
        "winner": tally.winner.agent_id if tally.winner else "",
        "by": tally.winner.by if tally.winner else None,
        "members": {agent_id: answer.content for agent_id, answer in tally.answers.items()},
        "ballots": dict(tally.ballots),
    }
    match end:
        case TurnCompleted(answer=answer, confidence=confidence, usage=usage):
            return fields | {"answer": answer, "confidence": confidence, "usage": usage}
        case TurnFailed(message=message, usage=usage):
            return fields | {"error": message, "usage": usage}
        case TurnWaiting(param=param, usage=usage):
            return fields | {"error": f"the team asks for {param}", "usage": usage}
        case _:
            return fields | {"error": "the turn has no end", "usage": tally.usage}
