"""The summary in the place of old messages: by the agent's model where it can, of sentences in any case."""

from typing import Any

import pytest

from massmem.config.models import AgentConfig, BackendConfig, MemoryConfig
from massmem.core.events import AnswerSubmitted, Notice
from massmem.memory.compression import Utterance
from massmem.memory.tokens import Buffer, estimate_tokens
from massmem.providers import Providers
from massmem.turn.compressor import (
    LEAST_WINDOW,
    MAX_PARTS,
    MAX_SUMMARY,
    MIN_SUMMARY,
    Compressor,
    Summariser,
    Summary,
    TokenMeter,
)
from massmem.turn.prompt_builder import Prompt
from tests.support.contexts import RequestKeeper, agent_with, answer, history
from tests.support.turns import only

TALK = [
    Utterance("User", "The port of the north gate is 8042. It was a nice day."),
    Utterance("You", "I will keep that in mind. Nothing else happened."),
]


async def summariser_with(window: int = 8_000, reply: Any = "The port is 8042.") -> tuple[Summariser, RequestKeeper]:
    script = {"context_window": 0, "summary": reply}
    provider = RequestKeeper(await Providers().open(BackendConfig(type="scripted", script=script, max_retries=0)))
    return Summariser(provider, "ann", window, estimate_tokens), provider


def summariser_without_model(window: int = 8_000) -> Summariser:
    return Summariser(None, "ann", window, estimate_tokens)


async def test_model_of_the_agent_writes_the_summary():
    summariser, provider = await summariser_with()
    summary = await summariser.summarise(TALK, "")
    assert (summary.text, summary.by) == ("The port is 8042.", "model")
    assert summary.usage.prompt > 0
    (request,) = provider.requests
    assert (request.purpose, request.agent_id, request.max_tokens) == ("summary", "ann", summariser.max_tokens)
    assert request.tools == ()
    assert "north gate is 8042" in request.messages[-1].content


async def test_request_for_a_summary_holds_the_one_before():
    summariser, provider = await summariser_with()
    await summariser.summarise(TALK, "Ann prefers tea.")
    assert "Ann prefers tea." in "\n".join(m.content for m in provider.requests[0].messages)


async def test_summary_without_a_model_is_made_of_sentences():
    summary = await summariser_without_model().summarise(TALK, "Ann prefers tea.")
    assert summary.by == "extract"
    assert "8042" in summary.text
    assert "Ann prefers tea." in summary.text
    assert summary.usage.requests == 0


@pytest.mark.parametrize(
    "reply", ["", "  \n ", {"error": "unavailable"}, {"error": "overflow"}, {"text": "The po", "error": "interrupted"}]
)
async def test_summary_is_made_of_sentences_when_the_model_writes_none(reply: Any):
    summariser, provider = await summariser_with(reply=[reply])
    summary = await summariser.summarise(TALK, "")
    assert summary.by == "extract"
    assert "8042" in summary.text
    assert len(provider.requests) == 1


async def test_summary_cut_at_the_limit_of_tokens_is_marked():
    summariser, _ = await summariser_with(reply={"text": "The port is 8042. The ga", "finish": "length"})
    summary = await summariser.summarise(TALK, "")
    assert (summary.text.startswith("The port is 8042."), summary.truncated) == (True, True)


async def test_model_with_a_small_window_is_not_asked():
    summariser, provider = await summariser_with(LEAST_WINDOW - 1)
    assert (await summariser.summarise(TALK, "")).by == "extract"
    assert provider.requests == []


async def test_summary_that_is_too_long_is_shortened():
    summariser, _ = await summariser_with(reply="The port is 8042. " * 4_000)
    summary = await summariser.summarise(TALK, "")
    assert summary.by == "model"
    assert 0 < estimate_tokens(summary.text) <= summariser.max_tokens


@pytest.mark.parametrize("window", [LEAST_WINDOW, 8_000, 64_000])
async def test_each_request_for_a_summary_fits_whatever_is_summarised(window: int):
    summariser, provider = await summariser_with(window)
    await summariser.summarise([Utterance("Tool", "Room 7 is locked since 17:04. " * (window // 4))], "")
    assert 1 < len(provider.requests) <= 4
    for request in provider.requests:
        assert sum(estimate_tokens(m.content) for m in request.messages) + (request.max_tokens or 0) < window


async def test_model_reads_what_was_removed_whole_and_in_parts_only_where_it_must():
    summariser, provider = await summariser_with(reply=["Karin must sign.", "Karin must sign. The gate is 8042."])
    short = [
        Utterance("User", f"Line {n}: nothing of note. Karin must sign, and no release before May.") for n in range(99)
    ]
    await summariser.summarise(short, "")
    (request,) = provider.requests
    assert all(text.text in request.messages[-1].content for text in short)
    await summariser.summarise([*short * 6], "Never on Fridays.")
    second, third, *_ = provider.requests[1:]
    assert "Summary so far:\nNever on Fridays." in second.messages[-1].content
    assert "Summary so far:\nKarin must sign. The gate is 8042." in third.messages[-1].content, "of the part before"
    assert "First, word for word, all that the user wants and forbids" in second.messages[0].content


async def test_summary_of_a_model_stays_whole_where_the_next_one_fails():
    earlier = "Karin must sign.\n" + "\n".join(f"The freeze number {n} ends on 4 May." for n in range(40))
    summariser, _ = await summariser_with(reply={"error": "unavailable"})
    summary = await summariser.summarise(TALK, earlier)
    assert summary.by == "extract"
    assert summary.text.startswith(f"{earlier}\n") and "8042" in summary.text


@pytest.mark.parametrize(
    ("window", "max_tokens"),
    [(512, MIN_SUMMARY), (8_000, 500), (16_000, 1_000), (128_000, MAX_SUMMARY), (1_000_000, MAX_SUMMARY)],
)
def test_summary_takes_a_share_of_the_window_within_bounds(window: int, max_tokens: int):
    assert summariser_without_model(window).max_tokens == max_tokens


async def test_summary_of_nothing_is_empty():
    assert (await summariser_without_model().summarise([], "")).text == ""
    assert isinstance(await summariser_without_model(512).summarise(TALK, ""), Summary)


async def test_compression_that_saves_nothing_changes_nothing():
    config = AgentConfig(
        id="ann",
        backend=BackendConfig(type="scripted", script={"summary": "A summary that is longer than all of it. " * 20}),
        system_message="",
        memory=MemoryConfig(),
        mcp_servers=(),
    )
    provider = await Providers().open(config.backend)
    compressor = Compressor(config, provider, TokenMeter(8_000, Buffer(estimate_tokens)))
    prompt = Prompt("ann", history=history("a", "b", "c", "d"))
    assert await compressor.compact(prompt) is None


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
