"""Embedders of providers, through mem0's OpenAI embedder at their own address, with time-outs and one endpoint only.

mem0 is loaded with the first of them. No package of a provider is needed, and no model is ever pulled.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import EmbeddingError, MassmemError
from massmem.memory.embedders import Embedder
from massmem.memory.mem0 import (
    as_backend,
    explain_unknown_provider,
    find_backend_type,
    import_mem0,
    list_key_variables,
    name_section,
)
from massmem.providers.failures import clean_message
from massmem.providers.presets import PRESETS, Endpoint, resolve

TIMEOUT, RETRIES = 30.0, 1
"""Seconds for one request, and how often it is repeated."""

_SETTING = "memory.persistent_memory.embedding"

DIMS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
    "intfloat/multilingual-e5-large-instruct": 1024,
    "gemini-embedding-001": 3072,
    "nomic-embed-text": 768,
}
"""Of models with the usual name at their own provider; the others are asked."""


def open_mem0_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> Embedder:
    """See open_embedder."""
    backend = find_backend_type(config.provider)
    own_url = PRESETS[backend].base_url if backend else ""
    if backend and PRESETS[backend].kind == "openai":
        with name_section(
            _SETTING, list_key_variables(config.provider, "embedding"), "then the embedder on this machine is used"
        ):
            settings = as_backend(config, "embedding", PRESETS[backend].embedding_model, environ)
            endpoint = resolve(settings, environ)
        model, key, url = _open_endpoint(endpoint, config.provider, home), endpoint.key, endpoint.base_url
        name = f"{config.provider}/{endpoint.model}"
    else:
        compatible = (name for name, preset in PRESETS.items() if preset.kind == "openai")
        raise explain_unknown_provider(_SETTING, config.provider, {"local", "none", *compatible})

    def encode(texts: Sequence[str]) -> Sequence[Any]:
        with _TranslateErrors(name, key):
            return model.embed_batch(list(texts), "add")

    dims = DIMS.get(name.partition("/")[2], 0) if url == own_url else 0
    if not dims:
        first = encode(["size"])
        dims = len(first[0]) if first and first[0] is not None else 0
    if not dims:
        raise EmbeddingError(f"the embedder {name} gave no vector", f"check {_SETTING}")
    return Embedder(name, dims, encode)


def _open_endpoint(endpoint: Endpoint, provider: str, home: Path) -> Any:
    settings = {"model": endpoint.model, "api_key": endpoint.key, "openai_base_url": endpoint.base_url}
    factory = import_mem0("utils.factory", home).EmbedderFactory
    with _TranslateErrors(provider, endpoint.key):
        model = factory.create("openai", settings, None)
    # Once more what was configured: nothing in the environment may send texts or the key elsewhere.
    model.client = model.client.with_options(
        timeout=TIMEOUT, max_retries=RETRIES, base_url=endpoint.base_url, api_key=endpoint.key
    )
    return model


class _TranslateErrors(AbstractContextManager[None, None]):
    """Each provider's library has errors of its own: whatever it raises becomes an EmbeddingError without the key."""

    def __init__(self, name: str, key: str) -> None:
        self._name = name
        self._key = key

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, MassmemError | ImportError):
            reason = clean_message(str(error), self._key) or type(error).__name__
            raise EmbeddingError(f"the embedder {self._name} failed: {reason}", f"check {_SETTING}") from error
