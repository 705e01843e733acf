"""The record of a decision: MADR's headings in their order, a head that is YAML, and no part twice."""

import re
from datetime import UTC, datetime
from typing import Any

import yaml

from massmem.core.decision import write_decision
from massmem.core.turn_result import TurnResult
from massmem.render.adr import write_record
from tests.unit.core.test_decision import EFFORT, FIRST, SECOND, WRITERS, build

ITEMS = (build(1, "PostgreSQL", FIRST), build(2, "SQLite", SECOND), EFFORT, WRITERS)


def record(items: Any = ITEMS, summary: str = "", **fields: Any) -> str:
    answer = write_decision(items, str.upper, summary)
    values: dict[str, Any] = {"session_id": "session_x", "turn": 2, "question": "Which database?", "answer": answer}
    values |= {"items": items, "names": {"ada": "ADA", "ben": "BEN"}, "files": ()}
    build_result: Any = TurnResult.model_construct
    return write_record(build_result(**values | {"ended_at": datetime(2026, 11, 28, tzinfo=UTC)} | fields))


def test_the_record_has_the_headings_of_madr_and_each_part_once() -> None:
    text = record(summary="No server to run.\n\nIt gives up writers.")
    assert re.findall(r"^#+ (.*)", text, re.MULTILINE) == [
        "SQLite", "Context and Problem Statement", "Decision Drivers", "Considered Options", "Decision Outcome",
        "More Information",
    ]  # fmt: skip
    assert 'Chosen option: "SQLite", with 7.8 of 10 points; next: PostgreSQL, 5.2.\n\nNo server to run.' in text
    assert "- **3. Effort** (criterion): 65% of the weight" in text and "Session session_x, turn 2." in text
    for part in ("It gives up writers.", "| SQLite | 9.5", "ADA would choose PostgreSQL", "Which database?"):
        assert text.count(part) == 1


def test_without_a_summary_nothing_stands_twice() -> None:
    assert record().count("| SQLite | 9.5") == 1 and record(answer=None).count("| SQLite | 9.5") == 1


def test_the_head_is_yaml_with_any_names_of_agents() -> None:
    names = {"ada": 'Ada: "the [first]" #1', "ben": "Бен"}
    head = record(names=names, answer="").split("---\n")[1]
    assert yaml.safe_load(head) == {
        "status": "proposed", "date": datetime(2026, 11, 28, tzinfo=UTC).date(), "decision-makers": [*names.values()],
    }  # fmt: skip


def test_a_record_without_a_decision_says_so() -> None:
    text = record((build(1, "A", {}), EFFORT))
    assert "\n# Nothing is decided\n" in text and "fewer than two options have points for each criterion" in text
    assert record(()).count("nobody listed options") == 1
