"""Context windows by model name, for providers whose servers do not say: as their documentation named them in 2026.

A model that is not listed by its own name gets the smallest window of its family.
"""

_K = 1024

# The longest prefix of the name counts. Where a provider limits the prompt apart from the reply, it is that limit.
_WINDOWS: dict[str, int] = {
    # OpenAI
    "gpt-5": 272_000,
    "gpt-5-chat": 128_000,
    "gpt-4.1": 1_047_576,
    "gpt-4o": 128_000,
    "chatgpt-4o": 128_000,
    "gpt-4-turbo": 128_000,
    "gpt-4-1106": 128_000,
    "gpt-4-0125": 128_000,
    "gpt-4-32k": 32 * _K,
    "gpt-4": 8 * _K,
    "gpt-3.5-turbo": 16_385,
    "gpt-oss": 128 * _K,
    "o1": 200_000,
    "o1-mini": 128_000,
    "o1-preview": 128_000,
    "o3": 200_000,
    "o4-mini": 200_000,
    # Anthropic
    "claude": 200_000,
    "claude-opus-4-6": 1_000_000,
    "claude-sonnet-4-6": 1_000_000,
    "claude-2": 100_000,
    # Google
    "gemini": 1_048_576,
    "gemini-1.5-pro": 2_097_152,
    "gemini-1.0": 30_720,
    "gemma": 8 * _K,
    "gemma-3": 128 * _K,
    "gemma3": 128 * _K,
    # xAI
    "grok": 128 * _K,
    "grok-4": 256_000,
    "grok-4-fast": 2_000_000,
    "grok-4-1-fast": 2_000_000,
    "grok-code": 256_000,
    # Others, under the names that hosts and local servers give them
    "deepseek": 128_000,
    "mistral": 32 * _K,
    "mistral-small": 128_000,
    "mistral-medium": 128_000,
    "mistral-large": 128_000,
    "ministral": 128_000,
    "magistral": 40_000,
    "codestral": 32 * _K,
    "devstral": 128_000,
    "pixtral": 128_000,
    "mixtral": 32 * _K,
    "open-mixtral": 32 * _K,
    "llama-2": 4 * _K,
    "llama2": 4 * _K,
    "llama-3": 8 * _K,
    "llama3": 8 * _K,
    "meta-llama-3": 8 * _K,
    "llama-3.1": 128 * _K,
    "llama3.1": 128 * _K,
    "meta-llama-3.1": 128 * _K,
    "llama-3.2": 128 * _K,
    "llama3.2": 128 * _K,
    "llama-3.3": 128 * _K,
    "llama3.3": 128 * _K,
    "llama-4": 128 * _K,
    "llama4": 128 * _K,
    "qwen": 32 * _K,
    "qwen3-coder": 256 * _K,
    "qwen3-max": 256_000,
    "qwen3-next": 256 * _K,
    "qwq": 32 * _K,
    "phi-3": 4 * _K,
    "phi3": 4 * _K,
    "phi-4": 16 * _K,
    "phi4": 16 * _K,
    "command-r": 128_000,
    "kimi-k2": 128 * _K,
    "glm-4": 128_000,
    "minimax-m2": 192 * _K,
}


def table_window(model: str) -> int | None:
    """Tokens that the model reads; None when no prefix of its name is listed. `owner/` before the name is ignored."""
    name = model.rsplit("/", 1)[-1].lower()
    listed = [prefix for prefix in _WINDOWS if name.startswith(prefix)]
    return _WINDOWS[max(listed, key=len)] if listed else None
