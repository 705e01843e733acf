"""Options that several commands have, and the durations and times that users write in them."""

import math
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from massmem.cli.completion import offer_sessions
from massmem.core.errors import InputError

Config = Annotated[str | None, typer.Option(metavar="FILE", help="The team, as for a question.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
OwnerName = Annotated[
    str | None, typer.Option("--owner", metavar="USER", help="Of this user of the HTTP service instead of yours.")
]
AllOwners = Annotated[bool, typer.Option("--all-owners", help="Yours and those of all users of the HTTP service.")]
OldOutput = Annotated[Path | None, typer.Option("--output", hidden=True)]
"""The former name of --to: elsewhere --output is a mode."""
SessionName = Annotated[
    str,
    typer.Argument(metavar="SESSION", help="Its id, the start of its id, or its name.", autocompletion=offer_sessions),
]
InSession = Annotated[
    str | None,
    typer.Option(
        metavar="SESSION", help="In this session only: id, start of the id, or name.", autocompletion=offer_sessions
    ),
]

MAX_TURN = 1_000_000
"""The largest number of a turn that is looked for, as in the service."""
MAX_EVENT = 2**31 - 1
"""The largest number that an event can have in the log."""
MAX_LISTED = 1_000_000
"""Most rows of a list, and the last place where one begins."""

_DURATION = re.compile(r"(\d{1,9})\s*([smhdw])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_LONGEST = 100 * 366 * 86_400


def parse_duration(text: str) -> timedelta:
    """Parse `90s`, `30m`, `24h`, `7d` or `4w`, up to 100 years. Raises InputError."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = int(match[1]) * _SECONDS[match[2]] if match else math.inf
    if seconds > _LONGEST:
        raise InputError(f"{text[:40]!r} is not a duration", "write it as 90s, 30m, 24h, 7d or 4w")
    return timedelta(seconds=seconds)


def parse_since(text: str, now: datetime) -> datetime:
    """Parse a duration before `now`, or a date or time in ISO 8601 such as `2026-11-21`, in local time.

    Raises:
        InputError
    """
    if _DURATION.fullmatch(text.strip().lower()):
        return now - parse_duration(text)
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError) as e:
        raise InputError(f"{text[:40]!r} is not a time", "write it as 24h, 7d, 2026-11-21 or 2026-11-21T14:30") from e


def require_positive(option: str, value: float | None, unit: str) -> None:
    """Refuse a limit that is no finite number above 0. unit: such as `an amount of dollars`. Raises InputError."""
    if value is not None and not 0 < value < math.inf:
        raise InputError(f"{option} {value:g} is not {unit} above 0", "leave it out for no limit here")


def format_time(moment: datetime) -> str:
    """Return `2026-11-21 22:53` in local time."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M}"
