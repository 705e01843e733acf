from datetime import timedelta
from typing import Any

from massmem.core.events import ContextMeasured
from massmem.core.figures import Figures
from tests.support.sample_turn import START
from tests.support.sessions_said import make_program_turn, make_transcript


def measure(recalled: int) -> ContextMeasured:
    fields: dict[str, Any] = {"agent_id": "ann", "round": 1, "tokens": 10, "window": 100, "source": "api"}
    return ContextMeasured(**fields, entries={}, recalled=recalled)


def test_days_have_turns_wins_tokens_and_waits():
    figures = Figures()
    figures.add_turn(make_transcript(cost=0.5), [])
    figures.add_turn(make_transcript(status="failed", winner=None, answer=None), [])
    figures.add_turn(make_transcript(started_at=START + timedelta(days=1)), [])
    first, second = (figures.days[day] for day in sorted(figures.days))
    assert (first.turns, first.answered, first.seconds) == (2, 1, 2.5)
    assert (first.agents["ann"].turns, first.agents["ann"].wins) == (2, 1)
    assert first.agents["ann"].usage.prompt == 60
    assert (second.turns, second.agents["bob"].wins) == (1, 0)
    assert figures.turns == 3


def test_messages_between_turns_are_no_turn():
    figures = Figures()
    figures.add_turn(make_program_turn(), [])
    assert (figures.days, figures.turns) == ({}, 0)


def test_prompts_with_and_without_memories_are_counted():
    figures = Figures()
    figures.add_turn(make_transcript(), [measure(0), measure(40), measure(7)])
    assert (figures.recalls, figures.without_recall) == (2, 1)
