"""Candidates that hold now: they rank with the older ones that they replace, which say until when they held. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from massmem.memory.claims import Chain, Entry, find_topic, is_distinctive, says_value
from massmem.memory.persistent import Memory
from massmem.memory.points import CountTokens
from massmem.memory.quoting import to_one_line, write_date
from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Floats, Ints
from massmem.memory.words import extract_terms, split_sentences

_LONGEST_NAME = 40
"""Characters of a value in a note."""


def find_holding(question: Question, c: Candidates, best: Ints, chains: Mapping[str, Chain]) -> Ints:
    """Return the indexes of what holds for the topics that the question, or one of the best candidates, is about."""
    if not chains:
        return np.zeros(0, np.int64)
    indexes: list[int] = best.tolist()
    ledger = _Ledger.of(chains.values())
    topics = {*question.topics, *(ledger.chain_of[id(e)] for i in indexes for e in ledger.find_entries(c.memories[i]))}
    ids = {memory.id for topic in topics if topic in chains for e in chains[topic].holding for memory in e.memories}
    return np.array([i for i, memory in enumerate(c.memories) if memory.id in ids], np.int64)


def settle(
    question: Question, c: Candidates, scores: Floats, chains: Mapping[str, Chain], count: CountTokens
) -> tuple[Candidates, Floats]:
    """Return the candidates and scores as they are shown.

    What holds is lifted to the rank of what it replaced, which a note says the end of. count: tokens of a text.
    """
    if not chains:
        return c, scores
    ledger = _Ledger.of(chains.values())
    memories = list(c.memories)
    tokens = c.tokens.copy()
    for i, memory in enumerate(c.memories):
        if note := ledger.write_note(memory, ledger.find_entries(memory)):
            memories[i] = replace(memory, note="; ".join(filter(None, (memory.note, note))))
            tokens[i] += count(f" ({note})")
    return replace(c, memories=tuple(memories), tokens=tokens), _lift(question, c, scores, ledger)


def select_chains(question: Question, c: Candidates, scores: Floats, chains: Mapping[str, Chain]) -> list[Chain]:
    """Return the chains that the question names, then those that share words with it, the best first."""
    terms = set(question.terms)
    best: dict[str, float] = dict.fromkeys(chains, 0.0)
    for i, memory in enumerate(c.memories):
        for topic in map(find_topic, memory.claims):
            if topic in best:
                best[topic] = max(best[topic], float(scores[i]))
    rank = {
        topic: (topic in question.topics, len(terms.intersection(_name_terms(chain))), best[topic])
        for topic, chain in chains.items()
    }
    named = [topic for topic in chains if rank[topic][0] or rank[topic][1]]
    return [chains[topic] for topic in sorted(named, key=lambda topic: (rank[topic], topic), reverse=True)]


def _name_terms(chain: Chain) -> set[str]:
    """Return the stems of subject, attribute and values."""
    texts = (text for e in chain.entries for text in (e.claim.subject, e.claim.attribute, e.claim.value))
    return {term for text in texts for term in extract_terms(text)}


@dataclass(frozen=True, slots=True)
class _Ledger:
    """The entries of chains, by the memories and the messages that they rest on."""

    by_memory: Mapping[str, list[Entry]]
    by_message: Mapping[str, list[Entry]]
    changed: Sequence[Entry]
    """Entries that no longer hold."""
    replaced: frozenset[int]
    """Which entries took the place of another; by their identity."""
    chain_of: Mapping[int, str]
    """The topic of each entry, by its identity."""

    @staticmethod
    def of(chains: Iterable[Chain]) -> "_Ledger":
        by_memory: dict[str, list[Entry]] = {}
        by_message: dict[str, list[Entry]] = {}
        changed: list[Entry] = []
        replaced: set[int] = set()
        chain_of: dict[int, str] = {}
        for chain in chains:
            for entry in chain.entries:
                chain_of[id(entry)] = chain.topic
                for memory in entry.memories:
                    by_memory.setdefault(memory.id, []).append(entry)
                for message_id in entry.message_ids:
                    by_message.setdefault(message_id, []).append(entry)
            changed += [entry for entry in chain.entries if entry.until is not None]
            if any(entry.until is not None for entry in chain.entries):
                replaced |= {id(entry) for entry in chain.holding}
        return _Ledger(by_memory, by_message, changed, frozenset(replaced), chain_of)

    def find_entries(self, memory: Memory) -> list[Entry]:
        """Return the entries that the memory states, itself or as a passage of a message that a fact was read from."""
        own = self.by_memory.get(memory.id, [])
        if memory.kind == "fact":
            return own
        of_message = [entry for message_id in memory.message_ids for entry in self.by_message.get(message_id, ())]
        others = (entry for entry in _distinct(of_message) if all(entry is not other for other in own))
        more = [entry for entry in others if says_value(memory.text, entry.claim.value)]
        return [*own, *more]

    def write_note(self, memory: Memory, stated: Sequence[Entry]) -> str:
        """Return how long the memory holds and who disagrees; "" when there is nothing to say."""
        disputed = sorted({name for entry in stated for name in entry.disputed_by if entry.until is None})
        notes = [f"{_write_names(disputed)} otherwise"] if disputed else []
        is_all = len(split_sentences(memory.text)) <= len(stated)
        for entry in stated:
            if entry.until is not None:
                name = "" if is_all and len(stated) == 1 else f"{_write_name(entry.claim.value)} "
                notes.append(f"{name}held until {write_date(entry.until)}")
        if since := [entry.since for entry in stated if id(entry) in self.replaced and entry.until is None]:
            notes.append(f"holds since {write_date(max(since))}")
        if not stated and (base := self._find_base(memory)) is not None:
            name = _write_name(base.claim.value)
            notes.append(f"rests on {name}, which held until {write_date(base.until or base.since)}")
        return "; ".join(notes)

    def _find_base(self, memory: Memory) -> Entry | None:
        """Return the entry that held when the memory was said, that it names, and that no longer holds.

        A value that is an everyday word ("blue") must have been said in the same turn.
        """
        for entry in self.changed:
            value = entry.claim.value
            answers = any((m.session_id, m.turn) == (memory.session_id, memory.turn) for m in entry.memories)
            if not (is_distinctive(value) or answers) or memory.created_at < entry.since:
                continue
            if entry.until is not None and memory.created_at < entry.until and says_value(memory.text, value):
                return entry
        return None


def _lift(question: Question, c: Candidates, scores: Floats, ledger: _Ledger) -> Floats:
    """Return the scores, with what holds not below what it replaced; what the question names is the best of all."""
    best: dict[str, float] = {}
    holding: list[tuple[int, str]] = []
    top = float(scores.max(initial=0.0))
    for i, memory in enumerate(c.memories):
        for entry in ledger.find_entries(memory):
            topic = ledger.chain_of[id(entry)]
            best[topic] = top if topic in question.topics else max(best.get(topic, 0.0), float(scores[i]))
            if entry.until is None:
                holding.append((i, topic))
    lifted = scores.copy()
    for i, topic in holding:
        lifted[i] = max(lifted[i], best[topic])
    return lifted


def _distinct(entries: Iterable[Entry]) -> Iterator[Entry]:
    seen: set[int] = set()
    for entry in entries:
        if id(entry) not in seen:
            seen.add(id(entry))
            yield entry


def _write_names(names: Sequence[str]) -> str:
    shown = [_write_name("the user" if name == "user" else name) for name in names[:2]]
    more = f" and {len(names) - 2} more" if len(names) > 2 else ""
    return f"{' and '.join(shown)}{more} {'says' if len(names) == 1 else 'say'}"


def _write_name(text: str) -> str:
    """Return a stored text as it may stand in a label: short, and without a sign that could end the label."""
    plain = "".join(sign for sign in to_one_line(text) if sign.isalnum() or sign in " .,:'+-/@_")
    return plain if len(plain) <= _LONGEST_NAME else f"{plain[: _LONGEST_NAME - 1].rstrip()}…"
