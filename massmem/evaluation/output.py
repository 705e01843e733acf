"""An evaluation for people, as plain text or one HTML file with its plots, and its answers for programs, as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from math import log10

from massmem.core.evaluation import Council, EvaluatedTeam, EvaluationReport, RiskPoint, Share, TeamComparison, Variant
from massmem.core.text import dump_json
from massmem.core.verdict import Calibration, Pattern
from massmem.evaluation.calibration import PROMISES, build_share, list_promises
from massmem.evaluation.evaluate import Evaluation
from massmem.evaluation.items import score

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1f2933 }
table { border-collapse: collapse; width: 100% } td, th { padding: .3rem .6rem; text-align: right }
td:first-child { text-align: left; white-space: pre-wrap } tr + tr { border-top: 1px solid #d9dee4 }
svg { max-width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: #52606d }
.axis { stroke: #9aa5b1 } .mark { stroke: #2563eb; fill: #2563eb } .curve { stroke: #2563eb; fill: none }
@media (prefers-color-scheme: dark) {
  body { background: #14181d; color: #e4e7eb } tr + tr { border-color: #323f4b } svg text { fill: #9aa5b1 }
}
"""
_WIDTH, _HEIGHT, _MARGIN = 640, 320, 48

Row = tuple[str, ...]
"""Cells; those of the first column stand at the left, the others at the right."""


def list_answers(evaluation: Evaluation) -> Iterator[str]:
    """Yield a line of JSON for every answer of every team."""
    for one in evaluation.answers:
        for item, result, is_right, task in zip(one.items, one.results, one.right, one.tasks, strict=True):
            row = {
                "team": one.name,
                "id": item.id,
                "group": item.group,
                "right": is_right,
                "value": score(item, result.claim).value,
                "expected": list(item.expected),
                "task": task and task.model_dump(mode="json"),
                **result.model_dump(mode="json", exclude={"kind", "team", "item"}),
            }
            yield dump_json(row) + "\n"


def format_text(report: EvaluationReport) -> str:
    """Return a table of the teams, then how they differ, then what the councils made of their members' answers."""
    tables = filter(None, (list(_list_teams(report.teams)), list(_list_tasks(report.teams))))
    parts = [*("\n".join(_align(rows)) for rows in tables), *_list_notes(report)]
    for team in report.teams:
        if team.council is not None:
            parts.append("\n".join((_name_council(team), *_align(_list_council(team.council)))))
    return "\n\n".join(parts) + "\n"


def format_html(report: EvaluationReport, title: str) -> str:
    """Return the same as one page without scripts, where nothing is fetched. title: what was evaluated."""
    parts = [
        f"<h1>{escape(title)}</h1><p>{report.questions:,} questions</p>",
        _build_table(_list_teams(report.teams)),
        _build_table(_list_tasks(report.teams)),
        "<h2>Accuracy against tokens</h2>",
        _plot_accuracy(report.teams),
        *(f"<p>{escape(note)}</p>".replace("\n", "<br>") for note in _list_notes(report)),
    ]
    for team in report.teams:
        if team.council is not None:
            parts += [f"<h2>{escape(_name_council(team))}</h2>", _build_table(_list_council(team.council))]
            if team.council.risk:
                parts += ["<h3>Errors against answered questions</h3>", _plot_risk(team.council.risk)]
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    return f"<!doctype html><html lang=en>{head}<style>{_STYLE}</style><body>{''.join(parts)}</body></html>\n"


# What both say


def _list_teams(teams: Sequence[EvaluatedTeam]) -> Iterator[Row]:
    """Yield the head, and for each team its cells and those of its groups, whose names are indented."""
    yield "", "right", "accuracy (95 %)", "tokens", "seconds", "requests", "cost"
    for team in teams:
        cost, took = "-" if team.cost is None else f"${team.cost:.4f}", team.per_question
        figures = (f"{took.tokens:,.0f}", f"{took.seconds:.1f}", f"{took.requests:.1f}", cost)
        yield team.name, _format_count(team.accuracy), _format_share(team.accuracy), *figures
        for name, share in team.groups.items():
            yield f"  {name or '(no group)'}", _format_count(share), _format_share(share), "", "", "", ""


def _list_tasks(teams: Sequence[EvaluatedTeam]) -> Iterator[Row]:
    """Yield the head, and how each team did open tasks; nothing where there are none."""
    if any(team.open for team in teams):
        yield "open tasks", "score", "criteria met (95 %)", "not graded", "precision", "recall", "F1", "not compared"
    for team, did in [(team, team.open) for team in teams if team.open]:
        score = "-" if did.score is None else f"{100 * did.score:.0f} %"
        yield team.name, score, _format_both(did.criteria), str(did.ungraded), "", "", "", ""
        for name, one in did.items.items():
            shares = _format_both(one.precision), _format_both(one.recall), _format_share(one.f1)
            yield f"  items: {name}", "", "", "", *shares, str(one.uncompared)


def _list_notes(report: EvaluationReport) -> Iterator[str]:
    yield "Tokens, seconds and requests are means of a question."
    for team in report.teams:
        if team.failed:
            yield (
                f"{team.name} did not answer {team.failed} of {team.accuracy.total} questions: they count as wrong, "
                "and the same command asks them again."
            )
        if team.ungraded:
            yield f"{team.name}: {team.ungraded} answers or criteria are not graded: the judge gave no verdict, or two."
        if team.coverage is not None and team.selective is not None:
            yield (
                f"{team.name} was sure of {_format_share(team.coverage)} of the questions, and right on "
                f"{_format_share(team.selective)} of these; its accuracy counts what it would have answered."
            )
        for name, number in team.fallbacks.items():
            yield f"{team.name}: {name} stood in on {number} of {team.accuracy.total} questions."
    if report.comparisons:
        yield "\n".join(map(_describe_comparison, report.comparisons))
    if report.judging.requests:
        cost = "" if report.judging.cost is None else f" and ${report.judging.cost:.4f}"
        yield f"The judge took {report.judging.requests} requests{cost}."


def _describe_comparison(comparison: TeamComparison) -> str:
    return (
        f"{comparison.first} - {comparison.second}: {_format_gain(comparison)}, p = {comparison.p:.2g}; only the first "
        f"was right {comparison.only_first} times, only the second {comparison.only_second} times, "
        f"of {comparison.total}"
    )


def _name_council(team: EvaluatedTeam) -> str:
    return f"{team.name}: what the council made of its members' answers"


def _list_council(council: Council) -> Iterator[Row]:
    for agent_id, share in council.members.items():
        yield f"  {agent_id} alone", _format_share(share)
    yield "  pairs of members that agree", f"{100 * council.agreement:.0f} %"
    yield "  any member was right", _format_share(council.oracle)
    yield "  of right and wrong answers the vote chose a right one", _format_share(council.chosen)
    changed = council.presentation
    yield "  writing the final answer mended, spoiled", f"{changed.mended}, {changed.spoiled}"
    for rule, share in council.rules.items():
        yield f"  by another rule: {rule}", _format_share(share)
    for agent, one in council.without.items():
        yield (
            f"  without {agent}, which took {one.tokens:,.0f} tokens",
            f"{100 * one.right.value:.0f} %, {_format_gain(one)}",
        )
    if (vote := council.weighed) is not None:
        weights = ", ".join(f"{weight:.2f}" for weight in vote.weights.values())
        yield f"  with voices by past accuracy ({weights})", f"{100 * vote.right.value:.0f} %, {_format_gain(vote)}"
    for point in council.risk:
        yield f"  wrong of the surest {100 * point.coverage:.0f} % of the answers", f"{point.wrong}/{point.answered}"


def _format_gain(compared: TeamComparison | Variant) -> str:
    low, high = compared.interval
    return f"{100 * compared.difference:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"


def _format_count(share: Share) -> str:
    return f"{share.count}/{share.total}"


def _format_both(share: Share) -> str:
    return f"{_format_count(share)}, {_format_share(share)}"


def _format_share(share: Share) -> str:
    """Return a share in percent with its interval, as `52 % (45 to 59)`."""
    low, high = share.interval
    return f"{100 * share.value:.0f} % ({100 * low:.0f} to {100 * high:.0f})" if share.total else "-"


def _align(rows: Iterable[Row]) -> list[str]:
    columns = list(zip(*rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in zip(*columns, strict=True)
    ]


def format_calibration(calibration: Calibration) -> str:
    """Return how often which agreement was right, why it counts as so sure, and what promises come to, as tables."""
    asked = sum(one.asked for one in calibration.outcomes)
    head = f"{calibration.team}: {asked} questions of {calibration.data}, {calibration.created_at:%Y-%m-%d}"
    if calibration.first:
        head += f"; asked first: {', '.join(calibration.first)}"
    rows: list[Row] = [("how the agents agree", "right", "share (95 %)"), *_list_patterns(calibration)]
    for agent, member in calibration.members.items():
        rows.append(_list_share(f"{agent} alone", build_share(member.right, member.asked)))
    bounds: list[Row] = [("at most wrong", "depth", "answered", "wrong", "answers that are given")]
    for one in list_promises(calibration):
        shown = f"count as more than {100 * max(0.0, one.rank[0]):.1f} %" if one.rank else "none is sure enough"
        figures = (_format_share(one.answered), _format_count(one.wrong), shown)
        bounds.append((f"max_error {one.max_error:g}", one.depth, *figures))
    return "\n\n".join((head, *("\n".join(_align(table)) for table in (rows, _explain(calibration), bounds))))


def _list_patterns(calibration: Calibration) -> Iterator[Row]:
    """Yield how often answers were right: by numbers of agents, and below that by part of the data."""
    asked, right = Counter[tuple[bool, Pattern, str]](), Counter[object]()
    for one in calibration.outcomes:
        seen = [(False, one.full, one.right)] + [(True, one.first, one.right_first)] * one.first.agrees
        for is_first, pattern, count in seen:
            shape = replace(pattern, behind=("",) * len(pattern.behind), voted=False)
            for group in {"", one.group}:
                asked[is_first, shape, group] += one.asked
                right[is_first, shape, group] += count
    for key in sorted(asked, key=lambda key: (not key[0], [-x for x in key[1].rank], str(key[1]), key[2])):
        is_first, shape, group = key
        if not group or asked[key] < asked[is_first, shape, ""]:
            name = f"  {group}" if group else f"{'the first two: ' * is_first}{_name_pattern(shape)}"
            yield _list_share(name, build_share(right[key], asked[key]))


def _explain(calibration: Calibration) -> Iterator[Row]:
    """Yield what each answer counts as by who stands behind it, the surest first, and from what that comes."""
    yield "who stands behind", "right", "of those like it", "counts as", "given at max_error"
    bounds = [(promise, calibration.find_threshold(promise, adaptive=False)) for promise in PROMISES]
    patterns = {one.full: calibration.estimate(one.full, of_first=False) for one in calibration.outcomes}
    for pattern, estimate in sorted(patterns.items(), key=lambda pair: (-pair[1], str(pair[0]))):
        asked, right, near_asked, near_right = calibration.count_alike(pattern, of_first=False)
        levels = (f"{promise:g}" for promise, bound in bounds if calibration.is_sure(pattern, bound, of_first=False))
        near = f"{100 * near_right / near_asked:.0f} % of {near_asked:.0f}"
        name = f"{_name_pattern(pattern, pattern.behind)}{', voted' * pattern.voted}"
        yield name, f"{right}/{asked}", near, f"{100 * max(0.0, estimate):.1f} %", next(levels, "-")


def _list_share(name: str, share: Share) -> Row:
    return name, _format_count(share), _format_share(share)


def _name_pattern(pattern: Pattern, behind: Sequence[str] = ()) -> str:
    """Return `2 behind, 1 against (number)`, or with the names of those behind `a, b, 1 against (number)`."""
    numbers = {"behind": len(pattern.behind), "against": pattern.against, "not compared": pattern.uncompared}
    parts = [f"{number} {word}" for word, number in numbers.items() if number] + ["cut off"] * pattern.cut
    return f"{', '.join([*behind, *parts[bool(behind) :]])} ({pattern.kind})"


# The page


def _build_table(rows: Iterable[Row]) -> str:
    lines = ("".join(f"<{'td' if row[0] else 'th'}>{escape(cell)}" for cell in row) for row in rows)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _plot_accuracy(teams: Sequence[EvaluatedTeam]) -> str:
    """Return a plot of accuracy with its interval against tokens of a question, on a logarithmic axis."""
    positions = [log10(max(team.per_question.tokens, 1.0)) for team in teams]
    low, high = min(positions) - 0.1, max(positions) + 0.4  # room for names at the right
    marks: list[str] = []
    for team, position in zip(teams, positions, strict=True):
        x, share, tokens = _x((position - low) / (high - low)), team.accuracy, team.per_question.tokens
        marks.append(
            f'<line class=mark x1="{x:.1f}" x2="{x:.1f}" y1="{_y(share.interval[0]):.1f}" '
            f'y2="{_y(share.interval[1]):.1f}" /><circle class=mark cx="{x:.1f}" cy="{_y(share.value):.1f}" r="4" />'
            f'<text x="{x + 8:.1f}" y="{_y(share.value) + 4:.1f}">{escape(team.name)} · {tokens:,.0f}</text>'
        )
    return _frame("".join(marks), "tokens of a question, logarithmic")


def _plot_risk(points: Sequence[RiskPoint]) -> str:
    """Return the risk-coverage curve: the share of wrong answers among the surest ones, from a few to all."""
    line = " ".join(f"{_x(point.coverage):.1f},{_y(point.error):.1f}" for point in points)
    marks = "".join(
        f'<circle class=mark cx="{_x(point.coverage):.1f}" cy="{_y(point.error):.1f}" r="4">'
        f"<title>{point.wrong} of {point.answered} are wrong</title></circle>"
        for point in points
    )
    ticks = "".join(
        f'<text x="{_x(tick / 4):.1f}" y="{_y(0) + 16:.1f}" text-anchor="middle">{25 * tick} %</text>'
        for tick in range(1, 5)
    )
    return _frame(f'<polyline class=curve points="{line}" />{marks}{ticks}', "share of the answers", "errors")


def _frame(marks: str, x_label: str, y_label: str = "accuracy") -> str:
    ticks = "".join(
        f'<text x="{_MARGIN - 8}" y="{_y(tick / 4) + 4:.1f}" text-anchor="end">{25 * tick} %</text>'
        for tick in range(5)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{y_label} against {x_label}">'
        f'<line class=axis x1="{_x(0)}" y1="{_y(0)}" x2="{_x(1)}" y2="{_y(0)}" />'
        f'<line class=axis x1="{_x(0)}" y1="{_y(0)}" x2="{_x(0)}" y2="{_y(1)}" />{ticks}{marks}'
        f'<text x="{_WIDTH / 2}" y="{_HEIGHT - 12}" text-anchor="middle">{x_label}</text></svg>'
    )


def _x(share: float) -> float:
    return _MARGIN + share * (_WIDTH - 2 * _MARGIN)


def _y(share: float) -> float:
    return _HEIGHT - _MARGIN - share * (_HEIGHT - 2 * _MARGIN)
