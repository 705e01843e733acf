import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.text import format_dollars, make_printable, one_line

ANYTHING = st.text(st.characters(codec=None) | st.sampled_from("\x1b[]0;mHKJ\x07\x9b\x9c\r\n\t\u202e\u2066\\"))


@given(ANYTHING)
def test_nothing_that_a_terminal_obeys_remains(text: str):
    safe = make_printable(text)
    assert all(c in "\n\t" or unicodedata.category(c) not in {"Cc", "Cs"} for c in safe)
    assert not set(safe) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    safe.encode()


@given(ANYTHING)
def test_twice_is_once(text: str):
    assert make_printable(make_printable(text)) == make_printable(text)


@given(st.text(st.characters(exclude_categories=("C",)) | st.sampled_from("\n\t")))
def test_ordinary_text_is_untouched(text: str):
    assert make_printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hcleared", "cleared"),
        ("\x1b]0;new title\x07text", "text"),
        ("\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\", "click"),
        ("\x1b]52;c;ZXZpbA==\x07", ""),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x9b31mred", "red"),
        ("\x1b]0;never ended", "␛]0;never ended"),
        ("over\rwritten", "over␍written"),
        ("dos\r\nlines", "dos\nlines"),
        ("bell\x07 back\x08 del\x7f", "bell␇ back␈ del␡"),
        ("user\u202etxt.exe", "usertxt.exe"),
        ("lone \ud800", "lone �"),
        ("[bold]kept[/bold] :smile:", "[bold]kept[/bold] :smile:"),
        ("日本語 שלום 👩‍👩‍👧", "日本語 שלום 👩‍👩‍👧"),
    ],
)
def test_known_tricks(text: str, shown: str):
    assert make_printable(text) == shown


def test_one_line_folds_and_cuts():
    assert one_line("a\n\n  b\tc") == "a b c"
    assert one_line("x" * 300, 10) == "x" * 9 + "…"
    assert one_line("\n" * 50 + "\x1b[1mhi", 10) == ""
    assert one_line("short", 10) == "short"


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (None, "price not known"), (0, "$0"), (0.0, "$0"), (0.00000012, "$0.00000012"), (0.00213, "$0.0021"),
        (0.009999, "$0.0100"), (0.01, "$0.01"), (0.256, "$0.26"), (12.345, "$12.35"), (1234.5, "$1,234.50"),
    ],
)  # fmt: skip
def test_amounts_are_short_and_never_rounded_to_nothing(amount: float | None, text: str):
    assert format_dollars(amount) == text
