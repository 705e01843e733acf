from datetime import datetime, timedelta

import pytest

from massmem.cli.times import age, moment, since
from massmem.errors import InputError

NOW = datetime(2026, 11, 21, 12).astimezone()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        (" 7D ", timedelta(days=7)),
        ("4 w", timedelta(weeks=4)),
        ("0h", timedelta()),
    ],
)
def test_ages(text: str, length: timedelta):
    assert age(text) == length
    assert since(text, NOW) == NOW - length


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1y", "24h or so", "9999999d"])
def test_what_is_no_age(text: str):
    with pytest.raises(InputError, match="no length of time"):
        age(text)


def test_days_and_moments_are_local():
    assert since("2026-11-20", NOW) == datetime(2026, 11, 20).astimezone()
    assert since("2026-11-20T14:30", NOW) == datetime(2026, 11, 20, 14, 30).astimezone()
    assert since("2026-11-20T14:30+00:00", NOW).timestamp() == 1795185000
    assert moment(datetime(2026, 11, 20, 14, 30).astimezone()) == "2026-11-20 14:30"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00", "2026-11-20T99:00"])
def test_what_is_no_time(text: str):
    try:
        since(text, NOW)
    except InputError as e:
        assert "is no time" in e.message
    else:
        assert text == "0001-01-01T00:00"  # a time where the local one can be told
