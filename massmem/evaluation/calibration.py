"""What a team's record of answers and ballots says of its answers: patterns of agreement, and how often each is right.

A record is replayed without any request: first the two agents that `coordination.depth: adaptive` asks, then all.
"""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from pydantic import BaseModel

from massmem.config.calibrations import compute_fingerprint
from massmem.config.load import resolve_agents
from massmem.config.models import TeamConfig
from massmem.core import events as ev
from massmem.core.evaluation import Share
from massmem.core.messages import Usage
from massmem.core.short_answers import read_short_answer
from massmem.core.verdict import MIN_ASKED, Calibration, Member, Outcomes, Pattern, Rank, read_pattern, wilson_interval
from massmem.core.voting import Tally
from massmem.evaluation.items import Item, score
from massmem.evaluation.runner import Answers, Entrant, Result
from massmem.turn.depth import choose_first_agents

PROMISES = (0.05, 0.1, 0.2)
"""Values of `coordination.max_error` that a table shows."""

Depth = Literal["full", "adaptive"]


@dataclass(frozen=True, slots=True)
class Replayed:
    """The agreement on a question, and whose answer wins; without an answer nobody stands behind it, and none wins."""

    first: Pattern
    """Of the two agents that `coordination.depth: adaptive` asks first."""
    first_winner: str
    full: Pattern
    """Of the whole team, with its ballots."""
    full_winner: str


_NOTHING = Pattern((), 0, 0, voted=False, cut=True, kind="text")


def replay_patterns(
    agents: Sequence[str] | Mapping[str, float],
    first: Sequence[str],
    answers: Mapping[str, str],
    ballots: Mapping[str, str],
    cut: Collection[str] = (),
    work_cut: Collection[str] = (),
) -> Replayed:
    """Return how the first agents, and then all, stand to the answer that wins.

    agents: all of the team, in its order, or with what their voices weigh; one without answer and ballot has failed.
    first: those that are asked first.
    answers: by agent, in the order in which they came. ballots: voter to the agent that it voted for. cut: agents whose
    answer lacks its end. work_cut: agents whose work for the answer was cut short.
    """
    states = [_read_state(tally) for tally in _replay(agents, first, answers, ballots, cut, work_cut)]
    return Replayed(*states[0], *states[1])


def _replay(
    agents: Sequence[str] | Mapping[str, float],
    first: Sequence[str],
    answers: Mapping[str, str],
    ballots: Mapping[str, str],
    cut: Collection[str],
    work_cut: Collection[str],
) -> Iterator[Tally]:
    """Yield the turn with the answers of the first agents, then with all answers and ballots."""
    tally, weights = Tally(), dict(agents) if isinstance(agents, Mapping) else {}
    tally.apply(ev.TurnStarted(session_id="", turn=1, question="", agents=tuple(agents), seed=0, weights=weights))
    tally.apply(ev.RoundStarted(round=1, agents=tuple(first)))
    numbers = {agent: number for number, agent in enumerate(answers, start=1)}
    submitted = {
        agent: ev.AnswerSubmitted(
            agent_id=agent,
            round=1,
            number=numbers[agent],
            content=text,
            truncated=agent in cut,
            work_cut="time" if agent in work_cut else None,
            usage=Usage(),
        )
        for agent, text in answers.items()
    }
    tally.apply_all(submitted[agent] for agent in first if agent in submitted)
    yield tally
    tally.apply_all(answer for agent, answer in submitted.items() if agent not in first)
    tally.out.update(agent for agent in agents if agent not in answers and agent not in ballots)
    tally.apply(ev.RoundStarted(round=2, agents=tuple(ballots)))
    tally.apply_all(
        ev.BallotCast(agent_id=voter, round=2, choice=choice, reason="", usage=Usage())
        for voter, choice in ballots.items()
    )
    yield tally


def _read_state(tally: Tally) -> tuple[Pattern, str]:
    if not tally.answers:
        return _NOTHING, ""
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
    asked, right_first, right = (Counter[tuple[str, Pattern, Pattern]]() for _ in range(3))
    for one in questions:
        if one.replayed.full_winner:
            key = one.group, one.replayed.first, one.replayed.full
            asked[key] += 1
            right_first[key] += one.right_first
            right[key] += one.right
    return tuple(
        Outcomes(
            group=key[0], first=key[1], full=key[2], asked=asked[key], right_first=right_first[key], right=right[key]
        )
        for key in sorted(asked, key=str)
    )


def prepare_for_calibration(entrant: Entrant) -> Entrant:
    """Return the team as its calibration needs it: all agents are asked, and no answer is held back."""
    changes = {"depth": "full", "max_error": None, "escalate_below": None, "weights": "equal"}
    coordination = entrant.config.coordination.model_copy(update=changes)
    return Entrant(entrant.name, entrant.config.model_copy(update={"coordination": coordination}))


def replay_result(agents: Sequence[str], first: Sequence[str], result: Result) -> Replayed:
    """Return what a record says, see `replay_patterns`. The first agents count with what they said at first."""
    full = replay_patterns(agents, first, result.members, result.ballots, result.cut, result.work_cut)
    if not result.replaced:
        return full
    early = replay_patterns(agents, first, result.members | result.replaced, {}, result.cut, result.work_cut)
    return replace(full, first=early.first, first_winner=early.first_winner)


def choose_winner(agents: Sequence[str] | Mapping[str, float], result: Result) -> str:
    """Return whose answer would have won if these agents of the team alone had answered and voted.

    A ballot for the answer of another agent counts for one of these that gave the same. agents: see `replay_patterns`.
    """
    answers = {agent: text for agent, text in result.members.items() if agent in agents}
    keys = {agent: read_short_answer(text).key for agent, text in result.members.items()}
    same = {agent: next((a for a in answers if keys[a] == key), agent) for agent, key in keys.items()}
    ballots = {voter: same.get(choice, choice) for voter, choice in result.ballots.items() if voter in agents}
    *_, tally = _replay(agents, (), answers, ballots, result.cut, result.work_cut)
    return tally.decide_winner().agent_id


def build_calibration(config: TeamConfig, answers: Answers, data: str) -> Calibration:
    """Return what the record of a team says, which was asked as `prepare_for_calibration` has it.

    data: name of the file with the questions. Agents count where they answered a question that no model judges.
    """
    agents, first = [agent.id for agent in config.agents], choose_first_agents(resolve_agents(config, os.environ))
    asked, right = Counter[str](), Counter[str]()
    graded: list[Graded] = []
    for item, result, is_right in zip(answers.items, answers.results, answers.right, strict=True):
        replayed = replay_result(agents, first, result)
        graded.append(Graded(item.group, replayed, _is_right_first(item, result, replayed, is_right), is_right))
        if item.scorer != "judge":
            asked.update(result.members.keys())
            right.update(agent for agent, text in result.members.items() if score(item, text).right)
    return Calibration(
        fingerprint=compute_fingerprint(config),
        team=answers.name,
        data=data,
        at=ev.now(),
        outcomes=count_outcomes(one for one, result in zip(graded, answers.results, strict=True) if not result.error),
        members={agent: Member(asked=asked[agent], right=right[agent]) for agent in agents if asked[agent]},
    )


def _is_right_first(item: Item, result: Result, replayed: Replayed, is_right: bool) -> bool:
    """Return whether the first agents' answer is right. The judge saw the team's answer alone: another one is wrong."""
    own = {**result.members, **result.replaced}.get(replayed.first_winner, "")
    if item.scorer != "judge":
        return score(item, own).right
    final = result.members.get(replayed.full_winner, "")
    return is_right and read_short_answer(own).key == read_short_answer(final).key


def list_gaps(config: TeamConfig, answers: Answers) -> Iterator[str]:
    """Yield what the reader of a calibration should know of its questions."""
    results, size = answers.results, len(config.agents)
    answered = [result for result in results if not result.error]
    if len(answered) < MIN_ASKED:
        yield f"a turn says nothing of its answers: that takes {MIN_ASKED} questions"
    if unanswered := len(results) - len(answered):
        yield f"{unanswered} without an answer are left out"
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
    depth: Depth
    rank: Rank | None
    """The lowest of an answer that is given, see `massmem.core.verdict`; null: none is sure enough."""
    answered: Share
    wrong: Share
    """Of those that are answered."""


def list_promises(calibration: Calibration) -> list[Promise]:
    return [_promise(calibration, bound, depth) for bound in PROMISES for depth in get_args(Depth)]


def _promise(calibration: Calibration, max_error: float, depth: Depth) -> Promise:
    rank, answered, right = calibration.find_threshold(max_error, adaptive=depth == "adaptive"), 0, 0
    for one in calibration.outcomes:
        count = None if rank is None else one.count_right(rank, adaptive=depth == "adaptive")
        answered += 0 if count is None else one.asked
        right += count or 0
    share = build_share(answered, sum(one.asked for one in calibration.outcomes))
    wrong = build_share(answered - right, answered)
    return Promise(max_error=max_error, depth=depth, rank=rank, answered=share, wrong=wrong)
