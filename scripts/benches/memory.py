"""Memory: what a search and a recording cost, and with conversations at hand how much is recalled."""

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scripts.benches.memory_adapter import massmem, massmem_words
from scripts.benches.memory_recall import measure
from scripts.benches.process import PYTHON, BenchError, environment
from scripts.benches.rows import ROOT, Row, at_least, at_most, reported

MOST_MS = {1_000: 30.0, 10_000: 35.0, 100_000: 40.0}
LEAST_PER_S = 1_000
MOST_OPEN_S, MOST_MB = 0.3, 300
LARGEST = max(MOST_MS)

SCALE_MS, SCALE_P99_MS, SCALE_PER_CPU_S = 12.0, 40.0, 1_500
SCALE_OPEN_S, SCALE_CLOSE_S, SCALE_MB = 1.5, 2.0, 800
"""Bounds of `--scale`."""

BOUNDS = {
    "locomo": ("recall@1000tok", 0.85),
    "beam100k": ("recall@1000tok", 0.70),
    "lme": ("answer@1000tok", 0.91),
}
_SHOWN = (
    "recall@1000tok",
    "recall@500tok",
    "recall@10",
    "answer@1000tok",
    "claimed_words@1000tok",
    "search_cpu_p50_ms",
)
_LIMIT = 7200


def run() -> list[Row]:
    rows: list[Row] = []
    for count in MOST_MS:
        with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
            rows += _at_scale(count, _apart("fill", folder, count), _apart("open", folder, count))
    return rows


def run_at(count: int) -> list[Row]:
    """Rows for one size, with the bounds of a million memories on one machine."""
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        filled, opened = _apart("fill", folder, count), _apart("open", folder, count)
    of = f"{count:,} memories"
    files = f"{opened['files_mb']:.0f} MB of it pages of files"
    last = f"{filled['rss_mb']:.0f} MB at the end, {filled['files_mb']:.0f} MB of it pages of files"
    waited = "p50 {search_ms:.1f}, p99 {search_p99_ms:.1f} in the process that recorded them".format_map(filled)
    return [
        at_most(f"search among {of}: CPU p50", opened["search_ms"], "ms", SCALE_MS, waited),
        at_most(f"search among {of}: CPU p99", opened["search_p99_ms"], "ms", SCALE_P99_MS),
        at_least(f"recording {of}: per second of CPU, embedded", filled["per_cpu_s"], "", SCALE_PER_CPU_S),
        at_most(f"opening {of}", opened["open_s"], "s", SCALE_OPEN_S, f"{opened['open_cpu_s']:.2g} s of CPU"),
        at_most(f"closing {of}", filled["close_s"], "s", SCALE_CLOSE_S, f"{filled['close_cpu_s']:.2g} s of CPU"),
        at_most(f"resident memory with {of}, after searches", opened["rss_mb"], "MB", SCALE_MB, files),
        at_most(f"peak of the process that recorded {of}", filled["peak_mb"], "MB", SCALE_MB, last),
    ]


def run_on(data: Path) -> tuple[list[Row], dict[str, Any]]:
    """Rows, and the figures of each set; `no_embedder` in each: the same by words alone."""
    sets = measure(data, lambda folder: massmem(str(folder)))
    for name, figures in measure(data, lambda folder: massmem_words(str(folder))).items():
        sets[name]["no_embedder"] = figures
    return [row for name, figures in sets.items() for row in _of_set(name, figures)], sets


def _at_scale(count: int, filled: Mapping[str, float], opened: Mapping[str, float]) -> list[Row]:
    of = f"{count:,} memories"
    note = f"p95 {opened['search_p95_ms']:.1f}; {opened['new_ms']:.1f} for questions that no one has asked before"
    speed = f"{filled['per_cpu_s']:,.0f} per second of CPU"
    rows = [
        at_most(f"search among {of}: CPU p50", opened["search_ms"], "ms", MOST_MS[count], note),
        at_least(f"recording {of}: per second, embedded", filled["per_s"], "", LEAST_PER_S, speed),
        reported(f"recording one more among {of}: CPU p50", filled["one_ms"], "ms", "no other is indexed again"),
    ]
    if count == LARGEST:
        note = f"{opened['files_mb']:.0f} MB of it pages of files; {opened['before_mb']:.0f} MB before it was opened"
        opening, cpu = (
            f"opening {of}: index and embedder, their libraries loaded",
            f"{opened['open_cpu_s']:.2g} s of CPU",
        )
        rows += [
            at_most(opening, opened["open_s"], "s", MOST_OPEN_S, cpu),
            reported(f"first search among {of} in a new process", opened["first_ms"], "ms"),
            at_most(f"resident memory with {of}", opened["rss_mb"], "MB", MOST_MB, note),
            reported("resident memory of the process that recorded them all", filled["rss_mb"], "MB"),
        ]
    return rows


def _of_set(name: str, figures: Mapping[str, Any]) -> list[Row]:
    rows: list[Row] = []
    for kind, of in (("", figures), (" without embedder", figures["no_embedder"])):
        rows += [_row(name, f"{name}{kind}: {figure}", figure, of) for figure in _SHOWN]
        rows += [_of_category(f"{name}{kind}", *one) for one in of["categories"].items()]
    return rows


def _of_category(name: str, category: str, of: Mapping[str, float]) -> Row:
    note = f"{of['low']} to {of['high']}, {of['questions']} questions"
    return reported(f"{name}, {category}: recall@1000tok", of["recall@1000tok"], "", note)


def _row(name: str, what: str, figure: str, of: Mapping[str, Any]) -> Row:
    bounded, bound = BOUNDS[name]
    unit = "ms" if figure.endswith("_ms") else ""
    return at_least(what, of[figure], unit, bound) if figure == bounded else reported(what, of[figure], unit)


def _apart(what: str, folder: str, count: int) -> dict[str, float]:
    """In a process of its own, one thread per library, as the bound is on one core."""
    command = [PYTHON, "-m", "scripts.benches.memory_scale", what, folder, str(count)]
    env = environment(Path(folder)) | {"OMP_NUM_THREADS": "1"} | {k: v for k, v in os.environ.items() if k == "PATH"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=_LIMIT)
    if done.returncode:
        raise BenchError(f"memory_scale {what} {count} stopped: {done.stderr.strip()[-300:]}")
    return json.loads(done.stdout)
