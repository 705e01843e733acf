"""Summaries of tool results by a model server on loopback, and by a model of massmem's own."""

from pathlib import Path

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    MalformedResponse,
    MassmemError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from massmem.memory.extraction.extractor import open_extractor
from massmem.memory.extraction.models import Bounds, MemoryModel, open_model
from massmem.memory.extraction.prompts import SUMMARY_SYSTEM
from massmem.memory.extraction.summaries import LONGEST, summarize_result
from massmem.providers import Providers
from massmem.providers.scripted import ScriptedFactory
from tests.support.extraction_stub import completion, configured, failing, prompts
from tests.support.provider_stub import KEY, Http, Stub

RESULT = "src/\n  main.py\n" + "  module.py\n" * 600
QUICK = Bounds(timeout=5, retries=0)


async def summarize(stub: Stub, home: Path, text: str = RESULT, bounds: Bounds = QUICK) -> str:
    providers = Providers()
    try:
        return await summarize_result(await open_model(configured(stub), providers, home / "state", {}, bounds), text)
    finally:
        await providers.close()


async def test_the_model_is_asked_for_plain_text_and_its_own_words_come_back(stub: Stub, home: Path):
    stub.replies = [completion("<think>Hm.</think>A tree with 601 files.")]
    assert await summarize(stub, home) == "A tree with 601 files."
    (request,) = stub.requests
    assert prompts(request) == (SUMMARY_SYSTEM, RESULT)
    assert "response_format" not in request.body
    assert (request.body["model"], request.body["max_tokens"]) == ("stub", 1_000)


async def test_of_a_huge_result_the_ends_are_sent(stub: Stub, home: Path):
    stub.replies = [completion("Long. " * 2_000)]
    said = await summarize(stub, home, f"first {'x' * 1_000_000} last")
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
        await summarize(stub, home, bounds=Bounds(timeout=0.5, retries=0))
    assert KEY not in e.value.message


async def test_a_scripted_model_summarizes():
    backend = BackendConfig.model_validate({"type": "scripted", "script": {"summary": "A tree of files."}})
    model = MemoryModel(ScriptedFactory().open(backend), compact=True)
    assert await summarize_result(model, RESULT) == "A tree of files."


async def test_results_may_be_summarized_by_another_model_than_facts(stub: Stub, home: Path):
    stub.replies = [completion("Short.")]
    async with open_extractor(configured(stub), home / "state", None, {}) as extractor:
        assert extractor is not None
        await extractor.summarize(RESULT, "larger")
        await extractor.summarize(RESULT, None)
    assert [request.body["model"] for request in stub.requests] == ["larger", "stub"]
