"""What a fault has done, in the four counts that every fault test prints."""

from collections.abc import Mapping

FOUR = ("lost", "ghost", "leak", "lie")
"""lost: acknowledged and missing. ghost: there twice, or never sent. leak: seen in another session. lie: told and not
true."""


def check(what: str, found: Mapping[str, int], *others: str) -> None:
    """Print all counts; the four, and the others that are named, must be 0."""
    counts = dict.fromkeys((*FOUR, *others), 0) | found
    print(f"{what}: {', '.join(f'{name} {count}' for name, count in counts.items())}")
    assert {name: counts[name] for name in (*FOUR, *others)} == dict.fromkeys((*FOUR, *others), 0)
