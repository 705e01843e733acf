"""Markdown on a terminal keeps the text of the model."""

from io import StringIO

import pytest

from massmem.render.markdown import render_markdown


def render(text: str) -> str:
    return render_markdown(text, StringIO())


@pytest.mark.parametrize(
    "text",
    [
        "List<String> and <div>text</div>",
        r"\(x^2\) and \* no star",
        "[1]: http://example.com/source",
        "&amp; stays &lt;so&gt;",
        "a <!-- comment --> b",
        "<script>\nalert(1)\n</script>",
    ],
)
def test_text_that_markdown_hides_is_shown(text: str):
    output = render(text)
    for line in text.splitlines():
        assert line in output


def test_line_breaks_of_the_model_are_kept():
    assert render("roses are red\nviolets are blue").splitlines() == ["roses are red", "violets are blue"]


def test_long_lines_wrap_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "40")
    words = [f"word{i}" for i in range(60)]
    lines = render(" ".join(words)).splitlines()
    assert len(lines) > 8
    assert max(map(len, lines)) <= 40
    assert " ".join(lines).split() == words


def test_link_shows_its_address():
    assert "http://elsewhere.example" in render("[your bank](http://elsewhere.example)")


def test_code_keeps_indentation_without_trailing_blanks():
    output = render("```python\nif x:\n    return [<b>]\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    assert "    return [<b>]" in output
    assert not any(line.endswith(" ") for line in output.splitlines())


def test_control_sequences_are_removed():
    assert "\x1b]" not in render("\x1b]0;title\x07 and \x1b[2J done")


def test_very_long_answer_is_not_laid_out():
    text = "**x** " * 40_000
    assert render(text).rstrip("\n") == text.rstrip("\n")
