"""scripts/bench jobs: reviewers and scorers that do not exist, through the code that merges and adds up."""

from random import Random

import pytest

from massmem.turn.merging import compare_items, merge_items
from scripts.benches import jobs


def test_rows_say_what_each_rule_comes_to():
    rows = {row.what: row for row in jobs.run(runs=4)}
    assert len(rows) == len(jobs.REVIEWERS) * (1 + len(jobs.RULES)) + len(jobs.SCORERS)
    assert all(row.note.count(" to ") == 3 for row in rows.values())
    union = rows["one strong and precise, two that guess, plain union: F1"]
    assert union.ok is False  # where one is that good, the others only add false alarms


def test_reviewers_find_as_much_as_they_should():
    reviewers = jobs.Reviewers("one", (0.3,), (2.0,), spread=2.0)
    lists = [jobs.list_all(reviewers, Random(number))["0"] for number in range(200)]
    known = sum(bool(item.suggestion) for items in lists for item in items)
    assert known / (200 * jobs.ISSUES) == pytest.approx(0.3, abs=0.04)
    assert sum(map(len, lists)) - known == 400


def test_merging_joins_most_wordings_of_an_issue():
    right = wrong = apart = 0
    for number in range(10):
        lists = jobs.list_all(jobs.Reviewers("two", (0.9, 0.9), (3.0, 3.0)), Random(number))
        items = merge_items(lists, compare_items(lists)[0])
        names = [{version.suggestion for version in item.versions} for item in items if len(item.versions) > 1]
        right += sum(len(one) == 1 and "" not in one for one in names)
        wrong += sum(len(one) > 1 for one in names)
        listed = [item.suggestion for items in lists.values() for item in items if item.suggestion]
        apart += len(listed) - len(set(listed)) - sum(len(one) == 1 and "" not in one for one in names)
    assert wrong == 0
    assert 0.85 < right / (right + apart) < 0.98  # as on the wordings of tests/data/review_faults.yaml
