"""Which items of several agents are the same: by their place, then their words; where code cannot tell, a model is
asked, and when that is unsure, both stay."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import PurePosixPath

from massmem.core.items import Item, UnionItem
from massmem.core.text import one_line
from massmem.memory.compression import list_stems
from massmem.memory.tokens import estimate_tokens
from massmem.tools.actions import ActionError
from massmem.tools.item_form import read_checks

_NEAR = 3
"""Lines between the places of two items that may be the same."""
_SAME, _SAME_PLACE = 0.6, 0.5
"""Share of the words of the shorter one that two items have in common: without a common place, and with it."""
_UNSURE = 0.3
"""From this share on, a model is asked about items without a common place."""
_MOST_PAIRS, _LONGEST = 20, 400
_PAIR_REPLY, _CHECK_REPLY = 12, 40
"""Tokens of a reply for each pair that is compared; for each item that is checked."""
_OUTPUT_WEIGHT, _WORTH = 4, 0.5
"""As in massmem.turn.depth."""

Given = tuple[str, int]
"""An item: its agent, and its place in the agent's list."""
Pair = tuple[Given, Given]


@dataclass(frozen=True, slots=True)
class Comparison:
    same: tuple[Pair, ...]
    """Surest first."""
    unsure: tuple[Pair, ...]
    """Those for which code cannot tell, likeliest first."""


def compare_items(lists: Mapping[str, Sequence[Item]]) -> Comparison:
    """Compare items of different agents; those of one agent are never the same."""
    given = [
        ((agent, index), item, _list_words(item)) for agent, items in lists.items() for index, item in enumerate(items)
    ]
    same, unsure = list[tuple[float, Pair]](), list[tuple[float, Pair]]()
    for (first, item, words), (second, other, other_words) in combinations(given, 2):
        near = _is_near(item, other)
        if first[0] == second[0] or near is False:
            continue
        shared = len(words & other_words)
        share = shared / max(1, min(len(words), len(other_words)))
        if (shared >= 2 and share >= _SAME_PLACE) if near else (shared >= 3 and share >= _SAME):
            same.append((share + bool(near), (first, second)))
        elif near or share >= _UNSURE:
            unsure.append((share + bool(near), (first, second)))
    ranked = [tuple(pair for _, pair in sorted(pairs, key=lambda entry: -entry[0])) for pairs in (same, unsure)]
    return Comparison(ranked[0], ranked[1][:_MOST_PAIRS])


def merge_items(lists: Mapping[str, Sequence[Item]], same: Iterable[Pair]) -> tuple[UnionItem, ...]:
    """Return the items of all agents, those that are the same as one. same: surest first.

    Two items of one agent never become one: it means two.
    """
    groups = {(agent, index): [(agent, index)] for agent, items in lists.items() for index in range(len(items))}
    for first, second in same:
        one, other = groups[first], groups[second]
        if one is not other and {agent for agent, _ in one}.isdisjoint(agent for agent, _ in other):
            one += other
            groups |= dict.fromkeys(other, one)
    order = list(groups)
    merged = [sorted(group, key=order.index) for given, group in groups.items() if min(group, key=order.index) == given]
    items: list[UnionItem] = []
    for number, group in enumerate(merged, 1):
        versions = tuple(lists[agent][index] for agent, index in group)
        items.append(UnionItem(number, _combine(versions), tuple(agent for agent, _ in group), versions))
    return tuple(items)


def write_pairs(pairs: Sequence[Pair], lists: Mapping[str, Sequence[Item]]) -> list[tuple[str, str]]:
    """Return the texts of the items of each pair, for a model."""
    return [(_write(lists[a][i]), _write(lists[b][j])) for (a, i), (b, j) in pairs]


def is_worth_asking(prompt: Iterable[str], pairs: Sequence[tuple[str, str]], checkers: int) -> bool:
    """Return whether comparing costs less than half of what it may save: that others check each item once more."""
    cost = sum(map(estimate_tokens, prompt)) + _OUTPUT_WEIGHT * _PAIR_REPLY * len(pairs)
    check = sum(estimate_tokens(second) + _OUTPUT_WEIGHT * _CHECK_REPLY for _, second in pairs)
    return bool(pairs) and cost < _WORTH * max(0, checkers) * check


def _write(item: Item) -> str:
    return one_line(". ".join(filter(None, (item.where, item.title, item.reason, item.suggestion))), _LONGEST)


def _is_near(item: Item, other: Item) -> bool | None:
    """Return whether both are at one place of a file; None: a place is not known."""
    if not (item.file and other.file):
        return None
    parts, other_parts = PurePosixPath(item.file).parts[::-1], PurePosixPath(other.file).parts[::-1]
    if any(one != two for one, two in zip(parts, other_parts, strict=False)):
        return False
    if item.lines is None or other.lines is None:
        return None
    return max(item.lines[0], other.lines[0]) - min(item.lines[1], other.lines[1]) <= _NEAR


def _list_words(item: Item) -> frozenset[str]:
    """Return what it is about; of where it is, nothing."""
    return list_stems(f"{item.title} {one_line(item.reason, _LONGEST)}") - list_stems(item.file)


def _combine(versions: Sequence[Item]) -> Item:
    first, *others = versions
    for other in others:
        fields = {name: getattr(first, name) or getattr(other, name) for name in Item.__dataclass_fields__}
        first = Item(**fields)
    return first


def read_same(reply: str, pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs of which a model says that both items are the same; of a reply without form none."""
    with suppress(ActionError):
        return [
            pairs[check.item - 1] for check in read_checks(reply, range(1, len(pairs) + 1)) if check.stand == "confirm"
        ]
    return []
