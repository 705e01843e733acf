"""Ids of points in the index: derived from what is stored, so that storing it again stores it once. Pure.

Below 2**62: passages, 40 bits for the session and 22 for the position, so that passages that follow each other have ids
that differ by one. From 2**62 to 2**63: facts. All fit a signed 64-bit column.
"""

from hashlib import blake2b

POSITION_BITS = 22
MOST_PASSAGES = 1 << POSITION_BITS
"""Of one session."""

FIRST_FACT = 1 << 62


def session_base(session_id: str, attempt: int) -> int:
    """Id of the session's first passage. attempt: counts up when another session already has that place."""
    return _number(40, session_id, str(attempt)) << POSITION_BITS


def base_of(passage_id: int) -> int:
    """Id of the first passage of the same session."""
    return passage_id >> POSITION_BITS << POSITION_BITS


def fact_id(session_id: str, agent_id: str, text: str) -> int:
    return FIRST_FACT | _number(62, session_id, agent_id, text)


def message_number(message_id: str) -> int:
    """A number that stands for a message's id."""
    return _number(62, message_id)


def _number(bits: int, *parts: str) -> int:
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)
