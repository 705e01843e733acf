"""Claims: what a memory says holds, as subject, attribute and value, and what tells these apart. Pure.

A model that extracts facts names the claims in them; without one `read_claims` reads them from statements of the user
that say what something is: "my A is V", "the A of S is V". It would rather miss a statement than read a wrong one: a
sentence that is unsure, past, planned, in a frame or asks is none, and so is one whose value is no name or number.
Statements in other words are linked when they are recalled, see massmem.memory.retrieval.later.

Claims of one subject and attribute, their topic, supersede one another. The ledger has for each topic the values that
were claimed, with the time in which each held. It is computed from the memories that make claims whenever it is needed,
and stored nowhere: what is forgotten is gone from it, and whoever may not see a memory has no entry of it.

Of one author a later value takes the place of an earlier one, and what the user says takes the place of what agents
said before. Agents do not correct one another, nor the user: what they say holds beside the rest, as a dispute.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from massmem.core.messages import split_texts
from massmem.memory.frames import find_frame
from massmem.memory.persistent import USER, Claim, Memory
from massmem.memory.quoting import to_one_line
from massmem.memory.words import STOP_WORDS, read_sections, read_wordings, split_sentences, split_words, stem

LONGEST_NAME = 60
"""Characters of a subject or an attribute."""
LONGEST_VALUE = 120
"""Characters."""

_ME = frozenset({"user", "the", "i", "me", "my", "we", "us", "our", "myself"})
_FILE = Path(__file__).with_name("claim_wordings.txt")
USUAL_ATTRIBUTES = tuple(line.partition("|")[0] for line in read_sections(_FILE)["attributes"])

_ABOUT_ME = re.compile(r"\b(?:i|me|my|we|our|the user)\b", re.IGNORECASE)
_MINE = re.compile(r"\b(?:my|our|the user's) ((?:\w+ ){0,2}\w+)", re.IGNORECASE)

WITH_VERSION = re.compile(r"^(?P<product>[A-Za-z][\w.+#-]*(?: [A-Za-z]\w*)?) v?\d[\w.-]*$")
"""A product with its version, such as Postgres 16."""
HARD = re.compile(r"\d|@|[A-Z]|^[\w-]+\.[\w.-]+$")
"""A name, a number or a code, which means the same wherever it stands."""

_GENERIC = frozenset({"server", "machin", "environ", "system", "project", "team"})
"""Stems that a subject may be named with or without."""
_SPELLINGS = {"favorit": "favourit", "prefer": "favourit", "color": "colour"}
_VALUE_WORD = re.compile(r"[^\W_]+(?:[.,:/_@+-][^\W_]+)*[+#]*")
_FILLERS = frozenset({"the", "a", "an", "of", "in", "at", "on", "by", "to", "for", "and", "with"})


def make_claim(subject: str, attribute: str, value: str, by: str) -> Claim | None:
    """Return the claim; None when a part of it is missing or too long to be one. by: USER, or an agent's id."""
    parts = [to_one_line(unicodedata.normalize("NFKC", text)).strip(" .,;:!") for text in (subject, attribute, value)]
    subject, attribute, value = parts
    if not (attribute and value) or max(len(subject), len(attribute)) > LONGEST_NAME or len(value) > LONGEST_VALUE:
        return None
    usual = find_usual_name(attribute) or attribute.lower()
    if usual in ("version", "database", "database version") and (product := WITH_VERSION.match(value)) is not None:
        usual = f"{product['product'].lower()} version"  # a server runs several products
    return Claim("user" if _is_user(subject) else subject, usual, value, by)


def find_usual_name(attribute: str) -> str | None:
    """Return the usual name of an attribute that is one of the usual ones."""
    return _usual_names().get(_sort_terms(attribute))


def find_topic(claim: Claim) -> str:
    """Return what tells the topic of a claim from all others."""
    terms = _sort_terms(claim.subject)
    subject = "user" if _is_user(claim.subject) else " ".join([t for t in terms if t not in _GENERIC] or terms)
    return f"{subject}|{' '.join(_sort_terms(claim.attribute))}"


def find_asked_topics(question: str) -> list[str]:
    """Return the topics of the user that a question asks for, as far as its words tell: "my phone", "where I live"."""
    if not _ABOUT_ME.search(question):
        return []
    stems = {stem(word) for word in split_words(question)}
    asked = [usual for terms, usual in _usual_names().items() if stems.issuperset(terms)]
    for words in map(str.split, _MINE.findall(question)):
        names = (" ".join(words[:end]) for end in range(1, len(words) + 1))
        asked += [find_usual_name(name) or name for name in names]
    return list(dict.fromkeys(find_topic(Claim("user", name, "", USER)) for name in asked))


def is_same_value(new: str, old: str) -> bool:
    """Return whether a value says the same as an older one, or a part of it."""
    new_words, old_words = _value_words(new), _value_words(old)
    return new_words <= old_words or not old_words


def says_value(text: str, value: str) -> bool:
    """Return whether all words of the value are in the text."""
    words = _value_words(value)
    return bool(words) and words <= _value_words(text)


def shares_word(text: str, value: str) -> bool:
    """Return whether a word of the value is in the text; a number or a date may be written otherwise there."""
    return not _value_words(value).isdisjoint(_value_words(text)) or any(sign.isdigit() for sign in value)


def is_distinctive(value: str) -> bool:
    """Return whether the value is a name, a number or a code: a text that has it means the same thing."""
    return HARD.search(value) is not None and len(value) > 2


@lru_cache(1)
def _usual_names() -> Mapping[tuple[str, ...], str]:
    rows = (line.split("|") for line in read_sections(_FILE)["attributes"])
    return {_sort_terms(name): names[0] for names in rows for name in names}


def _is_user(subject: str) -> bool:
    return all(word.removesuffix("'s") in _ME for word in subject.lower().split())


@lru_cache(4096)
def _sort_terms(text: str) -> tuple[str, ...]:
    """Return the stems of a name in one order; its words when all of them are stop words."""
    terms = [stem(word) for word in split_words(text) if word not in STOP_WORDS] or text.lower().split()
    own = {_SPELLINGS.get(term, term) for term in terms}
    return tuple(sorted(own - {"current", "name"} or own))


@lru_cache(8192)
def _value_words(text: str) -> frozenset[str]:
    """Return the words of a value; numbers and codes stay whole: 1,500 is not 500, and 9:15 not 9:30."""
    words: Sequence[str] = _VALUE_WORD.findall(unicodedata.normalize("NFKC", text).casefold().replace("’", "'"))
    return frozenset(re.sub(r"(?<=\d),(?=\d{3}\b)", "", word) for word in words) - _FILLERS


_LONGEST_MESSAGE = 1_000
"""Characters: a longer message is pasted material as often as a statement of its own."""
_LONGEST_SENTENCE = 160
_MOST_WORDS = 8
"""Of a value."""

_AFTER_NUMBER = re.compile(r"(?<=\d\.)\s+(?=[A-Z])")


def read_claims(message: str, passage: str) -> list[Claim]:
    """Return the claims in a passage of one of the user's messages, in their order. message: its whole text."""
    if len(message) > _LONGEST_MESSAGE or any(name for name, _ in split_texts(message)):
        return []
    sentences = (part for sentence in split_sentences(passage) for part in _AFTER_NUMBER.split(sentence))
    claims = (read_statement(sentence) for sentence in sentences if not find_frame(message, sentence))
    return [claim for claim in claims if claim is not None]


def read_statement(sentence: str) -> Claim | None:
    """Return the claim of a sentence that says what something is; None when it makes none, or is not sure of it."""
    plain = _wordings()["before a statement"].sub("", sentence.replace("’", "'").strip().rstrip(" .!"))
    if len(plain) > _LONGEST_SENTENCE or _wordings()["unsure"].search(plain):
        return None
    matches = (re.fullmatch(form, plain, re.IGNORECASE) for form in read_sections(_FILE)["forms of statements"])
    return next((claim for match in matches if match and (claim := _claim_of(match))), None)


def _claim_of(match: re.Match[str]) -> Claim | None:
    """Return the claim of "the A of S is V"; None when its parts are none: a value is a name, a number or a code."""
    wordings, named, subject = _wordings(), match["A"], match.groupdict().get("S") or "user"
    value = wordings["before a value"].sub("", wordings["behind a value"].sub("", match["V"])).strip(" .")
    if len(value.split()) > _MOST_WORDS or wordings["no value"].search(value) or wordings["several"].search(named):
        return None
    is_vague = subject == "user" and wordings["in context"].search(find_usual_name(named) or named)
    is_plain = not HARD.search(value) and not re.match(r"(?:favou?rite|preferred)\b", named, re.IGNORECASE)
    if is_vague or is_plain or wordings["no name"].search(f"{subject} {named}"):
        return None
    return make_claim(subject, named, value, USER)


def _wordings() -> Mapping[str, re.Pattern[str]]:
    return read_wordings(_FILE)


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
    def note(self) -> str:
        """Why it stands only in the log as yet; empty: the index has it."""
        return next((memory.note for memory in self.memories if memory.is_queued), "")

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
        """Entries that hold: one, or several when authors disagree."""
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
                "note": entry.note,
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
