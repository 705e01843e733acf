"""Links what the user said to what the user said later about the same subject, in whatever words. Pure.

A later statement with shared words and another value, a change or an end comes along with the earlier one, which says
that there is a newer one, or until when it held. In doubt both are shown: an old value alone looks as if it held. What
stands in a frame takes the place of nothing. Wordings of a few languages are in later_wordings.txt.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np

from massmem.memory.frames import FRAMES, read_wordings
from massmem.memory.points import CountTokens
from massmem.memory.quoting import write_date
from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Flags, Floats, Ints, sort_by_score
from massmem.memory.words import fold, guess_language, is_function_word, split_words, stem

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
_SHORT = 10
"""Content words: of longer statements only a new number among many of the same words counts."""
_MANY_WORDS = 3
_COMMON = 0.1
"""Of the user's statements: a word that more of them have tells no subject."""
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


@dataclass(frozen=True)
class _Statement:
    text: str

    @cached_property
    def words(self) -> tuple[frozenset[str], ...]:
        """The forms of each content word; numbers, days and words for a change are none."""
        language = guess_language(self.text)
        words = (word for word in split_words(self.text) if not is_function_word(word, language))
        return tuple(dict.fromkeys(_find_forms(w, language) for w in words if not w.isdigit() and not _find_kind(w)))

    @cached_property
    def forms(self) -> frozenset[str]:
        return frozenset(form for word in self.words for form in word)

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        """Numbers, days and names."""
        words = split_words(self.text)
        of_kind = {kind: {word.rstrip("s") for word in words if _find_kind(word) == kind} for kind in ("number", "day")}
        names = {stem(name.casefold()) for name in _NAME.findall(self.text) if not _find_kind(name.casefold())}
        numbers = of_kind["number"].union(_NUMBER.findall(self.text))
        return {"number": frozenset(numbers), "day": frozenset(of_kind["day"]), "name": frozenset(names)}

    @cached_property
    def persons(self) -> frozenset[str]:
        """Words for people near to the user: what is said of a sister says nothing of the user."""
        return frozenset(match[0].casefold().rstrip("s") for match in _wordings()["person"].finditer(self.text))

    @cached_property
    def qualifiers(self) -> Mapping[str, str]:
        """What stands between an article and a word, by the word: "small" in "the small tank"."""
        language = guess_language(self.text)
        pairs = ((word.casefold(), noun.casefold()) for word, noun in _ARTICLE.findall(self.text))
        return {stem(n): stem(w) for w, n in pairs if not is_function_word(w, language) and not _find_kind(w)}

    @lru_cache(4096)  # noqa: B019 - statements are few, and made once
    def says(self, *names: str) -> bool:
        """Return whether it has one of these wordings."""
        return any(_wordings()[name].search(self.text.replace("’", "'")) for name in names)

    @property
    def changes(self) -> bool:
        return self.says("ended", "changed")

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
    common = _find_common([_read(c.memories[i].text) for i in own])
    chosen = {*best.tolist()}
    ranked: list[int] = [i for i in sort_by_score(c, scores).tolist() if i in chosen]
    links: dict[tuple[int, int], str] = {}
    for place, i in enumerate([i for i in ranked if speaks[i]][:_MOST_EARLIER]):
        behind = own[own.index(i) + 1 :]
        links |= {(i, j): note for j, note in _find_later(question, c, i, behind, common, is_best=not place)}
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
    question: Question, c: Candidates, i: int, behind: Sequence[int], common: frozenset[str], *, is_best: bool
) -> Iterator[tuple[int, str]]:
    """Yield the places of later statements, and the note that each gives the earlier one.

    behind: the places of all that are later. common: words that tell no subject.
    """
    earlier = _read(c.memories[i].text)
    others: list[int] = []
    for j in behind:
        later = _read(c.memories[j].text)
        note = _compare(earlier, later, common)
        if note is None and _goes_on(c, i, j, later):
            note = _NEWER if _is_new_number(earlier, later) else ""
        if note is not None:
            yield j, "" if later.says("unsure") else note
        elif len(later.words) <= _SHORT and later.changes and _are_of_one(earlier, later):
            others.append(j)
    # In other words altogether: what changed last, if it may be an answer, or is a number for a number.
    numbers = [j for j in others if _is_new_number(earlier, _read(c.memories[j].text))]
    values = [j for j in others if is_best and _may_answer(question, earlier, _read(c.memories[j].text))]
    yield from ((j, _NEWER) for j in {*numbers[:1], *values[-1:]})


def _compare(earlier: _Statement, later: _Statement, common: frozenset[str]) -> str | None:
    """Return the note of the earlier one when the later one has words of it; None when it is about something else."""
    forms = later.forms - common
    shared = [word for word in earlier.words if not word.isdisjoint(forms)]
    if not shared or not _are_of_one(earlier, later) or _are_told_apart(earlier, later, shared):
        return None
    share = len(shared) / len(earlier.words)
    has_other = earlier.has_other_value(later)
    if max(len(earlier.words), len(later.words)) > _SHORT:
        return _NEWER if has_other and len(shared) >= _MANY_WORDS and share >= _SAME_SUBJECT else None
    names = earlier.values["name"]
    about = [word for word in earlier.words if word.isdisjoint(names)]
    of_subject = len([word for word in about if word in shared]) / max(1, len(about))
    is_end = later.says("ended") or (later.says("denied") and not earlier.says("denied"))
    if share >= _LEAST_SHARE and (is_end or (later.changes and has_other)):
        return _HELD
    is_more = len(shared) > 1 and bool(later.forms - earlier.forms)
    if of_subject >= _SAME_SUBJECT and (has_other or is_more):
        return _NEWER
    return _NEWER if (is_end or later.changes) and share >= _LEAST_SHARE / 2 else None


def _find_common(statements: Sequence[_Statement]) -> frozenset[str]:
    """Return the forms of words that too many statements have to tell what one is about."""
    counts = Counter(form for statement in statements for form in statement.forms)
    most = max(_MANY_WORDS, _COMMON * len(statements))
    return frozenset(form for form, count in counts.items() if count > most)


def _are_of_one(earlier: _Statement, later: _Statement) -> bool:
    """Return whether both are about the same people near to the user, whom a pronoun may stand for."""
    return earlier.persons == later.persons or (not later.persons and later.says("pronoun"))


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
    return is_next and one.message_ids != other.message_ids and later.says("pronoun")


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
    if max(len(earlier.words), len(later.words)) > _SHORT:
        return False
    if question.words.isdisjoint(_ME) or earlier.forms.isdisjoint(question.terms):
        return False
    is_place = not question.words.isdisjoint(_WHERE) and later.says("place")
    return is_place or bool(earlier.values["name"] and later.values["name"] - earlier.values["name"])


_ME = frozenset(
    {"i", "my", "we", "our", "ich", "wir", "mein", "meine", "je", "mon", "ma", "nous", "yo", "mi", "io", "mio"}
)
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
    if reply.says("affirms"):
        return False
    shared = [word for word in own.words if not word.isdisjoint(reply.forms)]
    return reply.says("corrects") or (2 * len(shared) >= len(own.words) and bool(reply.forms - own.forms))


_read = lru_cache(4096)(_Statement)


def _find_forms(word: str, language: str) -> frozenset[str]:
    return frozenset({stem(word), fold(stem(word, language))})


@lru_cache(4096)
def _find_kind(word: str) -> str:
    """Return what a word is by itself: a number, a day, or a sign of a change and not what changed; "" for others."""
    kinds = ("number", "day", "ended", "changed", "denied", "pronoun")
    return next((kind for kind in kinds if _wordings()[kind].fullmatch(word)), "")


def _wordings() -> Mapping[str, re.Pattern[str]]:
    return read_wordings(_FILE)


_FILE = Path(__file__).with_name("later_wordings.txt")
