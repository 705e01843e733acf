"""Items that agents give in a form, such as findings; what the others say of them, and their list for people."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from massmem.core.text import one_line

Severity = Literal["high", "medium", "low"]
Stand = Literal["confirm", "reject", "abstain"]
_RANKS: dict[str | None, int] = {"high": 0, "medium": 1, "low": 2}
NOTHING = "Nothing found."
_CONTESTED, _UNREAD = "### Contested", "### Not checked against a source"
_QUOTED = {
    True: "its quote stands there",
    False: "its quote does not stand there",
    None: "it has no quote to look for",
}


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
class Source:
    """The page or file that an item names, as it was read once in the turn."""

    place: str
    passage: str = ""
    """What stands there around the quote; where that is missing, the passage that is nearest in words."""
    quoted: bool | None = None
    """Whether the item's quote stands there; null: it has none, or nothing was read."""
    problem: str = ""
    """Why nothing was read; empty: it was."""


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
    sources: tuple[Source, ...] = ()
    """Of each of `versions`; empty: nobody was asked for a source."""
    disputed: bool = False
    """It has sources, and those that found it say different kinds of it."""

    @property
    def rejections(self) -> list[Check]:
        return [check for check in self.checks if check.stand == "reject"]

    @property
    def is_contested(self) -> bool:
        return self.disputed or bool(self.rejections)

    @property
    def is_unread(self) -> bool:
        """Whether it was to be checked against its source, and that was not read."""
        return bool(self.sources) and all(source.problem for source in self.sources)

    def list_agents(self, stand: Stand) -> list[str]:
        """Return the agents that say this of it; nobody confirms by its source what was not read there."""
        return [c.agent for c in self.checks if c.stand == stand and not (stand == "confirm" and self.is_unread)]


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
    """Return first what nobody contests; there what most agents found and confirmed, then the severest, comes first."""

    def rank(item: UnionItem) -> tuple[bool, bool, int, int, int]:
        support, severity = len(item.found_by) + len(item.list_agents("confirm")), _RANKS.get(item.item.severity, 3)
        return item.is_contested, item.is_unread, -support, severity, item.number

    return tuple(sorted(items, key=rank))


def write_item(number: int, item: Item, support: str = "", sources: Iterable[str] = ()) -> str:
    """Return `- **1. Title** (high, finding) src/a.py:10: support`, and below it what else the item says."""
    marks = ", ".join(filter(None, (item.severity, item.kind)))
    title = " ".join(filter(None, (f"- **{number}. {item.title}**", marks and f"({marks})", item.where)))
    named = {"": item.reason, "Evidence: ": item.evidence, "Suggestion: ": item.suggestion}
    below = [f"  - {name}{one_line(text, 2_000)}" for name, text in named.items() if text]
    return "\n".join([f"{title}: {support}" if support else title, *below, *dict.fromkeys(sources)])


def write_source(source: Source, *, shown: bool = False) -> str:
    """Return the line of a source below its item. shown: with what stands there."""
    state = f"not checked: {source.problem}" if source.problem else _QUOTED[source.quoted]
    text = f"; what stands there: {one_line(source.passage, 2_000)}" if shown and source.passage else ""
    return f"  - Source: {source.place or 'none'}: {state}{text}"


def write_list(items: Sequence[Item]) -> str:
    """Return the items of one agent as Markdown."""
    return "\n".join(write_item(number, item) for number, item in enumerate(items, 1)) or NOTHING


def write_union(items: Sequence[UnionItem], answered: int, name: Callable[[str], str]) -> str:
    """Return the list of a union as Markdown. answered: agents that gave a list. name: what people are shown of one."""
    texts: dict[str, list[str]] = {"": [], _UNREAD: [], _CONTESTED: []}
    for item in sort_items([item for item in items if item.dismissed is None]):
        confirmed, unsure = (", ".join(map(name, item.list_agents(stand))) for stand in ("confirm", "abstain"))
        support = [f"{len(item.found_by)} of {answered} found it ({', '.join(map(name, item.found_by))})"]
        support += [f"{len(item.list_agents('confirm'))} confirmed" + (confirmed and f" ({confirmed})")]
        support += [f"cannot tell: {unsure}"] if unsure else []
        kinds = zip(item.found_by, item.versions, strict=True)
        support += [f"{name(agent)} says {version.kind}" for agent, version in kinds if item.disputed]
        support += [f"rejected by {name(c.agent)}: {c.reason or 'no reason given'}" for c in item.rejections]
        entry = write_item(item.number, item.item, "; ".join(support), map(write_source, item.sources))
        texts[_CONTESTED if item.is_contested else _UNREAD if item.is_unread else ""].append(entry)
    parts = [text for head, entries in texts.items() if entries for text in (head, "\n".join(entries))]
    dismissed = sum(item.dismissed is not None for item in items)
    end = f"{dismissed} more dismissed" if dismissed else ""
    return "\n\n".join(filter(None, (*parts, end))) or NOTHING
