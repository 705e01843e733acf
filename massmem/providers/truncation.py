"""Servers that cut a prompt to their context size instead of refusing it: noticed by their own count."""

from massmem.config.models import BackendConfig, BackendType
from massmem.errors import PromptTruncated

# Vocabularies differ. For one token that we count (o200k_base, and a twentieth more) Qwen's needs 0.97 for prose, 0.95
# for code, 0.82 for Chinese, 0.78 for Japanese and, as the lowest of fourteen kinds of text, 0.64 for nothing but
# emoji. A server that cuts keeps its window or half of it, and conversations grow: what is missed at first is noticed
# some turns later.
_SHARE = 0.6
# Below it, one template that words things differently could make the difference.
_LEAST = 300

_SETTINGS: dict[BackendType, str] = {
    "ollama": "num_ctx in its Modelfile, or OLLAMA_CONTEXT_LENGTH where `ollama serve` runs",
    "llamacpp": "--ctx-size of llama-server (it is divided by --parallel)",
    "lmstudio": "the context length that the model is loaded with",
    "vllm": "--max-model-len",
}
_ANY = "the context size of the server (Ollama: num_ctx or OLLAMA_CONTEXT_LENGTH; llama.cpp: --ctx-size)"


def truncated(estimated: int, reported: int) -> bool:
    """Whether a server cut a prompt of `estimated` tokens (Buffer.at_least) that it counted as `reported`.

    reported: with those from the cache, as Usage.prompt has them; 0: it does not say, which proves nothing.
    """
    return 0 < reported < estimated * _SHARE and estimated - reported >= _LEAST


def prompt_truncated(backend: BackendConfig, estimated: int, reported: int) -> PromptTruncated:
    """The error that says so and names the setting to raise."""
    return PromptTruncated(
        f"{backend.type} ({backend.model}) read {reported:,} of about {estimated:,} tokens: it cut the prompt to its "
        "context size without saying so, and its reply does not count",
        f"Raise {_SETTINGS.get(backend.type, _ANY)}, or set backend.context_window to what it really has.",
    )
