"""Items that agents give in a form, such as findings; what the others say of them, and their list for people."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from massmem.core.text import one_line

Severity = Literal["high", "medium", "low"]
Stand = Literal["confirm", "reject", "abstain"]

NOTHING = "Nothing found."
_RANKS: Mapping[str | None, int] = {"high": 0, "medium": 1, "low": 2}
_LONGEST_QUOTE = 300


@dataclass(frozen=True, slots=True)
class Item:
    """One finding, risk, option or idea, as one agent gives it."""

    title: str
    kind: str = ""
    file: str = ""
    """Where it is; empty: `place` says it in other words, or nothing does."""
    lines: tuple[int, int] | None = None
    """First and last line in the file, from 1."""
    place: str = ""
    severity: Severity | None = None
    reason: str = ""
    evidence: str = ""
    """Quoted text that shows it."""
    suggestion: str = ""

    @property
    def where(self) -> str:
        """`src/a.py:10-12`, or the place in other words; "" without one."""
        if not self.file or self.lines is None:
            return self.file or self.place
        first, last = self.lines
        return f"{self.file}:{first}" + (f"-{last}" if last != first else "")


@dataclass(frozen=True, slots=True)
class Check:
    """What an agent that has not found an item says of it."""

    item: int
    """Number of the item."""
    stand: Stand
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Rejection:
    agent: str
    reason: str
    """Empty: it gave none."""


@dataclass(frozen=True, slots=True)
class UnionItem:
    """An item of a union, with all that found it, and what the others say."""

    number: int
    """In the turn, from 1; it stays the same."""
    item: Item
    """In the words of the first that found it, with what these leave out from the others."""
    found_by: tuple[str, ...]
    versions: tuple[Item, ...]
    """As each of `found_by` gave it."""
    confirmed_by: tuple[str, ...] = ()
    rejected_by: tuple[Rejection, ...] = ()
    abstained: tuple[str, ...] = ()
    """Those that looked, and cannot tell."""
    dismissed: str | None = None
    """Why the user dismissed it; null: it stands."""

    def add_check(self, agent: str, check: Check) -> "UnionItem":
        match check.stand:
            case "confirm":
                return replace(self, confirmed_by=(*self.confirmed_by, agent))
            case "reject":
                return replace(self, rejected_by=(*self.rejected_by, Rejection(agent, check.reason)))
            case "abstain":
                return replace(self, abstained=(*self.abstained, agent))


@dataclass(frozen=True, slots=True)
class Revision:
    """A point of criticism of a draft, and what the author did with it."""

    number: int
    point: Item
    by: tuple[str, ...]
    """Agents that criticise it."""
    done: Literal["revised", "declined"] | None = None
    """Null: the author did not say."""
    reply: str = ""
    """Of the author: how it was revised, or why not."""

    @classmethod
    def of(cls, point: UnionItem) -> "Revision":
        declined = next(iter(point.rejected_by), None)
        done = "declined" if declined else "revised" if point.confirmed_by else None
        return cls(point.number, point.item, point.found_by, done, declined.reason if declined else "")


def add_checks(items: Sequence[UnionItem], agent: str, checks: Sequence[Check]) -> tuple[UnionItem, ...]:
    """Return the items with what an agent says of them."""
    by_number = {check.item: check for check in checks}
    return tuple(item.add_check(agent, by_number[item.number]) if item.number in by_number else item for item in items)


def sort_items(items: Sequence[UnionItem]) -> tuple[UnionItem, ...]:
    """Return the items that nobody rejects, then the contested ones; in each group those that most found and confirmed
    first, then the severest."""

    def rank(item: UnionItem) -> tuple[bool, int, int, int]:
        support = len(item.found_by) + len(item.confirmed_by)
        return bool(item.rejected_by), -support, _RANKS.get(item.item.severity, 3), item.number

    return tuple(sorted(items, key=rank))


def write_item(item: Item) -> Iterator[str]:
    """Yield the lines of an item below its title."""
    if item.reason:
        yield item.reason
    if item.evidence:
        yield f"Evidence: {one_line(item.evidence, _LONGEST_QUOTE)}"
    if item.suggestion:
        yield f"Suggestion: {item.suggestion}"


def write_title(item: Item, number: int) -> str:
    """Return `**1. Title** (high, finding) src/a.py:10`."""
    marks = ", ".join(filter(None, (item.severity, item.kind)))
    return " ".join(filter(None, (f"**{number}. {item.title}**", marks and f"({marks})", item.where)))


def write_list(items: Sequence[Item], numbers: Sequence[int] = ()) -> str:
    """Return items as Markdown, numbered from 1 or with these numbers."""
    numbered = zip(numbers or range(1, len(items) + 1), items, strict=True)
    entries = (_write_entry(write_title(item, number), write_item(item)) for number, item in numbered)
    return "\n".join(entries) or NOTHING


def write_union(items: Sequence[UnionItem], answered: int, name: Callable[[str], str]) -> str:
    """Return the list of a union as Markdown. answered: agents that gave a list. name: what people are shown of one."""

    def write(item: UnionItem) -> str:
        found = f"{len(item.found_by)} of {answered} found it ({', '.join(map(name, item.found_by))})"
        others = ", ".join(map(name, item.confirmed_by))
        confirmed = f"{len(item.confirmed_by)} confirmed ({others})" if others else "0 confirmed"
        rejected = [f"rejected by {name(r.agent)}: {r.reason or 'no reason given'}" for r in item.rejected_by]
        abstained = [f"cannot tell: {', '.join(map(name, item.abstained))}"] if item.abstained else []
        support = "; ".join([f"{found}, {confirmed}", *abstained, *rejected])
        return _write_entry(f"{write_title(item.item, item.number)}: {support}", write_item(item.item))

    ordered = sort_items(items)
    parts = [[item for item in ordered if bool(item.rejected_by) == contested] for contested in (False, True)]
    texts = ["\n".join(map(write, part)) for part in parts]
    headed = [text and heading + text for heading, text in zip(("", "### Contested\n\n"), texts, strict=True)]
    return "\n\n".join(filter(None, headed)) or NOTHING


def _write_entry(title: str, lines: Iterator[str]) -> str:
    return "\n".join([f"- {title}", *(f"  - {' '.join(line.split())}" for line in lines)])
