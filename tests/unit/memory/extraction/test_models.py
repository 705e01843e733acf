"""The providers of the model that extracts: each reaches the configured server, and what is missing is named."""

from pathlib import Path

import pytest

from massmem.config.models import BackendConfig, MemoryLlmConfig
from massmem.core.errors import (
    AuthenticationError,
    ContentRefused,
    InputError,
    MalformedResponse,
    MassmemError,
    MissingKeyError,
    ProviderTimeout,
    ProviderUnavailable,
    RateLimited,
)
from massmem.memory.extraction.extractor import LONGEST_SUMMARY, Bounds, MemoryModel, open_model
from massmem.memory.extraction.extractor import open_extractor as open_configured
from massmem.memory.extraction.prompts import COMPACT_SYSTEM, SUMMARY_SYSTEM
from massmem.memory.mem0 import list_key_variables
from massmem.providers import Providers
from massmem.providers.scripted import ScriptedFactory
from tests.support.extraction_stub import (
    FIRST,
    ORIGIN,
    TURN,
    Open,
    completion,
    facts,
    failing,
    make_llm_config,
    memory,
    texts,
)
from tests.support.extraction_stub import prompts as prompts_of
from tests.support.provider_stub import KEY, AnthropicWire, Http, ResponsesWire, Say, Stub


@pytest.mark.parametrize(
    "provider",
    ["openai", "openai_structured", "deepseek", "xai", "minimax", "sarvam", "groq", "together", "gemini",
     "openrouter", "ollama", "lmstudio", "vllm"],
)  # fmt: skip
async def test_providers_reach_the_configured_server(stub: Stub, open_extractor: Open, provider: str):
    stub.replies = [facts(FIRST), completion(None, "content_filter")]
    extractor = open_extractor(make_llm_config(stub, provider))
    assert texts(await extractor.extract(TURN, ORIGIN)) == [FIRST]
    with pytest.raises(ContentRefused):
        await extractor.extract(TURN, ORIGIN)
    assert [r.path for r in stub.requests] == ["/v1/chat/completions"] * 2
    on_this_machine = provider in ("ollama", "lmstudio", "vllm")
    assert (prompts_of(stub.requests[0])[0] == COMPACT_SYSTEM) is on_this_machine
    assert ("response_format" in stub.requests[0].body) is on_this_machine


async def test_ollama_is_reached_at_the_address_that_mem0_wants(stub: Stub, open_extractor: Open):
    stub.replies = [facts(FIRST)]
    config = make_llm_config(stub, "ollama").model_copy(update={"base_url": stub.url})
    assert texts(await open_extractor(config).extract(TURN, ORIGIN)) == [FIRST]


async def test_azure_is_reached_by_the_variables_that_mem0_reads(stub: Stub, open_extractor: Open):
    stub.replies = [ResponsesWire().stream(Say([memory(FIRST)]))]
    environ = {"LLM_AZURE_OPENAI_API_KEY": KEY, "LLM_AZURE_ENDPOINT": stub.url}
    extractor = open_extractor(MemoryLlmConfig(provider="azure_openai", model="small"), environ=environ)
    assert texts(await extractor.extract(TURN, ORIGIN)) == [FIRST]
    assert stub.requests[0].path == "/openai/v1/responses"
    assert stub.requests[0].body["model"] == "small"
    assert KEY in " ".join(stub.requests[0].headers.values())


async def test_anthropic_is_asked_in_its_own_protocol(stub: Stub, open_extractor: Open):
    wire = AnthropicWire()
    stub.replies = [
        wire.stream(Say([memory(FIRST)])), wire.stream(Say(finish="refused")), wire.error(529, "overloaded")
    ]  # fmt: skip
    config = make_llm_config(stub, "anthropic").model_copy(update={"base_url": stub.url})
    extractor = open_extractor(config)
    assert texts(await extractor.extract(TURN, ORIGIN)) == [FIRST]
    with pytest.raises(ContentRefused):
        await extractor.extract(TURN, ORIGIN)
    with pytest.raises(ProviderUnavailable):
        await extractor.extract(TURN, ORIGIN)
    assert {r.path for r in stub.requests} == {"/v1/messages"}
    assert all(KEY in " ".join(r.headers.values()) for r in stub.requests)


async def test_another_providers_key_in_the_environment_is_not_sent(
    stub: Stub, open_extractor: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-0123456789abcdef")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-0123456789abcdef")
    stub.replies = [facts(FIRST)]
    assert texts(await open_extractor().extract(TURN, ORIGIN)) == [FIRST]
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(MissingKeyError, match="MINIMAX_API_KEY is not set"):
        await open_extractor(MemoryLlmConfig(provider="minimax")).extract(TURN, ORIGIN)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"provider": "opnai"}, "there is no 'opnai'; did you mean 'openai'?"),
        ({"provider": "langchain"}, "there is no 'langchain'"),
        ({"provider": "openai", "api_key": "k", "base_url": "localhost:8000"}, "not an http:// or https:// address"),
        ({"provider": "openai"}, "OPENAI_API_KEY is not set"),
        ({"provider": "together", "api_key": "k"}, "name the model to use with 'together'"),
        ({"provider": "openai", "api_key": "a key"}, "characters that no key has"),
    ],
)
async def test_a_wrong_configuration_names_its_mistake_and_section(
    open_extractor: Open, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], words: str
):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(InputError) as e:
        await open_extractor(MemoryLlmConfig.model_validate(config)).extract(TURN, ORIGIN)
    assert words in e.value.message
    assert "memory.persistent_memory.llm" in e.value.message


async def test_key_and_default_model_come_from_the_environment_and_the_table(
    stub: Stub, open_extractor: Open, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    stub.replies = [facts(FIRST)]
    await open_extractor(MemoryLlmConfig(provider="deepseek", base_url=f"{stub.url}/v1")).extract(TURN, ORIGIN)
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert stub.requests[0].body["model"] == "deepseek-chat"


@pytest.mark.parametrize(
    ("provider", "variables"),
    [
        ("openai", ("OPENAI_API_KEY",)),
        ("azure_openai", ("LLM_AZURE_OPENAI_API_KEY", "AZURE_OPENAI_API_KEY")),
        ("minimax", ("MINIMAX_API_KEY",)),
        ("xai", ("XAI_API_KEY",)),
        ("ollama", ()),
        ("local", ()),
        ("nobody", ()),
    ],
)
def test_key_variables_of_a_provider(provider: str, variables: tuple[str, ...]):
    assert list_key_variables(provider, "llm") == variables


# -- summaries of tool results --------------------------------------------------------------------------------------

RESULT = "src/\n  main.py\n" + "  module.py\n" * 600
QUICK_SUMMARY = Bounds(timeout=5, retries=0)


async def summarize(stub: Stub, home: Path, text: str = RESULT, bounds: Bounds = QUICK_SUMMARY) -> str:
    providers = Providers()
    try:
        return await (await open_model(make_llm_config(stub), providers, {}, bounds)).summarize(text)
    finally:
        await providers.close()


async def test_the_model_is_asked_for_plain_text_and_its_own_words_come_back(stub: Stub, home: Path):
    stub.replies = [completion("<think>Hm.</think>A tree with 601 files.")]
    assert await summarize(stub, home) == "A tree with 601 files."
    (request,) = stub.requests
    assert prompts_of(request) == (SUMMARY_SYSTEM, RESULT)
    assert "response_format" not in request.body
    assert (request.body["model"], request.body["max_tokens"]) == ("stub", 1_000)


async def test_of_a_huge_result_the_ends_are_sent(stub: Stub, home: Path):
    stub.replies = [completion("Long. " * 2_000)]
    summary = await summarize(stub, home, f"first {'x' * 1_000_000} last")
    assert len(summary) <= LONGEST_SUMMARY
    _, sent = prompts_of(stub.requests[0])
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
async def test_failures_of_a_summary_keep_their_kind(stub: Stub, home: Path, answer: Http, error: type[MassmemError]):
    stub.replies = [answer]
    with pytest.raises(error) as e:
        await summarize(stub, home, bounds=Bounds(timeout=0.5, retries=0))
    assert KEY not in e.value.message


async def test_end_of_a_cut_summary_is_marked_and_a_cut_thought_is_none(stub: Stub, home: Path):
    stub.replies = [completion("A tree with", finish="length"), completion("<think>A tree", finish="length")]
    assert await summarize(stub, home) == "A tree with [...]"
    with pytest.raises(MalformedResponse):
        await summarize(stub, home)


async def test_a_scripted_model_summarizes():
    backend = BackendConfig.model_validate({"type": "scripted", "script": {"summary": "A tree of files."}})
    model = MemoryModel(ScriptedFactory().open(backend), compact=True)
    assert await model.summarize(RESULT) == "A tree of files."


async def test_results_may_be_summarized_by_another_model_than_facts(stub: Stub, home: Path):
    stub.replies = [completion("Short.")]
    async with open_configured(make_llm_config(stub), home / "state", None, {}) as extractor:
        assert extractor is not None
        await extractor.summarize(RESULT, "larger")
        await extractor.summarize(RESULT, None)
    assert [request.body["model"] for request in stub.requests] == ["larger", "stub"]
