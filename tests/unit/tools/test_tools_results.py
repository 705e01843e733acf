from typing import Any

import pytest

from massmem.tools.results import MAX_CHARACTERS, clean_reply, clean_result, excerpt


def words(text: str) -> int:
    return len(text.split())


def test_nothing_that_a_database_or_a_terminal_chokes_on():
    assert clean_result("a\ud800b\x00c\x1b[31md") == "a�b␀cd"


def test_note_names_what_the_log_lacks():
    assert clean_result("x" * MAX_CHARACTERS) == "x" * MAX_CHARACTERS
    assert clean_result("x" * (MAX_CHARACTERS + 1_234)).endswith("x\n[1,234 more characters were not kept]")


def test_an_excerpt_has_the_beginning_and_the_end():
    text = " ".join(f"w{n}" for n in range(10_000))
    cut = excerpt(text, 100, words, lambda start, end: f"[{end - start} left out]")
    assert cut.startswith("w0 w1 ")
    assert cut.endswith(" w9999")
    head, gap, tail = cut.split("\n")
    assert len(head) + len(tail) + int(gap.removeprefix("[").removesuffix(" left out]")) == len(text)
    assert words(cut) < 130
    assert excerpt("short text", 100, words, lambda *_: "") == "short text"
    assert excerpt("a few more words than tokens are", 7, words, lambda *_: "") == "a few more words than tokens are"


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


KINDS: list[tuple[object, str]] = [
    ({"type": "text", "text": "one"}, "one"),
    ({"type": "resource_link", "name": "notes", "uri": "file:///n.txt"}, "[resource notes: file:///n.txt]"),
    ({"type": "resource", "resource": {"uri": "file:///a", "text": "two"}}, "[resource file:///a]\ntwo"),
    ({"type": "resource", "resource": {"uri": "b", "blob": "A" * 4_000}}, "[resource b, binary, 3 kB: not shown]"),
    ({"type": "image", "data": "A" * 4_000, "annotations": 5}, "[image, binary, 3 kB: not shown]"),
    ({"type": "chart", "rows": [1]}, '{"type": "chart", "rows": [1]}'),
    ({"type": "aside", "text": "three"}, "three"),
    ("four", "four"),
    (5, "5"),
]
RESULTS: dict[str, tuple[dict[str, Any], str, bool]] = {
    "every kind of content": ({"content": [*(kind for kind, _ in KINDS), None]}, "\n".join(t for _, t in KINDS), False),
    "a text": ({"content": "a", "isError": True}, "a", True),
    "nothing": ({"content": None, "isError": None, "_meta": None}, "(nothing)", False),
    "words for an error": ({"content": ["a"], "isError": "true"}, "a", True),
    "no error in words": ({"content": [], "isError": "false"}, "(nothing)", False),
    "an object alone": ({"structuredContent": {"ok": True}, "content": []}, '{"ok": true}', False),
    "a list alone": ({"structuredContent": [1]}, "[1]", False),
    "an object beside a text": ({"structuredContent": {"ok": True}, "content": [text("a")]}, "a", False),
    "the first protocol": ({"toolResult": {"a": 1}}, '{"a": 1}', False),
}


@pytest.mark.parametrize(("reply", "content", "failed"), RESULTS.values(), ids=RESULTS)
def test_a_result_is_text_in_the_form_of_the_protocol(reply: dict[str, Any], content: str, failed: bool):
    assert clean_reply(reply) == ({"content": [text(content)], "isError": failed}, [])


def test_an_odd_tool_costs_itself():
    tools = [None, {"name": " "}, {"name": "a", "description": 5, "annotations": 3}, {"name": "b", "inputSchema": 5},
             {"name": "c", "inputSchema": {"type": "string"}}, "d"]  # fmt: skip
    cleaned, notes = clean_reply({"tools": tools, "nextCursor": 7})
    empty = {"type": "object", "properties": {}}
    assert cleaned == {"tools": [{"name": "a", "inputSchema": empty}, {"name": "b", "inputSchema": empty}]}
    assert len(notes) == 4
    assert "its tool c is left out: its arguments are no object but of type string" in notes
    assert clean_reply({"tools": None}) == ({"tools": []}, [])
    assert clean_reply({"protocolVersion": "1"}) == ({"protocolVersion": "1"}, [])
