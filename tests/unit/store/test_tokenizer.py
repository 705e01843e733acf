"""Words of texts and queries, however their accents are written."""

import unicodedata

import pytest

from massmem.store.tokenizer import quote_words, split_query, split_words


@pytest.mark.parametrize("query", ["Élan", "naïve Ångström", "0\u03000", "Việt Nam"])
def test_accents_of_their_own_do_not_split_a_word(query: str):
    """As macOS writes them; the text may have them in either form."""
    for form in ("NFC", "NFD"):
        written = unicodedata.normalize(form, query)
        assert [word for parts in split_query(written) for word in parts] == split_words(query)
        assert len(quote_words(written)) == len(split_words(query))
