"""Text analysis: words, passages and sparse vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.text_analysis import (
    LONGEST_SENTENCE,
    PASSAGE_WORDS,
    build_document_vector,
    build_query_vector,
    extract_query_terms,
    extract_terms,
    has_time,
    is_question,
    split_passages,
    term_id,
)
from massmem.memory.words import stem


def test_terms_are_content_words():
    assert extract_terms("What did you say about the red kites?") == ["red", stem("kites")]


def test_a_query_drops_what_only_frames_it():
    assert extract_query_terms("List the order of the kites, please") == [stem("kites")]
    assert extract_query_terms("the order") == ["order"], "unless nothing else is left"
    assert extract_query_terms("") == []


def test_a_short_message_is_one_passage():
    assert split_passages("I like kites. They fly.") == ["I like kites. They fly."]


def test_whole_sentences_make_passages_of_about_thirty_words():
    sentence = "The quick brown fox jumps over the lazy dog today."
    found = split_passages(" ".join([sentence] * 9))
    assert [len(p.split()) for p in found] == [30, 30, 30]
    assert all(p.endswith(".") for p in found)


def test_a_heading_stays_with_what_follows():
    assert split_passages("Steps:\n" + "word " * (PASSAGE_WORDS + 5))[0].startswith("Steps: word")


def test_a_long_sentence_is_cut_after_a_comma():
    first = " ".join(["one"] * 20) + ","
    found = split_passages(f"{first} {' '.join(['two'] * 40)}.")
    assert found[0] == first
    assert max(len(p.split()) for p in found) <= LONGEST_SENTENCE


def test_numbers_of_lists_and_abbreviations_end_no_sentence():
    assert split_passages("See e.g. Dr. Who, item 1. or so.") == ["See e.g. Dr. Who, item 1. or so."]


def test_no_passage_is_without_bounds():
    assert max(map(len, split_passages("a" * 300_000))) <= 20_000
    assert max(map(len, split_passages("我们去公园散步。" * 500))) <= 200


@pytest.mark.parametrize("text", ["", "   ", "\n\n"])
def test_nothing_gives_no_passage(text: str):
    assert split_passages(text) == []


@given(st.text(max_size=400))
def test_passages_lose_no_character_but_spaces(text: str):
    assert "".join("".join(split_passages(text)).split()) == "".join(text.split())


@given(st.text(max_size=400))
def test_splitting_again_changes_nothing_that_is_found(text: str):
    whole = [term for passage in split_passages(text) for term in extract_terms(passage)]
    assert set(extract_query_terms(text)) <= set(whole)


def test_rare_long_passages_weigh_less_per_word_than_short_ones():
    short, long = (
        build_document_vector(extract_terms("kites fly")),
        build_document_vector(extract_terms("kites fly " + "over hills " * 20)),
    )
    kite = term_id(stem("kites"))
    assert short[kite] > long[kite] > 0


def test_other_forms_of_a_word_make_a_text_no_longer():
    kite = term_id("kite")
    assert build_document_vector(["kite", "milan", "red"], 2)[kite] == build_document_vector(["kite", "red"])[kite]


def test_a_repeated_word_weighs_more_but_not_twice():
    once, twice = build_document_vector(["kite", "red"]), build_document_vector(["kite", "kite"])
    assert once[term_id("kite")] < twice[term_id("kite")] < 2 * once[term_id("kite")]


def test_a_query_looks_for_each_word_alike():
    assert build_query_vector([("kite",), ("red",)]) == {term_id("kite"): 1.0, term_id("red"): 1.0}


def test_forms_of_a_word_share_its_weight():
    weights = build_query_vector([("tiktok", "tik", "tok"), ("tik",)])
    assert weights == {term_id("tiktok"): 0.5, term_id("tik"): 1.0, term_id("tok"): 0.25}


@pytest.mark.parametrize(
    ("text", "time"), [("We met last week", True), ("on Friday", True), ("in 2023", True), ("We met", False)]
)
def test_it_knows_when_a_time_is_named(text: str, time: bool):
    assert has_time(text) is time


@pytest.mark.parametrize(("text", "question"), [('Is it? "', True), ("It is.", False)])
def test_it_knows_questions(text: str, question: bool):
    assert is_question(text) is question
