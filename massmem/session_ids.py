"""What can name a session: checked before any path, query or URL is built from it."""

import re

from massmem.errors import InputError

SESSION_ID = re.compile(r"(?!.*\.\.)[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
"""To be matched in full; check_session_id is the check with a message."""


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
