"""An evaluation for people, as plain text or one HTML file with its plots, and for programs, as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from html import escape
from math import log10
from typing import Any

from massmem.core.text import make_printable
from massmem.evaluation.evaluate import Evaluation
from massmem.evaluation.items import score
from massmem.evaluation.report import Bin, Comparison, CouncilReport, EntrantReport, Share


def evaluation_to_dict(evaluation: Evaluation) -> dict[str, Any]:
    """Return the reports and comparisons; shares are from 0 to 1, intervals are those of 95 %."""
    return {
        "questions": evaluation.questions,
        "teams": [_entrant_to_dict(entrant) for entrant in evaluation.entrants],
        "comparisons": [_comparison_to_dict(comparison) for comparison in evaluation.comparisons],
        "judging": asdict(evaluation.judging),
    }


def list_answers(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line of JSON for every answer of every team."""
    for answers in evaluation.answers:
        for item, result, is_right in zip(answers.items, answers.results, answers.right, strict=True):
            row = {
                "team": answers.name,
                "id": item.id,
                "group": item.group,
                "right": is_right,
                "value": score(item, result.answer).value,
                "expected": list(item.expected),
                **result.model_dump(mode="json", exclude={"kind", "team", "item"}),
            }
            yield json.dumps(row, ensure_ascii=False) + "\n"


def _entrant_to_dict(entrant: EntrantReport) -> dict[str, Any]:
    return {
        "name": entrant.name,
        "accuracy": _share_to_dict(entrant.accuracy),
        "groups": {name: _share_to_dict(share) for name, share in entrant.groups.items()},
        "failed": entrant.failed,
        "per_question": {"tokens": entrant.tokens, "seconds": entrant.seconds, "requests": entrant.requests},
        "cost": entrant.cost,
        "council": None if entrant.council is None else _council_to_dict(entrant.council),
    }


def _council_to_dict(council: CouncilReport) -> dict[str, Any]:
    return {
        "members": {agent_id: _share_to_dict(share) for agent_id, share in council.members.items()},
        "agreement": council.agreement,
        "oracle": _share_to_dict(council.oracle),
        "chosen": _share_to_dict(council.chosen),
        "rules": {name: _share_to_dict(share) for name, share in council.rules.items()},
        "presentation": {"mended": council.presentation_mended, "spoiled": council.presentation_spoiled},
        "calibration_error": council.calibration_error,
        "bins": [asdict(part) for part in council.bins],
    }


def _comparison_to_dict(comparison: Comparison) -> dict[str, Any]:
    return {**asdict(comparison), "interval": list(asdict(comparison.interval).values())}


def _share_to_dict(share: Share) -> dict[str, Any]:
    return {
        "count": share.count,
        "total": share.total,
        "value": share.value,
        "interval": [share.interval.low, share.interval.high],
    }


_HEAD = ("", "right", "accuracy (95 %)", "tokens", "seconds", "requests", "cost")


def format_evaluation(evaluation: Evaluation) -> str:
    """Return a table of the teams, then how they differ, then what the councils made of their members' answers."""
    rows = [_HEAD, *(row for entrant in evaluation.entrants for row in list_rows(entrant))]
    parts = ["\n".join(_align(rows)), "Tokens, seconds and requests are means of a question."]
    parts += [_describe_failures(entrant) for entrant in evaluation.entrants if entrant.failed]
    if evaluation.comparisons:
        parts.append("\n".join(_describe_comparison(comparison) for comparison in evaluation.comparisons))
    parts += ["\n".join(_describe_council(e.name, e.council)) for e in evaluation.entrants if e.council is not None]
    if evaluation.judging.requests:
        parts.append(f"The judge took {evaluation.judging.requests} requests{_format_cost(evaluation.judging.cost)}.")
    return make_printable("\n\n".join(parts)) + "\n"


def format_share(share: Share) -> str:
    """Return a share in percent with its interval, as `52 % (45 to 59)`."""
    low, high = 100 * share.interval.low, 100 * share.interval.high
    return f"{100 * share.value:.0f} % ({low:.0f} to {high:.0f})" if share.total else "-"


def list_rows(entrant: EntrantReport) -> Iterator[tuple[str, ...]]:
    """Yield the cells of a team, then those of each group, whose name is indented."""
    cost = "-" if entrant.cost is None else f"${entrant.cost:.4f}"
    yield (
        entrant.name,
        f"{entrant.accuracy.count}/{entrant.accuracy.total}",
        format_share(entrant.accuracy),
        f"{entrant.tokens:,.0f}",
        f"{entrant.seconds:.1f}",
        f"{entrant.requests:.1f}",
        cost,
    )
    for name, share in entrant.groups.items():
        yield (f"  {name or '(no group)'}", f"{share.count}/{share.total}", format_share(share), "", "", "", "")


def _align(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the rows as lines: the first column to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    ]


def _describe_failures(entrant: EntrantReport) -> str:
    return (
        f"{entrant.name} did not answer {entrant.failed} of {entrant.accuracy.total} questions: they count as wrong, "
        "and the same command asks them again."
    )


def _describe_comparison(comparison: Comparison) -> str:
    low, high = 100 * comparison.interval.low, 100 * comparison.interval.high
    return (
        f"{comparison.first} - {comparison.second}: {100 * comparison.difference:+.1f} points "
        f"({low:+.1f} to {high:+.1f}), p = "
        f"{comparison.p:.2g}; only the first was right {comparison.only_first} times, only the second "
        f"{comparison.only_second} times, of {comparison.total}"
    )


def _describe_council(name: str, council: CouncilReport) -> Iterator[str]:
    yield f"{name}: what the council made of its members' answers"
    members = ", ".join(f"{agent_id} {100 * share.value:.0f} %" for agent_id, share in council.members.items())
    yield f"  members alone         {members}"
    yield f"  pairs that agree      {100 * council.agreement:.0f} %"
    yield f"  any member was right  {format_share(council.oracle)}"
    yield f"  of right and wrong answers the vote chose a right one  {format_share(council.chosen)}"
    mended, spoiled = council.presentation_mended, council.presentation_spoiled
    yield f"  writing the final answer mended {mended} and spoiled {spoiled}"
    yield "  right by other rules, on the same answers and ballots"
    width = max(map(len, council.rules))
    for rule, share in council.rules.items():
        yield f"    {rule.ljust(width)}  {format_share(share)}"
    if council.calibration_error is not None:
        yield f"  confidence is off by {100 * council.calibration_error:.0f} points on average"


def _format_cost(cost: float | None) -> str:
    return "" if cost is None else f" and ${cost:.4f}"


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
