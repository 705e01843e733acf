"""Events as JSON that every database accepts."""

import json

from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import clean_text
from massmem.store.log_format import clean_json, encode_event
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
