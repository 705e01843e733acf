"""An evaluation as one HTML file with its plots: no script, nothing fetched from elsewhere."""

from collections.abc import Sequence
from html import escape
from math import log10

from massmem.evaluation.as_text import format_share, list_rows
from massmem.evaluation.evaluate import Evaluation
from massmem.evaluation.report import Comparison, CouncilReport, EntrantReport
from massmem.evaluation.statistics import Bin

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1f2933 }
table { border-collapse: collapse; width: 100% } td, th { padding: .3rem .6rem; text-align: right }
td:first-child, th:first-child { text-align: left } tr + tr { border-top: 1px solid #d9dee4 }
svg { max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #52606d }
.axis { stroke: #9aa5b1 } .mark { stroke: #2563eb; fill: #2563eb } .ideal { stroke: #9aa5b1; stroke-dasharray: 4 4 }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #e4e7eb } tr + tr { border-color: #323f4b } svg text { fill: #9aa5b1 }
}
"""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48


def format_html(evaluation: Evaluation, title: str) -> str:
    """Return the page. title: what was evaluated."""
    parts = [
        f"<h1>{escape(title)}</h1><p>{evaluation.questions:,} questions</p>",
        _build_table(evaluation.entrants),
        "<h2>Accuracy against tokens</h2>",
        _plot_accuracy(evaluation.entrants),
    ]
    if evaluation.comparisons:
        parts.append(_build_comparisons(evaluation.comparisons))
    parts += [_build_council(e.name, e.council) for e in evaluation.entrants if e.council is not None]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f"<!doctype html><html lang=en>{head}<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"


def _build_table(entrants: Sequence[EntrantReport]) -> str:
    head = "<tr><th>Team<th>Right<th>Accuracy (95 %)<th>Tokens<th>Seconds<th>Requests<th>Cost</tr>"
    return f"<table>{head}{''.join(_build_rows(entrant) for entrant in entrants)}</table>"


def _build_rows(entrant: EntrantReport) -> str:
    return "".join(f"<tr>{''.join(f'<td>{_indent(cell)}' for cell in row)}</tr>" for row in list_rows(entrant))


def _indent(cell: str) -> str:
    return escape(cell) if cell == cell.lstrip() else f"&emsp;{escape(cell.lstrip())}"


def _build_comparisons(comparisons: Sequence[Comparison]) -> str:
    rows = "".join(
        f"<tr><td>{escape(c.first)} − {escape(c.second)}<td>{100 * c.difference:+.1f}"
        f"<td>{100 * c.interval.low:+.1f} to {100 * c.interval.high:+.1f}<td>{c.only_first} : {c.only_second}"
        f"<td>{c.p:.2g}</tr>"
        for c in comparisons
    )
    head = "<tr><th>Difference<th>Points<th>95 %<th>Right alone<th>p (McNemar)</tr>"
    return f"<h2>Differences on the same questions</h2><table>{head}{rows}</table>"


def _build_council(name: str, council: CouncilReport) -> str:
    rows = [
        *((f"{agent_id} alone", format_share(share)) for agent_id, share in council.members.items()),
        ("pairs of members that agree", f"{100 * council.agreement:.0f} %"),
        ("any member was right", format_share(council.oracle)),
        ("of right and wrong answers the vote chose a right one", format_share(council.chosen)),
        ("writing the final answer mended, spoiled", f"{council.presentation_mended}, {council.presentation_spoiled}"),
        *((f"by another rule: {rule}", format_share(share)) for rule, share in council.rules.items()),
    ]
    table = "".join(f"<tr><td>{escape(label)}<td>{value}</tr>" for label, value in rows)
    calibration = ""
    if council.calibration_error is not None:
        error = f"off by {100 * council.calibration_error:.0f} points on average"
        calibration = f"<h3>Confidence against accuracy: {error}</h3>{_plot_calibration(council.bins)}"
    return f"<h2>{escape(name)}</h2><table>{table}</table>{calibration}"


def _plot_accuracy(entrants: Sequence[EntrantReport]) -> str:
    """Return a plot of accuracy with its interval against tokens of a question, on a logarithmic axis."""
    logs = [log10(max(entrant.tokens, 1.0)) for entrant in entrants]
    low, high = min(logs) - 0.1, max(logs) + 0.4  # room for names at the right
    marks: list[str] = []
    for entrant, position in zip(entrants, logs, strict=True):
        x, share = _x((position - low) / (high - low)), entrant.accuracy
        marks.append(
            f'<line class=mark x1="{x:.1f}" x2="{x:.1f}" y1="{_y(share.interval.low):.1f}" '
            f'y2="{_y(share.interval.high):.1f}" /><circle class=mark cx="{x:.1f}" cy="{_y(share.value):.1f}" r="4" />'
            f'<text x="{x + 8:.1f}" y="{_y(share.value) + 4:.1f}">{escape(entrant.name)} · {entrant.tokens:,.0f}</text>'
        )
    return _frame("".join(marks), "tokens of a question, logarithmic")


def _plot_calibration(bins: Sequence[Bin]) -> str:
    ideal = f'<line class=ideal x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(1)}" />'
    total = sum(part.count for part in bins)
    marks = "".join(
        f'<circle class=mark cx="{_x(part.confidence):.1f}" cy="{_y(part.accuracy):.1f}" '
        f'r="{3 + 12 * part.count / total:.1f}"><title>{part.count} answers</title></circle>'
        for part in bins
    )
    return _frame(ideal + marks, "confidence")


def _frame(marks: str, x_label: str) -> str:
    ticks = "".join(
        f'<text x="{_MARGIN - 8}" y="{_y(tick / 4) + 4:.1f}" text-anchor="end">{25 * tick} %</text>'
        for tick in range(5)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="accuracy against {x_label}">'
        f'<line class=axis x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(0)}" />'
        f'<line class=axis x1="{_x(0)}" y1="{_y(0)}" x2="{_x(0)}" y2="{_y(1)}" />{ticks}{marks}'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{x_label}</text></svg>'
    )


def _x(share: float) -> float:
    return _MARGIN + share * (_WIDTH - 2 * _MARGIN)


def _y(share: float) -> float:
    return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)
