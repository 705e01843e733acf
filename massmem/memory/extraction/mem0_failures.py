"""Errors of mem0's libraries as massmem's own."""

from massmem.config.models import MemoryLlmConfig
from massmem.core.errors import MassmemError
from massmem.providers.failures import ErrorContext, translate_error


def failure(error: BaseException, config: MemoryLlmConfig) -> MassmemError:
    """Return massmem's error for what a library of mem0 raised when it asked the configured model."""
    key = config.api_key.get_secret_value() if config.api_key else ""
    model = config.model or "default model"
    return translate_error(error, ErrorContext(config.provider, model, key, "memory.persistent_memory.llm"))
