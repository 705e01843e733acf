"""Items, and what others say of them, as models write them: JSON of the form, JSON near it, Markdown."""

import json

import pytest

from massmem.core.items import Check, Item
from massmem.tools.actions import ActionError
from massmem.tools.item_form import read_checks, read_items

WHOLE = Item(
    "Unescaped name", "finding", "src/db.py", (10, 12), "", "high", "A quote ends it.", "f'{name}'", "Bind it."
)
AS_JSON = (
    '{"items": [{"kind": "finding", "title": "Unescaped name", "place": "src/db.py:10-12", "severity": "High", '
    '"reason": "A quote ends it.", "evidence": "f\'{name}\'", "suggestion": "Bind it."}]}'
)
FORMS = {
    "the form": AS_JSON,
    "fenced, behind a draft": f"First [1] I thought {{}}.\n```json\n{AS_JSON}\n```",
    "fields of a place": AS_JSON.replace('"src/db.py:10-12"', '{"file": "./src/db.py", "lines": [10, 12]}'),
    "a bare list, other names": '[{"type": "finding", "issue": "Unescaped name", "path": "src/db.py", "line": "10-12", '
    '"priority": "critical", "why": "A quote ends it.", "quote": "f\'{name}\'", "fix": "Bind it."}]',
    "Markdown": "Here:\n\n1. **Unescaped name** (high)\n   - Type: finding\n   - Place: `src/db.py`, lines 10 to 12\n"
    "   - Evidence: f'{name}'\n   - Fix: Bind it.\n   A quote ends it.\n",
    "German headings": "## Befunde\n\n### Unescaped name\n**Schweregrad:** hoch\n**Ort:** src/db.py Zeilen 10 bis 12\n"
    "**Begründung:** A quote ends it.\n**Art:** finding\n**Beleg:** f'{name}'\n**Vorschlag:** Bind it.\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_an_item_is_the_same_in_every_form(form: str) -> None:
    assert read_items(FORMS[form]) == ((WHOLE,), ())


@pytest.mark.parametrize(
    "text", ['{"items": []}', "```json\n[]\n```", "Nothing found.", "Keine Fehler.", "Aucun problème."]
)
def test_nothing_is_an_answer(text: str) -> None:
    assert read_items(text) == ((), ())


def test_unreadable_entries_leave_the_other_items() -> None:
    items, unread = read_items('{"items": [{"title": "a"}, {"severity": "low"}, "b", {"title": "?!"}]}')
    assert [item.title for item in items] == ["a", "b"]
    assert unread == ("low", "?!")


def test_a_list_that_was_cut_off_has_its_whole_items() -> None:
    assert [i.title for i in read_items('{"items": [{"title": "a", "lines": [1, 2]}, {"title": "b"}, {"tit')[0]] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("place", "where"),
    [("a.py", "a.py"), ("see a/b.c, line 7", "a/b.c:7"), ("x\\y.js:3:14", "x/y.js:3"), ("a.py#L4-L9", "a.py:4-9"),
     ("a.py:9-4", "a.py:9"), ("the second paragraph", "the second paragraph"), ("Makefile", "Makefile"), ("", "")],
)  # fmt: skip
def test_a_place_is_a_file_with_lines_or_words(place: str, where: str) -> None:
    ((item,), _) = read_items(f'[{{"title": "t", "place": {place!r}}}]'.replace("'", '"'))
    assert item.where == where


@pytest.mark.parametrize(
    "text", ["The capital of France is Paris.", "[1, 2]", '{"answer": "Paris"}', "- ?\n- !", "{" * 500]
)
def test_another_text_has_no_form(text: str) -> None:
    with pytest.raises(ActionError):
        read_items(text)


def test_checks_are_read_from_json_and_lines() -> None:
    text = json.dumps({"checks": [
        {"item": 1, "reason": "seen", "stand": "confirm"}, {"item": "#2", "stand": "Rejected", "reason": ""},
        {"item": 3, "stand": "unsure"}, {"item": 4, "stand": "maybe"}, {"item": 9, "stand": "confirm"},
    ]})  # fmt: skip
    known = (Check(1, "confirm", "seen"), Check(2, "reject"), Check(3, "abstain"))
    assert read_checks(text, [1, 2, 3, 4]) == known
    lines = read_checks("1. Confirmed: seen\n2. **Reject** - there is none\n3) not sure", [1, 2, 3])
    assert [(check.item, check.stand) for check in lines] == [(1, "confirm"), (2, "reject")]
    with pytest.raises(ActionError, match="1, 2"):
        read_checks("All fine.", [1, 2])
