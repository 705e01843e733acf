import pytest

from massmem.config.models import BackendConfig
from massmem.errors import PromptTruncated
from massmem.providers.truncation import prompt_truncated, truncated


@pytest.mark.parametrize(
    ("estimated", "reported", "cut"),
    [
        (7_900, 2_050, True),  # Ollama 0.32 with a window of 4,096
        (7_900, 4_096, True),
        (100_000, 59_999, True),
        (100_000, 60_000, False),
        (5_000, 4_096, False),  # could be the vocabulary; the next turn is longer
        (1_000, 1_300, False),
        (700, 401, False),
        (700, 400, True),
        (50_000, 0, False),
    ],
)
def test_only_a_count_clearly_below_what_was_sent_proves_it(estimated: int, reported: int, cut: bool):
    assert truncated(estimated, reported) is cut


@pytest.mark.parametrize(
    ("type_", "setting"),
    [
        ("ollama", "num_ctx in its Modelfile, or OLLAMA_CONTEXT_LENGTH"),
        ("llamacpp", "--ctx-size"),
        ("vllm", "--max-model-len"),
        ("lmstudio", "context length"),
        ("openai", "num_ctx or OLLAMA_CONTEXT_LENGTH"),
    ],
)
def test_the_error_names_the_setting(type_: str, setting: str):
    error = prompt_truncated(BackendConfig.model_validate({"type": type_, "model": "m"}), 7_900, 2_050)
    assert isinstance(error, PromptTruncated)
    assert error.exit_code == 2
    assert "read 2,050 of about 7,900 tokens" in error.message
    assert setting in error.hint
