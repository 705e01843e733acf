"""What can name a session: checked before any path, query or URL is built from it."""

import re
import unicodedata

from massmem.errors import InputError

SESSION_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""To be matched in full; check_session_id is the check with a message."""

MOST_OF_A_NAME = 80
"""Characters; as many as a title made of the first question has."""


def check_session_id(text: str) -> str:
    """Return `text` when it can name a session, before any path, query or URL is built from it.

    Allowed: 1 to 128 of A-Z a-z 0-9 _ . - (ASCII), not starting with "." or "-", no "..".

    Raises:
        InputError: anything else.
    """
    if not SESSION_ID.fullmatch(text):
        shown = ascii(text if len(text) <= 60 else text[:60] + "...")
        raise InputError(
            f"{shown} cannot be a session id: 1 to 128 letters, digits, '_', '-' or '.' are allowed",
            "see the ids with: massmem --list-sessions",
        )
    return text


def check_session_name(text: str) -> str:
    """Return `text` when it can be an id, the beginning of one, or a name that a user gives to a session.

    A name has 1 to 80 printable characters; no "..", "/" or "\\", also not in disguise; it begins neither with "."
    nor with "-", so that it is never taken for a path or an option.

    Raises:
        InputError: anything else.
    """
    plain = unicodedata.normalize("NFKC", text)
    odd = ".." in plain or "/" in plain or "\\" in plain or plain.startswith((".", "-")) or not plain.isprintable()
    if SESSION_ID.fullmatch(text) or (plain.strip() and not odd and len(text) <= MOST_OF_A_NAME):
        return text
    shown = ascii(text if len(text) <= 60 else text[:60] + "...")
    raise InputError(
        f"{shown} cannot be a session id or name: names have 1 to {MOST_OF_A_NAME} printable characters without '/'",
        "see the sessions with: massmem sessions list",
    )
