"""Words of a question that nobody has said, as they were probably meant: those one edit away that somebody has."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache

from massmem.memory.access import visible_to
from massmem.memory.index import Index
from massmem.memory.persistent import Scope
from massmem.memory.retrieval.query import Question
from massmem.memory.text_analysis import FRAME_WORDS, build_query_vector, extract_terms
from massmem.memory.words import STOP_WORDS, fold, respell, stem

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
