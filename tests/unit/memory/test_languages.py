"""Guessing the language of a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from Stemmer import algorithms

from massmem.memory.languages import guess_language, is_english


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
