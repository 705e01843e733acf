"""Texts: sentences of Python's own documentation, questions in their words, and turns of councils that say them."""

import random
import re
from collections.abc import Sequence
from pydoc_data.topics import topics

from massmem.core.events import (
    AgentStarted,
    AnswerSubmitted,
    BallotCast,
    Event,
    RoundStarted,
    TurnCompleted,
    TurnStarted,
    WinnerDecided,
)
from massmem.core.messages import Usage

_USAGE = Usage(800, 120, requests=1)


def sentences() -> list[str]:
    """Return sentences with the words of a real language."""
    parts = (" ".join(part.split()) for text in topics.values() for part in re.split(r"(?<=\.)\s+|\n\n", text))
    return [part for part in parts if len(part.split()) >= 6 and part[0].isalpha()]


def query(chance: random.Random, pool: Sequence[str]) -> str:
    """A question in some of the words of a sentence."""
    words = chance.choice(pool).split()
    return f"What about {' '.join(chance.sample(words, min(8, len(words))))}?"


def write_text(chance: random.Random, pool: Sequence[str], count: int) -> str:
    """Return sentences, with a number that makes some messages findable alone."""
    return " ".join([*chance.choices(pool, k=count), f"#{chance.randrange(10**7)}"])


def make_turn(
    session_id: str, turn: int, agents: tuple[str, ...], chance: random.Random, pool: Sequence[str]
) -> list[Event]:
    """Return a complete turn of these agents with texts of usual length: 2 messages, and 2 of each agent."""
    winner = chance.choice(agents)
    return [
        TurnStarted(session_id=session_id, turn=turn, question=write_text(chance, pool, 1), agents=agents, seed=turn),
        RoundStarted(round=1, agents=agents),
        *(AgentStarted(agent_id=agent, round=1, step="answer") for agent in agents),
        *(
            AnswerSubmitted(agent_id=agent, round=1, number=i, content=write_text(chance, pool, 2), usage=_USAGE)
            for i, agent in enumerate(agents, start=1)
        ),
        RoundStarted(round=2, agents=agents),
        *(AgentStarted(agent_id=agent, round=2, step="vote") for agent in agents),
        *(
            BallotCast(agent_id=agent, round=2, choice=winner, reason=write_text(chance, pool, 1)[:80], usage=_USAGE)
            for agent in agents
        ),
        WinnerDecided(agent_id=winner, votes={winner: len(agents)}, by="consensus"),
        AgentStarted(agent_id=winner, round=2, step="present"),
        TurnCompleted(winner=winner, answer=write_text(chance, pool, 3), presented=True, usage=_USAGE),
    ]
