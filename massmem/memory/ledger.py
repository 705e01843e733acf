"""The ledger: for each topic the values that were claimed, with the time in which each held. Pure.

It is computed from the memories that make claims whenever it is needed, and stored nowhere: what is forgotten is gone
from it, and whoever may not see a memory has no entry of it.

Of one author a later value takes the place of an earlier one, and what the user says takes the place of what agents
said before. Agents do not correct one another, nor the user: what they say holds beside the rest, as a dispute.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from massmem.memory.claims import find_topic, is_same_value
from massmem.memory.persistent import USER, Claim, Memory


@dataclass(slots=True)
class Entry:
    """A value and the time in which it held."""

    claim: Claim
    since: datetime
    until: datetime | None = None
    """When another value took its place; None: it holds."""
    memories: list[Memory] = field(default_factory=list[Memory])
    """Those that state it, the earliest first."""
    authors: list[str] = field(default_factory=list[str])
    """Who says so still; when it no longer holds, who said so last."""
    disputed_by: tuple[str, ...] = ()
    """Who says otherwise at the same time."""

    @property
    def message_ids(self) -> frozenset[str]:
        return frozenset(message_id for memory in self.memories for message_id in memory.message_ids)


@dataclass(frozen=True, slots=True)
class Chain:
    """The values of one topic."""

    topic: str
    entries: tuple[Entry, ...]
    """The earliest first."""

    @property
    def holding(self) -> list[Entry]:
        """What holds: one value, or several when authors disagree."""
        return [entry for entry in self.entries if entry.until is None]

    def to_dict(self) -> dict[str, Any]:
        """Return the topic as JSON, its values with the earliest first, times in ISO 8601."""
        claim = self.entries[-1].claim
        values = [
            {
                "value": entry.claim.value,
                "since": entry.since.isoformat(),
                "until": entry.until.isoformat() if entry.until else None,
                "by": entry.authors,
                "disputed_by": list(entry.disputed_by),
                "memory_ids": [memory.id for memory in entry.memories],
                "message_ids": sorted(entry.message_ids),
            }
            for entry in self.entries
        ]
        return {"subject": claim.subject, "attribute": claim.attribute, "values": values}


def build_chains(memories: Iterable[Memory]) -> dict[str, Chain]:
    """Return the chains of all claims in the memories, by topic."""
    by_topic: dict[str, list[tuple[Memory, Claim]]] = {}
    in_order = sorted(
        memories, key=lambda memory: (memory.created_at, memory.message_ids[:1], memory.kind, int(memory.id))
    )
    for memory in in_order:
        for claim in memory.claims:
            by_topic.setdefault(find_topic(claim), []).append((memory, claim))
    return {topic: Chain(topic, _build_entries(statements)) for topic, statements in by_topic.items()}


def _build_entries(statements: Iterable[tuple[Memory, Claim]]) -> tuple[Entry, ...]:
    entries: list[Entry] = []
    for memory, claim in statements:
        open_entries = [entry for entry in entries if entry.until is None]
        same = next((entry for entry in open_entries if is_same_value(claim.value, entry.claim.value)), None)
        for entry in open_entries:
            if entry is not same and _follows(memory, entry):
                _withdraw(entry, claim.by, memory.created_at)
        if same is None:
            same = Entry(claim, memory.created_at)
            entries.append(same)
        same.memories.append(memory)
        if claim.by not in same.authors:
            same.authors.append(claim.by)
    _note_disputes([entry for entry in entries if entry.until is None])
    return tuple(entries)


def _follows(memory: Memory, entry: Entry) -> bool:
    """Return whether the memory is later than all that the entry rests on: of one moment none is sure to be newer.

    Passages of one message stand in the order in which they were written.
    """
    last = entry.memories[-1]
    both_verbatim = memory.kind == last.kind == "episode"
    return memory.created_at > last.created_at or both_verbatim


def _withdraw(entry: Entry, author: str, moment: datetime) -> None:
    """End what the author said; the user's word ends what anybody said."""
    rest = [] if author == USER else [other for other in entry.authors if other != author]
    if rest:
        entry.authors = rest
    elif author == USER or author in entry.authors:
        entry.until = moment


def _note_disputes(holding: list[Entry]) -> None:
    for entry in holding:
        others = (author for other in holding if other is not entry for author in other.authors)
        entry.disputed_by = tuple(sorted({author for author in others if author not in entry.authors}))
