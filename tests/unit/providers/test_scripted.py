import json
import time
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import ConfigError, ContextOverflow, RateLimited, StreamInterrupted
from massmem.core.messages import (
    Candidate,
    ChatMessage,
    ChatRequest,
    Purpose,
    RetryChunk,
    TextChunk,
    Usage,
)
from massmem.core.prompts import build_present_prompt, build_repair_prompt, build_vote_prompt
from massmem.providers.scripted import ScriptedFactory, ScriptedProvider, parse_script
from massmem.tools.actions import NewAnswer, Vote, build_vote_schema, build_vote_tools, read_action
from tests.support.replies import ask, collect

CANDIDATES = (Candidate("A", "x", "London"), Candidate("B", "y", "Paris"), Candidate("C", "z", "Rome"))
LABELS = ["A", "B", "C"]


def make_provider(script: dict[str, Any] | None = None, **fields: Any) -> ScriptedProvider:
    return ScriptedFactory().open(BackendConfig.model_validate({"type": "scripted", "script": script, **fields}))


def conversation(question: str) -> tuple[ChatMessage, ...]:
    return (ChatMessage("system", ""), ChatMessage("user", question))


def asking(purpose: Purpose = "answer") -> ChatRequest:
    return ChatRequest(conversation("Capital of France?"), purpose, "alice")


def voting(provider: ScriptedProvider, *extra: ChatMessage) -> ChatRequest:
    prompt = build_vote_prompt("Capital of France?", CANDIDATES, final=False, tools=provider.abilities.tools)
    messages = (*conversation(prompt), *extra)
    if provider.abilities.tools:
        return ChatRequest(messages, "vote", "alice", tools=build_vote_tools(LABELS, final=False))
    return ChatRequest(messages, "vote", "alice", schema=build_vote_schema(LABELS, final=False))


async def test_without_a_script_a_whole_turn_can_be_played() -> None:
    provider = make_provider()
    assert (await ask(provider, asking())).text == "Answer of alice."
    vote = await ask(provider, voting(provider))
    assert read_action(vote, LABELS, final=False) == Vote("A", "scripted")
    present = ChatRequest(conversation(build_present_prompt("Q", CANDIDATES, "B")), "present", "alice")
    assert (await ask(provider, present)).text == "Paris"
    assert (await ask(provider, asking("summary"))).text == "Summary of 2 messages."
    assert json.loads((await ask(provider, asking("extract"))).text) == []


async def test_replies_go_in_order_by_purpose_and_the_last_repeats() -> None:
    provider = make_provider({"answer": ["one", {"text": "two"}], "present": "done"})
    said = [(await ask(provider, asking())).text for _ in range(3)]
    assert said == ["one", "two", "two"]
    assert (await ask(provider, asking("present"))).text == "done"


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("B", Vote("B", "scripted")),
        ("first", Vote("A", "scripted")),
        ({"vote": "last", "reason": "r"}, Vote("C", "r")),
        ({"vote_for": "Par", "reason": "r"}, Vote("B", "r")),
        ({"new_answer": "Lyon"}, NewAnswer("Lyon")),
    ],
)
async def test_actions_come_in_the_form_that_was_asked_for(tools: bool, reply: object, action: object) -> None:
    provider = make_provider({"vote": reply}, tools=tools)
    said = await ask(provider, voting(provider))
    assert bool(said.tool_calls) == tools
    read = read_action(said, LABELS, final=False)
    assert read == action or read == replace(action, reason="scripted")


async def test_candidates_are_found_behind_a_repair_exchange() -> None:
    provider = make_provider({"vote": {"vote_for": "Rome"}}, tools=False)
    extra = (ChatMessage("assistant", "?"), ChatMessage("user", build_repair_prompt("no JSON")))
    assert read_action(await ask(provider, voting(provider, *extra)), LABELS, final=False) == Vote("C", "scripted")


async def test_malformed_replies_are_sent_unchanged() -> None:
    provider = make_provider({"vote": [{"vote": "A", "raw": "{oops"}, {"raw": "I like them all."}]})
    assert (await ask(provider, voting(provider))).tool_calls[0].arguments == "{oops"
    second = await ask(provider, voting(provider))
    assert (second.text, second.tool_calls) == ("I like them all.", [])


async def test_chunks_have_the_scripted_size() -> None:
    provider = make_provider({"answer": "Paris.", "chunk_size": 4})
    texts = [c.text for c in await collect(provider, asking()) if isinstance(c, TextChunk)]
    assert texts == ["Pari", "s."]


async def test_a_retry_gets_the_next_reply() -> None:
    provider = make_provider({"answer": [{"error": "rate_limit", "retry_after": 0}, "Paris."]})
    chunks = await collect(provider, asking())
    assert chunks[0] == RetryChunk("scripted: rate_limit", 0.0, 2)
    assert chunks[1] == TextChunk("Paris.")
    with pytest.raises(RateLimited):
        await ask(make_provider({"answer": {"error": "rate_limit", "retry_after": 0}}), asking())


async def test_text_before_a_failure_is_its_partial_text() -> None:
    for reply in ({"text": "Par", "error": "interrupted"}, {"text": "Par", "finish": "none"}):
        with pytest.raises(StreamInterrupted) as caught:
            await ask(make_provider({"answer": reply}, max_retries=0), asking())
        assert caught.value.partial == "Par"


async def test_a_prompt_beyond_the_window_is_refused() -> None:
    provider = make_provider({"context_window": 30})
    assert (await ask(provider, ChatRequest((ChatMessage("user", "x" * 120),), "answer", "a"))).text
    with pytest.raises(ContextOverflow) as caught:
        await ask(provider, ChatRequest((ChatMessage("user", "x" * 121),), "answer", "a"))
    assert (caught.value.prompt_tokens, caught.value.window) == (31, 30)


async def test_usage_is_characters_by_four_with_tools_counted() -> None:
    provider = make_provider({"answer": "x" * 9})
    plain = (await ask(provider, ChatRequest((ChatMessage("user", "x" * 40),), "answer", "a"))).usage
    assert plain == Usage(prompt=10, completion=3, requests=1, cost=0.0)
    assert await provider.count_prompt(ChatRequest((ChatMessage("user", "x" * 40),), "answer", "a")) == 10
    vote = voting(provider)
    without = ChatRequest(vote.messages, "vote", "a")
    assert (await ask(provider, vote)).usage.prompt > (await ask(provider, without)).usage.prompt


async def test_latency_is_what_the_script_says() -> None:
    provider = make_provider({"latency": 0.1, "answer": {"text": "x" * 10_000, "delay": 0.1}, "chunk_size": 1000})
    waits: list[float] = []
    for _ in range(3):
        start = time.monotonic()
        async with aclosing(provider.stream(asking())) as chunks:
            await anext(chunks)
        waits.append(time.monotonic() - start)
    assert min(waits) >= 0.199
    assert min(waits) < 0.4, "nothing is waited for twice"


@pytest.mark.parametrize(
    ("script", "where"),
    [
        ({"anwser": "x"}, "backend.script.anwser"),
        ({"vote": [{"vot": "A"}]}, "backend.script.vote.0.vot"),
        ({"answer": {"error": "ratelimit"}}, "backend.script.answer.0.error"),
        ({"latency": -1}, "backend.script.latency"),
        ({"answer": 5}, "backend.script.answer.0"),
    ],
)
def test_mistakes_in_a_script_are_config_errors(script: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_script(script)
    assert caught.value.problems[0].startswith(f"{where}: ")
