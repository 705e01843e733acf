"""Rules that choose among the answers of a council, computed from what it recorded: trying them costs no request."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

Values = Mapping[str, str]
"""Agent -> what its answer comes to, "" for nothing, in the order of the agents."""
Ballots = Mapping[str, str]
"""Voter -> the agent that it voted for."""


def choose_first(values: Values, ballots: Ballots) -> str:
    """Return the answer of the first agent."""
    return next(iter(values.values()), "")


def choose_most_given(values: Values, ballots: Ballots) -> str:
    """Return the answer that most agents gave."""
    return choose_most_common(list(values.values()))


def choose_most_voted(values: Values, ballots: Ballots) -> str:
    """Return the answer with most ballots; of equals the one that more agents gave."""
    votes, authors = _count_votes(values, ballots), Counter(values.values())
    return max(filter(None, values.values()), key=lambda value: (votes[value], authors[value]), default="")


def choose_most_supported(values: Values, ballots: Ballots) -> str:
    """Return the answer that most agents gave, ballots deciding between equals."""
    votes, authors = _count_votes(values, ballots), Counter(values.values())
    return max(filter(None, values.values()), key=lambda value: (authors[value], votes[value]), default="")


def choose_by_sum(values: Values, ballots: Ballots) -> str:
    """Return the answer with most authors and ballots, counted together."""
    counts = Counter(values.values()) + _count_votes(values, ballots)
    return max(filter(None, values.values()), key=lambda value: counts[value], default="")


RULES: Mapping[str, Callable[[Values, Ballots], str]] = {
    "the first agent's answer": choose_first,
    "the answer that most gave": choose_most_given,
    "the same, ballots decide between equals": choose_most_supported,
    "the answer with most ballots": choose_most_voted,
    "authors and ballots together": choose_by_sum,
}
"""By name. Each returns the value that it chooses, "" for none; of equals that of the agent that is listed first."""


def choose_most_common(values: Sequence[str]) -> str:
    """Return the most common value, the first of those that are equally common; empty ones do not count."""
    counts = Counter(value for value in values if value)
    return max(counts, key=lambda value: counts[value]) if counts else ""


def _count_votes(values: Values, ballots: Ballots) -> Counter[str]:
    return Counter(values[choice] for choice in ballots.values() if choice in values)
