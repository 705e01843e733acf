"""Councils that do not exist, of models of very different skill that err together: recordings whose truth is known.

A question has a difficulty that is the same for all; each model is right by its skill against that (a Rasch model). Of
those that are wrong, some fall for a wrong answer that the question suggests, the others give one of their own. Some
answers have no result, or no end. The rates are near those of the recordings that ship.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from random import Random

from scripts.benches.recorded import Question, Recording

SIZE = 1_319
"""Questions of the test set of GSM8K."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a made-up council is like."""

    name: str
    skills: Mapping[str, float]
    """Share of right answers of each model."""
    spread: float = 1.5
    """Of the difficulty, in logits: 0 lets models be right independently of one another."""
    trap: float = 0.15
    """Mean share of the wrong answers to a question that fall for the same."""
    options: int = 0
    """Letters of a choice; 0: the answers are numbers."""
    unread: Mapping[str, float] = field(default_factory=dict[str, float])
    """Share of the wrong answers of a model that have no result; of the right ones a fifth of that."""
    kin: tuple[str, ...] = ()
    """Models that make half of their mistakes together."""
    votes: bool = False
    """Where no result has a majority they vote, and choose a right one by their skill."""
    size: int = SIZE


_GSM8K = {"strong": 0.56, "fair": 0.39, "weak": 0.35, "weakest": 0.22}
DESIGN = (
    Profile("sim numbers", _GSM8K, spread=2.5, trap=0.25, unread={"weak": 0.1, "weakest": 0.25}),
    Profile("sim choices", {"d": 0.35, "a": 0.72, "c": 0.41, "b": 0.55}, options=4, trap=0.35, spread=1.2),
    Profile("sim votes", _GSM8K, spread=1.0, trap=0.1, votes=True),
)
"""On which the rule was made."""
TEST = (
    Profile("sim weakest first", dict(reversed(_GSM8K.items())), spread=2.0, trap=0.2, unread={"weakest": 0.4}),
    Profile("sim one expert", {"b": 0.3, "c": 0.25, "expert": 0.85, "d": 0.2}, trap=0.2),
    Profile("sim kin", _GSM8K, kin=("fair", "weak"), unread=dict.fromkeys(_GSM8K, 0.1)),
    Profile("sim yes or no", {"a": 0.81, "b": 0.73, "c": 0.66, "d": 0.55}, options=2, spread=0.8),
    Profile("sim few questions", _GSM8K, votes=True, unread={"fair": 0.2}, size=200),
    Profile("sim traps", {"a": 0.62, "b": 0.5, "c": 0.44, "d": 0.33, "e": 0.2}, trap=0.45, size=800),
)
"""On which it was tried once it was made."""


def simulate(profile: Profile, seed: int) -> Recording:
    """Return a recording of a council of this profile."""
    draw, agents = Random(f"{profile.name} {seed}"), tuple(profile.skills)
    ease = {agent: _fit(profile.skills[agent], profile.spread) for agent in agents}
    questions = tuple(_ask(profile, ease, draw) for _ in range(profile.size))
    return Recording(profile.name, agents, agents[:2], questions)


def _ask(profile: Profile, ease: Mapping[str, float], draw: Random) -> Question:
    difficulty, trap = draw.gauss(0, profile.spread), draw.betavariate(1, 1 / profile.trap - 1)
    family = draw.randint(100, 999)
    values: dict[str, int | None] = {}
    for agent in ease:
        is_right = draw.random() < _logistic(ease[agent] - difficulty)
        values[agent] = 0 if is_right else _err(profile, trap, family if agent in profile.kin else 0, draw)
        if draw.random() < profile.unread.get(agent, 0.0) * (0.2 if is_right else 1.0):
            values[agent] = None
    right = frozenset(agent for agent, value in values.items() if value == 0)
    results = {agent: _write(profile, value, draw) for agent, value in values.items()}
    cut = frozenset(agent for agent, value in values.items() if value is None and draw.random() < 0.5)
    ballots = _vote(profile, values, draw) if profile.votes else {}
    return Question("", results, right, ballots, cut)


def _err(profile: Profile, trap: float, family: int, draw: Random) -> int:
    if draw.random() < trap:
        return 1
    if family and draw.random() < 0.5:
        return family if not profile.options else 1 + family % (profile.options - 1)
    return draw.randint(1, profile.options - 1) if profile.options else draw.randint(2, 60)


def _write(profile: Profile, value: int | None, draw: Random) -> str:
    if value is None:
        return f"{draw.getrandbits(32):08x}\nso that the rest of it is what we are looking for"
    return f"Answer: {'ABCDE'[value] if profile.options else value}"


def _vote(profile: Profile, values: Mapping[str, int | None], draw: Random) -> dict[str, str]:
    listed = list(values.values())
    if max(listed.count(value) for value in listed) * 2 > len(listed):
        return {}
    ballots: dict[str, str] = {}
    for agent, own in values.items():
        others = [other for other in values if values[other] != own or (listed.count(own) > 1 and other != agent)]
        right = [other for other in others if values[other] == 0]
        if others:
            ballots[agent] = draw.choice(right if right and draw.random() < profile.skills[agent] else others)
    return ballots


@cache
def _fit(share: float, spread: float) -> float:
    """Return the skill, in logits, with which this share of the questions is answered rightly."""
    nodes = [spread * (i - 40) / 10 for i in range(81)]
    weights = [math.exp(-(((i - 40) / 10) ** 2) / 2) for i in range(81)]
    low, high = -10.0, 10.0
    for _ in range(50):
        middle = (low + high) / 2
        mean = sum(w * _logistic(middle - x) for w, x in zip(weights, nodes, strict=True)) / sum(weights)
        low, high = (middle, high) if mean < share else (low, middle)
    return low


def is_right_by_chance(skill: float, spread: float, difficulty: float, draw: Random) -> bool:
    """Return whether somebody who is right on this share of all things is right on one that is so difficult."""
    return draw.random() < _logistic(_fit(skill, spread) - difficulty)


def _logistic(x: float) -> float:
    return 1 / (1 + math.exp(-x))
