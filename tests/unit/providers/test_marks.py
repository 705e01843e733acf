"""Marks in the text of a reply, from what providers write."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.providers.marks import Form, SourceMarker

A, B = "https://a.example/x_(y)", "https://b.example/?q=1"


def read(text: str, form: Form, sizes: Iterator[int] | None = None) -> tuple[str, list[str]]:
    """Return the text with its marks, and the addresses of its sources. sizes: of the pieces in which it comes."""
    cited = SourceMarker(form)
    cited.add_source(A)
    cited.add_source(B)
    out, start = "", 0
    while start < len(text):
        size = len(text) if sizes is None else next(sizes)
        out += "".join(cited.feed(text[start : start + size]))
        start += size
    out += "".join(cited.feed("", final=True))
    assert cited.length == len(out)
    return out, [citation.url for citation in cited.list_citations()]


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (f"One [a.example]({A}).", "One [1]."),
        (f"One ([b.example]({B})), two ([2]({A}); [1]({B})).", "One [1], two [2][1]."),
        (f"One ([b.example]({B}) and more).", "One ([1] and more)."),
        (f"The [report of 2021]({A}) says.", "The report of 2021 [1] says."),
        (f"One[[7]]({B})[[8]]({A}).", "One [1][2]."),
        (f"One [b.example]({B}&utm_source=openai#:~:text=One).", "One [1]."),
        (f'One [b.example](<{B}> "Title").', "One [1]."),
        ("See [c.example](https://c.example) and ([d](https://d.example)).",) * 2,
        ("x[0] = [1, 2]; f(a)(b) [note] [^1] ![p](data:x) [rel](/path) (",) * 2,
        ("[" * 50 + "(" * 50 + "]" * 50,) * 2,
        (f"[a.example]({A}", f"[a.example]({A}"),
    ],
)
def test_links_to_sources_become_marks_and_all_else_stays(text: str, marked: str) -> None:
    assert read(text, "links")[0] == marked
    assert read(text, "links", iter([1] * len(text)))[0] == marked
    assert read(text, "parts", iter([1] * len(text)))[0] == marked


@given(
    st.lists(
        st.sampled_from([*"[]()【】,; 1xé", f"[a.example]({A})", f"[b]({B})", f"([b]({B}))", "[1]", "\n", "http"])
    ),
    st.lists(st.integers(1, 9), min_size=1),
    st.sampled_from(["links", "parts", "numbers", "offsets"]),
)
def test_pieces_make_no_difference(parts: list[str], sizes: list[int], form: Form) -> None:
    text = "".join(parts)
    assert read(text, form, (sizes[place % len(sizes)] for place in range(len(text) + 1))) == read(text, form)
