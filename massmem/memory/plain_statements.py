"""Claims in plain statements of the user, read by rules. English; pure.

The rules would rather miss a statement than read a wrong one: a sentence that is unsure, past, planned or asks is none,
and so is one whose value does not look like a value of its attribute.
"""

import re
from functools import lru_cache

from massmem.core.attachments import split_texts
from massmem.memory.claims import HARD, WITH_VERSION, find_usual_name, make_claim
from massmem.memory.persistent import USER, Claim
from massmem.memory.words import split_sentences

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
"""What the value of an attribute looks like."""
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
