"""The default embedder: word vectors (wordllama). Offline.

Only data files of the packages are used. Importing the code of wordllama would load an HTTP client that could fetch
models, set up logging for the whole process, and hold the vectors in twice the memory.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from massmem.core.errors import InputError

Floats = NDArray[np.float32]

WORDLLAMA_DIMS = 256

INSTALL_WORDLLAMA = "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none"
_WORD_CACHE = 20_000
"""Words whose tokens are remembered: 4 MB."""


class WordVectors:
    """The word vectors that the wordllama package ships (MIT, 256 numbers, 16 MB), averaged.

    Safe to use from several threads.

    Raises:
        InputError: the package is not installed, or not whole.
    """

    def __init__(self) -> None:
        spec = find_spec("wordllama")  # its files are read without importing it
        if spec is None or not spec.submodule_search_locations:
            raise InputError(
                "the local embedder needs the package wordllama, which is not installed", INSTALL_WORDLLAMA
            )
        folder = Path(spec.submodule_search_locations[0])
        try:
            tokens = (folder / "tokenizers/l2_supercat_tokenizer_config.json").read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(tokens)
            weights: Any = safe_open(folder / "weights/l2_supercat_256.safetensors", framework="np")
            self._vectors: NDArray[np.float16] = weights.get_tensor("embedding.weight")
        except (OSError, SafetensorError) as e:
            raise InputError(f"the package wordllama in {folder} is damaged: {e}", INSTALL_WORDLLAMA) from e
        self._ids = lru_cache(_WORD_CACHE)(self._tokens)

    def __call__(self, texts: Sequence[str]) -> Sequence[Floats]:
        """Return a vector of length 1 for each text; of length 0 for a text without a token."""
        return [self._vector(text) for text in texts]

    def _tokens(self, text: str) -> Sequence[int]:
        # One by one: a batch would start threads, about which every later fork is warned on stderr.
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _vector(self, text: str) -> Floats:
        # No token crosses a single space, and most words are cached: an eighth of the time that the whole text takes.
        by_word = "  " not in text and text == text.strip(" ")
        ids = [i for word in text.split(" ") for i in self._ids(word)] if by_word else self._tokens(text)
        total: Floats = self._vectors[ids].sum(axis=0, dtype=np.float32)
        return total / (float(np.linalg.norm(total)) or 1.0)


@cache
def load_word_vectors() -> WordVectors:
    """Return the word vectors, read once: every opening of the memory would take a tenth of a second for them."""
    return WordVectors()
