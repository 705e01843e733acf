"""Claims: what a memory says holds, as subject, attribute and value, and what tells these apart. Pure.

A model that extracts facts names the claims in them; without one `read_claims` reads them from plain statements of the
user. It would rather miss a statement than read a wrong one: a sentence that is unsure, past, planned or asks is none,
and so is one whose value does not look like a value of its attribute.

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
from typing import Any

from massmem.core.messages import split_texts
from massmem.memory.persistent import USER, Claim, Memory
from massmem.memory.quoting import to_one_line
from massmem.memory.words import STOP_WORDS, split_sentences, split_words, stem

LONGEST_NAME = 60
"""Characters of a subject or an attribute."""
LONGEST_VALUE = 120
"""Characters."""

_ME = frozenset({"user", "the", "i", "me", "my", "we", "us", "our", "myself"})
_ATTRIBUTES: Mapping[str, str] = {
    "home": "home|home city|city|city of residence|residence|place of residence|lives in|hometown|location|current city"
    "|living place|town|flat|apartment",
    "employer": "employer|company|works for|works at|workplace|place of work|employed by",
    "manager": "manager|boss|reports to|supervisor|line manager",
    "job": "job|job title|occupation|profession|role|position|works as",
    "deadline": "deadline|due date|delivery date|due|delivery|launch date|release date",
    "car": "car|vehicle|drives",
    "phone": "phone|phone number|mobile|mobile number|telephone|telephone number|cell|number",
    "email": "email|e-mail|email address|e-mail address|mail address",
    "address": "address|home address|postal address",
    "partner": "partner|spouse|husband|wife|girlfriend|boyfriend",
    "doctor": "doctor|gp|physician|family doctor",
    "dentist": "dentist",
    "gym": "gym|fitness club|fitness studio|trains at",
    "bank": "bank|account",
    "landlord": "landlord|landlady",
    "diet": "diet",
    "age": "age",
    "salary": "salary|pay|income",
    "rent": "rent|monthly rent",
    "school": "school|university|college",
    "wake-up time": "wake up time|wake-up time|wake time|alarm|alarm time|gets up at",
    "editor": "editor|text editor|code editor",
    "browser": "browser|web browser",
    "laptop": "laptop|notebook",
    "operating system": "operating system|os",
    "budget": "budget",
    "price": "price|cost|costs|fee",
    "license": "license|licence",
    "region": "region|cloud region|hosting region|hosted in|location of hosting|data centre|data center",
    "time": "time|start time|meeting time|starts at|start",
    "day": "day|weekday|meeting day",
    "lead": "lead|team lead|leader|head|led by|owner",
    "version": "version",
    "port": "port",
    "domain": "domain|url|website",
    "status": "status|state",
    "size": "size|team size|headcount",
}
"""The usual attributes that hold one value at a time, and what else they are called."""
USUAL_ATTRIBUTES = tuple(_ATTRIBUTES)

_CUES: Mapping[str, str] = {
    "home": r"\bwhere (?:do|am|are) (?:i|we) (?:live|based)\b|\bi live\b|\bmy (?:home|city|town)\b",
    "employer": r"\bwork (?:for|at)\b|\bemploy\w*|\bmy company\b|\bi work\b",
    "manager": r"\b(?:boss|manager|supervisor|report|manages me)\b",
    "job": r"\b(?:my (?:job|profession|occupation)|do for a living)\b",
    "car": r"\b(?:car|vehicle|drive)\b",
    "phone": r"\b(?:phone|call me|my number|reach me)\b",
    "email": r"\be-?mail\b",
    "dentist": r"\b(?:dentist|teeth)\b",
    "doctor": r"\b(?:my doctor|my gp)\b",
    "gym": r"\b(?:gym|work out|train)\b",
    "bank": r"\b(?:bank|account)\b",
    "landlord": r"\b(?:landlord|landlady|rent)\b",
    "diet": r"\b(?:diet|eat|food)\b",
    "wake-up time": r"\b(?:get up|wake up|alarm)\b",
    "editor": r"\beditor\b",
    "salary": r"\b(?:salary|earn)\b",
    "age": r"\bhow old am i\b|\bmy age\b",
    "partner": r"\bmy (?:partner|spouse|husband|wife|girlfriend|boyfriend)\b",
}
"""Words of a question about the user that asks for the attribute."""

_FAVOURITE = re.compile(r"\bfavou?rite (\w+)", re.IGNORECASE)
_ABOUT_ME = re.compile(r"\b(?:i|me|my|we|our|the user)\b", re.IGNORECASE)

WITH_VERSION = re.compile(r"^(?P<product>[A-Za-z][\w.+#-]*(?: [A-Za-z]\w*)?) v?\d[\w.-]*$")
"""A product with its version, such as Postgres 16."""
HARD = re.compile(r"\d|@|[A-Z]|^[\w-]+\.[\w.-]+$")
"""A name, a number or a code, which means the same wherever it stands."""

_GENERIC = frozenset({"server", "machin", "environ", "system", "project", "team"})
"""Stems that a subject may be named with or without."""
_SPELLINGS = {"favorit": "favourit", "color": "colour"}
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
    """Return the topics of the user that a question asks for, as far as its words tell."""
    if not _ABOUT_ME.search(question):
        return []
    asked = [name for name, cue in _CUES.items() if re.search(cue, question, re.IGNORECASE)]
    asked += [f"favourite {noun}" for noun in _FAVOURITE.findall(question)]
    return [find_topic(Claim("user", name, "", USER)) for name in asked]


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
    return {_sort_terms(name): usual for usual, names in _ATTRIBUTES.items() for name in names.split("|")}


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

_LEAD_IN = re.compile(
    r"^(?:(?:by the way|btw|also|fyi|so|ok(?:ay)?|well|oh|hi|hello|thanks|note(?: that)?|just so you know"
    r"|for the record|remember(?: that)?|please note(?: that)?|actually|from now on|now|currently|these days"
    r"|as of (?:today|now)|correction|update)[,:!]?\s+)+",
    re.IGNORECASE,
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|might|could|would|should|if|unless|whether|probably|possibly|likely|think|guess|suppose"
    r"|believe|hope|want|wish|plans?|planned|planning|consider(?:ing)?|going to|gonna|will|won't|not|never|no longer"
    r"|used to|was|were|had|did|almost|nearly|once|temporarily|until|till|ago|last|when|about to|instead of|or)\b"
    r"|n't\b|'ll\b|'d\b|[\"“”«»]",
    re.IGNORECASE,
)
_MAY = re.compile(r"\bmay\b")  # the month has a capital
_AFTER_NUMBER = re.compile(r"(?<=\d\.)\s+(?=[A-Z])")
_TAIL = re.compile(
    r"(?:,(?!\d)|;| - | – | — | \(| because | so that | which | who | where | and (?:i|we|my|it|that)\b| but | as of "
    r"| starting | for (?:us|me|now)\b| since | at the moment| these days| right now| nowadays| already| again\b"
    r"| now\b| currently| to work\b| at home\b).*$",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:(?:the|a|an|called|named|only|just|still|always|currently|now)\s+)+", re.IGNORECASE)
_PLACE = re.compile(r"^(?:in|on|at|from|near|by|under|with|for|about|to)\b", re.IGNORECASE)
_NOT_A_NAME = re.compile(
    r"\b(?:is|are|am|was|my|our|i|we|you|it|that|this|there|what|problem|question|point|idea)\b", re.IGNORECASE
)
_NO_VALUE = re.compile(
    r"^(?:it|that|this|these|those|there|what|he|she|they|you|we|i|my|your)\b|^(?:french|german|dutch|greek|swiss|czech|danish"
    r"|italian|american|canadian|mexican|russian|indian|asian|brazilian|australian|austrian|norwegian|european|african"
    r"|[a-z]+(?:ish|ese))$",
    re.IGNORECASE,
)
"""Pronouns, and what people are rather than who."""
_SEVERAL = re.compile(
    r"\b(?:brother|sister|son|daughter|child|friend|cousin|aunt|uncle|colleague|member|part|example|reason|author|user"
    r"|student|employee|one|some|many|most|all|rest|type|kind)s?$",
    re.IGNORECASE,
)
"""A subject may have several of them."""
_FORMS = {
    "phone": r"^\+?\d[\d ()/-]{4,}\d$", "email": r"^\S+@\S+$", "age": r"^\d{1,3}\b", "time": r"\d",
    "wake-up time": r"\d", "salary": r"\d", "rent": r"\d", "price": r"\d", "budget": r"\d", "size": r"\d",
    "port": r"^\d+$",
    "home": r"^[A-Z]", "employer": r"^[A-Z]", "bank": r"^[A-Z]", "manager": r"^[A-Z]", "lead": r"^[A-Z]",
    "partner": r"^[A-Z]", "doctor": r"^[A-Z]", "dentist": r"^[A-Z]", "landlord": r"^[A-Z]", "region": r"\d|^[A-Z]",
}  # fmt: skip
"""The form of an attribute's value."""
_IN_CONTEXT = frozenset(
    {
        "deadline",
        "budget",
        "price",
        "version",
        "time",
        "day",
        "port",
        "status",
        "size",
        "region",
        "license",
        "domain",
        "lead",
    }
)
"""Attributes of something that the sentence must name: "the deadline" is another one in the next conversation."""
_ANY_VALUE = frozenset({"diet", "status", "job"})
"""Attributes whose value may be any word."""

# A: the attribute. S: the subject; without it, the user. V: the value.
_MY = r"(?:my|our)"
_S = r"(?:(?:the|our|my) )?(?P<S>[\w][\w' -]{0,40}?)"
_A = r"(?P<A>[\w][\w -]{0,40}?)"
_V = r"(?P<V>.+)"
_RULES: tuple[tuple[str, str], ...] = (
    # The attribute, "" where the sentence names it; the sentence.
    ("home", rf"(?:i|we) (?:live|reside|stay) in {_V}"),
    ("home", rf"(?:i|we) rent an? (?:place|flat|apartment|house|home) in {_V}"),
    ("home", rf"(?:i am|i'm|we are|we're) (?:based|living) in {_V}"),
    ("home", rf"{_MY} (?:flat|apartment|home|house|place) is in {_V}"),
    ("home", rf"home is {_V}"),
    ("employer", rf"i(?: am|'m)? (?:work|working|employed) (?:for|at|by) {_V}"),
    ("employer", rf"{_V} (?:pays my salary|employs me)"),
    ("job", rf"i work as {_V}"),
    ("manager", rf"i report to {_V}"),
    ("car", rf"i drive an? {_V}"),
    ("bank", rf"(?:i bank with|my account is (?:with|at)|i have my account (?:with|at)) {_V}"),
    ("gym", rf"i (?:train|work out|exercise) at {_V}"),
    ("landlord", rf"i (?:rent from|pay my rent to) {_V}"),
    ("wake-up time", rf"i (?:get|wake) up at {_V}"),
    ("wake-up time", rf"my alarm (?:rings|goes off|is set) (?:at|to|for) {_V}"),
    ("phone", rf"(?:you (?:can )?reach me|call me|my (?:phone|mobile|cell)) (?:is |at |on )+{_V}"),
    ("diet", rf"i (?:follow|keep to|am on) an? {_V} diet"),
    ("age", r"(?:i am|i'm) (?P<V>\d{1,3}) years old"),
    ("favourite", rf"i like {_V} best of all (?P<A>\w+)"),
    ("favourite", rf"of all (?P<A>\w+) i (?:pick|like|prefer|choose) {_V}"),
    ("deadline", rf"{_S} is due (?:on|by|at) {_V}"),
    ("deadline", rf"we (?:deliver|ship|launch|release) {_S} (?:on|by) {_V}"),
    ("deadline", rf"{_S} has to be (?:with .*|ready|done|finished|delivered) by {_V}"),
    ("region", rf"{_S} (?:runs|is hosted|is deployed|lives) in {_V}"),
    ("region", rf"we (?:host|run|deploy) {_S} in {_V}"),
    ("time", rf"{_S} (?:is|starts|begins|takes place) at (?P<V>\d.*)"),
    ("time", rf"we (?:hold|have|do) {_S} at (?P<V>\d.*)"),
    ("price", rf"{_S} costs {_V}"),
    ("budget", rf"we have (?P<V>[^a-z]*\d[\d.,]* ?(?:euros?|dollars?|pounds?|EUR|USD|k|€|\$)) for {_S}"),
    ("budget", rf"\w+ gives us (?P<V>[^a-z]*\d[\d.,]* ?\w+) for {_S}"),
    ("dentist", rf"i go to {_V} for my teeth"),
    ("dentist", rf"{_V} looks after my teeth"),
    ("version", rf"on {_S} we (?:use|run) {_V}"),
    ("favourite", rf"{_V} is the (?P<A>\w+) i (?:love|like) (?:most|best)"),
    ("budget", rf"for {_S} we can spend {_V}"),
    ("license", rf"{_S} is licensed under {_V}"),
    ("license", rf"we publish {_S} under {_V}"),
    ("lead", rf"{_V} leads {_S}"),
    ("lead", rf"{_S} is led by {_V}"),
    ("version", rf"{_S} (?:runs|runs on|is on) {_V}"),
    ("version", rf"{_V} is installed on {_S}"),
    ("", rf"(?:the|our) {_A} (?:of|for) {_S} (?:is|are) {_V}"),
    ("", rf"{_MY} {_A} (?:is|are|is called|is named) (?:at |set to )?{_V}"),
    ("", rf"(?P<S>[A-Z][\w-]*(?: [A-Z][\w-]*)?)['’]s {_A} is {_V}"),
    ("", rf"the (?P<A>[\w][\w -]{{0,40}}?) is {_V}"),
    ("", rf"{_S} has an? {_A} of {_V}"),
    ("", rf"{_V} is (?:the|our|my) {_A} (?:of|for) {_S}"),
    ("", rf"{_V} is my {_A}"),
    ("", rf"(?:i|we) (?:use|have) {_V} as (?:my|our) {_A}"),
    ("", rf"{_V} is the {_A} i (?:use|see|have|drive)"),
)  # fmt: skip


def read_claims(message: str, passage: str) -> list[Claim]:
    """Return the claims in a passage of one of the user's messages, in their order. message: its whole text."""
    if len(message) > _LONGEST_MESSAGE or any(name for name, _ in split_texts(message)):
        return []
    return [claim for sentence in split_statements(passage) if (claim := read_statement(sentence)) is not None]


def split_statements(text: str) -> list[str]:
    """Return the sentences of a text; one that ends with a number ends there, too."""
    return [part for sentence in split_sentences(text) for part in _AFTER_NUMBER.split(sentence)]


def read_statement(sentence: str) -> Claim | None:
    """Return the claim that a sentence of the user makes; None when it makes none, or is not sure of it."""
    plain = _LEAD_IN.sub("", sentence.replace("’", "'").strip()).rstrip(" .!")
    if len(plain) > _LONGEST_SENTENCE or plain.endswith("?") or _UNSURE.search(plain) or _MAY.search(plain):
        return None
    for attribute, rule in _compile_rules():
        if (match := rule.match(plain)) is not None and (claim := _apply_rule(attribute, match)) is not None:
            return claim
    return None


@lru_cache(1)
def _compile_rules() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((attribute, re.compile(rf"^{pattern}$", re.IGNORECASE)) for attribute, pattern in _RULES)


def _apply_rule(attribute: str, match: re.Match[str]) -> Claim | None:
    """Return the claim of a sentence that has a rule's form; None when its parts are not what the rule expects."""
    groups = match.groupdict()
    value = _ARTICLE.sub("", _TAIL.sub("", groups["V"])).strip(" .")
    subject, named = groups.get("S") or "user", groups.get("A") or ""
    if (
        not value
        or len(value.split()) > _MOST_WORDS
        or _NO_VALUE.match(value)
        or _NOT_A_NAME.search(f"{subject} {named}")
    ):
        return None
    if attribute == "favourite":
        return make_claim(subject, f"favourite {named.removesuffix('s')}", value, USER)
    if attribute:
        return make_claim(subject, attribute, value, USER) if _fits(attribute, value) else None
    if _PLACE.match(value):
        return None
    return _claim_of_noun(subject, named, value)


def _claim_of_noun(subject: str, named: str, value: str) -> Claim | None:
    """Return the claim of "the NAMED of SUBJECT is VALUE"; "production region" is the region of production."""
    words = re.sub(r"^(?:favorite|preferred)\b", "favourite", named.lower()).split()
    if words[0] == "favourite" and len(words) > 1:
        return make_claim(subject, " ".join(words), value, USER)
    for start in range(len(words)):
        if usual := find_usual_name(" ".join(words[start:])):
            owner = " ".join(words[:start]) if subject == "user" and start else subject
            is_vague = (owner == "user" and usual in _IN_CONTEXT) or (usual == "job" and not HARD.search(value))
            return make_claim(owner, usual, value, USER) if _fits(usual, value) and not is_vague else None
    if subject == "user" or _SEVERAL.search(named) or not HARD.search(value):
        return None
    return make_claim(subject, named, value, USER)


def _fits(attribute: str, value: str) -> bool:
    """Return whether the value looks like one of the attribute."""
    if attribute == "version":
        return WITH_VERSION.match(value) is not None
    if form := _FORMS.get(attribute):
        return re.search(form, value) is not None
    return attribute in _ANY_VALUE or HARD.search(value) is not None


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
