"""Numbers of sources in texts: what is one, what it becomes, and what is never touched."""

import time

import pytest

from massmem.core.citations import (
    MOST_SOURCES,
    Sources,
    clean_citations,
    find_marks,
    join,
    number_sources,
    number_together,
    remove_marks,
    show_sources,
)
from massmem.core.messages import Candidate, Citation

A = Citation("https://a.example/x", "Page A", "quoted of A")
B = Citation("https://b.example/", "Page B")
C = Citation("https://c.example/y", "Page C")


def urls(citations: object) -> list[str]:
    assert isinstance(citations, tuple)
    return [citation.url for citation in citations]


def test_sources_are_numbered_by_first_mention_and_those_that_nobody_mentions_follow() -> None:
    cited = number_sources("Red [2]. Blue [1][2].", Sources([A, B, C]), "ann")
    assert cited.text == "Red [1]. Blue [2][1]."
    assert urls(cited.citations) == [B.url, A.url, C.url]
    assert {citation.agent_id for citation in cited.citations} == {"ann"}
    assert [cited.text[c.start : c.end] for c in cited.citations[:2]] == ["Red", "Blue"]
    assert (cited.citations[2].start, cited.problem) == (None, "")


def test_a_number_that_points_nowhere_is_removed_and_said() -> None:
    cited = number_sources("Red [7]. Blue [1] and [9] too.", Sources([A]), "ann")
    assert cited.text == "Red. Blue [1] and too."
    assert "[7], [9]" in cited.problem


@pytest.mark.parametrize(
    "text",
    [
        "a[1] and xs[7], my_list[9], sys.argv[3]",
        "`see [7]` and\n```\nrow [8]\n```\n",
        "[7](https://z.example) ![8](y) [text][9] and [[9]](https://z.example)",
        "a note[^7], a box [x], a year [2024], [0]",
        "x in [0, 1], for the interval [1, 2], and t = [1, 1]",
        "\\[ x_[7] \\] and $x [8]$ and $$[9]$$",
        "[7]: https://z.example\n",
        '{"numbers": [7]}',
        "[1, 7]",
    ],
)
def test_brackets_that_are_no_marks_are_never_touched(text: str) -> None:
    assert number_sources(text, Sources([A, B]), "ann").text == text


def test_without_known_sources_nothing_is_touched() -> None:
    text = "Red [1], blue [7], see https://a.example/x"
    assert number_sources(text, Sources(), "ann") == number_sources(text, Sources(earlier=[[]]), "ann")
    assert number_sources(text, Sources(), "ann").text == text


def test_an_address_in_the_text_names_its_source_however_it_is_written() -> None:
    cited = number_sources("See (http://www.a.example/x/?utm_source=openai).", Sources(earlier=[[B, A]]), "ann")
    assert urls(cited.citations) == [A.url]


def test_numbers_of_a_list_in_the_text_itself_are_those_of_that_list() -> None:
    cited = number_sources("Red [2].\n\n[1] Page A: https://a.example/x\n[2] https://b.example", Sources([A, B]), "ann")
    assert cited.text == "Red [1].\n\n[2] Page A: https://a.example/x\n[1] https://b.example"
    swapped = number_sources(
        "Red [2].\n\n[1] Page B: https://b.example\n[2] https://a.example/x", Sources([A, B]), "ann"
    )
    assert urls(swapped.citations)[0] == A.url


def test_earlier_replies_of_a_step_count_where_the_last_one_has_no_such_source() -> None:
    cited = number_sources("Red [1], blue [2].", Sources([C], earlier=[[A, B]]), "ann")
    assert urls(cited.citations) == [C.url, B.url]
    assert urls(number_sources("Nothing is named.", Sources([], earlier=[[A]]), "ann").citations) == []


def test_a_voter_that_searches_itself_means_its_own_source_where_its_provider_put_the_number() -> None:
    shown = [Candidate("A", "bob", "Red [1].", citations=(A,))]
    own = Citation(B.url, "Page B", start=0, end=8)
    text = "New find [1]. And the old one is as bob says [1]."
    cited = number_sources(text, Sources([own], candidates=shown), "ann")
    assert cited.text == "New find [1]. And the old one is as bob says [2]."
    assert urls(cited.citations) == [B.url, A.url]
    written = number_sources("Old [1], new [2].", Sources([B], candidates=shown, is_written=True), "ann")
    assert urls(written.citations) == [A.url, B.url]


def test_a_final_answer_has_the_sources_of_what_it_took_over_and_no_others() -> None:
    candidates = [
        Candidate("A", "ann", "Air scatters blue light most [1]. Yes [2].", citations=(A, C)),
        Candidate("B", "bob", "Ozone absorbs red light at dusk [1].", citations=(B,)),
    ]
    text = "**Ozone absorbs red light at dusk.** It is blue at noon [1], see [7]."
    cited = number_sources(text, Sources(candidates=candidates), "ann")
    assert cited.text == "**Ozone absorbs red light at dusk [1].** It is blue at noon [2], see."
    assert [(c.url, c.agent_id) for c in cited.citations] == [(B.url, "ann"), (A.url, "ann")]


def test_agents_are_shown_one_numbering_over_all_answers() -> None:
    candidates = [
        Candidate("A", "ann", "Blue [1], red [2].", citations=(A, B)),
        Candidate("B", "bob", "Red [1], green [2].", citations=(B, C)),
        Candidate("C", "cid", "See item [1]."),
    ]
    (first, one), (second, two), (third, three) = show_sources(candidates)
    assert (first, second, third) == ("Blue [1], red [2].", "Red [2], green [3].", "See item [1].")
    assert one[0] == '[1] Page A, https://a.example/x: "quoted of A"'
    assert [line[:3] for line in two] == ["[2]", "[3]"]
    assert three == []
    assert [source.url for source in number_together(candidates)] == [A.url, B.url, C.url]


def test_a_continued_reply_has_one_numbering() -> None:
    text, citations = join("Blue [1] ", [A], "red [1], blue [2].", [Citation(B.url, start=0, end=3), A])
    assert text == "Blue [1] red [2], blue [1]."
    assert text[citations[1].start : citations[1].end] == "red"
    assert join("Blue [1] ", [A], "and again [1].", [])[0] == "Blue [1] and again [1]."


def test_sources_without_an_address_and_too_many_are_left_out_and_said() -> None:
    cited = number_sources("Red [1], blue [2].", Sources([Citation("", "nowhere"), A]), "ann")
    assert (cited.text, urls(cited.citations)) == ("Red, blue [1].", [A.url])
    assert "[1]" in cited.problem
    many = [Citation(f"https://many.example/{i}") for i in range(MOST_SOURCES + 3)]
    cited = number_sources("Red.", Sources(many), "ann")
    assert len(cited.citations) == MOST_SOURCES
    assert "3 sources" in cited.problem


def test_texts_of_a_provider_become_short_lines() -> None:
    odd = Citation("https://a.example/\x00", "A\x1b[31m title\nof two lines" * 50, "q" * 100_000)
    [clean] = clean_citations([odd])
    assert "\n" not in clean.title and "\x1b" not in clean.title and "\x00" not in clean.url
    assert len(clean.title) <= 200 and len(clean.quote) <= 1_000
    assert len(clean_citations([odd] * 5_000)) <= 1_000


def test_marks_are_found_for_annotations_and_removed_for_comparison() -> None:
    assert find_marks("a [1] b [2]", [A, B]) == [(2, 5, A), (8, 11, B)]
    assert remove_marks("42 [1].", 1) == "42."
    assert remove_marks("42 [1].", 0) == "42 [1]."


@pytest.mark.parametrize(
    "text",
    ["[1] a" * 20_000, "[" * 100_000, "\\(" * 50_000, "``a" * 50_000, "\n```" * 30_000, "Red is red [1]. " * 9_000],
)
def test_hard_texts_take_no_time(text: str) -> None:
    started = time.monotonic()
    number_sources(text, Sources([A], candidates=[Candidate("A", "a", text, citations=(A,))]), "ann")
    assert time.monotonic() - started < 10
