"""What makes a statement a fact that can be stored: clean, short, about the world, grounded, and new. Pure."""

import re
import unicodedata
from collections.abc import Iterable

from massmem.memory.quoting import LONGEST_FACT, to_one_line

SHORTEST_FACT = 10
"""Characters; what is shorter says nothing by itself."""

STEM = 5
"""First letters by which two forms of a word are taken for the same."""

# What frames recalled memories and other agents' answers in our prompts, and chat templates in a model's own input.
_FRAMES = re.compile(
    r"[\[［【]\s?from\b[^\[\]［］【】]{0,100}?\bturn\s?\d{1,9}\s?[\]］】]"
    r"|\brelevant memories(?: of earlier work, quoted\b[^:]{0,120})?\s?:"
    r"|[<＜]\s?/?\s?(?:answer|memor(?:y|ies))\b[^<>＜＞]{0,200}[>＞]"
    r"|<\|[^<>|]{1,40}\|>|\[/?INST\]|<</?SYS>>",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?…。！？](?=[\"')\]]?(?:\s|$))|[。！？]")
_TERMINAL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_AROUND_WORDS = ".,;:!?…\"'`´‘’“”„«»()[]{}*_。、！？"

# Not knowledge, however often a model is told to leave it out: ballots, and one answer held against another.
_ABOUT_THE_COUNCIL = re.compile(
    r"\bvot(?:e|es|ed|ing)\b.{0,40}\b(?:answer|agent|candidate)s?\b"
    r"|\b(?:answer|agent|candidate)s?[ _][a-z\d]\b(?:'s \w+)?.{0,30}\b(?:is|are|was|were)\b.{0,20}"
    r"\b(?:better|worse|best|stronger|weaker|preferable|superior)\b"
    r"|\breasons? (?:for|behind|of) (?:the |this |my )?vot(?:e|ing)\b",
    re.IGNORECASE,
)


def clean_fact(text: str) -> str:
    """Return the text as one line, cut to length, without control characters and what could pose as part of a prompt.

    Return "" when nothing is left.
    """
    line = to_one_line(_TERMINAL.sub("", text))
    while (less := " ".join(_FRAMES.sub(" ", line).split())) != line:
        line = less  # what is left may close up to a marker again
    return cut_text(line, LONGEST_FACT)


def cut_text(text: str, longest: int) -> str:
    """Cut a text to `longest` characters: after a sentence, else at a space and with an ellipsis."""
    if len(text) <= longest:
        return text
    head = text[:longest]
    ends = [match.end() for match in _SENTENCE_END.finditer(head + text[longest])]
    if ends and ends[-1] >= longest // 4:
        return head[: ends[-1]].rstrip()
    words = head[: longest - 1].rsplit(" ", 1)[0] if " " in head[longest // 2 :] else head[: longest - 1]
    return f"{words.rstrip()}…"


def cut_middle(text: str, longest: int, remark: str = "") -> str:
    """Cut a text to its beginning and its end, together `longest` characters. remark: stands where the rest was."""
    head, tail = 2 * longest // 3, longest // 3
    left_out = len(text) - head - tail
    return text if left_out <= 0 else f"{text[:head]}\n[{left_out:,} characters left out{remark}]\n{text[-tail:]}"


def is_knowledge(text: str) -> bool:
    """Whether the text says something about the world, and not about who voted for which answer."""
    return len(text) >= SHORTEST_FACT and not _ABOUT_THE_COUNCIL.search(text)


def is_grounded(text: str, messages: Iterable[str]) -> bool:
    """Whether every third telling word of the text, by its first letters, is in the messages.

    Small models also write down the examples of their prompt, or what they know themselves.
    """
    known = {word[:STEM] for message in messages for word in find_telling_words(message)}
    words = [word[:STEM] for word in find_telling_words(text)]
    return 3 * sum(word in known for word in words) >= len(words)


def find_telling_words(text: str) -> set[str]:
    """Return the words that tell what a text is about: long ones, and those with digits or signs."""
    return {word for word in normalize_fact(text).split() if len(word) > 3 or not word.isalpha()}


def normalize_fact(text: str) -> str:
    """Return a form that is equal for facts that differ only in case, spaces, Unicode form or punctuation.

    Signs that carry meaning stay: C++ is not C, and -5 is not 5.
    """
    words = unicodedata.normalize("NFKC", text).casefold().split()
    return " ".join(word for part in words if (word := part.strip(_AROUND_WORDS)))
