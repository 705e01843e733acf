"""Every vector is checked before it is used, whoever made it."""

import logging
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from massmem.core.errors import EmbeddingError

log = logging.getLogger(__name__)

Encode = Callable[[Sequence[str]], Sequence[Any]]
"""A vector per text; nothing about what it gives is relied on."""


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
        square = float(numbers @ numbers)
        if not isfinite(square):
            raise self._unusable("a vector with numbers that are none (NaN or infinite)")
        if not square:
            raise self._unusable("a vector of zeros")
        return numbers.tolist()

    def _unusable(self, what: str) -> EmbeddingError:
        return EmbeddingError(f"the embedder {self.name} gave {what}", "check memory.persistent_memory.embedding")
