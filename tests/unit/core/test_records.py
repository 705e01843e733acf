from datetime import UTC, datetime

import pytest

from massmem.core.errors import InputError
from massmem.core.records import KEY_PREFIX, hash_api_key, is_api_key, make_api_key
from massmem.core.redact import redact

NOW = datetime(2026, 11, 23, tzinfo=UTC)


def test_stored_key_holds_nothing_that_opens_the_service():
    text, key = make_api_key("alice", NOW, name="laptop")
    assert is_api_key(text)
    assert len(text) == len(KEY_PREFIX) + 64
    assert text not in key.model_dump_json()
    assert key.key_hash == hash_api_key(text)
    assert key.key_hash not in repr(key)
    assert text.endswith(key.last_four)


def test_no_two_keys_are_the_same():
    texts = {make_api_key("alice", NOW)[0] for _ in range(100)}
    assert len(texts) == 100


def test_key_in_a_text_is_redacted():
    text, _ = make_api_key("alice", NOW)
    assert text not in redact(f"curl -H 'Authorization: Bearer {text}'; the key is {text}.")


@pytest.mark.parametrize("sub", ["", " ", "a\nb", "\x00", "a" * 256, "\ud800"])
def test_subject_that_names_nobody_is_refused(sub: str):
    with pytest.raises(InputError, match="subject"):
        make_api_key(sub, NOW)


@pytest.mark.parametrize("name", ["a\nb", "x" * 81])
def test_name_that_does_not_fit_a_line_is_refused(name: str):
    with pytest.raises(InputError, match="name of a key"):
        make_api_key("alice", NOW, name=name)
