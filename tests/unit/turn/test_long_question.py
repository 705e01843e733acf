"""Questions larger than a model's window are read in parts."""

import pytest

from massmem.core.events import AnswerSubmitted, Notice
from massmem.turn.long_question import MAX_PARTS
from tests.support.contexts import agent_with, answer
from tests.support.turns import only

FACTS = [f"Gate {n} has the port {8_000 + n}. " + "Nothing else is known of it. " * 40 for n in range(60)]
QUESTION = f"Read this list of gates.\n{''.join(FACTS)}\nWhich port has gate 30?"


async def test_question_that_fits_is_sent_as_it_is():
    agent, provider = await agent_with(64_000)
    events = await answer(agent, QUESTION)
    (request,) = provider.requests
    assert request.messages[-1].content == QUESTION
    assert not only(events, Notice)


async def test_question_larger_than_the_window_is_read_in_parts():
    agent, provider = await agent_with(8_000, script={"summary": "Some gates and their ports."})
    events = await answer(agent, QUESTION)
    *readings, request = provider.requests
    assert 4 < len(readings) <= MAX_PARTS
    assert {reading.purpose for reading in readings} == {"summary"}
    parts = [reading.messages[-1].content for reading in readings]
    assert all(any(f"Gate {n} has" in part for part in parts) for n in range(60)), "every part is read"
    text = request.messages[-1].content
    assert text.startswith("Read this list of gates.") and text.endswith("Which port has gate 30?")
    assert text.count("Some gates and their ports.") == len(readings)
    assert "so it read the question in" in only(events, Notice)[0].message
    (submitted,) = only(events, AnswerSubmitted)
    assert submitted.usage.requests == len(provider.requests)


@pytest.mark.parametrize("window", [2_000, 8_000])
async def test_part_without_notes_of_the_model_is_shortened(window: int):
    agent, provider = await agent_with(window, script={"summary": {"error": "unavailable"}})
    await answer(agent, QUESTION)
    text = provider.requests[-1].messages[-1].content
    assert "too many to read at once" in text
    assert "Gate " in text.split("parts:]")[1]
