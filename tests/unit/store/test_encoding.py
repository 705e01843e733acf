"""Events as JSON that every database accepts, and words however their accents are written."""

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import clean_text
from massmem.store.encoding import clean_json, encode_event, quote_words, split_query, split_words
from tests.support.sample_turn import begin

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()))


@given(ANY_TEXT)
def test_any_text_can_be_stored(text: str) -> None:
    event, encoded = encode_event(begin("ann", question=text))
    encoded.encode()
    assert json.loads(encoded)["question"] == clean_text(text)
    assert getattr(event, "question") == clean_text(text)  # noqa: B009  an Event is a union


def test_keys_and_values_of_json_are_cleaned() -> None:
    assert clean_json({"a\x00": ["\ud800", 1, None, {"b": "c"}]}) == {"a�": ["�", 1, None, {"b": "c"}]}


@pytest.mark.parametrize("query", ["Élan", "naïve Ångström", "0\u03000", "Việt Nam"])
def test_accents_of_their_own_do_not_split_a_word(query: str):
    """As macOS writes them; the text may have them in either form."""
    for form in ("NFC", "NFD"):
        written = unicodedata.normalize(form, query)
        assert [word for parts in split_query(written) for word in parts] == split_words(query)
        assert len(quote_words(written)) == len(split_words(query))
