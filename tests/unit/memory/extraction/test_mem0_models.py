"""mem0's own providers: each reaches the configured server, and what is missing is named."""

from pathlib import Path

import pytest

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import (
    ContentRefused,
    InputError,
    MissingKeyError,
    ProviderUnavailable,
)
from massmem.memory.extraction.mem0 import Mem0Extractor
from massmem.memory.extraction.prompts import COMPACT_SYSTEM
from tests.support.extraction_stub import (
    FIRST,
    ORIGIN,
    QUICK,
    TURN,
    Open,
    completion,
    configured,
    facts,
    failing,
    memory,
    prompts,
    reply,
    texts,
)
from tests.support.provider_stub import KEY, Http, Stub


@pytest.mark.parametrize("provider", ["openai", "openai_structured", "deepseek", "xai", "minimax", "lmstudio", "vllm"])
async def test_providers_reach_the_configured_server(stub: Stub, open_extractor: Open, provider: str):
    stub.replies = [facts(FIRST), completion(None, "content_filter")]
    extractor = open_extractor(configured(stub, provider))
    assert texts(await extractor.extract(TURN, ORIGIN)) == [FIRST]
    with pytest.raises(ContentRefused):
        await extractor.extract(TURN, ORIGIN)
    assert [r.path for r in stub.requests] == ["/v1/chat/completions"] * 2
    compact = prompts(stub.requests[0])[0] == COMPACT_SYSTEM
    assert compact is (provider in ("lmstudio", "vllm"))


async def test_anthropic_is_read_in_its_own_protocol(stub: Stub, open_extractor: Open):
    def message(text: str, stop: str) -> Http:
        content = [{"type": "text", "text": text}] if text else []
        usage = {"input_tokens": 1, "output_tokens": 1}
        return reply(200, {"id": "m", "type": "message", "role": "assistant", "model": "stub", "content": content,
                           "stop_reason": stop, "stop_sequence": None, "usage": usage})  # fmt: skip

    stub.replies = [message(memory(FIRST), "end_turn"), message("", "refusal"), failing(529)]
    config = configured(stub, "anthropic").model_copy(update={"base_url": stub.url})
    extractor = open_extractor(config)
    assert texts(await extractor.extract(TURN, ORIGIN)) == [FIRST]
    with pytest.raises(ContentRefused):
        await extractor.extract(TURN, ORIGIN)
    with pytest.raises(ProviderUnavailable):
        await extractor.extract(TURN, ORIGIN)
    assert {r.path for r in stub.requests} == {"/v1/messages"}
    assert all(KEY in " ".join(r.headers.values()) for r in stub.requests)


async def test_an_openrouter_key_cannot_redirect_it(stub: Stub, open_extractor: Open, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-0123456789abcdef")
    stub.replies = [facts(FIRST)]
    assert texts(await open_extractor().extract(TURN, ORIGIN)) == [FIRST]
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize(
    ("provider", "package"),
    [("groq", "groq"), ("together", "together"), ("gemini", "google-genai"), ("ollama", "ollama"),
     ("azure_openai", "azure-identity"), ("aws_bedrock", "boto3"), ("litellm", "litellm")],
)  # fmt: skip
async def test_a_missing_package_is_named(stub: Stub, open_extractor: Open, provider: str, package: str):
    with pytest.raises(InputError) as e:
        await open_extractor(configured(stub, provider)).extract(TURN, ORIGIN)
    assert e.value.hint == f"pip install {package}"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"provider": "opnai"}, "did you mean 'openai'?"),
        ({"provider": "langchain"}, "mem0 has no 'langchain'"),
        ({"provider": "openai", "api_key": "k", "base_url": "localhost:8000"}, "no http:// or https:// address"),
        ({"provider": "openai"}, "OPENAI_API_KEY is not set"),
        ({"provider": "openai", "api_key": "a key"}, "characters that no key has"),
        ({"provider": "local"}, "no such model open"),
    ],
)
async def test_what_is_wrong_with_the_configuration_is_said(open_extractor: Open, config: dict[str, str], words: str):
    with pytest.raises(InputError) as e:
        await open_extractor(MemoryLlmConfig.model_validate(config)).extract(TURN, ORIGIN)
    assert words in e.value.message


async def test_the_key_may_come_from_the_environment(stub: Stub, home: Path):
    stub.replies = [facts(FIRST)]
    config = MemoryLlmConfig(provider="deepseek", base_url=f"{stub.url}/v1")
    extractor = Mem0Extractor(config, home / "state", {"DEEPSEEK_API_KEY": KEY}, limits=QUICK)
    await extractor.extract(TURN, ORIGIN)
    await extractor.close()
    assert stub.requests[0].headers["authorization"] == f"Bearer {KEY}"
    assert stub.requests[0].body["model"] == "deepseek-chat"
    with pytest.raises(MissingKeyError):
        await Mem0Extractor(config, home / "state", {}, limits=QUICK).extract(TURN, ORIGIN)
