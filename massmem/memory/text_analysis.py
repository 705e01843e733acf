"""Text analysis for the memory index: words, stems, passages, sparse vectors. Pure; the only state is a cache."""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import Stemmer

PASSAGE_WORDS = 30
"""One or two sentences: small enough to show many different messages, large enough to make sense alone."""

LONGEST_SENTENCE = 45
"""Words; a longer "sentence" (code, lists, tables) is cut at a comma or a space."""

BM25_K1, BM25_B = 1.2, 0.75
"""The usual values; 0.8 to 2.0 and 0.4 to 0.9 recall the same."""

TYPICAL_TERMS = 13.0
"""Content words of a typical passage: a constant, so that adding one memory changes no other."""

STOP_WORDS = frozenset(
    """
    a an the this that these those of to in on at by for with from as into about over after before during between
    through under up down out off again then than so too very just also only even still and or but nor if because while
    although though until unless is am are was were be been being do does did doing done have has had having will would
    shall should can could may might must i me my mine myself we us our ours ourselves you your yours yourself he him
    his himself she her hers herself it its itself they them their theirs themselves what which who whom whose when
    where why how there here not no yes any some all both each few more most other such own same s t d ll m re ve don't
    doesn't didn't isn't aren't wasn't weren't hasn't haven't hadn't won't wouldn't shouldn't couldn't can't i'm i've
    i'll i'd it's that's what's let's you're tell say said mention mentioned talk talked ask asked discuss discussed
    discussion conversation conversations chat know get got getting got go going went like likely make made thing things
    something anything lot really please kind sort type many much ever give given across throughout
    """.split()  # noqa: SIM905 - a list literal of this length reads badly
)

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

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
# A sentence ends at . ! ? before a space (not after a list number or a short abbreviation), or at a line break.
_SENTENCE = re.compile(
    r"(?<=[.!?…])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\be\.g\.)(?<!\bi\.e\.)\s+"
    r"|(?<=[。！？])|\s*\n\s*"
)
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")  # kana and Han, written without spaces
_TIME = re.compile(
    r"\b(yesterday|today|tonight|tomorrow|ago|last|next|since|recently|(?:week|month|year)s?|weekend"
    r"|(?:mon|tues|wednes|thurs|fri|satur|sun)day|january|february|march|april|june|july|august"
    r"|september|october|november|december|may \d|\d{4})\b"
)


def split_words(text: str) -> list[str]:
    """Lower-case words and numbers; split at underscores; Chinese and Japanese as pairs of characters."""
    words: list[str] = _WORD.findall(text.lower().replace("’", "'"))
    if text.isascii():
        return words
    return [part for word in words for part in _split_unspaced(word)]


def _split_unspaced(word: str) -> list[str]:
    if not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(max(1, len(word) - 1))]


@lru_cache(50_000)
def stem(word: str) -> str:
    """Snowball stem of a lower-case word; a possessive 's is dropped."""
    # A stemmer is not safe to share between threads; making one costs 1 us, and the cache sees most words.
    stemmer = Stemmer.Stemmer("english", 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    return str(stemmer.stemWord(word.removesuffix("'s").replace("'", "")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def extract_terms(text: str) -> list[str]:
    """Stems of the content words, in order, with repetitions."""
    return [stem(word) for word in split_words(text) if word not in STOP_WORDS]


def extract_query_terms(text: str) -> list[str]:
    """Distinct stems to look for; the words that only frame the request are dropped unless nothing else is left."""
    content = [word for word in split_words(text) if word not in STOP_WORDS]
    subject = [word for word in content if word not in FRAME_WORDS] or content
    return list(dict.fromkeys(stem(word) for word in subject))


def has_time(text: str) -> bool:
    """Return whether the text says when something happened."""
    return _TIME.search(text.lower()) is not None


def is_question(text: str) -> bool:
    return text.rstrip(" \"')*").endswith("?")


def term_id(term: str) -> int:
    """Return the index of a term in the sparse vector: a hash, so that no vocabulary has to be stored."""
    return zlib.crc32(term.encode())


def build_document_vector(terms: Sequence[str]) -> dict[int, float]:
    """Return BM25 weights of a passage's terms without the IDF, which the index applies when it is searched."""
    counts: dict[int, int] = {}
    for term in terms:
        index = term_id(term)
        counts[index] = counts.get(index, 0) + 1
    norm = length_norm(len(terms)) - 1
    return {index: n * (BM25_K1 + 1) / (n + norm) for index, n in counts.items()}


def length_norm(term_count: int) -> float:
    """Return what BM25 divides by for a word that occurs once in a text of so many terms."""
    return 1 + BM25_K1 * (1 - BM25_B + BM25_B * term_count / TYPICAL_TERMS)


def build_query_vector(terms: Sequence[str]) -> dict[int, float]:
    """Return a weight of 1 for every term; the index weighs it by its IDF."""
    return {term_id(term): 1.0 for term in terms}


def split_sentences(text: str) -> list[str]:
    """Return the sentences and lines of a text, without the blanks between them."""
    return [stripped for sentence in _SENTENCE.split(text) if (stripped := sentence.strip())]


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
    words = _cut_words(sentence)
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


def _cut_words(sentence: str) -> list[str]:
    """Return the words of a sentence, none longer than _LONGEST_WORD."""
    return [word[i : i + _LONGEST_WORD] for word in sentence.split() for i in range(0, len(word), _LONGEST_WORD)]


def _find_cut(head: Sequence[str]) -> int:
    """Return how many of these words to take: up to the last comma in their second half, else all."""
    half = len(" ".join(head)) // 2
    for count in range(len(head) - 1, 0, -1):
        if head[count - 1].endswith((",", ";", ":", ")")):
            return count if len(" ".join(head[:count])) > half else len(head)
    return len(head)


def _count_words(text: str) -> int:
    """Return the number of words; two characters count as one where no spaces are written, long words as several."""
    unspaced = 0 if text.isascii() else sum(len(run) for run in _UNSPACED.findall(text))
    return max(len(text.split()) + unspaced // 2, len(text) // _LONG_WORD)
