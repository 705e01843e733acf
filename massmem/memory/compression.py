"""Parts of a conversation that stay word for word, and sentences for a summary of the rest. Pure: no model, no log.

`find_cut` decides where the verbatim part begins, `select_sentences` takes the sentences that are worth most within a
budget, and `condense` makes several texts fit a room evenly. A text of any size is read in full: it is split, never
dropped.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from massmem.core.messages import ChatMessage
from massmem.core.prompts import parse_tool_results
from massmem.core.text import cut_excerpt
from massmem.memory.origins import label_tool
from massmem.memory.words import FRAME_WORDS, STOP_WORDS, split_words, stem

Count = Callable[[str], int]
"""Tokens of a text."""

LONGEST_PIECE = 400
"""Characters; a longer "sentence" (a table, encoded data) is cut at a space."""

_SENTENCE = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|(?<!\s)\s*\n\s*")
_PIECE = re.compile(r"\S(?:.{0,%d}(?=\s)|.{0,%d})" % (LONGEST_PIECE - 1, LONGEST_PIECE - 1), re.DOTALL)  # noqa: UP031 - braces
_WORD = re.compile(r"[^\W_]+")
# What a summary must not lose: numbers, codes, paths, addresses, quoted names.
_VALUE = re.compile(
    r"(?<![\w./:@-])[\w./:@-]*\d[\w./:@-]*|\b[A-Z]{2,}\b|[^\s/]{1,100}/\S+|[^\s@]{1,64}@[^\s@]{1,255}\.\w+|[\"'`“]\w[^\"'`”]{1,40}[\"'`”]"
)
_HUMP = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
_NAME = re.compile(r"(?<=[a-z,;:] )[A-Z][a-z]+")
_DECISION = re.compile(
    r"\b(?:must|never|always|don't|do not|should|prefer\w*|want\w*|need\w*|decid\w+|agree\w*|chose\w*|chosen|plan\w*"
    r"|remember|deadline|todo|instead|correct\w*|actually|chang\w+|no longer|found|works?|failed|error|because)\b",
    re.IGNORECASE,
)
_SPOKEN = re.compile(r"(User|You|System|Tool(?: [\w.-]+(?:, tool [\w.-]+)*)?): (.*)", re.DOTALL)
_SHORTEST_LINE = 3
"""Tokens below which no line fits."""

_VALUE_WORTH = 1.5
"""Words of a question that a number or a code in a line is worth."""

_SAID = 0.7
"""Part of a line's words that another text has when it says the same."""

_NEARLY_BEST = 0.6
"""Part of the best line's score that another line needs to be shown beside it."""

_MAX_SHOWN = 200
"""Characters of a line that is shown whole; of a longer one what stands around a word of the question."""

_SAME_WORDS = 5
"""Words from which two sentences that differ in their values only speak of the same thing."""


@dataclass(frozen=True, slots=True)
class Utterance:
    speaker: str
    """"User", "You", "Tool fetch"; "" for lines of an earlier summary."""
    text: str


@dataclass(slots=True)
class _Sentence:
    order: int
    speaker: str
    text: str
    words: list[str]
    score: float = 0.0


def find_cut(messages: Sequence[ChatMessage], tokens: Sequence[int], ratio: float, room: int) -> int:
    """Return the index of the first message that stays verbatim; len(messages) when none does.

    The newest messages stay, about `ratio` of their number and at most `room` tokens of them. What belongs together
    (a question and its answer, tool calls and their results) stays or goes together, and the oldest always goes.
    """
    starts = find_unit_starts(messages)
    most, used, first = math.ceil(ratio * len(messages)), 0, len(messages)
    for start in reversed(starts[1:]):
        used += sum(tokens[start:first])
        if used > room or len(messages) - first >= most:
            break
        first = start
    return first


def find_unit_starts(messages: Sequence[ChatMessage]) -> list[int]:
    """Return where each group of messages that belong together begins: at the first one and at every user message."""
    return [i for i, message in enumerate(messages) if i == 0 or message.role == "user"]


def to_utterances(messages: Iterable[ChatMessage]) -> list[Utterance]:
    """Return messages as texts with their speakers: results of tools without their frames. Calls are left out."""
    names = {"system": "System", "user": "User", "assistant": "You", "tool": "Tool"}
    utterances: list[Utterance] = []
    for message in messages:
        text = "\n".join(parse_tool_results(message.content)) or message.content
        tools = ", ".join(label_tool(name) for name in message.tool.split(", ") if name)
        utterances.append(Utterance(f"T{tools[1:]}" if tools else names[message.role], text))
    return [utterance for utterance in utterances if utterance.text.strip()]


def list_stems(text: str) -> frozenset[str]:
    """Return the stems of what a text is about: without words that only frame it, unless it has no others."""
    words = [word for word in split_words(_HUMP.sub(" ", text)) if word not in STOP_WORDS]
    return frozenset(map(stem, [word for word in words if word not in FRAME_WORDS] or words))


def weigh(stems: Collection[str]) -> int:
    """Return how much it means that two texts share these words: a number or a code counts as two."""
    return sum(2 if any(letter.isdigit() for letter in word) else 1 for word in stems)


def rate_line(line: str, stems: Collection[str]) -> float:
    """Return how much a line says on a question. stems: of the question."""
    hits = len(list_stems(line) & frozenset(stems))
    return hits + (_VALUE_WORTH if _VALUE.search(line) else 0.0)


def is_said_in(line: str, text: str) -> bool:
    """Return whether a text says what a line says: it has the same values, or most of the same words."""
    values = set(_VALUE.findall(line))
    if values and values <= set(_VALUE.findall(text)):
        return True
    words = list_stems(line)
    return len(words & list_stems(text)) >= _SAID * len(words)


def select_lines(text: str, stems: Collection[str], most: int) -> list[str]:
    """Return the lines or sentences of a text that carry words of a question, best first, at most so many.

    A word counts by how rare it is in the text. A heading brings the line below it. stems: of the question.
    """
    sentences = _split_sentences([Utterance("", text)])
    words = [list_stems(sentence.text) & frozenset(stems) for sentence in sentences]
    seen = Counter(word for hits in words for word in hits)
    for sentence, hits in zip(sentences, words, strict=True):
        if hits:
            worth = sum(math.log((len(sentences) + 1) / seen[word]) + 0.1 for word in hits)
            sentence.score = worth * (1 + bool(_VALUE.search(sentence.text))) / (4 + len(sentence.words)) ** 0.5
    best = sorted((s for s in sentences if s.score > 0), key=lambda s: (-s.score, s.order))[:most]
    return [_show_line(s, sentences, words) for s in best if s.score >= _NEARLY_BEST * best[0].score]


def cut_line(line: str, stems: Collection[str], limit: int) -> str:
    """Return about `limit` characters of a line, around the first word of a question. stems: of the question."""
    if len(line) <= limit:
        return line
    return cut_excerpt(line, [word for word in _WORD.findall(line) if list_stems(word) & frozenset(stems)], limit)


def _show_line(sentence: _Sentence, sentences: Sequence[_Sentence], hits: Sequence[frozenset[str]]) -> str:
    line = sentence.text
    if len(line) > _MAX_SHOWN:
        return cut_line(line, hits[sentence.order], _MAX_SHOWN)
    is_heading = line.startswith("#") or line.endswith(":")
    if is_heading and sentence.order + 1 < len(sentences):
        return f"{line} {sentences[sentence.order + 1].text}"
    return line


def select_sentences(
    texts: Sequence[Utterance], budget: int, count: Count, previous: str = "", question: str = ""
) -> str:
    """Return the sentences of the texts that say most, in their order, one a line, in at most `budget` tokens.

    previous: the summary of what came before, whose lines compete with the new ones; a line that is said again with
    another value (a number, a code) is out of date and goes, whichever of the two is taken.

    Sentences rank by the values and names in them, by words of decisions and wishes, by rarity of their words, by words
    of the question, and by who spoke: what a tool gave back comes last. A long one must be worth more. The rules are
    ours, the shape of it is Luhn's (1958): significant words.
    """
    sentences = _drop_outdated(_split_sentences([*(Utterance("", line) for line in previous.splitlines()), *texts]))
    _rate(sentences, list_stems(question))
    selected: list[_Sentence] = []
    left = budget
    for sentence in sorted(sentences, key=lambda s: (-s.score, s.order)):
        if left < _SHORTEST_LINE:
            break
        cost = count(_line(sentence)) + 1
        if cost <= left:
            selected.append(sentence)
            left -= cost
    return "\n".join(_line(s) for s in sorted(selected, key=lambda s: s.order))


def split_utterances(texts: Sequence[Utterance], most: int, count: Count) -> list[list[Utterance]]:
    """Return the texts in stretches of about `most` tokens; a longer text is split."""
    stretches: list[list[Utterance]] = [[]]
    used = 0
    for text in texts:
        for piece in split_text(text.text, most, count):
            size = count(piece)
            if stretches[-1] and used + size > most:
                stretches.append([])
                used = 0
            stretches[-1].append(Utterance(text.speaker, piece))
            used += size
    return stretches


def split_text(text: str, most: int, count: Count) -> list[str]:
    """Return the text in pieces of at most about `most` tokens, cut at line ends or spaces where there are any."""
    total = count(text)
    if total <= most:
        return [text]
    size = max(1, len(text) * most // total)
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = min(len(text), start + size)
        if end < len(text):
            half = start + size // 2
            breaks = (text.rfind(sign, half, end) for sign in "\n ")
            end = next((position + 1 for position in breaks if position >= 0), end)
        pieces.append(text[start:end])
        start = end
    return pieces


def abridge(text: str, budget: int, count: Count) -> str:
    """Return the text when it fits the budget, else its best sentences; at the least its beginning."""
    if count(text) <= budget:
        return text
    if best := select_sentences([Utterance("", text)], budget, count):
        return best
    while text and count(text) > budget:
        text = text[: len(text) * budget // (count(text) + 1)]
    return text


def condense(texts: Sequence[str], room: int, count: Count) -> list[str]:
    """Return the texts in at most `room` tokens together: short ones stay whole, long ones shrink to the same size."""
    sizes = [count(text) for text in texts]
    share, left, open_ = 0, room, sorted(sizes)
    while open_:
        share = left // len(open_)
        if open_[0] > share:
            break
        left -= open_.pop(0)
    return [
        text if size <= share or not open_ else abridge(text, share, count)
        for text, size in zip(texts, sizes, strict=True)
    ]


def _split_sentences(texts: Sequence[Utterance]) -> list[_Sentence]:
    sentences: list[_Sentence] = []
    for text in texts:
        for sentence in _SENTENCE.split(text.text):
            for piece in [sentence] if len(sentence) <= LONGEST_PIECE else _PIECE.findall(sentence):
                line = " ".join(piece.split())
                if words := _WORD.findall(line.lower()):
                    sentences.append(_Sentence(len(sentences), text.speaker, line, words))
    return sentences


def _drop_outdated(sentences: Sequence[_Sentence]) -> list[_Sentence]:
    """Leave out sentences that are said again later, word for word or with another last value."""
    topics = [_topic(sentence) for sentence in sentences]
    latest = {topic: sentence.order for topic, sentence in zip(topics, sentences, strict=True)}
    return [s for topic, s in zip(topics, sentences, strict=True) if latest[topic] == s.order]


def _topic(sentence: _Sentence) -> tuple[str, ...]:
    """Return the topic of a sentence: all but its last value, which is mostly what it tells ("the code is AB-1").

    Earlier values tell what it is about ("item 7 costs 5 euros").
    """
    # A line of an earlier summary names its speaker in its text.
    spoken = None if sentence.speaker else _SPOKEN.match(sentence.text)
    text = spoken[2] if spoken else sentence.text
    values = _VALUE.findall(text)
    words = _WORD.findall(_VALUE.sub(" ", text).lower())
    return (*words, *values[:-1]) if len(words) >= _SAME_WORDS else tuple(sentence.words)


def _rate(sentences: Sequence[_Sentence], question: frozenset[str]) -> None:
    seen = Counter(word for sentence in sentences for word in set(sentence.words))
    total, has_tools = len(sentences), any(s.speaker.startswith("Tool") for s in sentences)
    for index, s in enumerate(sentences):
        rarity = sum(math.log((total + 1) / seen[w]) for w in s.words) / len(s.words) / math.log(total + 2)
        values = min(3, len(_VALUE.findall(s.text)))
        names = min(2, len(_NAME.findall(s.text)))
        worth = 1.0 * values + 0.5 * names + 1.5 * bool(_DECISION.search(s.text)) + 2.0 * rarity
        worth += 1.0 * (s.speaker == "User") + 0.5 * s.text.endswith("?") + 1.0 * (not s.speaker) + 0.5 * index / total
        worth += 1.5 * (has_tools and s.speaker == "You")
        worth += min(3, len(question & list_stems(s.text))) if question else 0
        s.score = worth / (4 + len(s.words)) ** 0.5


def _line(sentence: _Sentence) -> str:
    return f"{sentence.speaker}: {sentence.text}" if sentence.speaker else sentence.text
