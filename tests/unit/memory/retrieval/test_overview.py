"""Headlines: short pieces of many messages, on candidates made by hand."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.retrieval.overview import cut_headlines
from massmem.memory.retrieval.pack import join_excerpt
from massmem.memory.retrieval.query import analyse
from tests.support.memories import candidates, count

SUMMARY = "Can you summarize how my kites went over time?"
ORDER = "In which order did I bring up my kites?"


def headlines(
    question: str, texts: Sequence[str], scores: Sequence[float], tokens: int = 1000, **columns: Sequence[float]
) -> list[str]:
    c = candidates(scores, texts, **columns)
    return [join_excerpt(excerpt) for excerpt in cut_headlines(analyse(question), c, c.bm25, tokens, count).values()]


def test_each_message_is_shown_by_its_best_passage():
    texts = ["Kites fly.", "Red kites nest.", "Oaks stand."]
    assert headlines(SUMMARY, texts, [1, 3, 2], message=[0, 0, 1]) == ["Red kites nest.", "Oaks stand."]


def test_the_sentence_with_the_words_is_cut_short():
    long = "Kites " + "word " * 40 + "end."
    (line,) = headlines(SUMMARY, [f"Nothing here. {long}"], [1])
    assert line.startswith("Kites word")
    assert line.endswith(" …")
    assert count(line) <= 15


def test_a_summary_shows_each_reply_after_what_it_replies_to():
    texts = ["I bought a kite.", "Fly it low.", "A line broke.", "Tie a knot."]
    asked = [True, False, True, False]
    shown = headlines(SUMMARY, texts, [3, 1, 2, 1.5], from_user=asked)
    assert shown == ["I bought a kite.", "Fly it low.", "A line broke.", "Tie a knot."]
    apart = headlines(SUMMARY, texts, [3, 1, 2, 1.5], from_user=asked, session=[0, 1, 1, 1])
    assert apart == ["I bought a kite.", "A line broke.", "Tie a knot.", "Fly it low."]


def test_an_order_shows_first_what_the_user_said_where_the_user_is_meant():
    texts, asked = ["Fly it low.", "I bought a kite.", "A line broke."], [False, True, True]
    assert headlines(ORDER, texts, [3, 2, 1], from_user=asked) == ["I bought a kite.", "A line broke.", "Fly it low."]
    assert headlines("In which order did they come?", texts, [3, 2, 1], from_user=asked)[0] == "Fly it low."


def test_nothing_gives_no_headline():
    assert headlines(SUMMARY, [], []) == []


@given(st.lists(st.text(max_size=200), max_size=40), st.integers(0, 300))
def test_headlines_never_exceed_the_room(texts: list[str], tokens: int):
    shown = headlines(SUMMARY, texts, [1.0] * len(texts), tokens)
    assert sum(count(line) + 2 for line in shown) <= tokens
