"""Links what the user said to what the user said later about the same subject, in whatever words. Pure.

A later statement with shared words and another value, a change or an end comes along with the earlier one, which says
that there is a newer one, or until when it held. In doubt both are shown: an old value alone looks as if it held. What
stands in a frame takes the place of nothing. Wordings of a few languages are in later_wordings.txt.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from massmem.memory.frames import FRAMES, read_wordings
from massmem.memory.points import CountTokens
from massmem.memory.quoting import write_date
from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Flags, Floats, Ints, sort_by_score
from massmem.memory.words import fold, guess_language, is_function_word, split_sentences, split_words, stem

_MOST_EARLIER = 20
"""The best statements, for which later ones are looked for."""
_MOST_LATER = 4
"""Later statements that come along; the newest."""
_LONGEST = 600
"""Characters of a passage that is compared: a statement is short."""
_LEAST_SHARE = 1 / 3
"""Of the words of the earlier statement, which a later one has that changes or ends it."""
_SAME_SUBJECT = 1 / 2
"""Of the words of the earlier statement but its values, which a later one has with another value."""
_LIKE_NUMBER = 2.5
"""A number may be a new value of another one when it is at most so many times larger or smaller."""
_FEW_WORDS = 1
"""A statement with a pronoun and no more words of its own speaks of what was said before."""

_HELD, _NEWER, _OTHERWISE = "held until {}", "newer: {}", "the user says otherwise: {}"
_NUMBER = re.compile(r"\d[\d.,:]*\d|\d")
_NAME = re.compile(r"(?<=[\w,;:)] )[A-Z][\w-]*")
_ARTICLE = re.compile(
    r"\b(?:the|an?|my|our|de[rnm]|die|das|mein\w*|unser\w*|le|la|mon|ma|el|mi) ([^\W\d]+) ([^\W\d]+)", re.I
)


@dataclass(frozen=True, slots=True)
class Link:
    earlier: int
    """Key of the candidate."""
    later: int
    note: str
    """What the earlier one is labelled with; "" where the later one only goes on."""


@dataclass(frozen=True, slots=True)
class _Statement:
    words: tuple[frozenset[str], ...]
    """The forms of each content word; numbers and days are values."""
    values: Mapping[str, frozenset[str]]
    persons: frozenset[str]
    """Words for people near to the user: what is said of a sister says nothing of the user."""
    signs: frozenset[str]
    """Names of the wordings that it has."""
    qualifiers: Mapping[str, str]
    """What stands between an article and a word, by the word: "small" in "the small tank"."""

    @property
    def forms(self) -> frozenset[str]:
        return frozenset(form for word in self.words for form in word)

    @property
    def changes(self) -> bool:
        return not self.signs.isdisjoint(("ended", "changed"))

    def has_other_value(self, later: "_Statement") -> bool:
        return any(values and later.values[kind] - values for kind, values in self.values.items())


def link_later(question: Question, c: Candidates, scores: Floats, best: Ints) -> list[Link]:
    """Return the links from the best of the candidates to later ones."""
    speaks = [
        bool(c.from_user[i] and memory.kind == "episode" and not c.asks[i])
        and memory.note not in FRAMES
        and len(memory.text) <= _LONGEST
        for i, memory in enumerate(c.memories)
    ]
    own: list[int] = [i for i in np.argsort(c.order).tolist() if speaks[i]]
    chosen = {*best.tolist()}
    ranked: list[int] = [i for i in sort_by_score(c, scores).tolist() if i in chosen]
    links: dict[tuple[int, int], str] = {}
    for place, i in enumerate([i for i in ranked if speaks[i]][:_MOST_EARLIER]):
        behind = own[own.index(i) + 1 :]
        links |= {(i, j): note for j, note in _find_later(question, c, i, behind, is_best=not place)}
    for i in [i for i in ranked if not c.from_user[i]][:_MOST_EARLIER]:
        if (j := _find_answer(c, i)) is not None and _corrects(c.memories[i].text, c.memories[j].text):
            links[i, j] = _OTHERWISE
    newest = sorted({j for _, j in links}, key=lambda j: int(c.order[j]))[-_MOST_LATER:]
    return [Link(int(c.key[i]), int(c.key[j]), note) for (i, j), note in links.items() if j in newest]


def mark_earlier(c: Candidates, scores: Floats, links: Sequence[Link], count: CountTokens) -> tuple[Candidates, Floats]:
    """Return the candidates, earlier ones with a note, and the scores, later ones with that of what they follow."""
    place: dict[int, int] = {key: i for i, key in enumerate(c.key.tolist())}
    memories, tokens, scores = list(c.memories), c.tokens.copy(), scores.copy()
    notes: dict[int, tuple[str, int]] = {}
    for link in links:
        if link.earlier in place and link.later in place:
            i, j = place[link.earlier], place[link.later]
            scores[j] = max(scores[j], scores[i])
            if link.note and c.order[j] > notes.get(i, ("", -1))[1]:
                notes[i] = link.note.format(write_date(c.memories[j].created_at)), int(c.order[j])
    for i, (note, _) in notes.items():
        if "until" not in memories[i].note:
            memories[i] = replace(memories[i], note="; ".join(filter(None, (memories[i].note, note))))
            tokens[i] += count(f" ({note})")
    return replace(c, memories=tuple(memories), tokens=tokens), scores


def follows_any(c: Candidates, links: Sequence[Link], shown: Flags) -> Flags:
    """Return which candidates are later than one that is shown."""
    keys = {*c.key[shown].tolist()}
    return np.isin(c.key, [link.later for link in links if link.earlier in keys])


def _find_later(
    question: Question, c: Candidates, i: int, behind: Sequence[int], *, is_best: bool
) -> Iterator[tuple[int, str]]:
    """Yield the places of later statements, and the note that each gives the earlier one. behind: all that are later."""
    earlier = _read(c.memories[i].text)
    others: list[int] = []
    for j in behind:
        later = _read(c.memories[j].text)
        if earlier.persons != later.persons and not (later.signs >= {"pronoun"} and not later.persons):
            continue
        note = _compare(earlier, later)
        if note is None and _goes_on(c, i, j, later):
            note = _NEWER if _is_new_number(earlier, later) else ""
        if note is not None:
            yield j, note
        elif later.changes and not later.persons:
            others.append(j)
    # In other words altogether: what changed last, if it may be an answer, or is a number for a number.
    numbers = [j for j in others if _is_new_number(earlier, _read(c.memories[j].text))]
    values = [j for j in others if is_best and _may_answer(question, earlier, _read(c.memories[j].text))]
    yield from ((j, _NEWER) for j in {*numbers[:1], *values[-1:]})


def _compare(earlier: _Statement, later: _Statement) -> str | None:
    """Return the note of the earlier one when the later one has words of it; None when it is about something else."""
    forms = later.forms
    shared = [word for word in earlier.words if not word.isdisjoint(forms)]
    if not shared or _are_told_apart(earlier, later, shared):
        return None
    names = earlier.values["name"]
    about = [word for word in earlier.words if word.isdisjoint(names)]
    of_subject = len([word for word in about if word in shared]) / max(1, len(about))
    share = len(shared) / len(earlier.words)
    is_end = "ended" in later.signs or ("denied" in later.signs and "denied" not in earlier.signs)
    if share >= _LEAST_SHARE and (is_end or (later.changes and earlier.has_other_value(later))):
        return _HELD
    if earlier.has_other_value(later) and of_subject >= _SAME_SUBJECT:
        return _NEWER
    is_more = bool(forms - earlier.forms)
    if (is_end or later.changes) or (of_subject >= _SAME_SUBJECT and len(shared) > 1 and is_more):
        return _NEWER if share >= _LEAST_SHARE / 2 else None
    return None


def _are_told_apart(earlier: _Statement, later: _Statement, shared: Sequence[frozenset[str]]) -> bool:
    """Return whether a shared word has a qualifier that only the later one has: "the small tank"."""
    for noun, qualifier in later.qualifiers.items():
        if any(noun in word for word in shared) and qualifier not in earlier.forms:
            return True
    return False


def _goes_on(c: Candidates, i: int, j: int, later: _Statement) -> bool:
    """Return whether the next message of the user speaks of the same with a pronoun."""
    between = c.key[j] - c.key[i]
    one, other = c.memories[i], c.memories[j]
    is_next = one.session_id == other.session_id and other.turn - one.turn <= 1 and between <= _REACH
    return is_next and one.message_ids != other.message_ids and "pronoun" in later.signs


_REACH = 4
"""Passages."""


def _is_new_number(earlier: _Statement, later: _Statement) -> bool:
    """Return whether a statement of hardly any other word has a number like that of the earlier one."""
    if len(later.words) > _FEW_WORDS + len([1 for word in later.words if not word.isdisjoint(earlier.forms)]):
        return False
    pairs = ((_to_number(a), _to_number(b)) for a in earlier.values["number"] for b in later.values["number"])
    return any(a != b and 0 < a <= _LIKE_NUMBER * b and b <= _LIKE_NUMBER * a for a, b in pairs)


def _to_number(text: str) -> float:
    """Return the number; 0 for what is none, such as a time."""
    plain = re.sub(r"[.,](?=\d{3}\b)", "", text).replace(",", ".")
    return float(plain) if re.fullmatch(r"\d+(?:\.\d+)?", plain) else 0.0


def _may_answer(question: Question, earlier: _Statement, later: _Statement) -> bool:
    """Return whether both say a place, or both a name, as an answer to what the user asks about the user."""
    if not question.about_user or earlier.forms.isdisjoint(question.terms):
        return False
    is_place = not question.words.isdisjoint(_WHERE) and later.signs >= {"place"}
    return is_place or bool(earlier.values["name"] and later.values["name"] - earlier.values["name"])


_WHERE = frozenset({"where", "wo", "wohin", "où", "dónde", "dove"})


def _find_answer(c: Candidates, i: int) -> int | None:
    """Return the place of the user's next message behind what an agent said; None: it is not there."""
    for j in range(i + 1, min(i + 1 + _REACH, len(c.key))):
        if c.memories[j].session_id != c.memories[i].session_id or c.key[j] - c.key[i] > _REACH:
            return None
        if c.from_user[j]:
            return None if c.asks[j] else j
    return None


def _corrects(text: str, answer: str) -> bool:
    """Return whether the user's answer says that the text is wrong, or says something else about the same."""
    own, reply = _read(text), _read(answer)
    if "affirms" in reply.signs:
        return False
    shared = [word for word in own.words if not word.isdisjoint(reply.forms)]
    return "corrects" in reply.signs or (2 * len(shared) >= len(own.words) and bool(reply.forms - own.forms))


@lru_cache(4096)
def _read(text: str) -> _Statement:
    wordings = read_wordings(_WORDINGS)
    plain = text.replace("’", "'")
    low = plain.casefold()
    signs = {name for name, wording in wordings.items() if wording.search(low)}
    words = [word for word in wordings["day"].sub(" ", wordings["number"].sub(" ", low)).split()]
    language = guess_language(plain)
    content = [
        word
        for word in split_words(" ".join(words))
        if not word.isdigit() and not is_function_word(word, language) and not _is_sign(word)
    ]
    numbers = {*_NUMBER.findall(low), *(m[0] for m in wordings["number"].finditer(low))}
    names = {stem(n.casefold()) for s in split_sentences(plain) for n in _NAME.findall(s) if not _is_day(n)}
    return _Statement(
        words=tuple(dict.fromkeys(_find_forms(word, language) for word in content)),
        values={
            "number": frozenset(numbers),
            "day": frozenset(match[0].rstrip("s") for match in wordings["day"].finditer(low)),
            "name": frozenset(names),
        },
        persons=frozenset(match[0].rstrip("s") for match in wordings["person"].finditer(low)),
        signs=frozenset(signs),
        qualifiers={
            stem(noun): stem(word)
            for word, noun in _ARTICLE.findall(low)
            if not is_function_word(word, language) and not _is_sign(word)
        },
    )


def _find_forms(word: str, language: str) -> frozenset[str]:
    return frozenset({stem(word), fold(stem(word, language))})


@lru_cache(4096)
def _is_sign(word: str) -> bool:
    """Return whether a word tells of a change, and not of what changed."""
    wordings = read_wordings(_WORDINGS)
    return any(wordings[name].fullmatch(word) for name in ("ended", "changed", "denied", "pronoun", "number"))


def _is_day(word: str) -> bool:
    return read_wordings(_WORDINGS)["day"].fullmatch(word.casefold()) is not None


_WORDINGS = Path(__file__).with_name("later_wordings.txt")
