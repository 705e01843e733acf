"""Words, their forms and the language of a text; passages and sparse vectors of them. Pure; the only state is caches.

The first form of a word is the same whatever else is known of it. Its other forms stand beside it and never in its
place, so that an index that was made without them goes on answering. A wrong guess of the language costs little: the
forms that it adds stand beside those that every word has.
"""

import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path

import Stemmer


@cache
def read_sections(file: Path) -> Mapping[str, list[str]]:
    """Return the lines of each section of a file of wordings, by what stands before the colon of its heading."""
    sections = re.findall(
        r"^\[([^:\]\n]+)(?::[^\]\n]*)?\]\n((?:.+\n)+)", file.read_text(encoding="utf-8"), re.MULTILINE
    )
    return {name: lines.splitlines() for name, lines in sections}


@cache
def read_wordings(file: Path) -> Mapping[str, re.Pattern[str]]:
    """Return for each section what finds one of its wordings; for those without named groups, which stand alone."""
    joined = {name: "|".join(lines) for name, lines in read_sections(file).items()}
    return {name: re.compile(text, re.I | re.M) for name, text in joined.items() if "(?P<" not in text}


_READ = 1_000
"""Characters of a text that are looked at: the language of a message shows in its first sentences."""

ENGLISH = "english"

_FUNCTION_WORDS = {
    ENGLISH: "the of and is are was to that this with for it you we they my your what how where when who did do does "
    "have has had not but from which why a an i in on at be or so by as if me no can will he she his her our us am per",
    "german": "der das und ist in was so nicht ich ein eine einen einem mit für auf auch wir sie wie wo wann wer dass "
    "wurde habe hat mein meine meinen unser welche welcher welches den dem des zu im am vom zum",
    "french": "le les des et est une dans que qui pour pas sur je nous vous avec mon ma mes quel quelle où quand "
    "comment du au aux ce cette son sa ses ont il elle leur",
    "spanish": "el los las es una en que por con para no se del mi mis qué cuál cómo dónde cuándo quién su sus lo "
    "pero está hay nuestro nuestra tiene fue al",
    "italian": "il gli è una che per con non di sono mio mia della del dei nel nella quale come dove quando chi "
    "cosa ho ha abbiamo lo più anche ai alla",
    "portuguese": "os as é uma que em não por com para meu minha do da dos das no na qual como onde quando quem "
    "são foi ao eu você seu sua nosso",
    "dutch": "in is de het een en van ik niet dat met voor zijn op aan mijn wat hoe waar wanneer wie heeft heb ook "
    "naar ons welke bij wordt",
    "swedish": "och att det som en är jag inte på med för av till har min mitt mina vad hur var när vem den ett vi "
    "från också vilken",
    "danish": "og at det som en er jeg ikke på med for af til har min mit mine hvad hvordan hvor hvornår hvem den et "
    "vi fra også hvilken blev",
    "norwegian": "og at det som en er jeg ikke på med for av til har min mitt mine hva hvordan hvor når hvem den et "
    "vi fra også hvilken ble",
    "finnish": "ja on ei se että hän minä mutta ovat oli kun niin missä milloin kuka mikä miten minun meidän joka "
    "myös kanssa",
    "polish": "nie na się że do jest jak co to mój moja gdzie kiedy kto który jaki dla po od są był była mam",
    "czech": "na se je že do jak co můj moje kde kdy kdo který jaký pro po od jsou byl byla mám jsem není",
    "hungarian": "az és nem hogy egy van volt mit hol mikor ki hogyan melyik én mi meg is ez csak már",
    "romanian": "și în nu la cu de este pe un mea meu ce unde când cine cum din pentru sunt am fost lui",
    "turkish": "ve bir bu da de için ile ne nerede nasıl kim hangi benim bizim çok var değil mi olan daha",
    "catalan": "el els les és una amb per no que del meu meva què quin quina com on quan qui són va als dels",
    "indonesian": "yang dan di itu dengan untuk tidak ini dari saya kami apa bagaimana mana kapan siapa adalah akan "
    "pada ke",
}
_LANGUAGES_OF_WORD: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _word in _words.split():
        _LANGUAGES_OF_WORD.setdefault(_word, []).append(_language)

_SCRIPTS = {
    "russian": re.compile("[\u0400-\u04ff]"),
    "greek": re.compile("[\u0370-\u03ff]"),
    "arabic": re.compile("[\u0600-\u06ff]"),
    "hindi": re.compile("[\u0900-\u097f]"),
    "tamil": re.compile("[\u0b80-\u0bff]"),
    "armenian": re.compile("[\u0530-\u058f]"),
}
_LAST_LATIN = "\u024f"
_PERSIAN = re.compile("[پچژگی]")
_LETTERS = re.compile(r"[^\W\d_]+")


def is_english(text: str) -> bool:
    """Return whether nothing speaks for another language than English: no function words, no other script."""
    letters = "".join(_LETTERS.findall(text[:_READ]))
    in_latin = sum(letter <= _LAST_LATIN for letter in letters)
    return 2 * in_latin >= len(letters) and guess_language(text) == ENGLISH


@lru_cache(1_000)
def guess_language(text: str) -> str:
    """Return the name of a Snowball stemmer; "english" when nothing speaks for another one.

    The script decides, and among languages in Latin letters the one with most function words; English when it has as
    many.
    """
    start = text[:_READ].lower()
    words: list[str] = _LETTERS.findall(start)
    if not start.isascii():
        letters = sum(map(len, words))
        for language, script in _SCRIPTS.items():
            if 2 * len(script.findall(start)) > letters:
                return "persian" if language == "arabic" and _PERSIAN.search(start) else language
    counts = dict.fromkeys(_FUNCTION_WORDS, 0)
    for word in words:
        for language in _LANGUAGES_OF_WORD.get(word, ()):
            counts[language] += 1
    return max(counts, key=counts.__getitem__)  # of equal ones the first, which is English


STOP_WORDS = frozenset(
    """
    a an the this that these those of to in on at by for with from as into about over after before during between
    through under up down out off again then than so too very just also only even still and or but nor if because while
    although though until unless is am are was were be been being do does did doing done has have had having will would
    shall should can could may might must i me my mine myself we us our ours ourselves you your yours yourself he him
    his himself she her hers herself it its itself they them their theirs themselves what which who whom whose when
    where why how there here not no yes any some all both each few more most other such own same s t d ll m re ve don't
    doesn't didn't isn't aren't wasn't weren't hasn't haven't hadn't won't wouldn't shouldn't couldn't can't i'm i've
    i'll i'd it's that's what's let's you're tell say said mention mentioned talk talked ask asked discuss discussed
    discussion conversation conversations chat know get got getting got go going went like likely make made thing things
    something anything lot really please kind sort type many much ever give given across throughout
    """.split()  # noqa: SIM905 - a list literal of this length reads badly
)


def is_function_word(word: str, language: str) -> bool:
    """Return whether a lower-case word says nothing of what a text in the language is about."""
    return word in STOP_WORDS if language == ENGLISH else language in _LANGUAGES_OF_WORD.get(word, ())


_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670"
"""Accents, and the vowel signs of Hebrew and Arabic: they are left out of a form that is written without them."""
_INDIC = "\u0900-\u0963\u0966-\u0dff"
"""Letters and signs of the scripts of India: signs are part of their words."""
_WORD = re.compile(rf"(?:[^\W_]|[{_INDIC}])(?:[^\W_]|[{_MARKS}{_INDIC}])*(?:'[^\W_]+)?")
_COMPOUND = re.compile(r"(?<![^\W_])[^\W_]++(?:[-_]++[^\W_]++)+")
_NUMBER = re.compile(r"(?<![^\W_])(\d+(?:[.,']\d+| \d{3}(?!\d))*)([^\W\d_]*)(?![^\W_])")
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_SIGNS = re.compile(f"[{_MARKS}]+")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]+")  # kana and Han, written without spaces
_WITHOUT_SIGNS = str.maketrans({"ø": "o", "đ": "d", "ł": "l", "æ": "ae", "œ": "oe", "ı": "i", "þ": "th", "ð": "d"})
_IN_TWO_LETTERS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_NO_UNITS = STOP_WORDS | {"st", "nd", "rd", "th"}
_ALPHABETS = ("abcdefghijklmnopqrstuvwxyz", "абвгдежзийклмнопрстуфхцчшщъыьэюя", "αβγδεζηθικλμνξοπρστυφχψως")

_LONGEST_COMPOUND = 60
"""Characters; what is longer (encoded data) is no name that anybody asks for."""

_LONGEST_NUMBER = 16


def split_words(text: str) -> list[str]:
    """Lower-case words and numbers; split at underscores; Chinese and Japanese as pairs of characters."""
    text = _normalise(text)
    words: list[str] = _WORD.findall(text.lower())
    return words if text.isascii() else [part for word in words for part in _split_unspaced(word)]


def _normalise(text: str) -> str:
    """Return the text with one way to write each character (NFKC), and plain apostrophes."""
    return text if text.isascii() else unicodedata.normalize("NFKC", text).replace("’", "'")


def _split_unspaced(word: str) -> list[str]:
    if not _UNSPACED.search(word):
        return [word]
    return [word[i : i + 2] for i in range(max(1, len(word) - 1))]


def count_unspaced(text: str) -> int:
    """Return how many characters of the text are written without spaces between words."""
    return 0 if text.isascii() else sum(len(run) for run in _UNSPACED.findall(text))


@lru_cache(50_000)
def stem(word: str, language: str = ENGLISH) -> str:
    """Snowball stem of a lower-case word; a possessive 's is dropped."""
    # A stemmer is not safe to share between threads; making one costs 1 us, and the cache sees most words.
    stemmer = Stemmer.Stemmer(language, 0)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - untyped
    return str(stemmer.stemWord(word.removesuffix("'s").replace("'", "")))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def extract_forms(text: str, language: str = "", drop: frozenset[str] = frozenset()) -> list[tuple[str, ...]]:
    """Return the terms that each content word is found by, in order; then those of names and numbers as wholes.

    language: of the text; "": as it is guessed. drop: words to leave out besides STOP_WORDS.
    """
    text = _normalise(text)
    language = language or guess_language(text)
    words: list[str] = _WORD.findall(text)
    if not text.isascii():
        words = [part for word in words for part in _split_unspaced(word)]
    forms = [
        _forms_of(word, language) for word in words if (lower := word.lower()) not in STOP_WORDS and lower not in drop
    ]
    return [*forms, *_compounds(text), *_numbers(text)]


@lru_cache(50_000)
def _forms_of(word: str, language: str) -> tuple[str, ...]:
    lower = word.lower()
    forms = [stem(lower)]
    if not lower.isascii():
        forms.append(stem(fold(lower)))
        if (in_two_letters := lower.translate(_IN_TWO_LETTERS)) != lower:
            forms.append(stem(fold(in_two_letters)))
    if language != ENGLISH:
        forms.append(fold(stem(lower.rpartition("'")[2] or lower, language)))  # l'école: école
    humps = _HUMP.split(word)
    if len(humps) > 1:
        forms += [stem(part) for hump in humps if (part := hump.lower()) not in STOP_WORDS]
    return tuple(dict.fromkeys(forms))


@lru_cache(10_000)
def fold(word: str) -> str:
    """Return a lower-case word without accents and other signs on its letters."""
    if word.isascii() or _UNSPACED.search(word):
        return word
    plain = _SIGNS.sub("", unicodedata.normalize("NFKD", word.translate(_WITHOUT_SIGNS)).casefold())
    return unicodedata.normalize("NFC", plain)


def _compounds(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the whole of each word in several parts: "loadconfig" for load_config, "checkin" for check-in."""
    if "_" in text or "-" in text:
        for compound in _COMPOUND.findall(text):
            if len(compound) <= _LONGEST_COMPOUND and not compound[0].isdigit():
                yield (stem(fold(compound.lower().replace("_", "").replace("-", ""))),)


def _numbers(text: str) -> Iterator[tuple[str, ...]]:
    """Yield the value of each number with separators or a unit, and the unit: "1000" for 1,000 and 1k; "5", "kg"."""
    for number, unit in _NUMBER.findall(text):
        if number.isdigit() and not unit:
            continue
        *groups, last = re.split(r"[.,' ]", number)
        decimals = f".{last}" if groups and len(last) != 3 else ""
        value = "".join(groups) + (decimals or last)
        unit = unit.lower()
        if unit == "k" and len(value) < _LONGEST_NUMBER:
            yield (f"{round(float(value) * 1000)}",)
        yield (value, stem(fold(unit))) if unit and unit not in _NO_UNITS else (value,)


def respell(word: str) -> set[str]:
    """Return every word that is one edit away from a lower-case word: a letter more, less or another, two swapped."""
    letters = next((alphabet for alphabet in _ALPHABETS if word[0] in alphabet), "")
    splits = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    fewer = {head + tail[1:] for head, tail in splits if tail}
    swapped = {head + tail[1] + tail[0] + tail[2:] for head, tail in splits if len(tail) > 1}
    others = {head + letter + tail[1:] for head, tail in splits if tail for letter in letters}
    more = {head + letter + tail for head, tail in splits for letter in letters}
    return (fewer | swapped | others | more) - {word}


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


def split_passages(text: str, alone: Sequence[str] = ()) -> list[str]:
    """Split into whole sentences of about PASSAGE_WORDS words, a heading with what follows; `alone` by themselves."""
    if alone and alone[0] in text:
        before, sentence, behind = text.partition(alone[0])
        return [*split_passages(before), sentence, *split_passages(behind, alone[1:])]
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
