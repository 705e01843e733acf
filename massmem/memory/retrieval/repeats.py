"""Repeats: texts that the prompt shows word for word, or that another memory says in nearly these words. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from massmem.memory.persistent import USER, Memory, RecallOptions
from massmem.memory.words import extract_query_terms, split_words

SAME_SHARE = 0.8
"""Share of its words that a fact, or a question, has in common with one that says the same."""
_ROW = 3
"""Words that stand in a row in both texts."""
_NEARLY = 0.7
"""Share of its rows that a text has in common with one that says the same with small changes: one word in ten."""
_LEAST_WORDS = 4
"""A shorter text may stand by chance in another one that means something else."""


def is_echo(text: str, terms: frozenset[str]) -> bool:
    """Return whether a question is the one with these terms, as far as its words tell."""
    own = set(extract_query_terms(text))
    return bool(own) and len(own & terms) >= SAME_SHARE * len(own | terms)


def drop_copies(memories: Iterable[Memory]) -> list[Memory]:
    """Of those that say the same word for word, said by the same, leave the last one, at the place of the first."""
    newest: dict[tuple[str, ...], Memory] = {}
    for memory in memories:
        key = *_wording(memory), memory.call, memory.note
        if key not in newest or newest[key].created_at < memory.created_at:
            newest[key] = memory
    return [*newest.values()]


def _wording(memory: Memory) -> tuple[str, str]:
    return "" if memory.call else memory.agent_id, normalise(memory.text)


def normalise(text: str) -> str:
    """Return the text as it is compared: without case, line breaks and the mark at its end."""
    return " ".join(text.casefold().split()).rstrip(".!?")


@dataclass(frozen=True)
class Wording:
    """A text, to be held against others."""

    text: str

    @cached_property
    def normal_form(self) -> str:
        return normalise(self.text)

    @cached_property
    def words(self) -> list[str]:
        return split_words(self.text)

    @cached_property
    def rows(self) -> frozenset[tuple[str, ...]]:
        return frozenset(tuple(self.words[i : i + _ROW]) for i in range(max(1, len(self.words) - _ROW + 1)))

    def has(self, other: "Wording") -> bool:
        """Return whether the other text stands in this one, word for word."""
        if len(other.words) < _LEAST_WORDS:
            return other.normal_form == self.normal_form
        return other.normal_form in self.normal_form

    def nearly_has(self, other: "Wording") -> bool:
        """Return whether this text has the other one with small changes, of which none is to a number."""
        if self.has(other):
            return True
        if not other.has_most_rows_in(self.rows):
            return False
        return {word for word in other.words if any(map(str.isdigit, word))}.issubset(self.words)

    def has_most_rows_in(self, rows: frozenset[tuple[str, ...]]) -> bool:
        return len(self.words) >= 2 * _ROW and len(self.rows & rows) >= _NEARLY * len(self.rows)


_FILE_NAME = re.compile(r"^\[[^\]\n]{1,255}\] ")
"""Stands before a passage of a file that came with a message, see index_writer.py."""


class PromptTexts:
    def __init__(self, options: RecallOptions, session_id: str) -> None:
        self._exclude, self._session_id = options.exclude, session_id
        self._texts = [*map(Wording, options.verbatim)]
        self._pinned = {*map(_wording, options.pinned)}
        self._whole = "\n".join(text.normal_form for text in self._texts)  # no normal form has a line break

    @cached_property
    def _rows(self) -> frozenset[tuple[str, ...]]:
        return frozenset(row for text in self._texts for row in text.rows)

    def have(self, memory: Memory) -> bool:
        """Return whether the memory says nothing that does not stand in the prompt.

        What an agent wrote in another session may be what is asked about, also when the question quotes it.
        """
        if memory.id in self._exclude or (self._pinned and _wording(memory) in self._pinned):
            return True
        if memory.kind != "episode":
            return False
        # Of what the user has edited the prompt has the old words.
        if memory.edited_at is None and not self._exclude.isdisjoint(memory.message_ids):
            return True
        wording = Wording(_FILE_NAME.sub("", memory.text) if memory.agent_id == USER else memory.text)
        is_own = memory.session_id == self._session_id and not memory.call
        if memory.agent_id == USER or is_own:
            if wording.normal_form in self._whole and any(text.has(wording) for text in self._texts):
                return True
            if memory.agent_id != USER and wording.has_most_rows_in(self._rows):
                return any(text.nearly_has(wording) for text in self._texts)
        return False


def find_revised(memories: Mapping[int, Memory]) -> set[int]:
    """Return the keys of passages that their agent wrote again in the same turn, with small changes at most.

    A final answer is mostly the answer that won, and the last wording is the one that the user saw.
    """
    turns: dict[tuple[str, int, str], list[int]] = {}
    for key, memory in memories.items():
        if memory.kind == "episode" and memory.agent_id != USER and not memory.call:
            turns.setdefault((memory.session_id, memory.turn, memory.agent_id), []).append(key)
    revised: set[int] = set()
    for keys in turns.values():
        later: list[tuple[Memory, Wording]] = []
        for key in sorted(keys, key=lambda key: (memories[key].created_at, key), reverse=True):
            memory, wording = memories[key], Wording(memories[key].text)
            if any(m.message_ids != memory.message_ids and text.nearly_has(wording) for m, text in later):
                revised.add(key)
            else:
                later.append((memory, wording))
    return revised
