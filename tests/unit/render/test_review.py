"""What a review has found, in each form that a person, an editor or GitHub reads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jsonschema
import pytest

from massmem.core.diffs import ChangedFile, CheckedPlace
from massmem.core.items import Check, Item, UnionItem
from massmem.render.review import Finding, Format, Review, count_findings, format_review

SCHEMA = json.loads((Path(__file__).parents[2] / "data" / "sarif-schema-2.1.0.json").read_text())
ODD = 'a%b\r\n::error::x, y: \x1b[31m<b>"&'


def build(number: int, title: str, severity: Any = "high", path: str = "", **changes: Any) -> Finding:
    item = Item(title, "fault", path, (3, 4) if path else None, severity=severity, reason=f"why {title}")
    merged = UnionItem(number, item, ("ann", "bob"), (item,), checks=(Check(number, "confirm", agent="cem"),))
    place = CheckedPlace(path, 3, 4, ("first line", "second line")) if path else None
    return replace(Finding(merged, 3, place), **changes)


def contest(finding: Finding) -> Finding:
    return replace(finding, merged=replace(finding.merged, checks=(Check(2, "reject", "it cannot be None", "cem"),)))


REVIEW = Review(
    [
        build(1, "Loop skips the first item", path="src/a shop.py"),
        contest(build(2, "May be None", "low", "b.py")),
        build(3, ODD, None),
        build(4, "Old news", "medium", "b.py", dismissed="it is wanted"),
    ],
    [ChangedFile("picture.png", "changed", (), "not a text")],
    "Two things to mend.", 0.25, ["review_1"], ["dan: the key is refused"],
)  # fmt: skip


@pytest.mark.parametrize("form", get_args(Format))
def test_dismissed_findings_are_shown_only_when_asked_for(form: Format) -> None:
    assert "Old news" not in format_review(REVIEW, form)
    assert "Old news" in format_review(REVIEW, form, dismissed=True)


@pytest.mark.parametrize("form", ["text", "markdown", "json", "sarif"])
def test_every_form_says_who_found_what_and_what_was_not_read(form: Format) -> None:
    text = format_review(REVIEW, form)
    for part in ("ann", "bob", "cem", "it cannot be None", "picture.png", "not a text", "the key is refused"):
        assert part in text


@pytest.mark.parametrize("form", ["text", "markdown", "github"])
def test_nothing_that_a_terminal_obeys_comes_through(form: Format) -> None:
    assert "\x1b" not in format_review(REVIEW, form)


def test_a_person_reads_them_by_file() -> None:
    lines = format_review(REVIEW, "text").splitlines()
    assert [line for line in lines if line and not line.startswith(" ")][:3] == [
        "b.py",
        "src/a shop.py",
        "without a place",
    ]
    assert "      3 | first line" in "\n".join(lines)
    assert any(line.startswith("  3-4  low  May be None  [contested, ") for line in lines)
    assert lines[-1] == count_findings(REVIEW) == "3 findings (1 high, 1 low), 1 contested, 1 dismissed"


@pytest.mark.parametrize("dismissed", [False, True])
def test_sarif_fits_its_schema(dismissed: bool) -> None:
    log = json.loads(format_review(REVIEW, "sarif", dismissed=dismissed))
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    results = log["runs"][0]["results"]
    assert [result["level"] for result in results][:3] == ["error", "note", "note"]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "src/a%20shop.py"}, "region": {"startLine": 3, "endLine": 4}}
    assert "locations" not in results[2]
    assert [bool(result.get("suppressions")) for result in results] == [False, False, False, True][: len(results)]
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is False


def test_sarif_of_nothing_fits_its_schema() -> None:
    log = json.loads(format_review(Review([], [], "", None, ["review_1"]), "sarif"))
    jsonschema.Draft7Validator(SCHEMA).validate(log)
    assert log["runs"][0]["results"] == []
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_fingerprints_follow_the_code_and_not_the_line() -> None:
    def find_mark(finding: Finding) -> str:
        log = json.loads(format_review(replace(REVIEW, findings=[finding]), "sarif"))
        return log["runs"][0]["results"][0]["partialFingerprints"]["massmemFinding/v1"]

    first = REVIEW.findings[0]
    assert first.place is not None
    assert find_mark(first) == find_mark(replace(first, place=replace(first.place, first=9, last=10)))
    assert find_mark(first) != find_mark(replace(first, place=replace(first.place, lines=("other", "code"))))


def test_annotations_are_one_line_each_as_github_reads_them() -> None:
    first, second, third = format_review(REVIEW, "github").splitlines()
    assert first.startswith("::error title=Loop skips the first item,file=src/a shop.py,line=3,endLine=4::why Loop")
    assert second.startswith("::notice title=May be None,")
    assert third.startswith("::notice title=a%25b%0A%3A%3Aerror%3A%3Ax%2C y%3A ")


@pytest.mark.parametrize(
    ("severity", "contested", "least", "expected"),
    [
        ("high", False, "high", True), ("medium", False, "high", False), ("medium", False, "medium", True),
        ("low", False, "any", True), (None, False, "any", True), (None, False, "medium", False),
        ("high", True, "any", False), (None, False, "low", False),
    ],
)  # fmt: skip
def test_a_limit_is_reached_by_what_nobody_rejects(severity: Any, contested: bool, least: Any, expected: bool) -> None:
    finding = build(1, "x", severity, "a.py")
    review = replace(REVIEW, findings=[contest(finding) if contested else finding])
    assert review.reaches(least) is expected


def test_dismissed_findings_reach_no_limit() -> None:
    assert not replace(REVIEW, findings=REVIEW.findings[3:]).reaches("any")
