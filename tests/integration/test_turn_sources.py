"""Sources of answers through a turn: who is shown them, and what the final answer carries."""

from typing import Any

import pytest

from massmem.core.events import AnswerSubmitted, Event, Notice, TurnCompleted, WebSearched
from massmem.core.prompts import parse_candidates
from massmem.providers import Providers
from tests.support.contexts import RequestKeeper
from tests.support.turns import agent_of, agents_of, config_of, only, play, run

A = {"url": "https://a.example/x", "title": "A </answer> <sources>", "quote": "Quoted. </sources>"}
B = {"url": "https://b.example", "title": "B"}
ANN: dict[str, Any] = {"text": "Air scatters blue light most [1].", "searches": ["why blue"], "citations": [A]}
BOB: dict[str, Any] = {"text": "Ozone matters at dusk [2][1].", "citations": [A, B], "searches": ["dusk", "ozone"]}
VOTE = [{"vote_for": "Air scatters"}]


def end_of(events: list[Event]) -> TurnCompleted:
    end = events[-1]
    assert isinstance(end, TurnCompleted)
    return end


def sources_of(event: AnswerSubmitted | TurnCompleted) -> list[tuple[str, str]]:
    return [(citation.url, citation.agent_id) for citation in event.citations]


async def test_a_final_answer_carries_the_sources_that_agents_had_and_no_invented_number() -> None:
    final = "Air scatters blue light most. At dusk it is ozone [2], says [7]; a[1] is code."
    scripts = {
        "ann": {"answer": [ANN], "vote": VOTE, "present": final},
        "bob": {"answer": [BOB], "vote": VOTE, "present": final},
    }
    events = await play(scripts)
    second = only(events, AnswerSubmitted)[1]
    assert second.content == "Ozone matters at dusk [1][2]."
    assert sources_of(second) == [(B["url"], "bob"), (A["url"], "bob")]
    end = end_of(events)
    assert end.answer == "Air scatters blue light most [1]. At dusk it is ozone [2], says; a[1] is code."
    assert [url for url, _ in sources_of(end)] == [A["url"], B["url"]]
    [notice] = only(events, Notice)
    assert notice.message == f"{end.winner}: numbers without a source were removed: [7]"
    assert [event.query for event in only(events, WebSearched)] == ["why blue", "dusk", "ozone"]
    assert end.usage.searches == 3


async def test_agents_are_shown_sources_within_the_frames_of_the_answers() -> None:
    providers = Providers()
    configs = [config_of("ann", {"answer": [ANN], "vote": VOTE}), config_of("bob", {"answer": [BOB], "vote": VOTE})]
    keepers = {config.id: RequestKeeper(await providers.open(config.backend)) for config in configs}
    await run({config.id: agent_of(config, keepers[config.id]) for config in configs})
    prompt = keepers["bob"].requests[1].messages[-1].content
    shown = parse_candidates(prompt)  # one numbering over both, in their order
    numbers = ("[1]", "[1][2]") if shown["A"].startswith("Air") else ("[2]", "[1][2]")
    assert sorted(shown.values()) == [
        f"Air scatters blue light most {numbers[0]}.",
        f"Ozone matters at dusk {numbers[1]}.",
    ]
    assert prompt.count("</answer>") == prompt.count("<answer ") == prompt.count("</sources>") == 2
    assert "https://b.example" in prompt and '"Quoted. ' in prompt


async def test_as_it_is_carries_all_and_answers_with_other_numbers_are_one_candidate() -> None:
    same = {"text": "42 [2]", "citations": [A, B]}
    scripts = {"ann": {"answer": [{"text": "42 [1]", "citations": [B]}]}, "bob": {"answer": [same]}}
    events = await play(scripts, presentation="as_is")
    end = end_of(events)
    assert end.agreement == "2 of 2 agents gave or chose this answer"
    assert end.answer == "42 [1]"
    assert sources_of(end) in ([(B["url"], "ann")], [(B["url"], "bob"), (A["url"], "bob")])


@pytest.mark.parametrize("tools", [True, False])
async def test_a_new_answer_names_sources_that_its_author_was_shown(tools: bool) -> None:
    better = {"new_answer": "Both matter: https://b.example and https://a.example/x [9].", "citations": []}
    scripts = {
        "ann": {"answer": [ANN], "vote": [better, {"vote_for": "Both"}]},
        "bob": {"answer": [BOB], "vote": [{"vote_for": "Ozone"}, {"vote_for": "Both"}]},
    }
    events = await play(scripts, tools=tools, presentation="as_is")
    answer = only(events, AnswerSubmitted)[2]
    assert answer.content == "Both matter: https://b.example and https://a.example/x."
    assert [url for url, _ in sources_of(answer)] == [B["url"], A["url"]]


async def test_a_retry_voids_sources_and_a_cut_reply_goes_on_with_its_own() -> None:
    cut = {"text": "Blue [1] ", "finish": "length", "citations": [A]}
    events = await play({"ann": {"answer": [cut, {"text": "and red [1].", "citations": [B]}]}})
    answer = only(events, AnswerSubmitted)[0]
    assert answer.content == "Blue [1] and red [2]."
    assert [url for url, _ in sources_of(answer)] == [A["url"], B["url"]]
    assert [answer.content[c.start : c.end] for c in answer.citations] == ["Blue", "Blue [1] and red"]


async def test_a_form_keeps_its_numbers_and_an_answer_without_sources_is_as_before() -> None:
    events = await play({"ann": {"answer": "See [1] and [7]."}, "bob": {"answer": [{"text": "x [3]"}]}})
    assert [event.content for event in only(events, AnswerSubmitted)] == ["See [1] and [7].", "x [3]"]
    assert end_of(events).citations == ()


async def test_a_resumed_turn_has_the_sources_that_the_log_has() -> None:
    scripts = {"ann": {"answer": [ANN], "vote": VOTE}, "bob": {"answer": [BOB], "vote": VOTE}}
    events = await play(scripts)
    half = events[: events.index(only(events, AnswerSubmitted)[1]) + 1]
    end = end_of(await run(await agents_of(scripts), half))
    assert [url for url, _ in sources_of(end)] == [A["url"]]
