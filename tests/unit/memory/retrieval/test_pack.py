"""Packing: whole passages, and sentences that are cut out of passages, on candidates made by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.retrieval.pack import (
    HEADER_TOKENS,
    Packed,
    Room,
    cut_headlines,
    cut_sentences,
    pack,
)
from massmem.memory.retrieval.query import analyse
from massmem.memory.words import build_document_vector, extract_query_terms, extract_terms, term_id
from tests.support.memories import candidates, count

NOTHING = analyse("kites")
LONG = "Nobody has said a word about the new chairs in the hall so far, and nobody will before the end of May."


def cut(question: str, texts: Sequence[str], tokens: int = 200, **columns: Sequence[int]) -> Mapping[int, str]:
    """As if every word were equally rare."""
    words = extract_query_terms(question)
    weights = [build_document_vector(extract_terms(text)) for text in texts]
    bm25 = [sum(vector.get(term_id(word), 0) for word in words) for vector in weights]
    c = candidates(bm25, texts, **{"tokens": [20] * len(texts), **columns})
    return cut_sentences(c, c.bm25, frozenset(words), tokens, count)


def test_the_sentence_with_the_words_is_cut_out():
    found = cut("Which kites nest here?", [f"{LONG} Red kites nest in Cobham. {LONG}"])
    assert found == {0: "Red kites nest in Cobham."}


def test_much_fewer_of_the_words_are_not_cut_out():
    texts = ["Kites eat voles.", "Red kites nest in Cobham.", "Red kites nest."]
    assert sorted(cut("Where in Cobham do red kites nest?", texts)) == [1, 2]


def test_a_correction_in_the_same_words_comes_with_what_it_corrects_or_alone():
    texts = ["The door code of Elm is KITE-2093.", "The door code of Elm is FINCH-77."]
    assert sorted(cut("What is the door code of Elm?", texts)) == [0, 1]
    assert list(cut("What is the door code of Elm?", texts, tokens=14)) == [1]


def test_no_word_no_sentence():
    assert cut("Which kites nest?", [LONG]) == {}
    assert cut("Which kites nest?", []) == {}


@given(
    st.integers(0, 400),
    st.lists(st.lists(st.sampled_from([LONG, "Kites nest.", "Red kites.", "Oaks."]), max_size=4), max_size=30),
)
def test_sentences_never_exceed_the_room(tokens: int, texts: list[list[str]]):
    found = cut("Which red kites nest?", [" ".join(text) for text in texts], tokens=tokens)
    assert sum(count(sentence) + 2 for sentence in found.values()) <= min(tokens, 200)


def test_no_candidates_pack_nothing():
    assert pack(NOTHING, candidates([]), np.zeros(0), Room(100)) == Packed([], frozenset(), 0)


def test_memories_that_fit_are_shown_best_first():
    picked = pack(NOTHING, candidates([1, 2, 3]), np.array([1.0, 2, 3]), Room(HEADER_TOKENS + 24))
    assert picked == Packed([2, 1], frozenset({1, 2}), HEADER_TOKENS + 24)


def test_memory_that_is_too_long_is_passed_over():
    c = candidates([3, 2], tokens=[500, 5])
    assert pack(NOTHING, c, np.array([3.0, 2]), Room(50)).chosen == [1]


def test_the_number_of_messages_is_bounded_but_not_their_passages():
    c = candidates([4, 3, 2, 1], message=[7, 8, 7, 9])
    assert pack(NOTHING, c, np.array([4.0, 3, 2, 1]), Room(1000, 2)).chosen == [0, 1, 2]
    assert pack(NOTHING, c, np.array([4.0, 3, 2, 1]), Room(1000, 0)).chosen == []


def test_answers_about_a_person_are_spread_over_messages():
    c = candidates([4, 3, 3], message=[7, 7, 8])
    scores = np.array([4.0, 3.5, 3])
    assert pack(NOTHING, c, scores, Room(1000)).chosen == [0, 1, 2]
    assert pack(analyse("my kites"), c, scores, Room(1000)).chosen == [0, 2, 1]


def test_of_equal_matches_the_newest_is_taken_by_its_words():
    """The two say the same as far as words tell, and the room is too small for both: what was said last holds."""
    c = candidates([3, 3], tokens=[20, 20], key=[0, 100])
    assert pack(NOTHING, c, np.array([1.0, 1]), Room(40)).chosen == [1]
    assert pack(NOTHING, c, np.array([2.0, 1]), Room(40)).chosen == [0]


def test_a_sentence_that_fits_is_shown_where_its_passage_does_not():
    c = candidates([3, 2], tokens=[30, 30])
    picked = pack(NOTHING, c, np.array([1.0, 2]), Room(HEADER_TOKENS + 12 + 12), {0: 10, 1: 10})
    assert picked == Packed([1, 0], frozenset(), HEADER_TOKENS + 24)


def test_a_sentence_becomes_whole_where_there_is_room_for_it():
    c = candidates([3, 2], tokens=[30, 30])
    picked = pack(NOTHING, c, np.array([1.0, 2]), Room(HEADER_TOKENS + 12 + 32), {0: 10, 1: 10})
    assert picked == Packed([1, 0], frozenset({1}), HEADER_TOKENS + 12 + 32)


def test_hidden_memory_makes_room():
    c = candidates([3, 2], tokens=[30, 30])
    room = Room(HEADER_TOKENS + 32)
    assert pack(NOTHING, c, np.array([2.0, 1]), room, left_out={0}).chosen == [1]
    assert pack(NOTHING, c, np.array([2.0, 1]), room, {0: 10}, {0}).chosen == [1]


@given(
    st.lists(st.tuples(st.floats(-2, 5), st.integers(1, 90), st.integers(0, 5), st.integers(0, 3)), max_size=40),
    st.integers(0, 400),
    st.one_of(st.none(), st.integers(0, 6)),
)
def test_passages_never_exceed_the_room(rows: list[tuple[float, int, int, int]], tokens: int, messages: int | None):
    scores = np.array([row[0] for row in rows])
    c = candidates([0] * len(rows), tokens=[r[1] for r in rows], message=[r[2] for r in rows], day=[r[3] for r in rows])
    picked = pack(analyse("my kites"), c, scores, Room(tokens, messages))
    chosen, used = picked.chosen, picked.tokens
    shown = {int(c.message[i]) for i in chosen}
    days = {int(c.day[i]) for i in chosen}
    cost = (
        sum(int(c.tokens[i]) for i in chosen) + 2 * len(shown) + (len(chosen) - len(shown)) + HEADER_TOKENS * len(days)
    )
    assert used == cost <= tokens or not chosen
    assert len(set(chosen)) == len(chosen)
    assert messages is None or len(shown) <= messages


SUMMARY = "Can you summarize how my kites went over time?"
ORDER = "In which order did I bring up my kites?"


def headlines(
    question: str, texts: Sequence[str], scores: Sequence[float], tokens: int = 1000, **columns: Sequence[float]
) -> list[str]:
    c = candidates(scores, texts, **columns)
    return [*cut_headlines(analyse(question), c, c.bm25, tokens, count).values()]


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
