import asyncio
from dataclasses import replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig, CoordinationConfig, PriceConfig
from massmem.config.web_search import WebSearchConfig
from massmem.core.errors import LimitReached
from massmem.core.events import AgentFailed, AgentStarted, AnswerSubmitted, Notice, TurnCompleted, TurnFailed
from massmem.core.messages import (
    ChatMessage,
    ChatRequest,
    ReasoningChunk,
    RetryChunk,
    SearchChunk,
    TextChunk,
    ToolCall,
    ToolCallChunk,
    ToolSpec,
    Usage,
    make_attachment,
)
from massmem.memory.budget import Budget
from massmem.providers import Providers
from massmem.providers.pricing import Price, price_of
from massmem.turn.coordinator import Turn
from tests.support.pictures import PNG
from tests.support.replies import collect
from tests.support.turns import agent_of, collect_turn, config_of, only

DOLLAR_A_TOKEN = PriceConfig(input=1_000_000, output=1_000_000)


async def play(scripts: dict[str, dict[str, Any]], price: PriceConfig | None = None, **settings: Any) -> list[Any]:
    """Run one turn of agents whose requests are limited; return its events."""
    limits = CoordinationConfig(**settings)
    providers = Providers()
    configs = [config_of(name, script) for name, script in scripts.items()]
    budget = Budget(limits)
    backends = {c.id: c.backend.model_copy(update={"price": price}) for c in configs}
    chat = {c.id: budget.limit(c.id, backends[c.id], await providers.open(backends[c.id])) for c in configs}
    agents = {c.id: agent_of(c, chat[c.id]) for c in configs}
    return await collect_turn(Turn("s", 1, "why?", 7), agents, limits, budget)


def count(usage: Usage) -> int:
    return usage.prompt + usage.completion


def council(size: int, answer: str = "yes " * 20, **script: Any) -> dict[str, dict[str, Any]]:
    return {f"agent_{i}": {"answer": f"{answer}{i}", "chunk_size": 40, **script} for i in range(size)}


async def test_turn_without_limits_is_priced():
    events = await play(council(2), DOLLAR_A_TOKEN)
    end = only(events, TurnCompleted)[0]
    assert end.limit is None
    assert end.usage.cost == count(end.usage)
    assert all(event.usage.cost == count(event.usage) for event in only(events, AnswerSubmitted))


async def test_turn_within_its_limits_ends_as_usual():
    events = await play(council(3), DOLLAR_A_TOKEN, max_tokens=100_000, max_cost=100_000.0)
    assert only(events, TurnCompleted)[0].limit is None


@pytest.mark.parametrize("unit", ["tokens", "cost"])
async def test_fifty_agents_do_not_overrun_a_limit(unit: str):
    """Each prompt has 12 tokens and each reply 2,000, of which 500 are expected: 42 are begun, and cut in the end."""
    limits = {"max_tokens": 22_000} if unit == "tokens" else {"max_cost": 22_000.0}
    slow = council(50, "word " * 1_600, latency=0.01)
    events = await play(slow, DOLLAR_A_TOKEN, max_concurrency=50, **limits)
    (end,) = only(events, TurnCompleted)
    assert end.limit == unit
    assert 22_000 < count(end.usage) <= 22_000 + 50 * 10  # a chunk of each agent
    assert not only(events, AgentFailed)
    if unit == "cost":
        assert end.usage.cost == count(end.usage)


async def test_expected_replies_of_open_requests_are_set_aside():
    """500 tokens for each before the first reply is known: of eight at once four are sent, though all are short."""
    events = await play(council(8, "yes", latency=0.5), max_tokens=2_500)
    answered = only(events, AnswerSubmitted)
    (end,) = only(events, TurnCompleted)
    assert (end.limit, end.presented) == ("tokens", False)
    assert len(answered) in (4, 5)
    assert end.winner == answered[0].agent_id


async def test_expected_reply_is_as_long_as_those_before():
    """One at a time: after the first short reply the others fit as well, and so do the ballots."""
    events = await play(council(4, "yes"), max_tokens=2_500, max_concurrency=1)
    assert only(events, TurnCompleted)[0].limit is None


async def test_reply_beyond_the_limit_is_cut_off_and_its_beginning_is_the_answer():
    events = await play(council(1, "word " * 4_000), max_tokens=400)
    (end,), (answer,) = only(events, TurnCompleted), only(events, AnswerSubmitted)
    assert (end.limit, end.answer) == ("tokens", answer.content)
    assert answer.content.startswith("word word")
    assert 400 < count(end.usage) < 450
    assert answer.usage == end.usage
    assert "cut off: the limit of 400 tokens" in only(events, Notice)[0].message


async def test_turn_whose_prompt_does_not_fit_sends_nothing():
    events = await play(council(3), max_tokens=5)
    end = events[-1]
    assert isinstance(end, TurnFailed)
    assert (end.exit_code, count(end.usage)) == (4, 0)
    assert "5 tokens" in end.message
    assert "--max-tokens" in end.hint


async def test_turn_ends_with_an_answer_when_ballots_do_not_fit():
    events = await play(council(2, "word " * 320), max_tokens=1_200, max_concurrency=1)
    (end,) = only(events, TurnCompleted)
    assert (end.limit, end.presented) == ("tokens", False)
    assert end.answer.startswith("word")
    assert only(events, AgentStarted)


async def test_failed_requests_count():
    scripts = {"a": {"answer": {"text": "word " * 100, "error": "interrupted"}}, "b": {"answer": "fine"}}
    events = await play(scripts, DOLLAR_A_TOKEN, max_tokens=100_000)
    (failed,) = only(events, AgentFailed)
    assert failed.usage.completion >= 100
    assert failed.usage.cost == count(failed.usage)
    assert only(events, TurnCompleted)[0].usage.cost >= failed.usage.cost


def open_budget(max_tokens: int) -> Budget:
    return Budget(CoordinationConfig(max_tokens=max_tokens))


def test_retried_request_counts_its_prompt_and_its_void_reply_again():
    budget = open_budget(1_000)
    request = budget.open_request(Price(), 300, 10)
    for chunk in (TextChunk("x" * 40), RetryChunk("busy", 0.0, 1), TextChunk("y" * 40)):
        request.add(chunk)
    assert request.estimate_usage() == Usage(600, 20, requests=2, reported=False)
    budget.close_request(request, None)
    with pytest.raises(LimitReached):
        budget.open_request(Price(), 381, 0)


def test_wait_before_the_first_attempt_is_no_second_prompt():
    request = open_budget(1_000).open_request(Price(), 300, 10)
    request.add(RetryChunk("waits for its turn", 0.5, 0))
    assert request.estimate_usage().prompt == 300


def test_reported_usage_counts_instead_of_the_estimate():
    budget = open_budget(1_000)
    request = budget.open_request(Price(), 300, 10)
    request.add(TextChunk("x" * 4_000))
    budget.close_request(request, Usage(300, 100, requests=1))
    budget.open_request(Price(), 500, 100)
    with pytest.raises(LimitReached):
        budget.open_request(Price(), 1, 0)


def test_usage_of_an_earlier_run_of_the_turn_counts():
    budget = open_budget(1_000)
    budget.begin(Usage(900, 50))
    with pytest.raises(LimitReached):
        budget.open_request(Price(), 100, 0)


def test_tool_calls_and_reasoning_count_while_they_stream():
    budget = open_budget(350)
    request = budget.open_request(Price(), 300, 10)
    request.add(ReasoningChunk("x" * 120))
    budget.check(request)
    request.add(ToolCallChunk(ToolCall("1", "vote", "y" * 120)))
    with pytest.raises(LimitReached):
        budget.check(request)


def test_first_refused_request_ends_the_turn_also_for_smaller_ones():
    budget = open_budget(1_000)
    budget.begin(Usage(900, 0))
    for prompt in (200, 1):
        with pytest.raises(LimitReached):
            budget.open_request(Price(), prompt, 0)
    assert (budget.reached, budget.exhausted) == ("tokens", False)


def open_priced_budget(max_cost: float) -> Budget:
    """A turn that has sent a request before, so that replies are expected."""
    budget = Budget(CoordinationConfig(max_cost=max_cost))
    budget.begin(Usage(requests=1, cost=0.0))
    return budget


PRICE = price_of(BackendConfig(type="scripted", price=PriceConfig(input=1_000_000, output=2_000_000)), {})
"""A dollar for a token of the prompt, two for one of the reply."""


def test_turn_without_settings_has_no_limit():
    budget = Budget()
    request = budget.open_request(Price(), 10**9, None)
    budget.check(request)
    assert budget.reached is None


def test_first_request_needs_room_for_its_prompt_only():
    request = open_budget(1_000).open_request(Price(), 1_000, 500)
    assert request.expected_tokens == 0
    budget = open_budget(1_000)
    budget.check(budget.open_request(Price(), 1_000, 500))
    with pytest.raises(LimitReached) as refused:
        open_budget(1_000).open_request(Price(), 1_001, 500)
    assert refused.value.partial == ""


def test_room_for_a_reply_is_the_mean_of_those_before():
    def open_with(prompt: int) -> None:
        budget = open_budget(10_000)
        for completion in (100, 300, 500):
            budget.close_request(budget.open_request(Price(), 10, None), Usage(1_000, completion, requests=1))
        budget.open_request(Price(), prompt, None)

    open_with(10_000 - 3_900 - 300)
    with pytest.raises(LimitReached):
        open_with(10_000 - 3_900 - 300 + 1)


def test_prompts_and_replies_are_paid_at_their_own_prices():
    open_priced_budget(120).open_request(PRICE, 100, 10)
    with pytest.raises(LimitReached, match=r"the limit of \$119\.99 for a turn") as refused:
        open_priced_budget(119.99).open_request(PRICE, 100, 10)
    assert refused.value.hint == "raise --max-cost or coordination.max_cost"


def test_request_without_a_price_costs_nothing():
    budget = open_priced_budget(0.01)
    budget.check(budget.open_request(Price(), 10_000, 500))


def test_repeated_prompt_is_paid_again_while_its_reply_streams():
    for budget, price in ((open_budget(550), Price()), (open_priced_budget(550), PRICE)):
        request = budget.open_request(price, 300, 0)
        budget.check(request)
        request.add(RetryChunk("busy", 0.0, 1))
        with pytest.raises(LimitReached):
            budget.check(request)


def test_pieces_of_a_reply_add_up_and_are_kept_when_it_is_cut_off():
    budget = open_budget(330)
    request = budget.open_request(Price(), 300, 10)
    for chunk in (ReasoningChunk("x" * 40), ReasoningChunk("y" * 40), TextChunk("a" * 20), TextChunk("b" * 20)):
        request.add(chunk)
    budget.check(request)
    request.add(TextChunk("c"))
    with pytest.raises(LimitReached) as cut:
        budget.check(request)
    assert cut.value.partial == "a" * 20 + "b" * 20 + "c"
    assert budget.explain_limit() == (
        "the limit of 330 tokens for a turn is reached",
        "raise --max-tokens or coordination.max_tokens",
    )


def test_usage_before_adds_up():
    budget = open_budget(1_000)
    budget.begin(Usage(400))
    budget.begin(Usage(400))
    with pytest.raises(LimitReached):
        budget.open_request(Price(), 201, 0)


async def ask_within_limit(request: ChatRequest, tokens: int, times: int = 1, max_tokens: int | None = None) -> None:
    """Send a request so often, in a turn that may use so many tokens. max_tokens: of the backend."""
    config = config_of("ann", {"answer": "yes"})
    config = config.model_copy(update={"backend": config.backend.model_copy(update={"max_tokens": max_tokens})})
    budget = open_budget(tokens)
    budget.begin(Usage(requests=1))
    provider = budget.limit(config.id, config.backend, await Providers().open(config.backend))
    for _ in range(times):
        await collect(provider, request)


ASK = ChatRequest((ChatMessage("user", "why?"),), "answer", "ann")


async def test_reply_is_expected_to_have_the_tokens_that_it_may_have_at_most():
    await ask_within_limit(ASK, 200, max_tokens=10)
    await ask_within_limit(replace(ASK, max_tokens=10), 200)
    for request, max_tokens in ((ASK, None), (replace(ASK, max_tokens=300), 10)):
        with pytest.raises(LimitReached):
            await ask_within_limit(request, 200, max_tokens=max_tokens)


async def test_after_a_short_reply_a_short_one_is_expected():
    await ask_within_limit(ASK, 520, times=3)


async def test_tools_and_pictures_are_part_of_the_prompt():
    tool = ToolSpec("find", "Finds things. " * 40, {"type": "object", "properties": {"text": {"type": "string"}}})
    picture = make_attachment("plan.png", "image/png", PNG)
    shown = replace(ASK, messages=(ChatMessage("user", "why?", attachments=(picture,)),))
    await ask_within_limit(ASK, 100, max_tokens=1)
    for request in (replace(ASK, tools=(tool,), tool_choice="auto"), shown):
        await ask_within_limit(request, 2_000, max_tokens=1)
        with pytest.raises(LimitReached):
            await ask_within_limit(request, 100, max_tokens=1)


async def test_work_with_tools_ends_while_there_is_room_for_the_answer():
    now = asyncio.get_running_loop().time()
    budget = Budget(CoordinationConfig(max_tokens=10_000, timeout=100))
    budget.begin(Usage(5_000, 0), now + 100)
    assert budget.find_near_limit(Price(), 1_000, 1.0) is None
    assert budget.find_near_limit(Price(), 5_000, 1.0) == "tokens"
    budget.begin(Usage(), now + 14)
    assert budget.find_near_limit(Price(), 10, 1.0) == "time", "15 of 100 seconds are kept"
    budget.begin(Usage(), now + 30)
    assert budget.find_near_limit(Price(), 10, 20.0) == "time", "twice its slowest request"
    assert budget.find_near_limit(Price(), 10, 1.0) is None
    assert open_priced_budget(2_000).find_near_limit(PRICE, 1_000, 1.0) == "cost"
    assert Budget().find_near_limit(Price(), 10**9, 10**9) is None


SEARCH_PRICE = PriceConfig(input=0, output=0, search=10)
SEARCHING = ChatRequest((ChatMessage("user", "why?"),), "answer", "a")


@pytest.mark.parametrize(("max_uses", "fits"), [(3, True), (4, False), (None, False)])
async def test_searches_that_a_request_may_need_are_set_aside(max_uses: int | None, fits: bool) -> None:
    config = config_of("a", {"answer": "because"})
    search = {"web_search": WebSearchConfig(max_uses=max_uses), "price": SEARCH_PRICE}
    config = config.model_copy(update={"backend": config.backend.model_copy(update=search)})
    budget = Budget(CoordinationConfig(max_cost=0.035))
    limited = budget.limit(config.id, config.backend, await Providers().open(config.backend))
    if fits:
        await collect(limited, SEARCHING)
        await collect(limited, replace(SEARCHING, purpose="present"))
    else:
        with pytest.raises(LimitReached) as caught:
            await collect(limited, SEARCHING)
        assert caught.value.hint.endswith("or lower backend.web_search.max_uses")
        # What does not search costs no searches, but the turn has ended.
        assert budget.reached == "cost"


def test_reply_that_searches_beyond_the_limit_is_cut_off() -> None:
    budget = Budget(CoordinationConfig(max_cost=0.035))
    request = budget.open_request(Price(SEARCH_PRICE, searches=True), 100, None, 3)
    for query in ("a", "https://example.com/", "b", "c"):  # a page that is opened is no search
        request.add(SearchChunk(query))
        budget.check(request)
    request.add(SearchChunk("d"))
    with pytest.raises(LimitReached):
        budget.check(request)
