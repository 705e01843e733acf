"""The result of an answer: typed, read from where the answer states it, or none; and which results are the same.

What cannot be read for certain is no result: a wrong "the same" ends a turn with a false answer.
"""

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from massmem.core.notation import SYMBOLS, convert, find_quantities, match_quantity, remove_notes, simplify

_NOUN = (
    r"(?:answer|result|option|choice|letter|solution|antwort|ergebnis|lösung|réponse|résultat|respuesta|resultado|risposta|"
    r"resposta|ответ|відповідь|odpowiedź|odpověď|svar(?:et)?|antwoord|cevap|vastaus|răspuns(?:ul)?|válasz|đáp án)"
)
_HEAD = re.compile(
    rf"\b{_NOUN}[\"'*_]*(?:\s(?:to|of|for)\s[^.:!?\n]{{1,80}}?|\s(?:correcta|correcte|correta|corretta))?"
    r"(?:\s(?:is|are|was|ist|lautet|est|es|è|é|är|er|jest|este|là|(?<=dź )to|это|(?:would|must|should|will) be)\b"
    r"(?:\s(?:therefore|thus|then|hence|clearly|definitely|simply|indeed|now))*\s?:?|\s?[:=])\s*"
    r"|(?:答案|答え|解答|正解|回答|答|选|정답|답|(?:ال)?جواب|الإجابة|उत्तर|जवाब|תשובה)\s?"
    r"(?:(?:应该)?(?:是|为|為|は|은|는|هو|هي|है|选|=|:)|(?=[A-Z]\b))\s*"
    r"|(?:^|(?<=[.!?]\s))(?:so\s)?I(?:'d| would)?\s(?:choose|chose|pick|select|go with|say)\s",
    re.IGNORECASE | re.MULTILINE,
)
"""What stands before a result that is stated."""
_OPENING = re.compile(
    r"(?:.*(?:[.!?:;：。\n—]|,\s(?=so|but|thus|hence|therefore)|[，,](?=所以|因此)))?[\s>#*\"'_`(-]*"
    r"(?:(?:so|but|thus|hence|therefore|finally|sure|also|donc|I think|I believe|scratch that|wait|no|所以|因此)"
    r"[, ，]*)*(?:(?:the|my|our|this|die|das|der|la|le|el|il|o|a|de|het)\s|l')?"
    r"(?:(?:final|correct|right|best|numerical|option|choice|richtige|korrekte|bonne|правильный|最终|正确|正しい)\s?)*",
    re.IGNORECASE | re.DOTALL,
)
"""What stands before that and says no more: other sentences, and words that add nothing."""
_TAGGED = re.compile(r"(?i)<(?:final_)?answer>([^<]*)</|^####[ \t]*(\S.{0,200})\s*\Z", re.MULTILINE)
_RIGHT_ONE = re.compile(
    r"(?<!and )(?<!or )(?<!nor )\(?\b([A-Z])\)? (?:(?:is|must be) (?:the )?(?:correct|right|best)"
    r"(?: (?:answer|option|choice|one))?|fits|matches)\b"
)
_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_CARRIER = re.compile(
    r"(?:step \d+[:.)] )?(?:(?:so|thus|hence|therefore|then|well|finally|donc|entonces|also|in total|(?:al)?together|"
    r"insgesamt|zusammen|всего|итого|所以|因此)[, :]*)*(?:(?:I|we) (?:think|find|get|have|obtain)(?: that)?:? )?"
    r"(?:(?:it|that|this|which|the total) (?:is|was|makes|equals|comes to|gives|(?:would|must|should|has to) be)|it's|"
    r"that's|there (?:are|is|were)|c'est|es (?:ist|sind)|das (?:ist|macht|sind)|il y en a|son|sono|это)?:? ?"
    r"(?:(?:in|on) (?=\d))?(?:(?:(?:certainly|clearly|definitely|exactly|about|approximately|roughly|around|option|"
    r"choice|letter|la|the letter)\b\.?|≈|~(?=\s?[\d$€£])) ?)*(?:[A-Za-z](?:_\w+)?\s?=\s?(?=[^\s=]))?",
    re.IGNORECASE,
)
"""What stands before a result without saying more than the result does."""
_SUM = r"(?:[-+*/×().,^x\d$€£¥%\s]|plus|minus|times){3,80}?"
_LEAD = re.compile(
    rf"(?:{_SUM}=[^\n=,;]{{1,60}},\s(?:so\s)?)?(?:(?:(?:the|its|h(?:er|is)|their|our|der|die|das|le|la|el|il|o)\s)?"
    r"(?:(?:total|final)\s)?(?:total|sum|number|amount|area|volume|ratio|probability|change|difference|price|cost|distance|"
    r"speed|length|width|height|depth|weight|mass|age|time|temperature|product|average|mean|value|year|date|fläche|summe|"
    r"preis|(?:an)?zahl|somme|prix|nombre|suma|precio|número)(?:\s(?:of|for|von|de|des|del)\s(?:the\s)?\w+)?\s(?:is|are|was|"
    r"were|equals|ist|beträgt|est|es|è|é)|built|born|completed|finished|founded|invented|published|(?:ist|sind)\s(?:es|das)|"
    r"(?:(?:it|that|this|s?he|they|we|you|er|sie|es|das|wir|ils?|elles?|on|cela|(?-i:(?!N\w+body|N[eo]|Few|Some|Any|Maybe|"
    r"\w+ly\b)[A-Z][a-z]+))\s)?(?:ha[sd]|have|(?:cost|take|need|make|give|get|earn|pay|weigh|fold)s?|hat|haben|kostet|"
    r"dauert|macht|(?:er)?gibt|braucht|(?:il y|il|elle|on) a|ont|coûte|fait|reste|tiene|hay|cuesta|ci sono|ha|costa|"
    r"tem|стоит|(?:leaves|arrives)(?= at))|(?:一共|总共|全部で|合計|[它他她这])*[有是为共]?)[:\s]*(?:(?:in|on|at|en|le|"
    rf"am|um|в)\s)?(?:{_SUM}(?:=|\sis\s)\s?)?(?=(?:[^\w\s]*|[A-Z]{{3}}\s|minus\s|[A-Z][a-z]{{2,8}}\s)\d)",
    re.IGNORECASE,
)
"""What else does; any other word, being unknown, may make the number another one."""
_TAIL = re.compile(
    r"(?:(?!(?:perhaps|tops|besides|minus|plus|m(?:ax|in)(?:im\w+)?)\b)(?:\w+[sx]|cup|people|men|women|children|"
    r"(?-i:[A-ZÄÖÜ]\w+)|[а-яё]+(?:[оеё][вйкт]|[аяиы])|[个個本人名枚只年天日岁歳元円件次][^\W以多未余不超左强強]{0,3}|"
    r"[개명권살원])(?!\w))?(?:\s?(?:high|tall|long|wide|deep|old|left|remaining|each|total|in total|altogether|"
    r"away|übrig|insgesamt|hoch|en tout|en total|(?:of|de)\s(?:the\s)?[^\W\d]\w*|an? (?:day|week|month|hour))){0,2}"
    rf"(?:\s?\((?:(?:so (?!far)|see\b|as of |not \W*\d|[=≈])[^()]*|{'|'.join(_NUMBERS)})\))?"
    r"(?:(?:\s(?=because|weil|porque|parce)|[,，:;]\s?|\s[-—]\s?)(?:(?:because|since(?! \d{4}\b)|weil|da|denn|car|pues|"
    r"parce que|puisque|porque|ya que|perché|потому что|так как|omdat)\s|因为).*)?[\s.!\"'*)。]*",
    re.IGNORECASE | re.DOTALL,
)
"""What stands behind a result and leaves it as it is: what is counted or measured, a note, a reason."""
_LOOSE = re.compile(
    r"(?s)(?:in|at|by|after|per|on|for|of the|because|since)\b.*|(?!more|less|fewer)[^-+?#$%&*/<=>@^|~√\d]\D*|"
)
_RETRACTION = re.compile(
    r"(?:^|(?<=[.!?…,;:—-]\s))(?:no(?=[,.:!]| wait| sorry)|wait|hm+|actually|oops|sorry|scratch that|"
    r"corrected|correction|I (?:was wrong|forgot)|that(?:'s| is) (?:wrong|not right))\b[^\w\n]*",
    re.IGNORECASE | re.MULTILINE,
)
_REFUTED = re.compile(
    r"(?i)(?:[,;(]\s?(?:and )?(?:not(?! always| yet| entirely| sure| quite| exactly| \w+ing)|nicht|pas)|"
    r",?\s(?:rather than|instead of))\s(?![^.!?\n]*\bbut\b)[^.!?\n]*[.!?]*$"
)
_NOT_BUT = re.compile(r"\bnot\s[^.,;!?]{0,60}?,?\sbut\s(?:rather\s)?", re.IGNORECASE)
NEGATION = re.compile(r"(?i)\b(?:not|no|never|neither|nor|none|cannot|nicht|kein\w*|pas|jamais|не|nie)\b|n't\b|不|没")
_ASIDE = re.compile(r"(?<=\w)[,;]?\s\([^()]*\)|(?<=[.!?]\s)\([^()]*\)")
_SENTENCE = re.compile(r"(?<!\b[SDMR][trs]\.)(?<!\bMrs\.)(?<!\bNo\.)(?<!\b[A-Z]\.)(?<=[.!?])\s+(?=[^\sa-z])")
_STRAY = re.compile(r"(?!.*\b(\d+)\.\s\1\W*$).*[.!]\s(?=\W*\d)[\W\d]++$")
"""A number alone behind a sentence that neither asks for it nor has it."""
_LETTER = re.compile(
    r"[(\[]?([A-Z])(?:[)\]]+[.:]?|[.:](?=\s|$)|$|(?=,\s(?![A-Z]\b)|\s(?:because|since)\s))\s*(.*)|\(?([a-z])\)?()", re.S
)
_WORD = re.compile(
    r"(?!no\. ?\d)(yes|no|true|false|oui|non|ja|nein|sí|да|нет|sim|não|是|不是|はい|いいえ)"
    r"(?:$|[,.;:!。，—-]+(?:\s|$)(?!but\b|and no|and yes).*)|.*,? so (yes|no)", re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_PLAIN = re.compile(
    r"\W*\w+(?:[\W_]*|\W+(?:absolutely|definitely|certainly|of course|no problem)(?: at all)?\W*|\W+(?:because|"
    r"since|the|it|its|that|this|these|those|they|there|he|she|I do(?:n't| not) think so|all|every|both|ce|das|der|die|"
    r"es|er|sie|c'est|il|elle|porque|denn|weil|car|\d+|(?-i:[A-Z]\w+))(?!\w).*)", re.IGNORECASE | re.DOTALL,
)  # fmt: skip
"""Yes or no without a condition, by what may follow: nothing, a reason, or the claim itself."""
_CONDITION = re.compile(
    r"(?i)\?|\b(?:but|unless|if|provided|except\w*|theory|though|although|however|mostly|partly|only|usually|sometimes|"
    r"always|yet|until|when|while|depend\w*|assum\w*|as long as|conditions?|aber|nur|außer|teilweise|wenn|falls|"
    r"mais|sauf|si|pero|salvo|solo|ma|mas|но|если|только)\b|但|除|ただし"
)
_CONCESSION = re.compile(
    r"(?i)(?:\n|[.!?]\s)\W{0,9}(?:but|although|however|except|aber|mais|pero|sin embargo|однако|но|但)(?!\w)"
)
_YES, _NO = ("oui", "ja", "sí", "да", "sim", "是", "はい"), ("non", "nein", "нет", "não", "不是", "いいえ")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_MONTHS = ("", "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DATE = re.compile(r"(\d{4})-(0?[1-9]|1[0-2])-(\d\d?)")
_CODE = re.compile(
    r"(?<![\w.,:/^-])(?:(?P<time>\d\d?(?::\d\d){1,2}\s?[ap]\.?m\b\.?)|(?P<ratio>\d+(?:\s?:\s?\d+)+)"
    r"|(?P<version>v\d+(?:\.\d+)*|\d+(?:\.\d+){2,})|(?P<date>\d{4}-\d\d?-\d\d?|"
    r"\d\d?[./-]\d\d?[./-]\d{4}|"
    rf"(?:\d\d?(?:st|nd|rd|th|\.)?\s(?:of\s)?)?\b{_MONTH}\s\d+(?:st|nd|rd|th)?(?:,?\s\d{{4}})?|"
    r"\d\d?(?:st|nd|rd|th|\.)?\s(?:of\s)?(?:january|february|march|april|may|june|july|august|september|october|"
    r"november|december)))(?![\w^])",
    re.IGNORECASE,
)

_LONGEST = 300
"""Characters of a statement that may be more than a text."""
_LONGEST_OPENING = 150
"""Characters before a head that are looked at."""
_WINDOW = 3_000
"""Characters at the beginning and at the end of a long text, where results stand."""

Kind = Literal["number", "date", "time", "ratio", "version", "word", "letter"]


@dataclass(frozen=True, slots=True)
class Result:
    """What an answer comes to. A text is none: whether two texts say the same is more than code can tell."""

    kind: Kind
    """word: yes, no, true or false."""
    value: Fraction | str
    unit: str = ""
    """Of a number or a time, "" without one; see `Quantity`."""

    def __str__(self) -> str:
        return f"{_write(self.value) if isinstance(self.value, Fraction) else self.value} {self.unit}".strip()

    def differs(self, other: "Result") -> bool:
        """Whether it is certain that the two differ. 50 and 50 % may be the same, and 5 mi and 8 km."""
        if self.kind == other.kind == "word":
            return (self.value in ("yes", "true")) != (other.value in ("yes", "true"))
        if self.kind == other.kind == "date":
            days = [{*re.findall(r"\w+", str(one.value))} for one in (self, other)]
            is_open = ("/" in str(self.value)) != ("/" in str(other.value))
            return not (is_open or days[0] <= days[1] or days[1] <= days[0])
        one, two = self.convert(), other.convert()
        if self.unit != other.unit and one.unit == two.unit and one.kind == two.kind == "number":
            values = Fraction(one.value), Fraction(two.value)
            return 20 * abs(values[0] - values[1]) > max(map(abs, values))
        if self.kind != other.kind or self.value == other.value:
            return self.kind == other.kind and "" not in (self.unit, other.unit) and self.unit != other.unit
        return self.unit == other.unit or ("" in (self.unit, other.unit) and "%" not in (self.unit, other.unit))

    def convert(self) -> "Result":
        """Return it in the first unit of its kind, a time as `15:30`."""
        if isinstance(self.value, Fraction) and self.unit not in ("am", "pm"):
            return Result(self.kind, *convert(self.value, self.unit))
        hour, _, minutes = str(self.value).partition(":")
        if not (self.unit and hour.isdecimal()):
            return self
        return Result("ratio", f"{int(hour) % 12 + 12 * (self.unit == 'pm')}:{minutes or '00'}")


def _write(value: Fraction) -> str:
    """Return the number as plain digits where these have an end, else as a fraction."""
    digits = next((n for n in range(40) if 10**n % value.denominator == 0), None)
    if digits is None:
        return str(value)
    plain = str(abs(value.numerator) * 10**digits // value.denominator).zfill(digits + 1)
    return "-" * (value < 0) + (f"{plain[:-digits]}.{plain[-digits:]}" if digits else plain)


_ENDS = re.compile(r"^[\"'`_;:,¿¡]+(?=.)|(?<![\d\"'`*_;:!.,])[\"'`*_;:!.,]+$|(?<![\"'`*_;:.,])[\"'`*_;:.,]+$")


def normalise(text: str) -> str:
    """Return the text without what makes no difference: case, space, markup, notation, punctuation at words' ends."""
    text = re.sub(r"^\(?([A-Za-z])[).:]+\s(?=\S)", r"\1 ", text.strip())
    text = re.sub(r"\s?([=+*/^<>])\s?(?=\S)|(?<=\d)\s?(,)\s?(?=[\d-])", r"\1\2", simplify(text).casefold())
    words = re.sub(r"(?<=[^\W\d_])_(?=\d)", "", text).split()
    stripped = (word if word.isalnum() else _ENDS.sub("", word) for word in words)
    return " ".join(word for word in stripped if word)


@dataclass(frozen=True, slots=True)
class ShortAnswer:
    """The result of an answer."""

    key: str
    """Equal for two answers that differ in case, space, notation and punctuation alone.

    Of an answer that states its result, the result alone counts, however it was derived: `#### 42`, `\\boxed{42}`,
    `Answer: 42`, or a line that is nothing but a number, a letter, a date, yes, no, true or false.
    """
    result: Result | None = None
    """None: it is a text, has several results, or none that can be read for certain."""
    is_bare: bool = False
    """The answer states the result and nothing else."""
    last_line: str = ""
    """The result as it is stated."""


@lru_cache(256)  # a turn is folded again for each of its events
def read_short_answer(text: str, *, truncated: bool = False, graded: bool = False) -> ShortAnswer:
    """Return what the text comes to.

    truncated: its end is missing, and with it the result. graded: for comparing with a right answer: of several results
    the last one counts, as the text's last word.
    """
    if truncated:
        return ShortAnswer(normalise(text))
    if marked := _find_marked(text):
        return _read_statement(simplify(marked), text, graded=graded)
    plain = simplify(text if len(text) < 2 * _WINDOW else f"{text[:_WINDOW]}\n{text[-_WINDOW:]}").strip()
    heads = list(_HEAD.finditer(plain))
    known = [one for one in heads if _is_known_opening(plain, one.start())]
    if not graded and heads[-1:] != known[-1:]:
        return ShortAnswer(normalise(text))
    heads = known or heads
    tail = plain[heads[-1].end() if heads else 1 :]
    if (change := list(_RETRACTION.finditer(tail))) and not (heads and heads[-1][0].lower().startswith("i")):
        again = _read_plain(rest := tail[change[-1].end() :], text)
        if heads or again.is_bare or change[-1][0].lower() != "no, " or re.search(r"wrong|wait|mistake", rest):
            return again if again.is_bare else ShortAnswer(normalise(text))
    if not heads:
        return _read_plain(plain, text, graded=graded)
    stated = [_read_statement(_cut(plain[one.end() :]), text, one[0], graded) for one in heads]
    is_changed = graded or _RETRACTION.search(plain) or "but" in plain or "wrong" in plain
    differ = len({str(one.result) for one in stated if one.result}) > 1 and not is_changed
    last, rest, is_label = stated[-1], plain[heads[-1].end() :], heads[-1][0].endswith((": ", ":", "=", "= "))
    # "The best choice is not obvious. Take Kafka." is not all in its first sentence.
    goes_on = last.result is None and not is_label and normalise(rest) != normalise(_cut(rest))
    goes_on |= not graded and _CONCESSION.search(rest) is not None
    return ShortAnswer(normalise(text), last_line=last.last_line) if differ or goes_on else last


def _find_marked(text: str) -> str | None:
    """Return what a mark of a data set or a tag has in it, the last one."""
    start, depth = text.rfind("\\boxed{"), 0
    for end in range(start + 6, min(len(text), start + 2_000)) if start >= 0 else ():
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        if not depth:
            return text[start + 7 : end]
    tagged = _TAGGED.findall(text)
    return "".join(tagged[-1]) if tagged else None


def _cut(text: str) -> str:
    """Return the first sentence of the first line that has anything."""
    line = next((line for line in text.split("\n") if line.strip(" *:")), "")
    return _SENTENCE.split(line, maxsplit=1)[0]


def _undress(text: str) -> str:
    """Return the text without quotes, brackets and punctuation around it."""
    text = re.sub(r"(?:(?<![\d!])|(?<=\d!))!++$", "", text.strip().rstrip("。")).strip()
    text = re.sub(r"^(?:[>#\s*\"'`_]|-(?=\s)(?!\s[\d$€£.]))*(?=\S)", "", text)
    text = re.sub(r"(?<![\"'`*_\s])[\"'`*_\s]++\}?$|(?<!\.)\.++$", "", text)
    text = re.sub(r"\s?(?:です|である|입니다|है|이다)$", "", text)
    pair = re.fullmatch(r"[\[(]([^\[\](),]*+)[\])]", text)
    return (pair[1] if pair else text).strip()


def _is_known_opening(plain: str, end: int) -> bool:
    """Whether what stands before a head says no more than it; of a long sentence its end tells."""
    return _OPENING.fullmatch(plain, max(0, end - _LONGEST_OPENING), end) is not None


def _read_statement(statement: str, text: str, head: str = "", graded: bool = False) -> ShortAnswer:
    """Return what a stated result comes to; a text is compared as it is. head: what stands before it."""
    plain, result, is_bare = _read_result(statement, head, graded)
    if result is None:
        beside = _read_sentence(plain, graded=graded) if head and not re.search(r"^\d|,", plain) else None
        return ShortAnswer(normalise(plain) or normalise(text), beside, last_line=_undress(statement))
    return ShortAnswer(str(result) if is_bare else normalise(text), result, is_bare, plain)


def _read_plain(plain: str, text: str, *, graded: bool = False) -> ShortAnswer:
    """Return what a text without a stated result comes to."""
    lines = [re.sub(r"^\d{1,2}[.)] (?=[^\W\d])", "", line.strip()) for line in plain.split("\n") if line.strip(" *#>-")]
    whole = normalise(text)
    if not graded and lines and _STRAY.match(lines[-1]):
        return ShortAnswer(whole, last_line=lines[-1])
    parts = 3 if graded or not _CONCESSION.search(text.strip()) else 1
    for line in lines[-1:] + lines[: parts // 2]:
        sentences = _SENTENCE.split(line)
        for part in dict.fromkeys((line, sentences[0], sentences[-1])[:parts]):
            _, result, is_bare = _read_result(part, graded=graded)
            if is_bare or (result and len(lines) == 1 and part == line):
                return _read_statement(part, text, graded=graded)
    right = [one for one in _RIGHT_ONE.finditer(plain) if graded or _is_known_opening(plain, one.start())]
    if right and (graded or _TAIL.fullmatch(_cut(plain[right[-1].end() :]))):
        return ShortAnswer(right[-1][1].lower(), Result("letter", right[-1][1].lower()), True, right[-1][1])
    for line in lines[::-1] if graded else lines[-1:]:
        for sentence in _SENTENCE.split(line)[::-1][: None if graded else 1]:
            if (result := _read_sentence(sentence, graded=graded)) is not None:
                return ShortAnswer(whole, result, last_line=line)
    is_one = len(lines) == 1 == len(_SENTENCE.split(lines[0]))
    key = normalise(lines[0][_CARRIER.match(lines[0]).end() :]) if is_one else ""  # type: ignore[union-attr]
    return ShortAnswer(key or whole, last_line=lines[-1] if lines else "")


def _read_result(statement: str, head: str = "", graded: bool = False) -> tuple[str, Result | None, bool]:
    """Return the statement without what it rules out, its result, and whether it is nothing else."""
    stated = _NOT_BUT.sub("", _REFUTED.sub("", _undress(remove_notes(statement))))
    if len(stated) > _LONGEST:
        return stated, None, False
    return stated, *_read_short(_undress(stated[_CARRIER.match(stated).end() :]), head, graded)  # type: ignore[union-attr]


def _read_short(plain: str, head: str, graded: bool) -> tuple[Result | None, bool]:
    if plain.casefold() in _NUMBERS:
        return Result("number", Fraction(_NUMBERS.index(plain.casefold()))), True
    if letter := _LETTER.fullmatch(plain):
        rest = letter[2] or ""
        is_open = not _TAIL.fullmatch(plain[1:]) if plain[1:2] in (",", " ") else re.fullmatch(r"\w+ \W?[A-Z]\W*", rest)
        return (None, False) if is_open else (Result("letter", (letter[1] or letter[3]).lower()), not rest.strip(" ."))
    if word := _WORD.fullmatch(plain):
        name = (word[1] or word[2]).casefold()
        return Result("word", "yes" if name in _YES else "no" if name in _NO else name), word[2] is None
    if (code := _CODE.match(plain)) and _TAIL.fullmatch(plain[code.end() :]) and (result := _read_code(code[0])):
        return result, True
    if (quantity := match_quantity(plain, head)) is None:
        return None, False
    value, unit, end = quantity
    rest = plain[end:].strip()
    name = (
        "" if re.split(r"[/^]", unit)[0] in SYMBOLS else plain[end - len(unit) - bool(unit) : end].strip(" 0123456789")
    )
    is_known = _LOOSE.fullmatch(rest) if graded else _TAIL.fullmatch(f"{name} {rest}".strip())
    return (Result("number", value, unit), not rest.strip(".! ")) if is_known else (None, False)


def _read_code(text: str) -> Result | None:
    """Return the date, time, ratio or version that a text is; 1.234.567 is a number, and 9:00 am is 9 am."""
    code = _CODE.fullmatch(text.rstrip("."))
    if code is None or (code["version"] and match_quantity(text) is not None):
        return None
    kind: Kind = code.lastgroup  # type: ignore[assignment]
    value = re.sub(r"\s?:\s?", ":", code[0].casefold())
    value = re.sub(r"(?<=\d)(?:st|nd|rd|th|\.(?=\s))\b|\bof\s|,|^v(?=\d)|^0(?=\d:)|(?<=^\d\d:\d\d):00$", "", value)
    if kind == "date" and (day := _DATE.fullmatch(value)):
        value = f"{day[1]} {_MONTHS[int(day[2])]} {day[3]}"
    if kind == "date" and " " in value:  # in either order
        value = " ".join(sorted(re.sub(r"([a-z]{3})[a-z.]*|\b0(?=\d)", r"\1", value).split()))
    if half := re.fullmatch(r"(.*?)\s?([ap])\.?m\.?", value):
        hour = half[1].removesuffix(":00")
        unit = f"{half[2]}m"
        return Result("number", Fraction(hour), unit) if hour.isdecimal() else Result("time", half[1], unit)
    return Result(kind, value)


def _read_sentence(sentence: str, *, graded: bool) -> Result | None:
    """Return the only result in a sentence, or the one behind its last `is` or `=`."""
    sentence = remove_notes(_NOT_BUT.sub("", _REFUTED.sub("", sentence.strip())))
    if not graded:
        lead = _LEAD.match(sentence, _CARRIER.match(sentence).end())  # type: ignore[union-attr]
        return _read_short(sentence[lead.end() :], sentence[: lead.end()], graded)[0] if lead else None
    sentence = _ASIDE.sub("", sentence)
    if sentence.endswith("?") or NEGATION.search(sentence):
        return None
    codes = [code for match in _CODE.finditer(sentence) if (code := _read_code(match[0]))]
    bare = _CODE.sub(lambda match: "#" if _read_code(match[0]) else match[0], sentence)
    quantities = [Result("number", *quantity[:2]) for quantity in find_quantities(bare)]
    *_, end = re.split(r"\s(?:is|are|makes|equals|gives|to)\s|=", bare)
    closing = match_quantity(end.strip())
    if closing and not re.search(r"\d", end.strip()[closing[2] :]):
        return Result("number", *closing[:2])
    return (quantities or codes or [None])[-1]


def list_keys(answers: Mapping[str, ShortAnswer]) -> dict[str, str]:
    """Return a key for each answer to one question, by the keys of the mapping: equal for answers that are the same.

    Where one answer is a bare result, the others are about such a result too: `240 sheets of paper` and a text that
    ends in `which makes 240` are then the same as `240`. Without any, words that stand beside a number tell answers
    apart: `Paris, 1889` is not `London, 1889`. A bare number beside two units is the same as neither.
    """
    results = [answer.result for answer in answers.values() if answer.result]
    units = {one.convert(): one for one in results if one.unit}  # 1500 m is 1.5 km
    alike = [replace(a, result=a.result and units.get(a.result.convert(), a.result)) for a in answers.values()]
    return {name: _choose_key(answer, alike) for name, answer in zip(answers, alike, strict=True)}


def _is_plain(word: str) -> bool:
    """Whether an answer says yes or no without a condition."""
    stated = word[_CARRIER.match(word).end() :]  # type: ignore[union-attr]
    return not _WORD.match(stated) or (_PLAIN.fullmatch(stated) is not None and _CONDITION.search(stated) is None)


_FORM = re.compile(
    r"(?<![^\s\"'(`*])(-?[A-Za-z]{1,2}|[a-z]+[A-Z]\w*|[1-9]\.[1-46-9]0|[1-9]\d{0,2}\.\d\d0)[\s.!\"'*`)]*$"
)
"""What an answer ends in where its form counts: CO is not Co, -v not -V, and 3.10 may be a version beside 3.1."""


def _choose_key(answer: ShortAnswer, others: Sequence[ShortAnswer]) -> str:
    if answer.result and answer.result.kind == "word" and not _is_plain(answer.last_line):
        return normalise(answer.last_line)
    form = end[1] if (end := _FORM.search(answer.last_line[-100:])) else ""
    if (own := answer.result) is None:
        return f"{answer.key} {form}".strip()
    results = [(one.result, one.is_bare) for one in others if one.result]
    alike = [(one.unit, is_bare) for one, is_bare in results if (one.kind, one.value) == (own.kind, own.value)]
    if len({unit for unit, _ in alike if unit}) > 1:
        return str(own) if (own.unit, True) in alike else answer.key
    plain = form if "0" in form and not any(unit for unit, _ in alike) else str(Result(own.kind, own.value))
    return plain if any(is_bare for _, is_bare in alike) else answer.key


def read_choice(text: str, choices: Sequence[str]) -> str:
    """Return the letter that the text chooses, "" when it chooses none: the one it states, or whose words it has."""
    labels = string.ascii_uppercase[: len(choices)]
    answer = read_short_answer(text, graded=True)
    if answer.result and answer.result.kind == "letter":
        letter = str(answer.result.value).upper()
        return letter if letter in labels else ""
    for part in (answer.last_line, text):
        plain = _REFUTED.sub("", simplify(part).strip())
        named = [label for label, choice in zip(labels, choices, strict=True) if has_words(plain, choice)]
        if len(named) == 1:
            return "" if NEGATION.search(plain) else named[0]
    return ""


_SPACELESS = re.compile(r"[฀-๿຀-໿ក-៿\u3040-ヿ㐀-鿿가-힯]")
"""Letters of scripts without spaces between words, or with endings on them."""


def has_words(text: str, words: str) -> bool:
    """Whether a text has these words, apart from case and markup: whole ones, where the script shows where they end."""
    plain, words = (" ".join(simplify(one).casefold().split()) for one in (text, words))
    words = words.strip(".,;:!?") or words or "\0"
    before = r"(?<!\w)(?<!\d[.,:])" if words[0].isalnum() and not _SPACELESS.match(words[0]) else ""
    after = r"(?!\w)" if words[-1].isalnum() and not _SPACELESS.match(words[-1]) else ""
    return re.search(before + re.escape(words) + after + r"(?![.,:]\d)" * words[-1].isdecimal(), plain) is not None
