"""The local provider on real llama.cpp with a real, very small model."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from massmem.config.models import BackendConfig
from massmem.core.errors import ContextOverflow, MissingModelError, ProviderTimeout, RequestRejected, StreamInterrupted
from massmem.core.messages import (
    ActivityChunk,
    ChatMessage,
    ChatRequest,
    FinishChunk,
    TextChunk,
    ToolCall,
    ToolSpec,
)
from massmem.providers.local import LocalFactory
from tests.support.replies import ask, collect, wait_for_text
from tests.support.small_model import find_small_model

in_one_loop = pytest.mark.asyncio(loop_scope="module")

VOTE = {
    "type": "object",
    "properties": {"reason": {"type": "string", "maxLength": 60}, "choice": {"enum": ["A", "B"]}},
    "required": ["reason", "choice"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def model() -> Path:
    path = find_small_model()
    if path is None:
        pytest.skip("the small model is not on this machine: python -m tests.support.small_model")
    return path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def runtimes() -> AsyncIterator[LocalFactory]:
    """One for all tests: a model is loaded once a window."""
    opened = LocalFactory()
    yield opened
    await opened.close()


def backend(model: Path, **settings: object) -> BackendConfig:
    return BackendConfig.model_validate({"type": "local", "model": str(model), **settings})


def asking(text: str, **settings: object) -> ChatRequest:
    """Temperature 0: the model says the same each time."""
    messages = (ChatMessage("system", "You answer shortly."), ChatMessage("user", text))
    return ChatRequest(messages, **{"purpose": "answer", "max_tokens": 12, "temperature": 0.0, **settings})  # type: ignore[arg-type]


async def test_loading_and_reading_are_reported(model: Path) -> None:
    factory = LocalFactory()
    try:
        provider = factory.open(backend(model, context_window=1_024))
        loading = [chunk async for chunk in provider.prepare()]
        assert {chunk.activity for chunk in loading} == {"loading"}
        assert [chunk async for chunk in provider.prepare()] == [], "it is loaded"
        chunks = await collect(provider, asking("Count these words: " + "word " * 300))
    finally:
        await factory.close()
    reading = [chunk for chunk in chunks if isinstance(chunk, ActivityChunk)]
    assert reading[0].activity == "reading"
    shares = [chunk.share for chunk in reading if chunk.share is not None]
    assert shares == sorted(shares)
    assert 0.0 <= shares[0] <= shares[-1] <= 1.0
    are_reports = [isinstance(chunk, ActivityChunk) for chunk in chunks]
    assert are_reports == sorted(are_reports, reverse=True), "they come before the reply"


@in_one_loop
async def test_one_model_for_all_agents_streams_and_counts(model: Path, runtimes: LocalFactory) -> None:
    first, second = runtimes.open(backend(model)), runtimes.open(backend(model))
    got = await collect(first, asking("Tell me a story."))
    assert sum(isinstance(chunk, TextChunk) for chunk in got) > 5
    last = got[-1]
    assert isinstance(last, FinishChunk)
    assert last.reason == "length"
    assert (last.usage.completion, last.usage.requests, last.usage.reported) == (12, 1, True)
    started = time.monotonic()
    again = await ask(second, asking("Tell me a story."))
    assert again.usage.prompt == last.usage.prompt > 10
    assert again.usage.cached > 0, "the second agent found the prompt of the first: it is one model"
    assert time.monotonic() - started < 30
    assert await first.count_prompt(asking("Tell me a story.")) == last.usage.prompt
    begun = (ChatMessage("user", "Tell me a story."), ChatMessage("assistant", "A cat, a dog"))
    after = (*begun, ChatMessage("user", "Go on."))
    assert await first.count_prompt(ChatRequest(begun, "answer")) == await first.count_prompt(
        ChatRequest(after, "answer")
    ), "it is no prefix that the model continues"
    assert (await first.count_prompt(asking("<|im_start|> \ud800")) or 0) > 5
    # A schema is kept to, whatever the model would rather say.
    voted = await ask(first, asking("Vote.", schema=VOTE, max_tokens=120))
    assert voted.finish == "stop"
    assert set(json.loads(voted.text)) == {"reason", "choice"}


@in_one_loop
async def test_more_agents_than_slots_all_get_their_answer(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    replies = await asyncio.gather(*(ask(provider, asking(f"Count from {n}.", max_tokens=4)) for n in range(5)))
    assert [reply.usage.completion for reply in replies] == [4] * 5


@pytest.mark.slow
@in_one_loop
async def test_closing_the_stream_stops_the_model(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    started = time.monotonic()
    await ask(provider, asking("Count to a thousand.", max_tokens=40))
    forty_tokens = time.monotonic() - started
    streams = [provider.stream(asking("Count to a thousand.", max_tokens=3000)) for _ in range(3)]
    for stream in streams:
        await wait_for_text(stream)
    started = time.monotonic()
    for stream in streams:
        await stream.aclose()
    assert time.monotonic() - started < 5
    # All three slots are free at once: had they gone on, this would wait for thousands of tokens.
    await ask(provider, asking("Say hello.", max_tokens=1))
    assert time.monotonic() - started < max(10, 5 * forty_tokens)


@pytest.mark.slow
@in_one_loop
async def test_a_cancelled_agent_leaves_the_queue(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    await ask(provider, asking("Warm up.", max_tokens=1))
    tasks = [asyncio.create_task(ask(provider, asking("Long. " * 50, max_tokens=2000))) for _ in range(5)]
    await asyncio.sleep(0.3)
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert (await ask(provider, asking("Say hello.", max_tokens=2))).usage.completion == 2


@pytest.mark.slow
@in_one_loop
async def test_the_event_loop_goes_on_while_the_model_works(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    await ask(provider, asking("Warm up.", max_tokens=1))
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await ask(provider, asking("Once upon a time. " * 30, max_tokens=10))
    ticking.cancel()
    assert ticks > 20


@pytest.mark.slow
@in_one_loop
async def test_a_prompt_too_long_names_both_numbers(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model, context_window=512))
    with pytest.raises(ContextOverflow) as e:
        await ask(provider, asking("word " * 2000))
    assert e.value.window == 512
    assert (e.value.prompt_tokens or 0) > 2000
    # Each agent has the window that it asked for, not a share of it.
    fits = await ask(provider, asking("word " * 450, max_tokens=200))
    assert fits.usage.prompt > 450
    assert fits.finish in ("length", "stop")
    assert fits.usage.prompt + fits.usage.completion <= 512


@in_one_loop
async def test_settings_of_the_backend_hold_and_those_of_the_request_win(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model, max_tokens=5, temperature=0))
    told = await ask(provider, asking("Count up.", max_tokens=None, temperature=None))
    assert told.usage.completion <= 5
    assert told.text == (await ask(provider, asking("Count up.", max_tokens=None, temperature=None))).text
    assert (await ask(provider, asking("Count up.", max_tokens=3))).usage.completion == 3


@in_one_loop
async def test_votes_are_the_same_each_time_however_free_the_answers_are(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model, temperature=2.0))
    votes = [await ask(provider, asking("Count up.", temperature=None, purpose="vote")) for _ in range(3)]
    assert len({vote.text for vote in votes}) == 1


@in_one_loop
async def test_votes_go_one_after_another_and_read_only_what_differs(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    shared = "Here are two answers. " + "One is short, one is long. " * 20
    requests = [asking(f"{shared} You are voter {number}.", purpose="vote") for number in range(3)]
    replies = await asyncio.gather(*(ask(provider, request) for request in requests))
    reread = sorted(reply.usage.prompt - reply.usage.cached for reply in replies)
    assert reread[1] < 20 < 100 < reread[2]


@in_one_loop
async def test_other_models_tool_calls_are_text_here(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    call = ToolCall("1", "vote", '{"choice": "A"}')
    messages = (
        ChatMessage("user", "Vote."),
        ChatMessage("assistant", "", (call,)),
        ChatMessage("tool", "done \x00", tool_call_id="1"),
    )
    assert (await ask(provider, ChatRequest(messages, "answer", max_tokens=2))).usage.completion == 2
    with pytest.raises(RequestRejected, match="no tools"):
        await ask(provider, asking("Vote.", tools=(ToolSpec("vote", "Vote", {}),)))


@in_one_loop
async def test_a_schema_that_cannot_be_used_is_a_rejected_request(model: Path, runtimes: LocalFactory) -> None:
    provider = runtimes.open(backend(model))
    with pytest.raises(RequestRejected):
        await ask(provider, asking("x", schema={"type": "object", "properties": {"a": {"$ref": "#/nowhere"}}}))
    assert (await ask(provider, asking("Say hello.", max_tokens=1))).usage.completion == 1


@in_one_loop
async def test_silence_has_an_end(model: Path, runtimes: LocalFactory) -> None:
    await ask(runtimes.open(backend(model)), asking("Warm up.", max_tokens=1))
    impatient = runtimes.open(backend(model, timeout=0.001))
    with pytest.raises(ProviderTimeout, match="said nothing"):
        await ask(impatient, asking("Read this. " * 100))


@pytest.mark.slow
@in_one_loop
async def test_closing_while_it_writes_is_an_interrupted_stream(model: Path) -> None:
    runtimes = LocalFactory()
    stream = runtimes.open(backend(model)).stream(asking("Count to a thousand.", max_tokens=2000))
    first = await wait_for_text(stream)
    await asyncio.wait_for(runtimes.close(), 20)
    with pytest.raises(StreamInterrupted) as e:
        async for _ in stream:
            pass
    assert e.value.partial.startswith(first.text)


@in_one_loop
async def test_files_that_are_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtimes: LocalFactory
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(5000))
    with pytest.raises(MissingModelError, match=r"cannot load .*broken\.gguf"):
        await ask(runtimes.open(backend(broken)), asking("x"))
    with pytest.raises(MissingModelError, match="No such file"):
        runtimes.open(backend(tmp_path / "missing.gguf"))
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    with pytest.raises(MissingModelError) as e:
        runtimes.open(BackendConfig(type="local"))
    assert e.value.hint == "run: massmem models fetch"
    with pytest.raises(MissingModelError) as e:
        runtimes.open(BackendConfig(type="local", model="https://example.org/m.gguf"))
    assert e.value.hint == "run: massmem models fetch https://example.org/m.gguf"


CHILD = """
import asyncio, os, signal, sys
from massmem.config.models import BackendConfig
from massmem.core.messages import ChatMessage, ChatRequest
from massmem.providers.local import LocalFactory

async def main():
    provider = LocalFactory().open(BackendConfig(type="local", model=sys.argv[1]))
    async for chunk in provider.stream(ChatRequest((ChatMessage("user", "Count."),), "answer", max_tokens=3000)):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.01)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_it_is_silent_and_leaves_ctrl_c_to_python(model: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(model)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=Path(__file__).parents[3],
    )
    assert (ran.stdout, ran.stderr, ran.returncode) == ("interrupted\n", "", 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
