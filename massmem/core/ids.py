"""Session ids and names, checked before any path, query or URL is built from them."""

import re
import unicodedata
from datetime import datetime
from hashlib import sha256

from massmem.core.errors import InputError

SESSION_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""Use with fullmatch; `check_session_id` does the same with a message."""

PREFIX = "session_"
"""How the ids begin that massmem makes; it may be left out."""

MAX_NAME_LENGTH = 80
"""Characters; a title made of the first question is as long."""


def name_by_clock() -> str:
    """Return a session id made of this machine's local time: session_20261123_094813. It may be taken."""
    return f"{PREFIX}{datetime.now().astimezone():%Y%m%d_%H%M%S}"


def check_session_id(text: str) -> str:
    """Return `text` when it can be a session id.

    Allowed: 1 to 128 of A-Z a-z 0-9 _ . - (ASCII), not starting with "." or "-", no "..".

    Raises InputError: anything else.
    """
    if not SESSION_ID.fullmatch(text):
        raise InputError(
            f"{_quote(text)} cannot be a session id: 1 to 128 letters, digits, '_', '-' or '.' are allowed",
            "see the ids with: massmem --list-sessions",
        )
    return text


def check_session_name(text: str) -> str:
    """Return `text` when it can be an id, the beginning of one, or a name that a user gives to a session.

    A name has 1 to 80 printable characters; no "..", "/" or "\\", also not as a look-alike; it begins neither with "."
    nor with "-", so that it is never taken for a path or an option.

    Raises InputError: anything else.
    """
    plain = unicodedata.normalize("NFKC", text)
    odd = ".." in plain or "/" in plain or "\\" in plain or plain.startswith((".", "-")) or not plain.isprintable()
    if SESSION_ID.fullmatch(text) or (plain.strip() and not odd and len(text) <= MAX_NAME_LENGTH):
        return text
    raise InputError(
        f"{_quote(text)} cannot be a session id or name: "
        f"names have 1 to {MAX_NAME_LENGTH} printable characters without '/'",
        "see the sessions with: massmem sessions list",
    )


def make_message_id(session_id: str, seq: int) -> str:
    """Return an id of 32 hex digits, unique over all sessions.

    Derived and not random, so that tables rebuilt from the log keep the ids that memories refer to; and rising
    within a session, so that the index over ids grows at one place instead of touching a random page per message.
    """
    return f"{sha256(session_id.encode()).hexdigest()[:16]}{seq:016x}"


def read_seq(message_id: str) -> int:
    """Return the number in its session's log of the message with this id."""
    return int(message_id[16:], 16)


def _quote(text: str) -> str:
    return ascii(text if len(text) <= 60 else text[:60] + "...")
