"""Memory: what a search and a recording cost, and with conversations at hand how much is recalled."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.benches.memory_adapter import massmem, massmem_words
from scripts.benches.memory_recall import measure
from scripts.benches.process import BenchError, environment, run_module
from scripts.benches.rows import Row, at_least, at_most, reported

MOST_MS = {1_000: 30.0, 10_000: 35.0, 100_000: 40.0}
LARGEST = max(MOST_MS)
LEAST_PER_CPU_S = 1_000
MOST_MB = 300

SCALE_MS, SCALE_P99_MS, SCALE_PER_CPU_S = 12.0, 40.0, 1_500
SCALE_OPEN_S, SCALE_CLOSE_S, SCALE_MB = 1.5, 2.0, 800
"""Bounds of `--scale`."""

BOUNDS = {
    "locomo": ("recall@1000tok", 0.85),
    "beam100k": ("recall@1000tok", 0.70),
    "lme": ("answer@1000tok", 0.91),
}
_SHOWN = ("recall@1000tok", "answer@1000tok", "claimed_words@1000tok", "search_cpu_p50_ms")


def run(data: Path | None = None, scale: int | None = None) -> list[Row]:
    """data: conversations, to measure recall alone. scale: the only number of memories, with the bounds of a million.

    Raises:
        BenchError: both are given, or there are no conversations.
    """
    if data is not None and scale is not None:
        raise BenchError("name a folder or --scale, not both")
    if data is not None:
        return _measure_recall(data)
    if scale is not None:
        return _list_scale_rows(max(1, scale), *_fill_and_open(max(1, scale)))
    return [row for count in MOST_MS for row in _list_rows(count, *_fill_and_open(count))]


def _fill_and_open(count: int) -> tuple[dict[str, float], dict[str, float]]:
    """Measure in processes of their own, one thread per library, as the bounds are on one core."""
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        env = environment(Path(folder)) | {"OMP_NUM_THREADS": "1", "PATH": os.environ.get("PATH", "")}
        filled, opened = (run_module("memory_scale", what, folder, count, env=env) for what in ("fill", "open"))
    return filled, opened


def _list_rows(count: int, filled: Mapping[str, float], opened: Mapping[str, float]) -> list[Row]:
    of = f"{count:,} memories"
    note = f"p99 {opened['search_p99_ms']:.1f}; {opened['new_ms']:.1f} for questions that no one has asked before"
    rows = [
        at_most(f"search among {of}: CPU p50", opened["search_ms"], "ms", MOST_MS[count], note),
        at_least(f"recording {of}: per second of CPU, embedded", filled["per_cpu_s"], "", LEAST_PER_CPU_S),
    ]
    if count == LARGEST:
        files = f"{opened['files_mb']:.0f} MB of it pages of files"
        rows.append(at_most(f"resident memory with {of}", opened["rss_mb"], "MB", MOST_MB, files))
    return rows


def _list_scale_rows(count: int, filled: Mapping[str, float], opened: Mapping[str, float]) -> list[Row]:
    of = f"{count:,} memories"
    files = f"{opened['files_mb']:.0f} MB of it pages of files"
    last = f"{filled['rss_mb']:.0f} MB at the end, {filled['files_mb']:.0f} MB of it pages of files"
    waited = "p50 {search_ms:.1f}, p99 {search_p99_ms:.1f} in the process that recorded them".format_map(filled)
    return [
        at_most(f"search among {of}: CPU p50", opened["search_ms"], "ms", SCALE_MS, waited),
        at_most(f"search among {of}: CPU p99", opened["search_p99_ms"], "ms", SCALE_P99_MS),
        at_least(f"recording {of}: per second of CPU, embedded", filled["per_cpu_s"], "", SCALE_PER_CPU_S),
        at_most(f"opening {of}", opened["open_s"], "s", SCALE_OPEN_S, f"{opened['open_cpu_s']:.2g} s of CPU"),
        at_most(f"closing {of}", filled["close_s"], "s", SCALE_CLOSE_S),
        at_most(f"resident memory with {of}, after searches", opened["rss_mb"], "MB", SCALE_MB, files),
        at_most(f"peak of the process that recorded {of}", filled["peak_mb"], "MB", SCALE_MB, last),
    ]


def _measure_recall(data: Path) -> list[Row]:
    """Return the figures of each set of conversations, with the default embedder and without any."""
    rows: list[Row] = []
    for suffix, adapter in (("", massmem), (" without embedder", massmem_words)):
        for name, figures in measure(data, lambda folder, adapter=adapter: adapter(str(folder))).items():
            rows += [_row(name, f"{name}{suffix}: {figure}", figure, figures) for figure in _SHOWN]
            rows += [_of_category(f"{name}{suffix}", *one) for one in figures["categories"].items()]
    return rows


def _of_category(name: str, category: str, of: Mapping[str, float]) -> Row:
    note = f"{of['low']} to {of['high']}, {of['questions']} questions"
    return reported(f"{name}, {category}: recall@1000tok", of["recall@1000tok"], "", note)


def _row(name: str, what: str, figure: str, of: Mapping[str, Any]) -> Row:
    bounded, bound = BOUNDS[name]
    unit = "ms" if figure.endswith("_ms") else ""
    return at_least(what, of[figure], unit, bound) if figure == bounded else reported(what, of[figure], unit)
