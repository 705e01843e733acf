"""Whether work grows faster than n log n with the text that it is given."""

import gc
import time
from collections.abc import Callable, Iterable

STEP = 4
_LEAST_SECONDS = 0.02
"""Of CPU: what takes less is noise."""
_MAX_RATIO = 9.0
"""Of the times of two sizes, one of them `STEP` times the other: 4 when it is linear, 16 when it is quadratic."""


def find_slow_text(
    apply: Callable[[str], object],
    texts: Iterable[tuple[str, Callable[[int], str]]],
    first: int,
    longest: int,
    enough: float = _LEAST_SECONDS,
) -> str | None:
    """Return a description of a text for which the time grows faster than n log n, None when there is none.

    texts: names and makers of texts of a length. first, longest: characters. enough: seconds of CPU after which no
    longer text is tried.
    """
    for name, make in texts:
        size, before = first, _measure(apply, make(first))
        while size * STEP <= longest:
            size *= STEP
            seconds = _measure(apply, make(size))
            if seconds > _LEAST_SECONDS and seconds > _MAX_RATIO * before:
                # What else the machine does makes one of two measurements longer, hardly ever the same way twice.
                before = max(before, _measure(apply, make(size // STEP)))
                seconds = min(seconds, _measure(apply, make(size)))
                if seconds > _LEAST_SECONDS and seconds > _MAX_RATIO * before:
                    return f"{name}: {size:,} characters take {seconds:.3f} s, a quarter {before:.4f} s"
            if seconds > enough:
                break
            before = seconds
    return None


def _measure(apply: Callable[[str], object], text: str) -> float:
    # A collection walks through all that earlier tests of the process have left.
    gc.disable()
    try:
        started = time.process_time()
        apply(text)
        return time.process_time() - started
    finally:
        gc.enable()
