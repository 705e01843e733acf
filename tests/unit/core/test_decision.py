"""What points add up to: a mean of shares, ties, missing points, dissent, and the Markdown that says it."""

from collections.abc import Mapping

import pytest

from massmem.core.decision import Decision, add_up, write_decision, write_outcome, write_table
from massmem.core.items import Check, Item, UnionItem

Points = Mapping[str, Mapping[str, float]]
"""By agent: points by the number of a criterion."""


def build(number: int, title: str, points: Points, kind: str = "option") -> UnionItem:
    item = Item(title, kind)
    checks = [Check(number, "abstain", f"{agent} on {title}", agent, dict(own)) for agent, own in points.items()]
    return UnionItem(number, item, ("ada",), (item,), tuple(checks))


def criterion(number: int, title: str, **weights: float) -> UnionItem:
    return build(number, title, {agent: {str(number): weight} for agent, weight in weights.items()}, "criterion")


def decide(first: Points, second: Points, *criteria: UnionItem) -> Decision:
    return add_up([build(1, "PostgreSQL", first), build(2, "SQLite", second), *criteria])


EFFORT, WRITERS = criterion(3, "Effort", ada=4, ben=90), criterion(4, "Writers", ada=6, ben=10)
FIRST, SECOND = {"ada": {"3": 4, "4": 9}, "ben": {"3": 3, "4": 8}}, {"ada": {"3": 9, "4": 4}, "ben": {"3": 10, "4": 5}}


def test_each_agent_counts_the_same_whatever_the_size_of_its_weights() -> None:
    decision = decide(FIRST, SECOND, EFFORT, WRITERS)
    assert [(item.item.title, round(share, 2)) for item, share in decision.criteria] == [
        ("Effort", 0.65),
        ("Writers", 0.35),
    ]
    assert [(score.option.item.title, score.total) for score in decision.scores] == [
        ("SQLite", 7.75),
        ("PostgreSQL", 5.25),
    ]
    assert {agent: own.option.item.title for agent, own in decision.dissent.items()} == {"ada": "PostgreSQL"}


def test_points_of_some_agents_count_for_all() -> None:
    decision = decide({"ada": {"3": 6, "4": 6}}, {"ben": {"3": 8, "4": 8}}, EFFORT, WRITERS)
    assert [score.total for score in decision.scores] == [8, 6]
    assert "points are missing" in write_decision([build(1, "Nobody's", {}), build(2, "B", SECOND), EFFORT], str)
    incomplete = decide({"ada": {"3": 10}}, {"ada": {"3": 1, "4": 1}}, EFFORT, WRITERS)
    assert [score.total for score in incomplete.scores] == [1, None]
    assert incomplete.best is None  # nobody has weighed it against anything


def test_weights_of_nothing_are_the_same_for_all() -> None:
    decision = decide(FIRST, SECOND, criterion(3, "Effort", ada=0, ben=0), criterion(4, "Writers", ada=0))
    assert [share for _, share in decision.criteria] == [0.5, 0.5]


def test_a_tie_decides_nothing_also_where_the_sums_differ_by_rounding() -> None:
    points = {"ada": {"3": 0.1, "4": 0.2, "5": 0.3}}
    turned = {"ada": {"3": 0.3, "4": 0.2, "5": 0.1}}
    criteria = [criterion(number, f"c{number}", ada=7) for number in (3, 4, 5)]
    decision = decide(points, turned, *criteria)
    assert decision.best is None and not decision.choices
    assert write_outcome(decision) == "**Nothing is decided**: PostgreSQL and SQLite have the same points, 0.2 of 10."
    close = decide({"ada": {"3": 7}}, {"ada": {"3": 7.4}}, criterion(3, "Effort", ada=1))
    assert close.best and write_outcome(close).endswith("next: PostgreSQL, 7.0. That is close: other weights may "
                                                        "change it.")  # fmt: skip


@pytest.mark.parametrize(
    ("items", "why"),
    [
        ([], "nobody listed options"),
        ([build(1, "A", {})], "nobody listed criteria"),
        ([build(1, "A", {}), EFFORT], "fewer than two options have points for each criterion"),
    ],
)
def test_nothing_is_decided_for_a_reason(items: list[UnionItem], why: str) -> None:
    assert write_decision(items, str).startswith(f"**Nothing is decided**: {why}.")


def test_one_option_is_decided_alone() -> None:
    assert write_outcome(add_up([build(1, "A", {"ada": {"3": 5}}), EFFORT])) == "**Decided: A**, 5.0 of 10 points."


def test_each_part_says_by_itself_what_was_chosen() -> None:
    text = write_decision(
        [build(1, "PostgreSQL", FIRST), build(2, "SQLite", SECOND), EFFORT, WRITERS], str.upper, "So."
    )
    parts = text.split("\n\n")
    assert parts[:2] == ["**Decided: SQLite**, 7.8 of 10 points; next: PostgreSQL, 5.2.", "So."]
    assert "- ADA would choose PostgreSQL (7.0) instead of SQLite: ada on PostgreSQL" in parts[3]
    first = "**2. SQLite** (option): chosen, 7.8 of 10 points (ADA, BEN)\n  - ADA: ada on SQLite"
    assert parts[4].startswith(f"Options:\n- {first}")
    assert "- **1. PostgreSQL** (option): not chosen, 5.2 of 10 points" in parts[4]


def test_no_title_breaks_the_table() -> None:
    row = write_table(add_up([build(1, "a|b\\|c\nd" + "x" * 300, {"ada": {"3": 5}}), EFFORT])).splitlines()[-1]
    assert row.startswith("| a\\|b\\\\\\|c dxxx") and row.endswith("… | 5.0 | 5.0 |")
