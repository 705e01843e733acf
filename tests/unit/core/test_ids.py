import pytest

from massmem.core.errors import InputError
from massmem.core.ids import MAX_NAME_LENGTH, check_session_name


@pytest.mark.parametrize(
    "name", ["session_20261121_225301", "2026", "Trip to Lisbon", "Ärger, 日本?", "x" * 128, "a.b"]
)
def test_valid_session_name_is_accepted(name: str):
    assert check_session_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "  ", "-x", ".x", "a/b", "a\\b", "a..b", "a․․b", "．．", "a\nb", "a\0b", "\ud800", "é" * 129, "\x1b[1m"],
)
def test_invalid_session_name_is_refused(name: str):
    with pytest.raises(InputError, match="cannot be a session id or name"):
        check_session_name(name)


def test_a_name_is_as_long_as_a_title():
    assert check_session_name("ä" * MAX_NAME_LENGTH)
    with pytest.raises(InputError):
        check_session_name("ä" * (MAX_NAME_LENGTH + 1))
