"""The local embedder: the word vectors that the wordllama package ships (MIT, 256 numbers, 16 MB), averaged.

Only the data of the package is used: importing its code would load an HTTP client that could fetch models, set up
logging for the whole process, and keep the vectors in twice the memory.
"""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from massmem.core.errors import InputError

NAME, DIMS = "wordllama", 256

Floats = NDArray[np.float32]

_WORDS_KEPT = 20_000
"""Whose tokens are remembered: 4 MB."""

_INSTALL = "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none"
_WEIGHTS, _TOKENS = Path("weights/l2_supercat_256.safetensors"), Path("tokenizers/l2_supercat_tokenizer_config.json")


class WordVectors:
    """Safe to use from several threads. Offline.

    Raises:
        InputError: the package is not installed, or not whole.
    """

    def __init__(self) -> None:
        spec = find_spec("wordllama")
        if spec is None or not spec.submodule_search_locations:
            raise InputError("the local embedder needs the package wordllama, which is not installed", _INSTALL)
        folder = Path(spec.submodule_search_locations[0])
        try:
            self._tokenizer = Tokenizer.from_str((folder / _TOKENS).read_text(encoding="utf-8"))
            weights: Any = safe_open(folder / _WEIGHTS, framework="np")
            self._vectors: NDArray[np.float16] = weights.get_tensor("embedding.weight")
        except (OSError, SafetensorError) as e:
            raise InputError(f"the package wordllama in {folder} is damaged: {e}", _INSTALL) from e

        self._ids = lru_cache(_WORDS_KEPT)(self._tokens)

    def __call__(self, texts: Sequence[str]) -> Sequence[Floats]:
        """A vector of length 1 for each text; of length 0 for a text without a token."""
        return [self._vector(text) for text in texts]

    def _tokens(self, text: str) -> Sequence[int]:
        # One by one: a batch would start threads, about which every later fork is warned on stderr.
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _vector(self, text: str) -> Floats:
        # No token crosses a single space, and most words are known: an eighth of the time that the whole text takes.
        known = "  " not in text and text == text.strip(" ")
        ids = [i for word in text.split(" ") for i in self._ids(word)] if known else self._tokens(text)
        summed: Floats = self._vectors[ids].sum(axis=0, dtype=np.float32)
        return summed / (float(np.linalg.norm(summed)) or 1.0)
