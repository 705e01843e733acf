"""Items that agents give in a form, such as findings; what the others say of them, and their list for people."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from massmem.core.text import one_line

Severity = Literal["high", "medium", "low"]
Stand = Literal["confirm", "reject", "abstain"]
_RANKS: dict[str | None, int] = {"high": 0, "medium": 1, "low": 2}
NOTHING = "Nothing found."


@dataclass(frozen=True, slots=True)
class Item:
    """One finding, risk, option or idea, as one agent gives it; a text that is missing is empty."""

    title: str
    kind: str = ""
    file: str = ""
    lines: tuple[int, int] | None = None
    """First and last line in the file, from 1."""
    place: str = ""
    """Where it is, when that is no file."""
    severity: Severity | None = None
    reason: str = ""
    evidence: str = ""
    """Quoted text that shows it."""
    suggestion: str = ""

    @property
    def where(self) -> str:
        """`src/a.py:10-12`, or the place in other words."""
        lines = dict.fromkeys(self.lines or ())
        return f"{self.file}:{'-'.join(map(str, lines))}" if self.file and lines else self.file or self.place


@dataclass(frozen=True, slots=True)
class Check:
    """What an agent that has not found an item says of it."""

    item: int
    """Number of the item."""
    stand: Stand
    """Of the author of a draft: confirm, it revised the text; reject, it did not."""
    reason: str = ""
    agent: str = ""
    points: dict[str, float] = field(default_factory=dict[str, float])
    """Of an option: from 0 to 10, by the number of the criterion. Of a criterion: its weight, by its own number."""


@dataclass(frozen=True, slots=True)
class UnionItem:
    """An item with all that found it, and what the others say."""

    number: int
    """In the turn, from 1; it stays the same."""
    item: Item
    """In the words of the first that found it, with what these leave out from the others."""
    found_by: tuple[str, ...]
    versions: tuple[Item, ...]
    """As each of `found_by` gave it."""
    checks: tuple[Check, ...] = ()
    dismissed: str | None = None
    """Why the user dismissed it; null: it stands."""

    def list_agents(self, stand: Stand) -> list[str]:
        """Return the agents that say this of it."""
        return [check.agent for check in self.checks if check.stand == stand]


def add_checks(items: Sequence[UnionItem], agent: str, checks: Sequence[Check]) -> tuple[UnionItem, ...]:
    """Return the items with what an agent says of them."""
    signed = {check.item: replace(check, agent=agent) for check in checks}
    return tuple(
        replace(i, checks=tuple(sorted((*i.checks, signed[i.number]), key=lambda c: c.agent)))
        if i.number in signed
        else i
        for i in items
    )


def sort_items(items: Sequence[UnionItem]) -> tuple[UnionItem, ...]:
    """Return first what nobody rejects; there what most agents found and confirmed, then the severest, comes first."""

    def rank(item: UnionItem) -> tuple[bool, int, int, int]:
        support = len(item.found_by) + len(item.list_agents("confirm"))
        return bool(item.list_agents("reject")), -support, _RANKS.get(item.item.severity, 3), item.number

    return tuple(sorted(items, key=rank))


def write_item(number: int, item: Item, support: str = "") -> str:
    """Return `- **1. Title** (high, finding) src/a.py:10: support`, and below it what else the item says."""
    marks = ", ".join(filter(None, (item.severity, item.kind)))
    title = " ".join(filter(None, (f"- **{number}. {item.title}**", marks and f"({marks})", item.where)))
    named = {"": item.reason, "Evidence: ": item.evidence, "Suggestion: ": item.suggestion}
    below = [f"  - {name}{one_line(text, 2_000)}" for name, text in named.items() if text]
    return "\n".join([f"{title}: {support}" if support else title, *below])


def write_list(items: Sequence[Item]) -> str:
    """Return the items of one agent as Markdown."""
    return "\n".join(write_item(number, item) for number, item in enumerate(items, 1)) or NOTHING


def write_union(items: Sequence[UnionItem], answered: int, name: Callable[[str], str]) -> str:
    """Return the list of a union as Markdown. answered: agents that gave a list. name: what people are shown of one."""
    texts: dict[bool, list[str]] = {False: [], True: []}
    for item in sort_items([item for item in items if item.dismissed is None]):
        confirmed, unsure = (", ".join(map(name, item.list_agents(stand))) for stand in ("confirm", "abstain"))
        support = [f"{len(item.found_by)} of {answered} found it ({', '.join(map(name, item.found_by))})"]
        support += [f"{len(item.list_agents('confirm'))} confirmed" + (confirmed and f" ({confirmed})")]
        support += [f"cannot tell: {unsure}"] if unsure else []
        rejections = [check for check in item.checks if check.stand == "reject"]
        support += [f"rejected by {name(check.agent)}: {check.reason or 'no reason given'}" for check in rejections]
        texts[bool(rejections)].append(write_item(item.number, item.item, "; ".join(support)))
    contested = ["### Contested", "\n".join(texts[True])] if texts[True] else []
    dismissed = sum(item.dismissed is not None for item in items)
    end = f"{dismissed} more dismissed" if dismissed else ""
    return "\n\n".join(filter(None, ("\n".join(texts[False]), *contested, end))) or NOTHING
