import pytest

from massmem.providers.price_list import find_listed_window

OPENAI, PROXY = "https://api.openai.com/v1", "https://proxy.example/v1"


@pytest.mark.parametrize(
    ("model", "url", "tokens"),
    [
        ("gpt-4o-2024-08-06", OPENAI, 128_000),
        ("gpt-4", OPENAI, 8_192),
        ("o3-mini", OPENAI, 200_000),
        ("claude-sonnet-5", "https://api.anthropic.com", 1_000_000),
        ("grok-4-fast-reasoning", "https://api.x.ai/v1", 2_000_000),
        ("deepseek-chat", "https://api.deepseek.com/v1", 64_000),
    ],
)
def test_the_window_is_that_of_the_provider_at_the_address(model: str, url: str, tokens: int):
    assert find_listed_window(model, url) == tokens


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "gpt-5.1"])
def test_windows_of_openai_leave_room_for_the_reply(model: str):
    assert find_listed_window(model, OPENAI) == 272_000


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("openai/gpt-oss-120b", 131_072),
        ("anthropic/Claude-3-5-Sonnet", 200_000),
        ("models/gemini-2.5-flash", 1_048_576),
        ("gemini-2.5-pro", 1_048_576),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", 131_072),
        ("Meta-Llama-3-8B-Instruct", 8_192),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("mistral-large-latest", 128_000),
    ],
)
def test_elsewhere_the_window_is_what_most_providers_give_the_model(model: str, tokens: int):
    assert find_listed_window(model, PROXY) == tokens


@pytest.mark.parametrize("model", ["somebody-s-model", "gpt", ""])
def test_an_unlisted_model_has_no_window(model: str):
    assert find_listed_window(model, OPENAI) is None
