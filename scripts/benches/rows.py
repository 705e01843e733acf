"""What a bench reports: one row per figure, each with its bound and whether it is kept."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import mean, median, quantiles
from typing import Any, Literal, Self

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Row:
    """value None: it could not be measured, and the note says why. ok None: there is no bound, or no value."""

    what: str
    value: float | None
    unit: str = ""
    bound: float | None = None
    relation: Literal["<=", "==", ">="] = "<="
    ok: bool | None = None
    note: str = ""
    figures: Mapping[str, float | str] = field(default_factory=dict[str, float | str])
    """What programs want to know of it, by name."""

    def with_figures(self, figures: Mapping[str, float | str]) -> Self:
        return replace(self, figures=figures)


def at_most(what: str, value: float, unit: str, bound: float, note: str = "") -> Row:
    return Row(what, value, unit, bound, "<=", value <= bound, note)


def at_least(what: str, value: float, unit: str, bound: float, note: str = "") -> Row:
    return Row(what, value, unit, bound, ">=", value >= bound, note)


def exactly(what: str, value: float, unit: str, bound: float, note: str = "") -> Row:
    return Row(what, value, unit, bound, "==", value == bound, note)


def reported(what: str, value: float, unit: str, note: str = "") -> Row:
    """A figure without a bound."""
    return Row(what, value, unit, note=note)


def missing(what: str, why: str) -> Row:
    return Row(what, None, note=why)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as much: the median over pairs that were measured in turn, and their spread."""

    middle: float
    low: float
    high: float

    @property
    def spread(self) -> str:
        return f"pairs {self.low:.2f} to {self.high:.2f}"


def ratio(values: Sequence[float], references: Sequence[float]) -> Ratio:
    """The ratio of each value to the reference measured next to it: what slows both cancels out."""
    ratios = [value / reference for value, reference in zip(values, references, strict=True)]
    return Ratio(median(ratios), min(ratios), max(ratios))


def resample(values: Sequence[float]) -> tuple[float, float]:
    """Return the interval that holds 95 % of the means of resampled values."""
    draw = Random(0)
    means = quantiles([mean(draw.choices(values, k=len(values))) for _ in range(1_000)], n=40)
    return means[0], means[-1]


def machine() -> dict[str, Any]:
    """Where the figures come from. load: processes that wanted a core, mean of the last minute."""
    return {
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "commit": _commit(),
    }


def as_object(bench: str, rows: Sequence[Row]) -> dict[str, Any]:
    """What --json prints."""
    shown = [{name: value for name, value in asdict(row).items() if name != "figures" or value} for row in rows]
    return {"bench": bench, "rows": shown, "machine": machine()}


def as_table(rows: Sequence[Row]) -> str:
    """One line per row: what, measured, bound, verdict, note."""
    lines = [("", "measured", "bound", "")] + [
        (row.what, _number(row.value, row.unit), _bound(row), _verdict(row)) for row in rows
    ]
    widths = [max(len(line[i]) for line in lines) for i in range(4)]
    notes = ["", *(row.note for row in rows)]
    return "\n".join(_line(line, widths, note) for line, note in zip(lines, notes, strict=True))


def _line(cells: tuple[str, ...], widths: Sequence[int], note: str) -> str:
    what, value, bound, verdict = cells
    text = f"{what:<{widths[0]}}  {value:>{widths[1]}}  {bound:>{widths[2]}}  {verdict:<{widths[3]}}"
    return (f"{text}  {note}" if note else text).rstrip()


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    digits = f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
    return f"{digits} {unit}".rstrip()


def _bound(row: Row) -> str:
    if row.bound is None:
        return ""
    return f"{'=' if row.relation == '==' else row.relation} {_number(row.bound, row.unit)}"


def _verdict(row: Row) -> str:
    match row.ok:
        case True:
            return "ok"
        case False:
            return "short"
        case None:
            return "not measured" if row.value is None else ""


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def _commit() -> str:
    """The commit of the checkout, with a + when it has changes; empty outside of git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""
