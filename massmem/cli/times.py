"""Times as users write them, and as lists show them."""

import re
from datetime import datetime, timedelta

from massmem.errors import InputError

_AGE = re.compile(r"(\d{1,6})\s*(m|h|d|w)")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def age(text: str) -> timedelta:
    """`30m`, `24h`, `7d` or `4w`.

    Raises:
        InputError: anything else.
    """
    found = _AGE.fullmatch(text.strip().lower())
    if found is None:
        raise InputError(f"{text[:40]!r} is no length of time", "write it as 30m, 24h, 7d or 4w")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def since(text: str, now: datetime) -> datetime:
    """So long before `now`, or a day or moment in ISO 8601 as `2026-11-21`, in local time.

    Raises:
        InputError: anything else.
    """
    if _AGE.fullmatch(text.strip().lower()):
        return now - age(text)
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as e:
        raise InputError(f"{text[:40]!r} is no time", "write it as 24h, 7d, 2026-11-21 or 2026-11-21T14:30") from e


def moment(at: datetime) -> str:
    """`2026-11-21 22:53`, local."""
    return f"{at.astimezone():%Y-%m-%d %H:%M}"
