"""The wording of a question, and what it tells about the memories that answer it. Pure."""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, date
from functools import cache
from pathlib import Path

from massmem.memory.access import visible_to
from massmem.memory.claims import find_asked_topics
from massmem.memory.index import Index
from massmem.memory.persistent import RecallOptions, Scope
from massmem.memory.words import (
    FRAME_WORDS,
    STOP_WORDS,
    build_query_vector,
    count_unspaced,
    extract_query_forms,
    extract_terms,
    fold,
    guess_language,
    is_question,
    respell,
    split_sentences,
    split_words,
    stem,
)

TOLD_WITHIN = 7
"""Days after an event in which people usually tell of it."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question by its wording alone, without looking at any memory."""

    forms: tuple[tuple[str, ...], ...]
    """Terms of each of its content words, the stem first."""
    language: str
    """As it is guessed."""
    words: frozenset[str]
    """All of its words, without "'s", to find names in."""
    about_user: bool
    """It says "my", "I" or "the user"."""
    asks_time: bool
    """It asks when or how long."""
    asks_order: bool
    """It asks in which order things happened."""
    asks_overview: bool
    """It asks for an order or a summary, or how something went in all conversations."""
    days: tuple[tuple[int, int], ...]
    """Ranges of dates that it names, as ordinals."""
    asks_memory: bool = False
    """It asks for what was said, done or decided earlier."""
    is_short: bool = False
    """It has few words."""
    spellings: int = 0
    """How many of `forms` are not in it: spellings of a word that nobody has said."""
    asks_of_user: bool = False
    """It asks what the user is, has or does, and not how something is done."""
    asks_advice: bool = False
    """It asks what would suit the user, or somebody that the user knows: a choice, a gift, a plan."""
    names: frozenset[str] = frozenset()
    """Terms of its capitalised words but the first, in a short question; none in German, which has too many."""
    topics: tuple[str, ...] = ()
    """Topics that it asks for the value of, see massmem.memory.claims."""

    @property
    def asks_past(self) -> bool:
        """Whether it is about what was said before, in any number of words."""
        return self.asks_memory or (self.asks_overview and self.about_user)

    @property
    def terms(self) -> frozenset[str]:
        """All forms of its content words."""
        return frozenset(term for forms in self.forms for term in forms)


_FIRST_PERSON = re.compile(r"\b(i|me|my|mine|myself|i'm|i've|i'd|i'll|we|us|our|ours)\b", re.IGNORECASE)
_THE_USER = re.compile(r"\bthe user(?:'s)?\b", re.IGNORECASE)
_WHEN = re.compile(
    r"\b(when|what (?:date|day|month|year|time)|which (?:date|day|month|year)|how long"
    r"|how many (?:days|weeks|months|years))\b",
    re.IGNORECASE,
)
_ORDER = re.compile(r"\b(?:(?:in|the|what|which) order|chronolog\w+)\b", re.IGNORECASE)
_OVERVIEW = re.compile(
    r"\b(?:summar\w+|overview|recap|so far|over time|(?:across|throughout) (?:our|my|all)"
    r"|how (?:has|have|had|did)\b.{0,200}\b(?:progress|develop|evolve|change)d?)\b",
    re.IGNORECASE,
)
_BEGINNING = re.compile(
    r"\b(?:(?:in|at|from) the (?:very )?(?:beginning|start)|first|am anfang|zuerst|al principio)\b|一开始|最初",
    re.IGNORECASE,
)
_ADVICE = re.compile(
    r"\b(?:(?:suggest|recommend|advi[sc]e|tips?|ideas?|plan|pick|choose|order|should|shall|could|can|may|might|would)\b"
    r".{0,60}\b(?:i|me|my|we|us|our)|(?:i|we)\b.{0,20}\b(?:would (?:like|enjoy)|should)|(?:for|suits?) (?:me|us)"
    r"|gift|present for|(?:soll|kann|könnte) ich|empfiehl|geschenk|recomiénda\w*|debería|regalo|recommande-moi|cadeau"
    r")\b|推荐|建议|送.{0,40}礼物",
    re.IGNORECASE,
)
_OF_USER = re.compile(
    r"^(?!\W*(?:how (?:do|can|should)|can|could|should|wie (?:kann|soll|muss))\b)"
    r"(?:.*\b(?:my|mine|(?:am|was|do|did|have|had) i|mein\w*|ich|mich|mir|mis?|yo|soy|hago|tengo|mon|ma|mes|\w+-je|je"
    r"|мо[йяеёи]\w*|меня)\b|.*[我私]|.*ي\b).*[?？؟]$",
    re.IGNORECASE | re.DOTALL,
)
POINTS_BACK = re.compile(
    r"(?:(?:and|but|also) )?(?:she|he|it|they|this|that|there|his|her|its|their|sie|er|es|das|dort)\b", re.IGNORECASE
)
"""How a statement begins that goes on with what stands before it."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(
    rf"(?:\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )?\b({'|'.join(_MONTHS)})[a-z]*\.?"
    r"(?: (\d{1,2})(?:st|nd|rd|th)?)?,? (\d{4})\b",
    re.IGNORECASE,
)
_ISO_DATE = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)\b")
_CAPITALISED = re.compile(r"(?<=[\w,;:)] )[A-Z][\w-]+")
_WORD = re.compile(r"\w+(?:'\w+)?")
_ROLES = frozenset({"user", "assistant", "system", "tool"})


def analyse(question: str) -> Question:
    text, users = _THE_USER.subn(" ", question.replace("’", "'"))
    names = _CAPITALISED.findall(text) if is_short(text) and guess_language(text) != "de" else []
    return Question(
        forms=tuple(extract_query_forms(text)),
        language=guess_language(text),
        words=frozenset(word.removesuffix("'s") for word in split_words(text)),
        about_user=users > 0 or _FIRST_PERSON.search(text) is not None,
        asks_time=_WHEN.search(text) is not None,
        asks_order=_ORDER.search(text) is not None,
        asks_overview=_ORDER.search(text) is not None or _OVERVIEW.search(text) is not None,
        days=find_days(text),
        asks_memory=asks_memory(question),
        is_short=is_short(question),
        asks_of_user=_OF_USER.search(text.strip()) is not None,
        asks_advice=_ADVICE.search(text) is not None,
        names=frozenset(extract_terms(" ".join(names))),
        topics=tuple(find_asked_topics(question)),
    )


_SHORT = 12
"""Words. What a longer question is about can be looked for, and whether that was ever spoken of."""

_ASKED = 1_000
"""Characters at either end of a long text."""

_SAID = (
    "(said|told|talked|mentioned|discussed|decided|agreed|suggested|recommended|promised|wrote|asked|answered|explained"
    "|did|done|chose|chosen|planned|concluded|spoke|spoken|brought up)"
)
_SAY = (
    f"({_SAID}|say|tell|talk|mention|discuss|decide|agree|suggest|recommend|promise|write|ask|answer|explain|do|choose"
    "|plan|conclude|speak|bring up)"
)


def asks_memory(question: str) -> bool:
    """Return whether the wording asks for what was said or done earlier, in one of a dozen languages.

    A long text is asked about at its beginning or its end.
    """
    text = question if len(question) <= 2 * _ASKED else f"{question[:_ASKED]}\n{question[-_ASKED:]}"
    return _read_wordings().search(text.replace("’", "'")) is not None


def asks_beginning(question: str) -> bool:
    """Return whether the wording asks for what was said first."""
    return is_short(question) and asks_memory(question) and _BEGINNING.search(question) is not None


def is_short(question: str) -> bool:
    """Return whether the question has few words; two characters count as one where no spaces are written."""
    return len(question.split()) + count_unspaced(question) // 2 <= _SHORT


@cache
def _read_wordings() -> re.Pattern[str]:
    lines = Path(__file__).with_name("memory_questions.txt").read_text(encoding="utf-8").splitlines()
    wordings = "|".join(line for line in lines if not line.startswith("#"))
    return re.compile(wordings.replace("<say>", _SAY).replace("<said>", _SAID), re.IGNORECASE)


_LEAST_WORDS = 1 / 3
"""A question can have one word in common with its answer, a name; with a half, a tenth of these is not found. Everyday
questions have a third in common with one memory of 24,000 in three cases of ten."""
_LEAST_WORDS_OF_PAST = 1 / 6


def explain_asking(question: Question, options: RecallOptions) -> str:
    """Return why the best there is is shown to the question, whatever it is; "" when it must matter."""
    if not options.abstain:
        return "whatever is found is asked for"
    return "the question asks for what was said" if question.asks_memory and question.is_short else ""


def find_least_share(question: Question, *, is_named: bool = False) -> float:
    """Return which share of the question's words must stand together to matter, where there are no vectors.

    is_named: it names someone who speaks in the memories.
    """
    return _LEAST_WORDS_OF_PAST if is_named or question.asks_past else _LEAST_WORDS


_MOST_ASKS, _LONGEST_ASK = 5, 3
"""Things that a question asks for; words of each in a list."""
_IN_LIST = re.compile(r", (?:and |und |y |et |e )?| (?:and|und|y|et|e) ")
_OF = re.compile(r" (?:of|for|von|de[lrs]?|du|für|para|pour) .*")


def split_asks(query: str) -> list[str]:
    """Return what a message asks for, one by one with the words that they share; nothing when it asks for one thing."""
    asks = [sentence for sentence in split_sentences(query) if is_question(sentence)]
    first, *items = _IN_LIST.split(query.strip(" ?.!"))
    if len(asks) < 2 and len(items) > 1 and " " in first and all(len(i.split()) <= _LONGEST_ASK for i in items[:-1]):
        (head, item), behind = first.rsplit(maxsplit=1), "".join(_OF.findall(items[-1]))
        asks = [f"{head} {item.removesuffix(behind)}{behind}" for item in (item, *items)]
    return asks[:_MOST_ASKS] if len(asks) > 1 else []


def name_topic(text: str) -> str:
    """Return the words of a question that say what it is about; all of it when there are none."""
    words = (word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS | FRAME_WORDS)
    return " ".join(words) or text


def matches_words(question: Question, text: str) -> bool:
    """Whether a text has a name of the question, which its vector need not know, or all words of one that has some."""
    terms = frozenset(extract_terms(text))
    has_all = bool(question.forms) and all(not terms.isdisjoint(forms) for forms in question.forms)
    return has_all or not terms.isdisjoint(question.names)


def share_words(question: Question, text: str) -> float:
    """Return which share of the question's words a text has."""
    terms = frozenset(extract_terms(text))
    return sum(not terms.isdisjoint(forms) for forms in question.forms) / max(1, len(question.forms))


def find_days(text: str) -> tuple[tuple[int, int], ...]:
    """Return dates with a year ("13 March, 2023", "June 2023", "2023-06-09") as ranges that end TOLD_WITHIN later."""
    dates = [
        (int(year), _MONTHS.index(month[:3].lower()) + 1, int(before or after or 0))
        for before, month, after, year in _DATE.findall(text)
    ]
    dates += [(int(year), int(month), int(day)) for year, month, day in _ISO_DATE.findall(text)]
    return tuple(days for year, month, day in dates if (days := _days_of(year, month, day)))


def _days_of(year: int, month: int, day: int) -> tuple[int, int] | None:
    """Return the range of a date, None when there is no such date. day 0: the whole month."""
    if not (1 <= year < MAXYEAR and 1 <= month <= 12) or day > monthrange(year, month)[1]:
        return None
    first, last = (day, day) if day else (1, monthrange(year, month)[1])
    return date(year, month, first).toordinal(), date(year, month, last).toordinal() + TOLD_WITHIN


def find_names(question: Question, speakers: Iterable[str]) -> frozenset[str]:
    """Return the speakers called by their name in the question; roles such as "user" are no names."""
    return frozenset(name for name in speakers if (parts := _split_name(name)) and question.words.issuperset(parts))


def _split_name(speaker: str) -> tuple[str, ...]:
    """Return the words of a name; none for a role."""
    return () if speaker.lower() in _ROLES else tuple(split_words(speaker))


def search_forms(question: Question, names: Iterable[str]) -> Sequence[tuple[str, ...]]:
    """Return the forms of the words to look for: without the names of speakers, who are recognised as speakers.

    Those of all words if nothing else is left.
    """
    name_stems = {stem(word) for name in names for word in split_words(name)}
    return [forms for forms in question.forms if forms[0] not in name_stems] or question.forms


_READ = 20
"""Memories with other spellings that are read, to see which of these they have."""

_MOST_WORDS = 30
"""A longer question has enough other words to be found by, and each word that is looked up is a search."""

_LEAST_LETTERS, _MOST_LETTERS = 4, 30
"""Shorter words are one edit away from too many others; longer ones are data, whose spellings would fill the memory."""

_SAME_LETTERS = 3
"""Letters with which nearly all forms of a word begin."""

_ASIDE = 3
"""Memories with the word that may be left aside: the question itself, when it has been recorded or was asked before."""


def find_spellings(
    index: Index, question: Question, scope: Scope, read: Sequence[str], says_nothing: Callable[[str], bool]
) -> list[str]:
    """Return terms to look for besides those of the question.

    read: texts that the scope may see and that were read already: a word of theirs need not be looked up, which takes
    the longer the more memories have it. says_nothing: whether a text is the question itself.
    """
    words = question.words - STOP_WORDS - FRAME_WORDS
    if len(words) > _MOST_WORDS:
        return []
    texts_read = [(text.lower(), text) for text in read]
    spellings: set[str] = set()
    for word in sorted(words):
        if _LEAST_LETTERS <= len(word) <= _MOST_LETTERS and word.isalpha():
            terms = frozenset(extract_terms(word, question.language))
            if not (_is_in(word, terms, texts_read, says_nothing) or _is_known(index, terms, scope, says_nothing)):
                spellings.update(stem(spelling) for spelling in respell(fold(word)))
    spellings -= question.terms
    texts = _read(index, _search(index, spellings, scope, _READ))
    return sorted(spellings.intersection(term for text in texts for term in extract_terms(text)))


def _is_in(
    word: str, terms: frozenset[str], texts: Iterable[tuple[str, str]], says_nothing: Callable[[str], bool]
) -> bool:
    """Return whether a text that says something has the word in some form. texts: in small letters, and as they are."""
    start = word[:_SAME_LETTERS]
    words = re.compile(rf"\b{start}\w*")

    @cache
    def is_form(other: str) -> bool:
        return not terms.isdisjoint(extract_terms(other))

    return any(
        start in small and any(map(is_form, words.findall(small))) and not says_nothing(text) for small, text in texts
    )


def _is_known(index: Index, terms: Iterable[str], scope: Scope, says_nothing: Callable[[str], bool]) -> bool:
    ids = _search(index, terms, scope, _ASIDE + 1)
    return len(ids) > _ASIDE or not all(map(says_nothing, _read(index, ids)))


def _search(index: Index, terms: Iterable[str], scope: Scope, limit: int) -> list[int]:
    hits = index.search_words(build_query_vector((term,) for term in terms), visible_to(scope), limit)
    return [point_id for point_id, _ in hits]


def _read(index: Index, ids: Iterable[int]) -> list[str]:
    return [payload["data"] for payload in index.read_payloads(ids).values()]
