"""The answer on a terminal says what the model said."""

from io import StringIO

import pytest

from massmem.render.answer import laid_out


def drawn(text: str) -> str:
    return laid_out(text, StringIO())


@pytest.mark.parametrize(
    "said",
    [
        "List<String> and <div>text</div>",
        r"\(x^2\) and \* no star",
        "[1]: http://example.com/source",
        "&amp; stays &lt;so&gt;",
        "a <!-- comment --> b",
        "<script>\nalert(1)\n</script>",
    ],
)
def test_what_markdown_would_take_away_stays(said: str):
    shown = drawn(said)
    for line in said.splitlines():
        assert line in shown


def test_line_ends_stay_where_the_model_put_them():
    assert drawn("roses are red\nviolets are blue").splitlines() == ["roses are red", "violets are blue"]


def test_lines_break_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = [f"word{i}" for i in range(60)]
    lines = drawn(" ".join(words)).splitlines()
    assert len(lines) > 8
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == words


def test_an_address_is_shown_beside_the_text_that_leads_there():
    assert "http://elsewhere.example" in drawn("[your bank](http://elsewhere.example)")


def test_code_keeps_its_indentation_and_no_line_ends_with_blanks():
    shown = drawn("```python\nif x:\n    return [<b>]\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "    return [<b>]" in shown
    assert not any(line.endswith(" ") for line in shown.splitlines())


def test_nothing_commands_the_terminal():
    assert "\x1b]" not in drawn("\x1b]0;title\x07 and \x1b[2J done")


def test_a_very_long_answer_is_written_as_it_is():
    said = "**x** " * 40_000
    assert drawn(said).rstrip("\n") == said.rstrip("\n")
