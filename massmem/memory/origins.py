"""Who said a memory, and whose words it rests on: "user", "agent", "import", "outside", "tool:NAME", "web". Pure.

The result of a tool is said by the tool. What an agent repeats of it is said by the agent and rests on the tool's
words. An answer with sources from the web is said by the agent and rests on the web.

What an agent writes rests on a tool when one of its sentences has its words from a result alone. Words of the user do
not count. Of the rest, one of these must hold:

- most of them stand near one another in one result;
- three of them stand in a row that the result has, too;
- one of them has a digit, is no year, and stands in the result.

Case, spaces, forms of a word, and letters that look like others make no difference. Another language, synonyms and
numbers in words do: who only keeps the sense of a result is not recognised.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from massmem.core.calls import shorten_tool_name
from massmem.core.text import find_look
from massmem.memory.words import STOP_WORDS, split_sentences, split_words, stem

AGENT, IMPORT, OUTSIDE, TOOL, WEB = "agent", "import", "outside", "tool", "web"
"""Origins beside persistent.USER. OUTSIDE: another program with mem0 wrote it into the collection. TOOL is followed by
a colon and the tool's name, except in filters. WEB: pages that a provider has found, named like a tool."""

_LONGEST_NAME, _LONGEST_CALL = 24, 100
"""Characters of a tool's name in a label, and of a call."""
_NAME_SIGN = re.compile(r"[^A-Za-z0-9_.-]")
_CALL_SIGN = re.compile(r"[^\w .,:'+/@#=&?%~*-]")


def name_tool_origin(tool: str) -> str:
    """Return the origin of what a tool said; "" without a tool."""
    return tool if tool in ("", WEB) else f"{TOOL}:{tool}"


def find_tool_name(origin: str) -> str:
    """Return the name of the tool that an origin names, "" for another origin."""
    return origin.removeprefix(f"{TOOL}:") if origin == WEB or origin.startswith(f"{TOOL}:") else ""


def mark_source(rests_on: str, call: str = "") -> str:
    """Return what a label says of a tool: its call, or "quoting fetch" of words that somebody took from it.

    It has no sign that can end a label.
    """
    if call:
        return f"tool {_CALL_SIGN.sub('', call)[:_LONGEST_CALL].rstrip()}"
    name = "the web" if rests_on == WEB else _shorten(find_tool_name(rests_on))
    return f"quoting {name}".rstrip() if find_tool_name(rests_on) else ""


def label_tool(name: str) -> str:
    """Return "tool NAME" with signs that cannot end a label, and without the name of the tool's server."""
    return f"tool {_shorten(name)}".rstrip()


def _shorten(name: str) -> str:
    return _NAME_SIGN.sub("", shorten_tool_name(name))[:_LONGEST_NAME]


def is_from(origin: str, rests_on: str, asked: str) -> bool:
    """Return whether one of the two is the origin that is asked for; TOOL asks for any tool."""
    return asked in (origin, rests_on) or (asked == TOOL and rests_on not in ("", WEB))


def choose_origin(origins: Collection[str]) -> str:
    """Return who said what several said: the user vouches for it, an agent does not."""
    return next((origin for origin in ("user", IMPORT, OUTSIDE, AGENT) if origin in origins), "")


MOST_READ = 2_000_000
"""Characters of the results of a turn that are compared, the newest: more would take seconds."""

_NEAR = 200
"""Words that stand near one another."""
_MOST = 0.6
"""Part of a sentence's words that must stand near one another."""
_ROW = 3
_SHORTEST_VALUE = 3
"""Characters."""

_SEPARATOR = re.compile(r"(?<=\d)[.,'’ ](?=\d{3}(?!\d))")
_YEAR = re.compile(r"(?:19|20)\d\d")


@dataclass(frozen=True, slots=True)
class ToolText:
    tool: str
    text: str
    arguments: str = ""
    """Of the call. Their words were the agent's before they were the tool's."""


@dataclass(frozen=True)
class ToolWords:
    """The words of results, against which texts are held. Prepared when the first text is."""

    results: Sequence[ToolText] = ()
    user_texts: Sequence[str] = field(default=(), repr=False)
    """Texts of the user."""

    def find_tool(self, text: str) -> str:
        """Return the tool that a text has its words from; of several the one of most sentences. "": from none."""
        if not self.results:
            return ""
        tools = Counter(tool for sentence in split_sentences(text) if (tool := self.find_tool_of(sentence)))
        return tools.most_common(1)[0][0] if tools else ""

    def find_tool_of(self, sentence: str) -> str:
        """Return the tool that a sentence has its words from, "" for none."""
        words = split_stems(sentence)
        own = set(words) - self._user_words
        if not own:
            return ""
        hits = Counter(place for word in own for place in self._places.get(word, ()))
        place, most = max(hits.items(), key=lambda hit: (hit[1], -hit[0]), default=(0, 0))
        if most >= _MOST * len(own):
            return self._tools[place]
        for row in _list_rows(words):
            if row in self._rows and len(own.intersection(row)) > 1:
                return self._tools[self._rows[row]]
        values = sorted(word for word in own if word in self._places and _is_value(word))
        return self._tools[self._places[values[0]][0]] if values else ""

    def are_users(self, text: str) -> bool:
        """Return whether at least half of a text's words are the user's."""
        words = set(split_stems(text))
        return 2 * len(words & self._user_words) >= len(words)

    @cached_property
    def _user_words(self) -> frozenset[str]:
        return frozenset(word for text in self.user_texts for word in split_stems(text))

    @cached_property
    def _stretches(self) -> list[tuple[str, list[str]]]:
        """Stretches of the results that overlap by half, each with its tool."""
        stretches: list[tuple[str, list[str]]] = []
        left = MOST_READ
        for result in reversed(self.results):
            arguments = set(split_stems(result.arguments))
            words = [word for word in split_stems(result.text[:left]) if word not in arguments]
            left -= len(result.text)
            half = _NEAR // 2
            stretches += [(result.tool, words[i : i + _NEAR]) for i in range(0, max(1, len(words) - half), half)]
            if left <= 0:
                break
        return stretches

    @cached_property
    def _tools(self) -> list[str]:
        return [tool for tool, _ in self._stretches]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """In which stretches each word stands."""
        places: dict[str, list[int]] = {}
        for place, (_, words) in enumerate(self._stretches):
            for word in dict.fromkeys(words):
                places.setdefault(word, []).append(place)
        return places

    @cached_property
    def _rows(self) -> dict[tuple[str, ...], int]:
        rows: dict[tuple[str, ...], int] = {}
        for place, (_, words) in enumerate(self._stretches):
            for row in _list_rows(words):
                rows.setdefault(row, place)
        return rows


def split_stems(text: str) -> list[str]:
    """Return the stems of the content words of a text, in order, whatever it is disguised as."""
    plain = _SEPARATOR.sub("", find_look(text))
    return [stem(word) for word in split_words(plain) if word not in STOP_WORDS]


def _list_rows(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return (tuple(words[i : i + _ROW]) for i in range(len(words) - _ROW + 1))


def _is_value(word: str) -> bool:
    """Return whether a word is a number or part of a code: two texts seldom share one by chance."""
    return len(word) >= _SHORTEST_VALUE and any(letter.isdigit() for letter in word) and not _YEAR.fullmatch(word)
