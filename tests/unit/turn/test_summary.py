"""The summary in the place of old messages: by the agent's model where it can, by code in any case."""

from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.memory.compression import Said
from massmem.memory.tokens import estimate_tokens
from massmem.providers import Providers
from massmem.turn.summary import LEAST, MOST, SMALL_WINDOW, Summariser, Summary
from tests.support.contexts import Watched

TALK = [
    Said("User", "The port of the north gate is 8042. It was a nice day."),
    Said("You", "I will keep that in mind. Nothing else happened."),
]


async def writing(window: int = 8_000, reply: Any = "The port is 8042.") -> tuple[Summariser, Watched]:
    script = {"context_window": 0, "summary": reply}
    provider = Watched(await Providers().open(BackendConfig(type="scripted", script=script, max_retries=0)))
    return Summariser(provider, "ann", window, estimate_tokens), provider


def without_a_model(window: int = 8_000) -> Summariser:
    return Summariser(None, "ann", window, estimate_tokens)


async def test_the_agents_own_model_writes_it():
    summariser, provider = await writing()
    summary = await summariser.summarise(TALK, "")
    assert (summary.text, summary.by) == ("The port is 8042.", "model")
    assert summary.usage.prompt > 0
    (request,) = provider.requests
    assert (request.purpose, request.agent_id, request.max_tokens) == ("summary", "ann", summariser.budget)
    assert request.tools == ()
    assert "north gate is 8042" in request.messages[-1].content


async def test_the_summary_so_far_is_shown_to_who_writes_the_next():
    summariser, provider = await writing()
    await summariser.summarise(TALK, "Ann prefers tea.")
    assert "Ann prefers tea." in "\n".join(m.content for m in provider.requests[0].messages)


async def test_without_a_model_it_is_made_of_what_was_said():
    summary = await without_a_model().summarise(TALK, "Ann prefers tea.")
    assert summary.by == "extract"
    assert "8042" in summary.text
    assert "Ann prefers tea." in summary.text
    assert summary.usage.requests == 0


@pytest.mark.parametrize(
    "reply", ["", "  \n ", {"error": "unavailable"}, {"error": "overflow"}, {"text": "The po", "error": "interrupted"}]
)
async def test_what_the_model_cannot_write_is_made_by_code(reply: Any):
    summariser, provider = await writing(reply=[reply])
    summary = await summariser.summarise(TALK, "")
    assert summary.by == "extract"
    assert "8042" in summary.text
    assert len(provider.requests) == 1


async def test_a_model_with_a_small_window_is_not_asked():
    summariser, provider = await writing(SMALL_WINDOW - 1)
    assert (await summariser.summarise(TALK, "")).by == "extract"
    assert provider.requests == []


async def test_a_model_that_writes_too_much_is_cut():
    summariser, _ = await writing(reply="The port is 8042. " * 4_000)
    summary = await summariser.summarise(TALK, "")
    assert summary.by == "model"
    assert 0 < estimate_tokens(summary.text) <= summariser.budget


@pytest.mark.parametrize("window", [SMALL_WINDOW, 8_000, 128_000])
async def test_what_is_larger_than_the_window_is_asked_about_in_a_request_that_fits(window: int):
    summariser, provider = await writing(window)
    await summariser.summarise([Said("Tool", "Room 7 is locked since 17:04. " * window)], "")
    (request,) = provider.requests
    sent = sum(estimate_tokens(m.content) for m in request.messages)
    assert sent + (request.max_tokens or 0) < window / 2


@pytest.mark.parametrize(
    ("window", "budget"), [(512, LEAST), (8_000, 500), (16_000, 1_000), (128_000, MOST), (1_000_000, MOST)]
)
def test_a_summary_takes_a_share_of_the_window_within_bounds(window: int, budget: int):
    assert without_a_model(window).budget == budget


async def test_nothing_said_is_no_summary():
    assert (await without_a_model().summarise([], "")).text == ""
    assert isinstance(await without_a_model(512).summarise(TALK, ""), Summary)
