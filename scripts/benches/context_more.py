"""What the context bench takes from elsewhere: a harness in another folder, and tests of this repository."""

import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.benches.context_adapter import Massmem
from scripts.benches.process import PYTHON, BenchError
from scripts.benches.rows import ROOT, Row, at_least, at_most, exactly, missing, reported

MODULE = "retention"
MOST_WASTED = 60_000
"""Tokens of refused and summary requests, in all conversations of the harness together."""

_SIXTEEN = {"seeds": (1,), "total_tokens": 16 * 8_000}

RULES = "tests/unit/test_context.py::test_every_run_ends_at_full_length"
SMALL = "tests/integration/test_context_session.py::test_thirty_turns_with_the_embedded_model_in_a_small_window"
_LIMIT = 1_200
_ALL_PASSED, _NONE_RUN = 0, 5


def of_harness(folder: Path) -> list[Row]:
    """What a retention harness of somebody else says of massmem: `run(target, ...)` in its `retention.py`.

    Raises:
        BenchError: it is not there, or cannot be loaded.
    """
    opened: list[Massmem] = []

    def target(base_url: str, workdir: str) -> Massmem:
        opened.append(Massmem(base_url, workdir))
        return opened[-1]

    with _importing(folder):
        try:
            run: Callable[..., Mapping[str, Any]] = import_module(MODULE).run
        except (ImportError, AttributeError) as e:
            raise BenchError(f"{folder} has no {MODULE}.py with a function `run` that can be loaded: {e}") from e
        try:
            return [*_of_run("harness", run(target), 1.0), *_of_run("harness, 16 times", run(target, **_SIXTEEN), 0.97)]
        finally:
            for one in opened:
                one.close()


def _of_run(name: str, found: Mapping[str, Any], least: float) -> list[Row]:
    shares: Mapping[str, float] = found["retention"]
    note = ", ".join(f"{kind} {100 * share:.1f}" for kind, share in shares.items())
    return [
        at_least(f"{name}: facts in the last prompt", 100 * shares["ALL"], "%", 100 * least, note),
        exactly(f"{name}: corrections are the last word", 100 * shares["corrected_last"], "%", 100),
        exactly(f"{name}: user turns lost", found["lost_user_turns"], "", 0),
        at_most(
            f"{name}: refused and summary requests",
            found["overhead_tokens"],
            "tokens",
            MOST_WASTED,
            f"{found['refused']} refused",
        ),
        reported(f"{name}: prompt of a question", found["probe_prompt_tokens"], "tokens", f"limit {found['limit']:,}"),
    ]


@contextmanager
def _importing(folder: Path) -> Generator[None]:
    """Its modules are found while it runs, and belong to it alone."""
    before = {*sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in {*sys.modules} - before:
            if (path := getattr(sys.modules[name], "__file__", None)) and Path(path).parent == folder:
                del sys.modules[name]


def of_tests() -> list[Row]:
    """The rules that hold for every run, and a conversation with the embedded model: tests of this repository."""
    return [
        _passed("500 random runs, windows of 512 to 1,000,000: rules broken", RULES),
        _passed("30 turns of the embedded model in a window of 1,024: turns that failed", SMALL),
    ]


def _passed(what: str, test: str) -> Row:
    command = [PYTHON, "-m", "pytest", "-q", "-rs", "-m", "full", "-p", "no:cacheprovider", test]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=_LIMIT)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr.strip()[-200:]]
    if done.returncode == _NONE_RUN or (done.returncode == _ALL_PASSED and "passed" not in last[0]):
        return missing(what, _reason(done.stdout.splitlines()) or last[0])
    return exactly(what, float(done.returncode != _ALL_PASSED), "", 0, last[0])


def _reason(lines: Sequence[str]) -> str:
    """Why a test was left out."""
    return next((line.partition(": ")[2] for line in lines if line.startswith("SKIPPED")), "")
