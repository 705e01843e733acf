"""Turns of shape decide: what each agent is asked for, and what of its reply counts."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from massmem.core.events import AgentFailed, ItemsMerged
from massmem.core.items import Item
from massmem.core.turn_result import TurnResult
from massmem.tools.actions import ActionError
from massmem.turn.decide import read_scores
from massmem.turn.merging import compare_items
from tests.support.turns import Scripts, only
from tests.unit.turn.test_union import play


def options(*titles: str, criteria: tuple[str, ...] = ()) -> str:
    kinds = [("option", title) for title in titles] + [("criterion", title) for title in criteria]
    return json.dumps({"items": [{"kind": kind, "title": title} for kind, title in kinds]})


def scores(weights: Mapping[int, Any], points: Mapping[int, Any]) -> str:
    entries = [{"item": item, "reason": f"why {item}", "points": own} for item, own in points.items()]
    return json.dumps({"criteria": [{"item": i, "weight": w} for i, w in weights.items()], "options": entries})


TEAM: Scripts = {
    "ann": {
        "items": options("PostgreSQL", "SQLite", criteria=("Effort", "Writers")),
        "check": scores({3: 4, 4: 6}, {1: {"3": 4, "4": 9}, 2: {"3": 9, "4": 4}}),
        "present": "Many write.",
    },
    "ben": {
        "items": options("Use SQLite", criteria=("efforts",)),
        "check": scores({3: 1, 4: 9}, {1: {"3": 3, "4": 8}, 2: {"3": 10, "4": 5}}),
    },
}


async def test_options_are_merged_by_name_scored_by_all_and_added_up() -> None:
    result = TurnResult.of(await play("decide", TEAM))
    assert result.items is not None
    assert {i.item.title: i.found_by for i in result.items} == {
        "PostgreSQL": ("ann",), "SQLite": ("ann", "ben"), "Effort": ("ann", "ben"), "Writers": ("ann",),
    }  # fmt: skip
    assert (result.answer or "").startswith(
        "**Decided: PostgreSQL**, 7.2 of 10 points; next: SQLite, 5.8.\n\nMany write."
    )
    assert result.agreement == "2 of 2 agents scored 2 options by 2 criteria, 0 would choose otherwise"
    assert (result.shape, result.verdict) == ("decide", None)


async def test_who_fails_is_left_out_and_a_tie_asks_nobody_for_a_text() -> None:
    broken = {"answer": "", "items": [options("MySQL", criteria=("Price",))], "check": [{"text": "", "error": "auth"}]}
    same = scores({3: 1, 4: 1}, {1: {"3": 5, "4": 5}, 2: {"3": 5, "4": 5}})
    team: Scripts = {"ann": {**dict(TEAM)["ann"], "check": same}, "ben": broken}
    events = await play("decide", team)
    assert [e.agent_id for e in only(events, AgentFailed)] == ["ben"]
    result = TurnResult.of(events)
    assert (result.answer or "").startswith("**Nothing is decided**") and "Many write." not in (result.answer or "")
    assert (result.agreement or "").startswith("1 of 2 agents scored 3 options")


async def test_without_criteria_nobody_scores() -> None:
    result = TurnResult.of(await play("decide", {"ann": {"items": options("A", "B")}}))
    assert (result.answer or "").startswith(
        "**Nothing is decided**: nobody listed criteria.\n\nOptions:\n- **1. A** (option)"
    )


async def test_twenty_options_and_kinds_in_another_language() -> None:
    names = [f"Möglichkeit {n}" for n in range(20)]
    kinds = [{"kind": "Wahlmöglichkeit", "title": name} for name in names] + [{"kind": "Kriterium", "title": "Preis"}]
    check = scores({21: 5}, {n: {"21": n % 10} for n in range(1, 21)} | {9: {"21": "9,5"}})
    team: Scripts = {"ann": {"items": json.dumps({"items": kinds}), "check": check, "present": "Gut."}}
    events = await play("decide", team)
    assert len(only(events, ItemsMerged)[0].items) == 21
    assert (TurnResult.of(events).answer or "").startswith("**Decided: Möglichkeit 8**, 9.5 of 10 points")


async def test_no_title_of_an_agent_reaches_a_terminal_or_breaks_out_of_its_line() -> None:
    odd = "\x1b[31mred\u202e | x\n## Heading"
    check = scores({2: 1}, {1: {"2": 5}})
    team: Scripts = {"ann": {"items": options(odd, criteria=("C",)), "check": check}}
    answer = TurnResult.of(await play("decide", team, presentation="as_is")).answer or ""
    assert "\x1b" not in answer and "\u202e" not in answer and "\n## Heading" not in answer
    assert "| red \\| x ## Heading | 5.0 | 5.0 |" in answer


@pytest.mark.parametrize(
    ("points", "read"),
    [
        ({"3": "8/10", "4": "7 of 10"}, {"3": 8, "4": 7}),
        ({"3. Effort": 6.5, "4": "9 (very good)"}, {"4": 9}),
        ({"3": "high", "4": 11}, {}),
        ({"3": True, "4": -2}, {}),
        ({"3": None, "4": "5-6"}, {}),
        ([4, 9], {}),
        ("3: 4", {}),
    ],
)
def test_only_points_from_0_to_10_count(points: Any, read: Mapping[str, float]) -> None:
    text = scores({3: "70 %", 4: 1000}, {1: points, 2: {"3": 1}})
    checks = {check.item: check.points for check in read_scores(text, ([1, 2], [3, 4]))}
    assert checks.get(1, {}) == read and checks[3] == {"3": 70} and 4 not in checks


@pytest.mark.parametrize(
    "text", ["", "I like it.", "[]", scores({3: 5}, {}), scores({}, {9: {"3": 5}}), scores({}, {3: {"3": 5}}),
             '{"options": "all", "criteria": 5}', '{"options": [{"item": [1], "points": 7}]}'],
)  # fmt: skip
def test_a_reply_that_scores_no_option_is_asked_for_again(text: str) -> None:
    with pytest.raises(ActionError, match="the options are 1, 2"):
        read_scores(text, ([1, 2], [3]))


def test_an_option_may_be_named_with_its_title() -> None:
    text = json.dumps({"options": [{"item": "2. SQLite", "points": {"3": 4}}, {"item": "none", "points": {"3": 1}}]})
    assert [(check.item, check.points) for check in read_scores(text, ([1, 2], [3]))] == [(2, {"3": 4})]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SQLite", "Use SQLite", True),
        ("Adopt the new contract", "the new contract", True),
        ("PostgreSQL", "SQLite", False),
        ("Split it into three services", "Split it into five services", False),
    ],
)
def test_options_are_the_same_by_name_whatever_their_reasons(one: str, other: str, same: bool) -> None:
    reason = "A database that stores orders of all services, with tables and transactions"
    lists = {"ann": [Item(one, "option", reason=reason)], "ben": [Item(other, "option", reason=reason)]}
    assert compare_items(lists, by_kind=True)[0] == ([(0, 1)] if same else [])
    lists["ben"] = [Item(one, "criterion")]
    assert compare_items(lists, by_kind=True) == ([], [])
