"""What voters criticise, and the letters by which they call the answers: each reader has these in an order of its own.

A letter becomes a name where a text is stored, and the letter of its reader where an agent is shown it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

_LABEL = re.compile(
    r"\b(?i:answer|response|candidate|antwort|réponse|respuesta)(?:[\s:*]{1,3}([A-Z]{1,2})\b|\s*\(([A-Z]{1,2})\))"
    r"|(?<![\w.'’/+&°-])([A-HJ-Z]|[A-Z]{2})(?![\w/+#&-]|\.\w)"
)
"""A letter behind a word for an answer, or alone."""
_ARTICLE = re.compile(r" (?!(?:and|or|is|hat|ist|nennt|est)\b|(?!series|means|bias|gas)[a-z]+(?<![sui])s\b)[a-z]")
"""What follows an article: a word in small letters that is no verb."""


@dataclass(frozen=True, slots=True)
class Criticism:
    agent_id: str
    text: str
    seen: int
    """Number of the newest answer that it is about."""
    choice: str
    """The agent whose answer was voted for; "": a new answer was given."""


def build_label(index: int) -> str:
    """Return A for 0, Z for 25, AA for 26, as spreadsheets name columns."""
    text = ""
    while index >= 0:
        text = chr(ord("A") + index % 26) + text
        index = index // 26 - 1
    return text


def name_labels(text: str, names: Mapping[str, str], question: str = "", answers: Iterable[str] = ()) -> str:
    """Return a text about answers with a name in the place of each letter that certainly stands for an answer.

    A letter that the question uses, too, is none, nor is one alone that an answer uses. names: by letter.
    """
    asked = _list_letters(question)
    find_used = cache(lambda: asked.union(*map(_list_letters, answers)))  # few texts have letters alone

    def name(match: re.Match[str]) -> str:
        label, alone = match[1] or match[2] or match[3], bool(match[3])
        is_other = alone and (label in find_used() or _is_article(match))
        return match[0] if is_other or label in asked else names.get(label, match[0])

    return _LABEL.sub(name, text)


def replace_names(text: str, labels: Mapping[str, str]) -> str:
    """Return a text with what stands for each of these names, the longest first."""
    names = "|".join(map(re.escape, sorted(labels, key=len, reverse=True)))
    return re.sub(rf"(?<!\w)(?:{names})(?!\w)", lambda match: labels[match[0]], text) if labels else text


def _list_letters(text: str) -> set[str]:
    return {match[3] for match in _LABEL.finditer(text) if match[3] and not _is_article(match)}


def _is_article(match: re.Match[str]) -> bool:
    """Return whether `A` begins a sentence, and is no subject there."""
    begins = re.search(r"(?:^|[.:;!?\"“—–-])\s*$", match.string[: match.start()])
    return match[0] == "A" and begins is not None and _ARTICLE.match(match.string, match.end()) is not None
