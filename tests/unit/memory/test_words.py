"""Words, and the forms that they are found by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.words import STOP_WORDS, extract_forms, fold, respell, split_words, stem


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
