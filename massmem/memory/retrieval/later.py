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

from massmem.memory.frames import FRAMES
from massmem.memory.persistent import USER, Memory
from massmem.memory.points import CountTokens
from massmem.memory.quoting import write_date
from massmem.memory.retrieval.query import Question
from massmem.memory.retrieval.rank import Candidates, Flags, Floats, Ints, sort_by_score
from massmem.memory.words import fold, guess_language, is_function_word, read_wordings, split_words, stem

_MOST_EARLIER, _MOST_LATER = 20, 4
"""Of the best, for which later ones are looked for; of the newest of these."""
_LEAST_SHARE, _SAME_SUBJECT = 1 / 3, 1 / 2
"""Of the words of the earlier statement that a later one has: which ends or changes it, which has another value."""
_SHORT, _MANY_WORDS, _FEW_WORDS = 10, 3, 6
"""Content words. Of longer statements only another value among many shared words counts; what shares none has few."""
_COMMON = 0.1
"""Of the user's statements: a word that more of them have tells no subject."""
_LIKE_NUMBER = 2.5
"""A number may be a new value of another one when it is at most so many times larger or smaller."""
_REACH = 4
"""Passages to the next message."""

_HELD, _SINCE, _NEWER, _OTHERWISE = "held until {}", "holds since {}", "newer: {}", "the user says otherwise: {}"
_FILE = Path(__file__).with_name("later_wordings.txt")
_NUMBER = re.compile(r"\d[\d.,:]*\d|\d")
_DATE = re.compile(
    r"\b(\d{1,2})(?:st|nd|rd|th|\.)? (?:of |de )?(jan|feb|mar|mär|apr|ma[iy]|ju[nl]|aug|sep|o[ck]t|nov|de[cz])[a-z]*"
)
_NAME = re.compile(r"(?<=[\w,;:)] )[A-Z][\w-]*")
_KINDS = ("number", "day", "ended", "changed", "denied", "pronoun")


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
        """The forms of each content word; numbers, days and signs of a change are none."""
        language = guess_language(self.text)
        content = (word for word in split_words(self.text) if not (word.isdigit() or is_function_word(word, language)))
        return tuple(dict.fromkeys(frozenset({stem(w), fold(stem(w, language))}) for w in content if not _find_kind(w)))

    @cached_property
    def forms(self) -> frozenset[str]:
        return frozenset(form for word in self.words for form in word)

    @cached_property
    def values(self) -> Mapping[str, frozenset[str]]:
        text = _DATE.sub(" ", self.text.casefold())
        words = [*split_words(text), *_NUMBER.findall(text)]
        names = [name.casefold() for name in _NAME.findall(self.text)]
        values = {kind: frozenset(w.rstrip("s") for w in words if _find_kind(w) == kind) for kind in ("number", "day")}
        values["date"] = frozenset(map(" ".join, _DATE.findall(self.text.casefold())))
        return values | {"name": frozenset(stem(name) for name in names if not _find_kind(name))}

    @cached_property
    def persons(self) -> frozenset[str]:
        """Words for people near to the user: what is said of a sister says nothing of the user."""
        return frozenset(match[0].casefold().rstrip("s") for match in _wordings()["person"].finditer(self.text))

    @cached_property
    def qualifiers(self) -> Mapping[str, str]:
        """What stands between an article and a word, by the word: "small" in "the small tank"."""
        pairs = (match.groups() for match in _wordings()["qualifier"].finditer(self.text.casefold()))
        return {stem(noun): stem(word) for *_, word, noun in pairs if {stem(word)} & self.forms}

    @lru_cache(4096)  # noqa: B019 - statements are few, and made once
    def says(self, *names: str) -> bool:
        """Return whether it has one of these wordings."""
        return any(_wordings()[name].search(self.text.replace("’", "'")) for name in names)

    def share_words(self, later: "_Statement", common: frozenset[str] = frozenset()) -> list[frozenset[str]]:
        """Return the words that the later one has, but those that tell no subject."""
        return [word for word in self.words if word & (later.forms - common)]

    def has_other_value(self, later: "_Statement") -> bool:
        return any(values and later.values[kind] - values for kind, values in self.values.items())

    def is_of_same_person(self, later: "_Statement") -> bool:
        is_named = later.says("pronoun") or not self.values["name"].isdisjoint(later.forms)
        return self.persons == later.persons or (not later.persons and is_named)


_read = lru_cache(4096)(_Statement)


def link_later(question: Question, c: Candidates, scores: Floats, best: Ints) -> list[Link]:
    """Return the links from the best of the candidates to later ones."""
    speaks = [
        c.from_user[i] and m.kind == "episode" and not c.asks[i] and m.note not in FRAMES
        for i, m in enumerate(c.memories)
    ]
    own: list[int] = [i for i in np.argsort(c.order).tolist() if speaks[i]]
    statements = {i: _read(c.memories[i].text) for i in own}
    counts = Counter(form for statement in statements.values() for form in statement.forms)
    common = frozenset(form for form, count in counts.items() if count > max(_MANY_WORDS, _COMMON * len(own)))
    chosen = {*best.tolist()}
    ranked: list[int] = [i for i in sort_by_score(c, scores).tolist() if i in chosen]
    links: dict[tuple[int, int], str] = {}
    for place, i in enumerate([i for i in ranked if speaks[i]][:_MOST_EARLIER]):
        others: list[int] = []
        for j in own[own.index(i) + 1 :]:
            note = _compare(statements[i], statements[j], common)
            if note is None and _is_next(c, i, j) and statements[j].says("pronoun"):
                note = _NEWER if _is_new_number(statements[i], statements[j]) else ""
            if note is not None:
                links[i, j] = "" if statements[j].says("unsure") else note
            elif len(statements[j].words) <= _FEW_WORDS and statements[i].is_of_same_person(statements[j]):
                others.append(j)
        links |= {(i, j): _NEWER for j in _find_in_other_words(question, statements, i, others, is_best=not place)}
    for i in [i for i in ranked if not c.from_user[i]][:_MOST_EARLIER]:
        links |= {(i, j): _OTHERWISE for j in _find_correction(c, i)}
    newest = sorted({j for _, j in links}, key=lambda j: int(c.order[j]))[-_MOST_LATER:]
    return [Link(int(c.key[i]), int(c.key[j]), note) for (i, j), note in links.items() if j in newest]


def _find_in_other_words(
    question: Question, statements: Mapping[int, _Statement], i: int, others: Sequence[int], *, is_best: bool
) -> Iterator[int]:
    """Yield the next number for that of the statement, and what changed last, if it may be an answer as well.

    statements: all statements, the earliest first. others: those that are later.
    """
    order = [*statements]
    for j in others:
        between = (statements[k] for k in order[order.index(i) + 1 : order.index(j)])
        # This one first: few are, and between two are many.
        if _is_new_number(statements[i], statements[j]) and not any(_is_new_number(k, statements[j]) for k in between):
            yield j
    changes = (j for j in reversed(others) if is_best and statements[j].says("ended", "changed"))
    yield from (j for j in [next(changes, i)] if j != i and _may_answer(question, statements[i], statements[j]))


def mark_earlier(c: Candidates, scores: Floats, links: Sequence[Link], count: CountTokens) -> tuple[Candidates, Floats]:
    """Return the candidates, earlier ones with a note, and the scores, later ones with that of what they follow."""
    place: dict[int, int] = {key: i for i, key in enumerate(c.key.tolist())}
    memories, tokens, scores = list(c.memories), c.tokens.copy(), scores.copy()
    pairs = [(place[x.earlier], place[x.later], x.note) for x in links if {x.earlier, x.later} <= place.keys()]
    for i, j, _ in pairs:
        scores[j] = max(scores[j], scores[i])
    pairs.sort(key=lambda pair: int(c.order[pair[1]]))
    notes = {j: _SINCE.format(write_date(c.memories[j].created_at)) for _, j, note in pairs if note == _HELD}
    notes |= {i: note.format(write_date(c.memories[j].created_at)) for i, j, note in pairs if note}
    for i, note in notes.items():
        if not any(sign in memories[i].note for sign in ("until", "since")):
            memories[i] = replace(memories[i], note="; ".join(filter(None, (memories[i].note, note))))
            tokens[i] += count(f" ({note})")
    return replace(c, memories=tuple(memories), tokens=tokens), scores


def is_no_answer(memory: Memory) -> bool:
    """Return whether an agent says in short that it does not know."""
    return memory.agent_id != USER and _read(memory.text).says("no answer")


def follows_any(c: Candidates, links: Sequence[Link], shown: Flags) -> Flags:
    """Return which candidates are later than one that is shown."""
    keys = {*c.key[shown].tolist()}
    return np.isin(c.key, [link.later for link in links if link.earlier in keys])


def _compare(earlier: _Statement, later: _Statement, common: frozenset[str]) -> str | None:
    """Return the note of the earlier one when the later one has words of it; None when it is about something else."""
    is_other_date = earlier.values["date"] and later.values["date"] - earlier.values["date"]
    shared = earlier.share_words(later, frozenset() if is_other_date else common)
    if not shared or not earlier.is_of_same_person(later):
        return None
    other = {noun for noun, qualifier in later.qualifiers.items() if qualifier not in earlier.forms}
    if any(word & other for word in shared):
        return None
    share, has_other = len(shared) / len(earlier.words), earlier.has_other_value(later)
    if max(len(earlier.words), len(later.words)) > _SHORT:
        return _NEWER if has_other and len(shared) >= _MANY_WORDS and share >= _SAME_SUBJECT else None
    about = [word for word in earlier.words if word.isdisjoint(earlier.values["name"])]
    of_subject = sum(word in shared for word in about) / max(1, len(about))
    is_end = later.says("ended") or (later.says("denied") and not earlier.says("denied"))
    is_change = later.says("changed")
    if share >= _LEAST_SHARE and (is_end or (is_change and has_other)):
        return _HELD
    is_same = len(shared) >= max(2, _SAME_SUBJECT * min(len(earlier.words), len(later.words)))
    if (of_subject >= _SAME_SUBJECT and has_other) or (is_same and later.forms - earlier.forms):
        return _NEWER
    return _NEWER if (is_end or is_change) and share >= _LEAST_SHARE / 2 else None


def _is_next(c: Candidates, i: int, j: int) -> bool:
    """Return whether it stands in one of the messages behind the other one's; notes are nobody's neighbours."""
    one, other = c.memories[i], c.memories[j]
    return (
        0 < one.turn <= other.turn
        and one.session_id == other.session_id
        and one.message_ids != other.message_ids
        and 0 < c.key[j] - c.key[i] <= _REACH
    )


def _is_new_number(earlier: _Statement, later: _Statement) -> bool:
    """Return whether a statement of hardly a word of its own has a number like that of the earlier one."""
    is_change, is_about_it = later.says("changed"), later.says("pronoun")
    if not (is_change or is_about_it) or len(later.words) > 1 + len(later.share_words(earlier)):
        return False
    pairs = ((_to_number(a), _to_number(b)) for a in earlier.values["number"] for b in later.values["number"])
    pairs = [(a, b) for a, b in pairs if 0 < a != b > 0]
    if not pairs:
        return False
    are_like = any(max(pair) <= _LIKE_NUMBER * min(pair) for pair in pairs)
    return (is_change and is_about_it) or (are_like and (is_change or is_about_it))  # "it went up by 40"


def _to_number(text: str) -> float:
    """Return the number; 0 for what is none, such as a time."""
    plain = re.sub(r"[.,](?=\d{3}\b)", "", text).replace(",", ".")
    return float(plain) if re.fullmatch(r"\d+(?:\.\d+)?", plain) else 0.0


def _may_answer(question: Question, earlier: _Statement, later: _Statement) -> bool:
    """Return whether both say a place, or both a name, as an answer to what the user asks about the user."""
    asked = " ".join(question.words)
    if earlier.forms.isdisjoint(question.terms) or not _wordings()["first person"].search(asked):
        return False
    is_place = _wordings()["where"].search(asked) is not None and later.says("place")
    return is_place or bool(earlier.values["name"] and later.values["name"] - earlier.values["name"])


def _find_correction(c: Candidates, i: int) -> Iterator[int]:
    """Yield the place of the user's answer to what an agent statements, when it says something else."""
    j = next((j for j in range(i + 1, min(i + 1 + _REACH, len(c.key))) if c.from_user[j]), i)
    text, answer = _read(c.memories[i].text), _read(c.memories[j].text)
    if not _is_next(c, i, j) or c.asks[j] or answer.says("affirms"):
        return
    is_same = 2 * len(text.share_words(answer)) >= min(len(text.words), len(answer.words)) > 0
    is_other = is_same and (text.has_other_value(answer) or answer.forms - text.forms)
    if answer.says("corrects") or is_other:
        yield j


@lru_cache(4096)
def _find_kind(word: str) -> str:
    """Return what a word is by itself: a number, a day, a sign of a change; "" for others."""
    if _NUMBER.match(word):
        return "number"
    return next((kind for kind in _KINDS if _wordings()[kind].fullmatch(word)), "")


def _wordings() -> Mapping[str, re.Pattern[str]]:
    return read_wordings(_FILE)
