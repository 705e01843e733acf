"""Which items of several agents are the same: by their place, then their words. Where code cannot tell, a model may be
asked; what is unsure then stays apart."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import PurePosixPath
from typing import Any

from massmem.core.diffs import ChangedFile, find_place
from massmem.core.items import Item, UnionItem
from massmem.core.short_answers import NEGATION
from massmem.core.text import one_line
from massmem.memory.compression import list_stems
from massmem.memory.tokens import estimate_tokens

_NEAR = 3
"""Lines between the places of two items that may be the same."""
_SAME, _SAME_NEAR, _SAME_LINES, _UNSURE = 0.6, 0.5, 0.15, 0.3
"""Share of the words of the shorter one that two items have in common: they are the same without a common place, with
one, and at the same few lines; from the last on, a model may tell."""
_CHOICE = list_stems("use choose adopt pick keep")
"""Before the name of an option."""
_ADDRESS, _NUMBER = "://", re.compile(r"\d+(?:[.,]\d+)*")
_MOST_PAIRS, _LONGEST = 20, 400
_PAIR_TOKENS, _CHECK_TOKENS = 50, 160
"""Of a reply, weighed as in massmem.turn.depth: for each pair that is compared, each item that is checked."""

Lists = Mapping[str, Sequence[Item]]
"""Items by agent."""
Pair = tuple[int, int]
"""Places of two items among those of all agents."""


def compare_items(lists: Lists, *, by_kind: bool = False) -> tuple[list[Pair], list[Pair]]:
    """Return the pairs that are the same, and those for which code cannot tell, the likeliest first.

    by_kind: titles are names. Two of a kind with the same one are the same, as `PostgreSQL` and `Use PostgreSQL`;
    reasons that are alike say nothing.
    """
    list_words = _list_names if by_kind else _list_words
    entries = [(agent, item, list_words(item)) for agent, items in lists.items() for item in items]
    same, unsure = list[tuple[float, Pair]](), list[tuple[float, Pair]]()
    for (i, (agent, item, words)), (j, (other_agent, other, other_words)) in combinations(enumerate(entries), 2):
        near = _is_near(item, other)
        if agent == other_agent or near is False or (by_kind and item.kind != other.kind):
            continue
        shared = len(words & other_words)
        share = shared / max(1, min(len(words), len(other_words)))
        least, enough = (
            (3, _SAME) if near is None else (2, _SAME_LINES if _is_at_same_lines(item, other) else _SAME_NEAR)
        )
        if _ADDRESS in item.place or _ADDRESS in other.place:
            enough = 2  # claims are the same by all words, or not: another number is another claim
        if (words and words == other_words) or (not by_kind and shared >= least and share >= enough):
            same.append((share + bool(near), (i, j)))
        elif near or share >= _UNSURE:
            unsure.append((share + bool(near), (i, j)))
    first, second = ([pair for _, pair in sorted(pairs, key=lambda p: -p[0])] for pairs in (same, unsure))
    return first, second[:_MOST_PAIRS]


def settle_place(item: Item, files: Mapping[str, ChangedFile]) -> Item:
    """Return the item with the lines at which the question shows it; as it is, where that shows nothing of it."""
    first, last = item.lines or (None, None)
    place = find_place(item.file, first, last, item.evidence, files, lambda _: None) if item.file else None
    return item if place is None else replace(item, file=place.path, lines=(place.first, place.last))


def merge_items(lists: Lists, same: Iterable[Pair], first: int = 1) -> tuple[UnionItem, ...]:
    """Return the items of all agents, those that are the same as one. same: surest first. first: number of the first.

    Two items of one agent never become one: it means two.
    """
    entries = [(agent, item) for agent, items in lists.items() for item in items]
    groups = [[i] for i in range(len(entries))]
    for i, j in same:
        if {entries[k][0] for k in groups[i]}.isdisjoint(entries[k][0] for k in groups[j]):
            joined = sorted(groups[i] + groups[j])
            for k in joined:
                groups[k] = joined
    items: list[UnionItem] = []
    for group in (group for i, group in enumerate(groups) if group[0] == i):
        agents, versions = zip(*(entries[k] for k in group), strict=True)
        items.append(UnionItem(first + len(items), _combine(versions), agents, versions))
    return tuple(items)


def is_worth_asking(prompt: int, items: Sequence[str], checkers: int) -> bool:
    """Return whether comparing costs less than half of what it may save: that each of the checkers looks at one more.

    prompt: tokens of the request. items: that need no look if they are the same as others.
    """
    saved = checkers * sum(estimate_tokens(item) + _CHECK_TOKENS for item in items)
    return prompt + _PAIR_TOKENS * len(items) < saved / 2


def _is_near(item: Item, other: Item) -> bool | None:
    """Return whether both are at one place of a file; None: a place is not known."""
    if not (item.file and other.file):
        return None
    paths = zip(PurePosixPath(item.file).parts[::-1], PurePosixPath(other.file).parts[::-1], strict=False)
    if any(one != two for one, two in paths):
        return False
    if item.lines is None or other.lines is None:
        return None
    return max(item.lines[0], other.lines[0]) - min(item.lines[1], other.lines[1]) <= _NEAR


def _is_at_same_lines(item: Item, other: Item) -> bool:
    """Return whether both name a few lines, and some of them are the same."""
    (first, last), (other_first, other_last) = item.lines or (1, 0), other.lines or (1, 0)
    is_short = last - first <= _NEAR and other_last - other_first <= _NEAR
    return is_short and max(first, other_first) <= min(last, other_last)


def _list_words(item: Item) -> frozenset[str]:
    if _ADDRESS in item.place:
        denial = {"not"} if NEGATION.search(item.title) else set[str]()
        return list_stems(item.title) | {*_NUMBER.findall(item.title)} | denial
    return list_stems(f"{item.title} {one_line(item.reason, _LONGEST)}") - list_stems(item.file)


def _list_names(item: Item) -> frozenset[str]:
    return list_stems(item.title) - _CHOICE


def _combine(versions: Sequence[Item]) -> Item:
    """Return the first one, with what it leaves out from the others."""
    fields: dict[str, Any] = {}
    for name in Item.__dataclass_fields__:
        values: list[Any] = [getattr(version, name) for version in versions]
        fields[name] = next((value for value in values if value), values[0])
    return Item(**fields)
