"""Claims: what a memory says holds, as subject, attribute and value, and what tells these apart. Pure.

A model that extracts facts names the claims in them; without one they are read from plain statements of the user, see
massmem.memory.plain_statements. Claims of one subject and attribute, their topic, supersede one another: see
massmem.memory.ledger.
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import lru_cache

from massmem.memory.persistent import USER, Claim
from massmem.memory.quoting import to_one_line
from massmem.memory.words import STOP_WORDS, split_words, stem

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
"""What a question about the user says that asks for the attribute."""

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
    usual = name_attribute(attribute)
    if usual in ("version", "database", "database version") and (product := WITH_VERSION.match(value)) is not None:
        usual = f"{product['product'].lower()} version"  # a server runs several products
    return Claim("user" if _is_user(subject) else subject, usual, value, by)


def name_attribute(attribute: str) -> str:
    """Return the usual name of an attribute, or the attribute itself."""
    return find_usual_name(attribute) or attribute.lower()


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
