import pytest

from massmem.providers.window_table import table_window


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("gpt-5-mini", 272_000),
        ("gpt-5-chat-latest", 128_000),
        ("gpt-4.1-nano-2025-04-14", 1_047_576),
        ("gpt-4o-2024-08-06", 128_000),
        ("gpt-4", 8_192),
        ("gpt-4-turbo", 128_000),
        ("o3-mini", 200_000),
        ("openai/gpt-oss-120b", 131_072),
        ("anthropic/Claude-3-5-Sonnet", 200_000),
        ("claude-2.1", 100_000),
        ("models/gemini-2.5-flash", 1_048_576),
        ("grok-4-fast-reasoning", 2_000_000),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", 131_072),
        ("Meta-Llama-3-8B-Instruct", 8_192),
        ("qwen3-coder:30b", 262_144),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("somebody-s-model", None),
        ("", None),
    ],
)
def test_the_longest_prefix_counts(model: str, tokens: int | None):
    assert table_window(model) == tokens
