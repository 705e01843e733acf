"""What a review has found, as a terminal, SARIF, GitHub and a pull request show it."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal
from urllib.parse import quote

from massmem.core.diffs import ChangedFile, CheckedPlace
from massmem.core.items import Severity, UnionItem
from massmem.core.text import dump_json, make_printable, one_line
from massmem.render.text import pluralize

Format = Literal["text", "json", "sarif", "github", "markdown"]

SEVERITIES: tuple[Severity, ...] = ("high", "medium", "low")
_LEVELS: Mapping[Severity | None, str] = {"high": "error", "medium": "warning", "low": "note"}
_COMMANDS: Mapping[Severity | None, str] = {"high": "error", "medium": "warning", "low": "notice"}
_SHOWN_LINES = 3
_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


@dataclass(frozen=True, slots=True)
class Finding:
    """An item of a review, with the place that code has checked."""

    merged: UnionItem
    answered: int
    """Agents that gave a list for this part of the change."""
    place: CheckedPlace | None
    """None: nothing shows where it is."""
    dismissed: str | None = None
    """Why the user has dismissed it."""

    @property
    def id(self) -> str:
        """Eight characters that name it to the user, and the same for the same words about the same file."""
        item = self.merged.item
        return hashlib.sha256(f"{item.file}\n{item.title}\n{item.lines}".encode()).hexdigest()[:8]

    @property
    def severity(self) -> Severity | None:
        return self.merged.item.severity

    @property
    def where(self) -> str:
        """`src/a.py:10-12`; "" without a place."""
        if self.place is None:
            return ""
        last = f"-{self.place.last}" if self.place.last != self.place.first else ""
        return f"{self.place.path}:{self.place.first}{last}"


@dataclass(frozen=True, slots=True)
class Review:
    """All findings, the best supported first."""

    findings: Sequence[Finding]
    unread: Sequence[ChangedFile]
    """Files whose changes nobody could read."""
    summary: str
    cost: float | None
    """US dollars; None: not known."""
    sessions: Sequence[str]
    failed: Sequence[str] = ()
    """What went wrong: agents that failed, parts that were not reviewed."""
    is_cut: bool = False
    """Parts were not reviewed, because a limit was reached."""

    @property
    def standing(self) -> list[Finding]:
        """The findings that the user has not dismissed."""
        return [finding for finding in self.findings if finding.dismissed is None]

    def reaches(self, least: Severity | Literal["any"]) -> bool:
        """Return whether a finding that nobody rejects is at least so severe; one without a severity is like low."""
        limit = len(SEVERITIES) if least == "any" else SEVERITIES.index(least)
        return any(_rank(one.severity) <= limit for one in self.standing if not one.merged.is_contested)


def format_review(review: Review, form: Format, *, dismissed: bool = False) -> str:
    """Return the review in a format. dismissed: also what the user has dismissed."""
    shown = list(review.findings) if dismissed else review.standing
    match form:
        case "text":
            return _format_text(review, shown)
        case "markdown":
            return _format_markdown(review, shown)
        case "github":
            return "".join(f"{_format_annotation(finding)}\n" for finding in shown)
        case "sarif":
            return dump_json(_build_sarif(review, shown), indent=2) + "\n"
        case "json":
            return dump_json(_build_json(review, shown), indent=2) + "\n"


def describe_support(finding: Finding) -> str:
    """Return who found it, who confirmed it, and who rejected it and why."""
    merged = finding.merged
    parts = [f"found by {len(merged.found_by)} of {finding.answered} ({', '.join(merged.found_by)})"]
    parts += [f"confirmed by {', '.join(confirmed)}"] if (confirmed := merged.list_agents("confirm")) else []
    parts += [f"rejected by {one.agent}: {one.reason or 'no reason given'}" for one in finding.merged.rejections]
    return "; ".join(parts)


def count_findings(review: Review) -> str:
    """Return `3 findings (1 high, 2 low), 1 contested, 2 dismissed`."""
    standing = review.standing
    severities = [f"{n} {name}" for name in SEVERITIES if (n := sum(one.severity == name for one in standing))]
    text = pluralize(len(standing), "finding") + (f" ({', '.join(severities)})" if severities else "")
    contested = sum(one.merged.is_contested for one in standing)
    dismissed = len(review.findings) - len(standing)
    others = [f"{contested} contested"] if contested else []
    return ", ".join([text, *others, *([f"{dismissed} dismissed"] if dismissed else [])])


def _format_text(review: Review, shown: Sequence[Finding]) -> str:
    lines: list[str] = []
    for path, findings in _group_by_file(shown):
        lines += [path or "without a place", *(line for finding in findings for line in _write_finding(finding)), ""]
    lines += [f"not read: {file.path}: {file.problem}" for file in review.unread]
    return make_printable("\n".join([*lines, *review.failed, count_findings(review)])) + "\n"


def _write_finding(finding: Finding) -> Iterator[str]:
    item = finding.merged.item
    numbers = finding.where.rpartition(":")[2]
    mark = "contested, " if finding.merged.is_contested else ""
    yield f"  {numbers + '  ' if numbers else ''}{item.severity or 'no severity'}  {item.title}  [{mark}{finding.id}]"
    for number, line in _quote(finding):
        yield f"      {number:>5} | {line}"
    if item.reason:
        yield f"      {one_line(item.reason, 2_000)}"
    yield from (f"      suggestion: {line}" if not i else f"        {line}"
                for i, line in enumerate(item.suggestion.splitlines()))  # fmt: skip
    yield f"      {describe_support(finding)}"
    if finding.dismissed is not None:
        yield f"      dismissed: {finding.dismissed}"


def _quote(finding: Finding) -> Iterable[tuple[int, str]]:
    place = finding.place
    return [] if place is None else list(enumerate(place.lines, place.first))[:_SHOWN_LINES]


def _format_markdown(review: Review, shown: Sequence[Finding]) -> str:
    parts = [f"**massmem review**: {count_findings(review)}", *([review.summary] if review.summary else [])]
    for path, findings in _group_by_file(shown):
        parts.append(f"### {f'`{path}`' if path else 'Without a place'}")
        parts += ["\n".join(_write_markdown(finding)) for finding in findings]
    unread = [f"- `{file.path}`: {file.problem}" for file in review.unread]
    parts += ["\n".join(["Not read:", *unread])] if unread else []
    return make_printable("\n\n".join([*parts, *review.failed])) + "\n"


def _write_markdown(finding: Finding) -> Iterator[str]:
    item = finding.merged.item
    numbers = finding.where.rpartition(":")[2]
    marks = ", ".join(filter(None, (item.severity, "contested" if finding.merged.is_contested else "")))
    heading = " ".join(filter(None, (f"**{item.title}**", marks and f"({marks})", numbers and f"line {numbers}")))
    yield f"- {heading} `{finding.id}`"
    if lines := [line for _, line in _quote(finding)]:
        yield from ("", *(f"      {line}" for line in lines), "")
    if item.reason:
        yield f"  {one_line(item.reason, 2_000)}"
    if item.suggestion:
        yield f"  Suggestion: {one_line(item.suggestion, 2_000)}"
    yield f"  _{describe_support(finding)}_"


def _format_annotation(finding: Finding) -> str:
    """Return a workflow command of GitHub Actions, which shows the finding at its line."""
    item, place = finding.merged.item, finding.place
    fields = {"title": item.title}
    if place is not None:
        fields |= {"file": place.path, "line": str(place.first), "endLine": str(place.last)}
    text = "\n".join(filter(None, (item.reason, item.suggestion, describe_support(finding))))
    named = ",".join(f"{name}={_escape(value, ':,')}" for name, value in fields.items())
    return f"::{_COMMANDS.get(item.severity, 'notice')} {named}::{_escape(text)}"


def _escape(text: str, also: str = "") -> str:
    """As GitHub's runner reads it: percent-encoded, the percent sign first."""
    text = make_printable(text)
    for sign in f"%\r\n{also}":
        text = text.replace(sign, f"%{ord(sign):02X}")
    return text


def _build_json(review: Review, shown: Sequence[Finding]) -> dict[str, Any]:
    return {
        "findings": [_describe(finding) for finding in shown],
        "dismissed": len(review.findings) - len(review.standing),
        "unread": [{"file": file.path, "problem": file.problem} for file in review.unread],
        "failed": list(review.failed), "summary": review.summary, "cost": review.cost,
        "sessions": list(review.sessions),
    }  # fmt: skip


def _describe(finding: Finding) -> dict[str, Any]:
    item, place = finding.merged.item, finding.place
    return {
        "id": finding.id, "severity": item.severity, "kind": item.kind, "title": item.title,
        "titles": [one.title for one in finding.merged.versions], "reason": item.reason,
        "suggestion": item.suggestion,
        "place": place and {"file": place.path, "first": place.first, "last": place.last, "lines": list(place.lines)},
        "named": item.where, **_list_support(finding), "dismissed": finding.dismissed,
    }  # fmt: skip


def _list_support(finding: Finding) -> dict[str, Any]:
    merged = finding.merged
    return {
        "found_by": list(merged.found_by), "answered": finding.answered, "confirmed_by": merged.list_agents("confirm"),
        "rejected_by": [{"agent": one.agent, "reason": one.reason} for one in finding.merged.rejections],
    }  # fmt: skip


def _build_sarif(review: Review, shown: Sequence[Finding]) -> dict[str, Any]:
    """Return a log in SARIF 2.1.0, as GitHub's code scanning takes it; what was not read is a notification."""
    kinds = sorted({finding.merged.item.kind or "finding" for finding in shown})
    notes = [f"{file.path} was not read: {file.problem}" for file in review.unread] + list(review.failed)
    invocation = {
        "executionSuccessful": not notes,
        "toolExecutionNotifications": [{"level": "warning", "message": {"text": note}} for note in notes],
    }
    driver = {"name": "massmem", "rules": [{"id": kind, "shortDescription": {"text": kind}} for kind in kinds]}
    results = [_build_result(finding) for finding in shown]
    run = {"tool": {"driver": driver}, "invocations": [invocation], "results": results, "columnKind": "utf16CodeUnits"}
    return {"$schema": _SARIF, "version": "2.1.0", "runs": [run]}


def _build_result(finding: Finding) -> dict[str, Any]:
    item, place = finding.merged.item, finding.place
    text = "\n\n".join(filter(None, (item.title, item.reason, item.suggestion, describe_support(finding))))
    code = "\n".join(place.lines) if place else ""
    fingerprint = hashlib.sha256(f"{item.file}\n{code}\n{item.kind}".encode()).hexdigest()[:16]
    result: dict[str, Any] = {
        "ruleId": item.kind or "finding", "level": _LEVELS.get(item.severity, "note"), "message": {"text": text},
        "partialFingerprints": {"massmemFinding/v1": fingerprint},
        "properties": {"id": finding.id, **_list_support(finding)},
    }  # fmt: skip
    if place is not None:
        region = {"startLine": place.first, "endLine": place.last}
        result["locations"] = [{"physicalLocation": {"artifactLocation": {"uri": quote(place.path)}, "region": region}}]
    if finding.dismissed is not None:
        result["suppressions"] = [{"kind": "external", "justification": finding.dismissed}]
    return result


def _group_by_file(findings: Iterable[Finding]) -> list[tuple[str, list[Finding]]]:
    """Return the findings by their file, in the order of the files' names; those without a place last."""

    def file_of(finding: Finding) -> tuple[bool, str]:
        return finding.place is None, finding.place.path if finding.place else ""

    ordered = sorted(findings, key=file_of)
    return [(key[1], list(group)) for key, group in groupby(ordered, key=file_of)]


def _rank(severity: Severity | None) -> int:
    return SEVERITIES.index(severity) if severity else len(SEVERITIES)
