from datetime import datetime, timedelta

import pytest

from massmem.cli.options import format_time, parse_duration, parse_since
from massmem.core.errors import InputError

NOW = datetime(2026, 11, 21, 12).astimezone()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        (" 7D ", timedelta(days=7)),
        ("4 w", timedelta(weeks=4)),
        ("0h", timedelta()),
        ("90s", timedelta(seconds=90)),
    ],
)
def test_durations(text: str, length: timedelta):
    assert parse_duration(text) == length
    assert parse_since(text, NOW) == NOW - length


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1y", "24h or so", "9999999d", "999999999w"])
def test_invalid_durations(text: str):
    with pytest.raises(InputError, match="is not a duration"):
        parse_duration(text)


def test_dates_and_times_are_local():
    assert parse_since("2026-11-20", NOW) == datetime(2026, 11, 20).astimezone()
    assert parse_since("2026-11-20T14:30", NOW) == datetime(2026, 11, 20, 14, 30).astimezone()
    assert parse_since("2026-11-20T14:30+00:00", NOW).timestamp() == 1795185000
    assert format_time(datetime(2026, 11, 20, 14, 30).astimezone()) == "2026-11-20 14:30"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00", "2026-11-20T99:00"])
def test_invalid_times(text: str):
    try:
        parse_since(text, NOW)
    except InputError as e:
        assert "is not a time" in e.message
    else:
        assert text == "0001-01-01T00:00"  # valid where the time zone allows it
