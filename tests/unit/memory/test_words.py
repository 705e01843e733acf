"""Words and the forms that they are found by; guessing a language; passages and sparse vectors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from Stemmer import algorithms

from massmem.memory.words import (
    LONGEST_SENTENCE,
    PASSAGE_WORDS,
    STOP_WORDS,
    build_document_vector,
    build_query_vector,
    extract_forms,
    extract_query_terms,
    extract_terms,
    fold,
    guess_language,
    has_time,
    is_english,
    is_question,
    respell,
    split_passages,
    split_words,
    stem,
    term_id,
)


def terms(text: str) -> set[str]:
    return {term for forms in extract_forms(text) for term in forms}


def test_words_are_lower_case_and_identifiers_are_split():
    assert split_words("Call load_config(Path) at 10:30, it's Maria’s") == [
        "call", "load", "config", "path", "at", "10", "30", "it's", "maria's",
    ]  # fmt: skip


def test_text_without_spaces_is_found_by_pairs_of_characters():
    assert split_words("今天天气 ok") == ["今天", "天天", "天气", "ok"]
    assert terms("天气") <= terms("今天天气很好")


def test_a_sign_on_a_letter_does_not_split_its_word():
    assert split_words("cafe\u0301 هَذَا हिन्दी") == ["café", "هَذَا", "हिन्दी"]


@pytest.mark.parametrize(("one", "other"), [("painting", "painted"), ("maria's", "maria"), ("studies", "study")])
def test_forms_of_a_word_share_a_stem(one: str, other: str):
    assert stem(one) == stem(other)


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("parseHTTPHeader fails", "http header"),
        ("call loadConfigFile first", "load config file"),
        ("set MAX_RETRY_COUNT", "max retry count"),
        ("set retry_count", "retryCount"),
        ("the node tail-latency-probe", "latency"),
        ("the node tail-latency-probe", "tailLatencyProbe"),
        ("see src/billing/taxRules.ts", "tax rules in billing"),
        ("a check-in at noon", "checkin"),
    ],
)
def test_parts_of_a_name_stand_beside_its_whole(text: str, question: str):
    assert terms(question) <= terms(text)


def test_a_name_of_many_parts_is_found_by_its_whole():
    assert stem("loadconfigfile") in terms("loadConfigFile") & terms("load_config_file") & terms("load-config-file")


@pytest.mark.parametrize(
    ("one", "other", "number"),
    [
        ("1,000 people", "1000", "1000"),
        ("1'000 people", "1000", "1000"),
        ("12 500 people", "12500", "12500"),
        ("1,234,567 rows", "1234567", "1234567"),
        ("1k people", "1000", "1000"),
        ("2.5k people", "2,500", "2500"),
        ("5kg of flour", "5 kg", "5"),
        ("1,200m away", "1200 m", "1200"),
        ("May 3rd", "May 3", "3"),
        ("1.000,50 €", "1000.50", "1000.50"),
    ],
)
def test_numbers_are_found_in_other_ways_to_write_them(one: str, other: str, number: str):
    assert number in terms(one) & terms(other)


def test_units_stand_beside_their_numbers():
    assert "kg" in terms("5kg") & terms("5 kg")
    assert "am" not in terms("10am"), "a stop word"


@pytest.mark.parametrize("text", ["9" * 500 + "k", "1e999k", "0.5k", "1,000,k", "k1k", "٣٫٥k"])
def test_odd_numbers_are_words_like_others(text: str):
    assert terms(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café", "cafe"),
        ("Łódź", "lodz"),
        ("Müller", "Mueller"),
        ("Straße", "strasse"),
        ("Ａｐｆｅｌ", "apfel"),
        ("ﬁne", "fine"),
    ],
)
def test_accents_and_ways_to_write_a_character_make_no_difference(one: str, other: str):
    assert terms(other) <= terms(one)


def test_an_accent_still_counts_where_both_are_there():
    assert len(terms("Peña") & terms("peña")) > len(terms("Peña") & terms("pena"))


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("Meine Katzen schlafen auf dem Sofa.", "Wo schläft die Katze?"),
        ("Nous avons acheté des gâteaux.", "Où est le gâteau que nous avions ?"),
        ("Las niñas cantaban en la escuela.", "¿Dónde cantó la niña?"),
        ("Мои собаки любят мясо.", "Что любит моя собака?"),
        ("Gli amici di Anna sono arrivati.", "Quando è arrivata l'amica?"),
        ("L'école est fermée.", "Quelles sont nos écoles ?"),
    ],
)
def test_forms_of_words_in_other_languages_share_a_term(text: str, question: str):
    stems = [{forms[0] for forms in extract_forms(passage)} for passage in (text, question)]
    assert terms(text) & terms(question) > stems[0] & stems[1]


@given(st.text(st.characters(exclude_characters="Σ"), max_size=200))  # its small form depends on what follows
def test_the_stem_of_every_word_is_among_its_forms(text: str):
    """Indexes that were made before there were other forms know nothing else."""
    assert {stem(word) for word in split_words(text) if word not in STOP_WORDS} <= terms(text)


@given(st.text(max_size=40))
def test_folding_twice_changes_nothing(text: str):
    assert fold(fold(text.lower())) == fold(text.lower())


def test_spellings_are_one_edit_away():
    assert {"lisbon", "lisbnoo", "lisbo", "disbno", "isbno"} <= respell("lisbno")
    assert "lisbno" not in respell("lisbno")
    assert "собака" in respell("сабака")
    assert respell("天气") == {"天", "气", "气天"}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("My sister works in a school.", "english"),
        ("Meine Schwester arbeitet in einer Schule.", "german"),
        ("Ma sœur travaille dans une école.", "french"),
        ("Mi hermana trabaja en una escuela.", "spanish"),
        ("Mia sorella lavora in una scuola.", "italian"),
        ("Minha irmã trabalha numa escola.", "portuguese"),
        ("Mijn zus werkt op een school.", "dutch"),
        ("Min syster arbetar inte på en skola och läser.", "swedish"),
        ("Siskoni on opettaja, mutta hän ei ole koulussa.", "finnish"),
        ("Moja siostra pracuje w szkole, ale nie jest nauczycielką.", "polish"),
        ("A nővérem nem tanár, hanem orvos egy kórházban.", "hungarian"),
        ("Kız kardeşim bir okulda çalışıyor ve çok mutlu.", "turkish"),
        ("Моя сестра работает в школе.", "russian"),
        ("Η αδελφή μου δουλεύει σε σχολείο.", "greek"),
        ("أختي تعمل في مدرسة", "arabic"),
        ("خواهرم در مدرسه کار می‌کند", "persian"),
        ("मेरी बहन स्कूल में काम करती है", "hindi"),
        ("Wo wohnt Anna?", "german"),
        ("¿Dónde vive Ana?", "spanish"),
        ("Où habite Marie ?", "french"),
    ],
)
def test_function_words_and_scripts_tell_languages(text: str, language: str):
    assert guess_language(text) == language


@pytest.mark.parametrize(
    "text", ["", "Kites", "42", "Take care!", "The α of the fit is 0.05", "我的姐姐在学校工作", "SELECT * FROM t;"]
)
def test_english_is_assumed_when_nothing_speaks_for_another_language(text: str):
    assert guess_language(text) == "english"


@given(st.text(max_size=300))
def test_every_guess_has_a_stemmer(text: str):
    assert guess_language(text) in algorithms()


@pytest.mark.parametrize(
    "text", ["Wo wohnt Anna?", "我的姐姐在学校工作", "妹は学校で働く", "내 여동생", "אחותי", "Моя сестра"]
)
def test_other_languages_and_scripts_are_not_english(text: str):
    assert not is_english(text)


@pytest.mark.parametrize("text", ["", "42", "My sister works in a school.", "The α of 詞 is 0.05"])
def test_english_is_not_another_language(text: str):
    assert is_english(text)


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
    passages = split_passages(" ".join([sentence] * 9))
    assert [len(p.split()) for p in passages] == [30, 30, 30]
    assert all(p.endswith(".") for p in passages)


def test_a_heading_stays_with_what_follows():
    assert split_passages("Steps:\n" + "word " * (PASSAGE_WORDS + 5))[0].startswith("Steps: word")


def test_a_long_sentence_is_cut_after_a_comma():
    first = " ".join(["one"] * 20) + ","
    passages = split_passages(f"{first} {' '.join(['two'] * 40)}.")
    assert passages[0] == first
    assert max(len(p.split()) for p in passages) <= LONGEST_SENTENCE


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
