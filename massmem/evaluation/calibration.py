"""What a team's record of answers and ballots says of its answers: patterns of agreement, and how often each is right.

A record is replayed without any request: first the two agents that `coordination.depth: adaptive` asks, then all.
"""

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from typing import Literal

from pydantic import BaseModel

from massmem.config.calibrations import compute_fingerprint
from massmem.config.load import resolve_agents
from massmem.config.models import AgentConfig, TeamConfig
from massmem.core.evaluation import Share
from massmem.core.events import now
from massmem.core.messages import Usage
from massmem.core.short_answers import list_keys, read_short_answer
from massmem.core.verdict import (
    MIN_ASKED,
    Calibration,
    Member,
    Outcomes,
    Pattern,
    read_pattern,
    weigh_voices,
    wilson_interval,
)
from massmem.core.voting import Answer, Tally
from massmem.evaluation.items import Item, Score, score
from massmem.evaluation.runner import Answers, Entrant, ItemResult
from massmem.providers.pricing import price_of
from massmem.turn.depth import choose_first_agents

PROMISES = (0.05, 0.1, 0.2)
"""Values of `coordination.max_error` that a table shows."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The agreement on a question, and whose answer wins; without an answer nobody stands behind it, and none wins."""

    first: Pattern
    """Of the two agents that `coordination.depth: adaptive` asks first."""
    first_winner: str
    full: Pattern
    """Of the whole team, with its ballots."""
    full_winner: str


def replay_result(
    agents: Sequence[str], first: Sequence[str], result: ItemResult, voices: Mapping[str, float] | None = None
) -> Replayed:
    """Return how the first agents, and then all, stand to the answer that wins.

    agents: all of the team, in its order. first: those that are asked first. voices: what each one weighs; None: the
    same.
    """
    full = replay_answers(voices or dict.fromkeys(agents, 1.0), result.members, result.ballots, result)
    return Replayed(*replay_first(agents, first, result), *read_state(full))


def replay_first(agents: Sequence[str], first: Sequence[str], result: ItemResult) -> tuple[Pattern, str]:
    """Return how the first agents stand to the answer that wins, and whose it is, with what they said at first."""
    early = {agent: text for agent, text in (result.members | result.replaced).items() if agent in first}
    return read_state(replay_answers(dict.fromkeys(agents, 1.0), early, {}, result))


def choose_winner(voices: Mapping[str, float], result: ItemResult) -> str:
    """Return whose answer would have won if these agents of the team alone had answered and voted.

    A ballot for the answer of another agent counts for one of these that gave the same. voices: what each one weighs.
    """
    answers = {agent: text for agent, text in result.members.items() if agent in voices}
    keys = list_keys({agent: read_short_answer(text) for agent, text in result.members.items()})
    authors = {keys[agent]: agent for agent in reversed(answers)}
    ballots = {v: authors.get(keys.get(choice, ""), choice) for v, choice in result.ballots.items() if v in voices}
    return replay_answers(voices, answers, ballots, result).decide_winner().agent_id


def replay_answers(
    voices: Mapping[str, float], answers: Mapping[str, str], ballots: Mapping[str, str], result: ItemResult
) -> Tally:
    """Return the turn with these answers, in the order in which they came, and ballots. result: says which are cut."""
    listed = {
        agent: Answer(agent, number, text, agent in result.cut, "time" if agent in result.work_cut else None)
        for number, (agent, text) in enumerate(answers.items(), start=1)
    }
    return Tally(tuple(voices), weights=voices, answers=listed, ballots=dict(ballots))


def read_state(tally: Tally) -> tuple[Pattern, str]:
    if not tally.answers:
        return Pattern((), 0, 0, voted=False, cut=True, kind="text"), ""
    winner = tally.decide_winner().agent_id
    return read_pattern(tally, winner), winner


@dataclass(frozen=True, slots=True)
class Graded:
    """A question with what its answers are worth."""

    group: str
    """Part of the data that it belongs to; empty: it has none."""
    replayed: Replayed
    right_first: bool
    """The answer of `first_winner` is right."""
    right: bool
    """The answer of the whole team is right."""


def count_outcomes(questions: Iterable[Graded]) -> tuple[Outcomes, ...]:
    """Return the questions by part of the data and patterns of agreement, in a fixed order; without those that nobody
    answered, of which there is no answer to be sure of."""
    alike: dict[tuple[str, Pattern, Pattern], list[Graded]] = {}
    for one in questions:
        if one.replayed.full_winner:
            alike.setdefault((one.group, one.replayed.first, one.replayed.full), []).append(one)
    return tuple(
        Outcomes(
            group=group,
            first=first,
            full=full,
            asked=len(graded),
            right_first=sum(one.right_first for one in graded),
            right=sum(one.right for one in graded),
        )
        for (group, first, full), graded in sorted(alike.items(), key=lambda pair: str(pair[0]))
    )


def prepare_for_calibration(entrant: Entrant) -> Entrant:
    """Return the team as its calibration needs it: all agents are asked, and no answer is held back."""
    changes = {"depth": "full", "max_error": None, "escalate_below": None, "weights": "equal"}
    coordination = entrant.config.coordination.model_copy(update=changes)
    return Entrant(entrant.name, entrant.config.model_copy(update={"coordination": coordination}))


def build_calibration(config: TeamConfig, answers: Answers, data: str) -> Calibration:
    """Return what the record of a team says, which was asked as `prepare_for_calibration` has it.

    data: name of the file with the questions. Agents count where they answered a question that no model judges.
    """
    agents, resolved = [agent.id for agent in config.agents], resolve_agents(config, os.environ)
    rows = zip(answers.items, answers.results, answers.right, strict=True)
    known = [(item, result, right) for item, result, right in rows if not result.error and right is not None]
    scores = [
        {agent: score(item, text) for agent, text in result.members.items()}
        for item, result, _ in known
        if item.scorer != "judge"
    ]
    members = {
        agent: Member(asked=len(own), right=sum(one.right for one in own))
        for agent in agents
        if (own := [one[agent] for one in scores if agent in one])
    }
    alternatives = measure_alternatives(one.values() for one in scores)
    weights = weigh_voices(members, alternatives) if config.coordination.weights == "measured" else {}
    voices = weights if weights.keys() >= {*agents} and any(weights.values()) else None  # as in a turn

    def grade(first: Sequence[str]) -> list[Graded]:
        return [
            Graded(item.group, one, _is_right_first(item, result, one, right), right)
            for item, result, right in known
            for one in [replay_result(agents, first, result, voices)]
        ]

    pairs: dict[tuple[str, ...], list[Graded]] = {pair: grade(pair) for pair in combinations(agents, 2)}
    first = choose_pair(choose_first_agents(resolved), pairs, _measure_prices(resolved, answers))
    return Calibration(
        fingerprint=compute_fingerprint(config),
        team=answers.name,
        data=data,
        created_at=now(),
        outcomes=count_outcomes(pairs[first]),
        members=members,
        alternatives=alternatives,
        first=first,
    )


def measure_alternatives(scores: Iterable[Iterable[Score]]) -> float:
    """Return of how many pairs of wrong answers to a question one is the same. scores: of each question."""
    pairs = (pair for graded in scores for pair in combinations(graded, 2))
    same = [a.value == b.value != "" for a, b in pairs if not (a.right or b.right)]
    return (len(same) + 2) / (sum(same) + 1)


def choose_pair(
    usual: tuple[str, ...], graded: Mapping[tuple[str, ...], Sequence[Graded]], prices: Mapping[str, float]
) -> tuple[str, ...]:
    """Return the two agents whose agreement says most for their price; the usual two unless it clearly says less.

    That is how often they agree, times the logarithm of the odds that they are right then, times the share of the
    team's price that is saved. Clearly: by the ends of the intervals. graded: the questions, by whom is asked first.
    """

    def rate(pair: tuple[str, ...]) -> float:
        agreed = [one.right_first for one in graded[pair] if one.replayed.first.agrees]
        share = wilson_interval(sum(agreed) + 1, len(agreed) + 2)[pair == usual]
        saved = sum(price for agent, price in prices.items() if agent not in pair)
        return len(agreed) * math.log(share / (1 - share)) * saved

    return max(graded, key=rate)


def _measure_prices(agents: Sequence[AgentConfig], answers: Answers) -> dict[str, float]:
    """Return what each agent's answers took: dollars where all prices are known, else tokens."""
    spent = sum((Counter(result.spent) for result in answers.results), Counter[str]())
    costs = {agent.id: price_of(agent.backend, os.environ).cost(Usage(spent[agent.id])) for agent in agents}
    is_known = None not in costs.values() and any(costs.values())
    return {agent: float((cost or 0) if is_known else spent[agent] or 1) for agent, cost in costs.items()}


def _is_right_first(item: Item, result: ItemResult, replayed: Replayed, is_right: bool) -> bool:
    """Return whether the first agents' answer is right. The judge saw the team's answer alone: another one is wrong."""
    own = {**result.members, **result.replaced}.get(replayed.first_winner, "")
    if item.scorer != "judge":
        return score(item, own).right
    final = result.members.get(replayed.full_winner, "")
    keys = list_keys({"own": read_short_answer(own), "final": read_short_answer(final)})
    return is_right and keys["own"] == keys["final"]


def list_gaps(config: TeamConfig, answers: Answers) -> Iterator[str]:
    """Yield what the reader of a calibration should know of its questions."""
    results, size = answers.results, len(config.agents)
    answered = [result for result in results if not result.error]
    if len(answered) < MIN_ASKED:
        yield f"a turn says nothing of its answers: that takes {MIN_ASKED} questions"
    if unanswered := len(results) - len(answered):
        yield f"{unanswered} without an answer are left out"
    if ungraded := answers.right.count(None):
        yield f"{ungraded} of which the judge said nothing are left out"
    if partial := sum(len(result.members) < size for result in answered):
        yield f"{partial} with answers of fewer than {size} agents count as they are"
    if judged := sum(item.scorer == "judge" for item in answers.items):
        yield f"of {judged} a model judged the team's answer alone: another one of the first two agents counts as wrong"


def build_share(count: int, total: int) -> Share:
    interval = wilson_interval(count, total)
    return Share(count=count, total=total, value=count / total if total else 0.0, interval=interval)


class Promise(BaseModel):
    """What a `max_error` comes to on the questions of the calibration."""

    max_error: float
    depth: Literal["full", "adaptive"]
    rank: tuple[float, float] | None
    """Above which estimate an answer of all is given, and one of two, see `Calibration`; null: none is sure enough."""
    answered: Share
    wrong: Share
    """Of those that are answered."""


def list_promises(calibration: Calibration) -> Iterator[Promise]:
    """Yield what each of `PROMISES` comes to, for both depths."""
    asked = sum(one.asked for one in calibration.outcomes)
    for max_error, adaptive in product(PROMISES, (False, True)):
        rank, answered, right = calibration.find_threshold(max_error, adaptive=adaptive), 0, 0
        for one in calibration.outcomes:
            if (count := calibration.count_right(one, rank, adaptive=adaptive)) is not None:
                answered, right = answered + one.asked, right + count
        share, wrong = build_share(answered, asked), build_share(answered - right, answered)
        depth = "adaptive" if adaptive else "full"
        yield Promise(max_error=max_error, depth=depth, rank=rank, answered=share, wrong=wrong)
