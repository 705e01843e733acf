"""Embedders of providers, through mem0's factory, with what it has no setting for: time-outs, and one endpoint only.

mem0 is loaded with the first of them. Providers that speak OpenAI's protocol go through mem0's OpenAI embedder at
their own address: that needs none of their packages, has time-outs, and never pulls a model by itself.
"""

import importlib
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import TracebackType
from typing import Any

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import EmbeddingError, InputError, MassmemError, MissingKeyError
from massmem.core.redact import redact
from massmem.memory.embedders import Embedder
from massmem.memory.mem0_setup import prepare_mem0

TIMEOUT, RETRIES = 30.0, 1
"""Seconds for one request, and how often it is repeated."""

_NO_KEY = "none"
_SETTING = "memory.persistent_memory.embedding"


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a provider of embeddings."""

    model: str = ""
    """When none is configured."""
    url: str = ""
    """Of its OpenAI-compatible endpoint; "" when mem0's own class is used."""
    keys: tuple[str, ...] = ()
    """Environment variables of its key; none when it needs none."""
    package: str = ""
    """What to install; "" for nothing."""


KINDS = {
    "openai": Kind("text-embedding-3-small", "https://api.openai.com/v1", ("OPENAI_API_KEY",)),
    "together": Kind("intfloat/multilingual-e5-large-instruct", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",)),
    "gemini": Kind(
        "gemini-embedding-001",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        ("GOOGLE_API_KEY", "GEMINI_API_KEY"),
    ),
    "ollama": Kind("nomic-embed-text", "http://localhost:11434/v1"),
    "lmstudio": Kind("text-embedding-nomic-embed-text-v1.5", "http://localhost:1234/v1"),
    "azure_openai": Kind("text-embedding-3-small", "", ("AZURE_OPENAI_API_KEY",), "azure-identity"),
    "huggingface": Kind(package="sentence-transformers"),
    "fastembed": Kind(package="fastembed"),
    "vertexai": Kind(package="google-cloud-aiplatform"),
    "aws_bedrock": Kind(package="boto3"),
}

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
    kind = _find_kind(config.provider)
    key = _find_key(config, kind, environ)
    url = _find_url(config, kind, environ)
    prepare_mem0(home)
    model = _create_model(config, kind, key, url)
    name = f"{config.provider}/{config.model or kind.model or model.config.model}"

    def encode(texts: Sequence[str]) -> Sequence[Any]:
        with _TranslateErrors(name, key):
            return (
                model.embed_batch(list(texts), "add") if hasattr(model, "embed_batch") else [*map(model.embed, texts)]
            )

    dims = DIMS.get(config.model or kind.model, 0) if url == kind.url else 0
    if not dims:
        first = encode(["size"])
        dims = len(first[0]) if first and first[0] is not None else 0
    if not dims:
        raise EmbeddingError(f"the embedder {name} gave no vector", f"check {_SETTING}")
    return Embedder(name, dims, encode)


def _find_kind(provider: str) -> Kind:
    if provider in KINDS:
        return KINDS[provider]
    near = get_close_matches(provider, (*KINDS, "local"), 1)
    raise InputError(
        f"{_SETTING}.provider: mem0 has no embedder {provider!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        f"one of: local, none, {', '.join(KINDS)}",
    )


def _find_key(config: EmbeddingConfig, kind: Kind, environ: Mapping[str, str]) -> str:
    configured = config.api_key.get_secret_value().strip() if config.api_key else ""
    key = configured or next((value for name in kind.keys if (value := environ.get(name, "").strip())), "")
    if kind.keys and not key:
        raise MissingKeyError(
            f"no API key for the embedder {config.provider!r}: {' or '.join(kind.keys)} is not set",
            f"run `export {kind.keys[0]}=...` first, or leave {_SETTING} out for the local embedder",
        )
    if not all("!" <= char <= "~" for char in key):
        raise MissingKeyError(f"the API key for the embedder {config.provider!r} has characters that no key has")
    return key or _NO_KEY


def _find_url(config: EmbeddingConfig, kind: Kind, environ: Mapping[str, str]) -> str:
    usual = environ.get("OPENAI_BASE_URL", "") if config.provider == "openai" else ""
    url = (config.base_url or usual or kind.url).rstrip("/")
    if url and not re.fullmatch(r"https?://[^\s/]+\S*", url):
        raise InputError(f"{_SETTING}.base_url is no http:// or https:// address")
    if config.provider == "ollama" and re.fullmatch(r"https?://[^/]+", url):
        return f"{url}/v1"
    return url


def _create_model(config: EmbeddingConfig, kind: Kind, key: str, url: str) -> Any:
    settings: dict[str, Any] = {"model": config.model or kind.model or None}
    provider = config.provider
    if kind.url:
        provider, settings = "openai", {**settings, "api_key": key, "openai_base_url": url}
    elif config.provider == "azure_openai":
        settings["azure_kwargs"] = {"api_key": key, "azure_deployment": config.model, "azure_endpoint": url or None}
    elif config.provider == "huggingface" and url:
        settings |= {"api_key": key, "huggingface_base_url": url}
    elif url:
        raise InputError(f"{_SETTING}.base_url cannot be set for {config.provider!r}: mem0 has no such setting")
    try:
        factory: Any = importlib.import_module("mem0.utils.factory").EmbedderFactory
        with _TranslateErrors(config.provider, key):
            model: Any = factory.create(provider, settings, None)
    except ImportError as e:
        package = "'massmem[memory]'" if e.name == "mem0" else kind.package or e.name or config.provider
        raise InputError(
            f"the embedder {config.provider!r} needs the package {package}, which is not installed",
            f"pip install {package}",
        ) from e
    client: Any = getattr(model, "client", None)
    if hasattr(client, "with_options"):
        # Once more what was configured: nothing in the environment may send texts or the key elsewhere.
        endpoint = {"base_url": url, "api_key": key} if kind.url else {}
        model.client = client.with_options(timeout=TIMEOUT, max_retries=RETRIES, **endpoint)
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
            text = str(error).replace(self._key, "[redacted]") if self._key != _NO_KEY else str(error)
            reason = redact(" ".join(text.split())[:300]) or type(error).__name__
            raise EmbeddingError(f"the embedder {self._name} failed: {reason}", f"check {_SETTING}") from error
