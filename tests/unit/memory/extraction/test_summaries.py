"""Summaries of tool results by a model server on loopback, and by a model of massmem's own."""

import asyncio
from pathlib import Path

import pytest

from massmem.config.models import BackendConfig, MemoryLlmConfig
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    MalformedResponse,
    MassmemError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from massmem.memory.extraction.mem0_models import Bounds
from massmem.memory.extraction.prompts import SUMMARY_SYSTEM
from massmem.memory.extraction.summaries import LONGEST, Summarizer
from massmem.providers.scripted import ScriptedFactory
from tests.support.extraction_stub import completion, configured, failing, prompts
from tests.support.provider_stub import KEY, Http, Stub

RESULT = "src/\n  main.py\n" + "  module.py\n" * 600
QUICK = Bounds(timeout=5, retries=0, max_tokens=300)


async def summary(stub: Stub, home: Path, text: str = RESULT, bounds: Bounds = QUICK) -> str:
    summarizer = Summarizer(configured(stub), home / "state", {}, bounds=bounds)
    try:
        return await summarizer.summarise(text)
    finally:
        await summarizer.close()


async def test_the_model_is_asked_for_plain_text_and_its_own_words_come_back(stub: Stub, home: Path):
    stub.replies = [completion("<think>Hm.</think>A tree with 601 files.")]
    assert await summary(stub, home) == "A tree with 601 files."
    (request,) = stub.requests
    assert prompts(request) == (SUMMARY_SYSTEM, RESULT)
    assert "response_format" not in request.body
    assert (request.body["model"], request.body["max_tokens"]) == ("stub", 300)


async def test_of_a_huge_result_the_ends_are_sent(stub: Stub, home: Path):
    stub.replies = [completion("Long. " * 2_000)]
    said = await summary(stub, home, f"first {'x' * 1_000_000} last")
    assert len(said) <= LONGEST
    _, sent = prompts(stub.requests[0])
    assert len(sent) < 50_000
    assert sent.startswith("first ")
    assert sent.endswith(" last")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (completion(""), MalformedResponse),
        (completion(None), MalformedResponse),
        (completion(None, refusal="No."), ContentRefused),
        (failing(401), AuthenticationError),
        (failing(429, "slow down"), RateLimited),
        (failing(500), ProviderUnavailable),
        (Http(parts=[60.0]), ProviderTimeout),
    ],
)
async def test_failures_keep_their_kind(stub: Stub, home: Path, answer: Http, error: type[MassmemError]):
    stub.replies = [answer]
    with pytest.raises(error) as e:
        await summary(stub, home, bounds=Bounds(timeout=0.5, retries=0, max_tokens=300))
    assert KEY not in e.value.message


async def test_a_chat_provider_summarises(home: Path):
    backend = BackendConfig.model_validate({"type": "scripted", "script": {"summary": "A tree of files."}})
    chat = ScriptedFactory().open(backend)
    summarizer = Summarizer(MemoryLlmConfig(provider="scripted"), home / "state", {}, chat=chat)
    assert await summarizer.summarise(RESULT) == "A tree of files."
    await summarizer.close()
    await asyncio.sleep(0)
    assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []
