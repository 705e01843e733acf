"""An evaluation for people, as plain text."""

from collections.abc import Iterator, Sequence

from massmem.core.text import make_printable
from massmem.evaluation.evaluate import Evaluation
from massmem.evaluation.report import Comparison, CouncilReport, EntrantReport, Share

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
