"""Text analysis for the memory index: terms, passages, sparse vectors. Pure."""

import re
import zlib
from collections.abc import Iterable, Sequence

from massmem.memory.words import count_unspaced, extract_forms

PASSAGE_WORDS = 30
"""One or two sentences: small enough to show many different messages, large enough to make sense alone."""

LONGEST_SENTENCE = 45
"""Words; a longer "sentence" (code, lists, tables) is cut at a comma or a space."""

BM25_K1, BM25_B = 1.2, 0.75
"""The usual values; 0.8 to 2.0 and 0.4 to 0.9 recall the same."""

TYPICAL_TERMS = 13.0
"""Content words of a typical passage: a constant, so that adding one memory changes no other."""

FRAME_WORDS = frozenset(
    """
    list order ordered sequence bring brought aspect aspects items item summary summarize summarise overview
    comprehensive detailed describe explain walk remind recall remember different various specific specifically
    regarding related previous previously earlier
    """.split()  # noqa: SIM905 - a list literal of this length reads badly
)
"""How a request is put rather than what it is about: left out of queries, kept in the index ("order" a pizza)."""

_HEADING_WORDS = 10
"""A heading has fewer words than this before a ':' or '#'."""

_LONGEST_WORD = 400
"""Characters; what is longer (encoded data) is cut."""

_LONGEST_PIECE = 800
"""Characters of a piece of a sentence, whatever its words: no passage is larger than the room for memories."""

_LONG_WORD = 25
"""Characters that count as a word where words are longer."""

# A sentence ends at . ! ? before a space (not after a list number or a short abbreviation), or at a line break.
_SENTENCE = re.compile(
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\be\.g\.)(?<!\bi\.e\.)\s+"
    r"|(?<=[。！？])|(?<!\s)\s*\n\s*"
)
_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|last|next|since|recently|(?:week|month|year)s?|weekend"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august"
    r"|september|october|november|december|may \d|\d{4})\b"
)


def extract_terms(text: str, language: str = "") -> list[str]:
    """Terms of the content words, in order, with repetitions. language: of the text; "": as it is guessed."""
    return [term for forms in extract_forms(text, language) for term in forms]


def extract_query_forms(text: str) -> list[tuple[str, ...]]:
    """Terms of each word to look for; words that only frame the request are dropped unless nothing else is left."""
    return extract_forms(text, drop=FRAME_WORDS) or extract_forms(text)


def extract_query_terms(text: str) -> list[str]:
    """As `extract_query_forms`: the distinct terms."""
    return list(dict.fromkeys(term for forms in extract_query_forms(text) for term in forms))


def has_time(text: str) -> bool:
    """Return whether the text says when something happened."""
    return _TIME.search(text.lower()) is not None


def is_question(text: str) -> bool:
    return text.rstrip(" \"')*").endswith("?")


def term_id(term: str) -> int:
    """Return the index of a term in the sparse vector: a hash, so that no vocabulary has to be stored."""
    return zlib.crc32(term.encode())


def build_document_vector(terms: Sequence[str], word_count: int | None = None) -> dict[int, float]:
    """Return BM25 weights of a passage's terms without the IDF, which the index applies when it is searched.

    word_count: content words of the passage; None: as many as terms.
    """
    counts: dict[int, int] = {}
    for term in terms:
        index = term_id(term)
        counts[index] = counts.get(index, 0) + 1
    norm = length_norm(len(terms) if word_count is None else word_count) - 1
    return {index: n * (BM25_K1 + 1) / (n + norm) for index, n in counts.items()}


def length_norm(term_count: int) -> float:
    """Return what BM25 divides by for a word that occurs once in a text of so many terms."""
    return 1 + BM25_K1 * (1 - BM25_B + BM25_B * term_count / TYPICAL_TERMS)


def build_query_vector(words: Iterable[Sequence[str]]) -> dict[int, float]:
    """Return the weight of every term; the index weighs it by its IDF.

    words: the forms of each word. Together they weigh 1, so that a word that has many counts no more than another; the
    first of them, the stem, weighs half.
    """
    weights: dict[int, float] = {}
    for first, *others in words:
        for form in (first, *others):
            weight = 1.0 if not others else 0.5 if form is first else 0.5 / len(others)
            weights[term_id(form)] = max(weight, weights.get(term_id(form), 0.0))
    return weights


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, without the blanks between them."""
    return [stripped for start, end in find_sentences(text) if (stripped := text[start:end].strip())]


def find_sentences(text: str) -> list[tuple[int, int]]:
    """Return where the sentences and lines of a text begin and end, without what stands between them."""
    breaks = [match.span() for match in _SENTENCE.finditer(text)]
    starts, ends = [0, *(end for _, end in breaks)], [*(start for start, _ in breaks), len(text)]
    return list(zip(starts, ends, strict=True))


def split_passages(text: str) -> list[str]:
    """Split a message into whole sentences of about PASSAGE_WORDS words; a heading stays with what follows it."""
    passages: list[str] = []
    current: list[str] = []
    size = 0
    for sentence in split_sentences(text):
        for piece in _split_long(sentence):
            length = _count_words(piece)
            heading = bool(current) and size < _HEADING_WORDS and current[-1].rstrip("*").endswith((":", "#"))
            if current and size + length > PASSAGE_WORDS and not heading:
                passages.append(" ".join(current))
                current, size = [], 0
            current.append(piece)
            size += length
    return [*passages, " ".join(current)] if current else passages


def _split_long(sentence: str) -> list[str]:
    """Return the sentence, or pieces of it when it is too long: cut after a comma, else after PASSAGE_WORDS words."""
    words = [word[i : i + _LONGEST_WORD] for word in sentence.split() for i in range(0, len(word), _LONGEST_WORD)]
    pieces: list[str] = []
    while not _is_short(words):
        head = words[:PASSAGE_WORDS]
        while len(" ".join(head)) > _LONGEST_PIECE:
            head.pop()
        end = _find_cut(head)
        pieces.append(" ".join(words[:end]))
        words = words[end:]
    return [*pieces, " ".join(words)] if pieces else [sentence]


def _is_short(words: Sequence[str]) -> bool:
    return len(words) <= LONGEST_SENTENCE and len(" ".join(words)) <= _LONGEST_PIECE


def _find_cut(head: Sequence[str]) -> int:
    """Return how many of these words to take: up to the last comma in their second half, else all."""
    half = len(" ".join(head)) // 2
    for count in range(len(head) - 1, 0, -1):
        if head[count - 1].endswith((",", ";", ":", ")")):
            return count if len(" ".join(head[:count])) > half else len(head)
    return len(head)


def _count_words(text: str) -> int:
    """Return the number of words; two characters count as one where no spaces are written, long words as several."""
    return max(len(text.split()) + count_unspaced(text) // 2, len(text) // _LONG_WORD)
