"""Sources of answers: their numbers in a text, who had them, and how they are listed. Pure.

In a text, the mark `[n]` names the n-th source. Code, mathematics, links, footnotes and places in arrays have such
brackets, too: they are no marks, and are never changed. Where no source is known, nothing is.
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

from massmem.core.calls import parse_json
from massmem.core.messages import Candidate, Citation, clean_text
from massmem.core.text import one_line

MOST_SOURCES = 50
"""Of an answer."""
_LONGEST_TITLE, _LONGEST_QUOTE, _LONGEST_URL = 200, 1_000, 2_000
"""Characters that are kept."""
_SHOWN_QUOTE = 300
"""Characters of a quotation that other agents are shown."""

_PROTECTED = re.compile(
    r"(?<!`)(`{1,2})(?!`)[^\n]{1,2000}?(?<!`)\1(?!`)"  # code
    r"|\$\$.{1,500}?\$\$|\\\(.{1,500}?\\\)|\\\[.{1,500}?\\\]|\$(?! )[^$\n]{1,500}(?<! )\$(?!\d)"  # mathematics
    r"|!?\[(?:\[\d{1,3}\]|[^\[\]\n]{0,500})\]\([^()\s]{1,2000}[^()\n]{0,200}\)",  # links
    re.DOTALL,
)
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_NUMBER = r"[1-9]\d{0,2}"
_MARK = re.compile(rf"(?P<lead>[ \t]?)\[(?P<numbers>{_NUMBER}(?:[ \t]?,[ \t]?{_NUMBER})*)\](?!\(|\[[^\]\d])")
_LISTED = re.compile(
    rf"^[ \t]{{0,8}}(?:[-*+] )?\[({_NUMBER})\]:?[ \t][^\n]{{0,300}}?(https?://\S{{1,2000}})", re.MULTILINE
)
"""A line of a list of sources that the author of the text has made."""
_DEFINITION = re.compile(rf"^[ \t]{{0,3}}\[({_NUMBER})\]:[ \t]", re.MULTILINE)
_ADDRESS = re.compile(r"https?://[^\s<>\"\[\]`]{1,2000}", re.IGNORECASE)
_LAST_WORD = re.compile(r"\w{1,40}\Z")
_PLACE = re.compile(
    r"(?!(?:it|is|so|us|do|go|in|on|up|of|to|me|we|he|be|by|as|at|if|no|or|an|am|my)\Z)"
    r"(?:[A-Za-z]|[a-z]{2}|[a-z]++[A-Z]\w*+|[^\W_]*+_\w*+|args|argv|arr|list|array|items|rows|data)\Z"
)
"""A name that has places: what follows in brackets is no mark."""
_BEFORE_VALUES = re.compile(
    r"(?:[=∈∉⊂⊆<>≤≥±×*/^(,-]|\b(?:in|is|interval|range|list|array|vector|tuple|set|domain|from|to|between|values?))\s*\Z",
    re.IGNORECASE,
)
"""What stands before an interval or a list of numbers, rather than of sources."""
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])[\"')\]”’*_]{0,4}(?=\s)|\n")
_CLOSING = ".!?。！？:;,\"')]”’*_"
_SHORTEST_SENTENCE = 3
"""Words of a sentence that somebody can take over."""


@dataclass(frozen=True, slots=True)
class CitedText:
    """A text with its sources: `[n]` in it names the n-th."""

    text: str
    citations: tuple[Citation, ...] = ()
    problem: str = ""
    """What was left out, for people."""


@dataclass(slots=True)
class _Mark:
    """A mark that was taken out of a text."""

    anchor: int
    """Where it stood in the text without marks."""
    lead: str
    """The blank before it."""
    number: int
    position: int = 0
    """Where it stood in the text."""
    source: Citation | None = None


@dataclass(frozen=True, slots=True)
class Sources:
    """What the author of a text may name in it."""

    own: Sequence[Citation] = ()
    """Of the reply with the text, as the provider gave them."""
    earlier: Sequence[Sequence[Citation]] = ()
    """Of the earlier replies of the step, oldest first."""
    candidates: Sequence[Candidate] = ()
    """Answers that the author was shown, with their sources under the numbers of `show_sources`."""
    offset: int = 0
    """Characters of the reply that stand before the text."""
    is_written: bool = False
    """The author wrote the numbers itself, in the arguments of a call; else the provider set those of `own`."""

    _numbered: list[Citation] = field(init=False, repr=False, compare=False)
    _others: list[Citation] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        shown = number_together(self.candidates)
        if self.is_written:
            replies = [citation for reply in self.earlier for citation in reply]
            numbered, others = merge_citations([*shown, *replies, *self.own]), list[Citation]()
        else:
            numbered, others = merge_citations(self.own), shown
            for reply in reversed(self.earlier):
                others += merge_citations(reply)[len(others) :]
        object.__setattr__(self, "_numbered", numbered)
        object.__setattr__(self, "_others", others)

    @property
    def all(self) -> list[Citation]:
        """All of them, those of the reply first."""
        shown = number_together(self.candidates)
        return merge_citations([*self.own, *shown, *(citation for reply in self.earlier for citation in reply)])

    def find(self, number: int, position: int) -> Citation | None:
        """Return the source of this number, None when there is none. position: of the mark in the reply."""
        first, second = self._numbered, self._others
        if number <= len(first) and number <= len(second):
            spans = [citation for citation in self.own if citation.url == first[number - 1].url]
            # The provider sets its marks at the ends of the parts that rest on the source.
            is_own = any(c.start is None or c.end is None or c.start <= position <= c.end + 1 for c in spans)
            first, second = (first, second) if is_own else (second, first)
        return next((table[number - 1] for table in (first, second) if number <= len(table)), None)


def clean_citations(citations: Iterable[Citation]) -> list[Citation]:
    """Return citations of a provider with texts of one short line each, and no more of them than anybody reads."""
    return [
        replace(
            citation,
            url=clean_text(citation.url).strip()[: _LONGEST_URL + 1],
            title=one_line(citation.title, _LONGEST_TITLE),
            quote=one_line(citation.quote, _LONGEST_QUOTE),
        )
        for citation in islice(citations, 20 * MOST_SOURCES)
    ]


def merge_citations(citations: Iterable[Citation]) -> list[Citation]:
    """Return one citation for each page, in the order of first mention, with all that is quoted of it."""
    sources: dict[str, Citation] = {}
    for citation in citations:
        key = make_key(citation.url)
        sources[key] = _join(sources[key], citation) if key in sources else citation
    return list(sources.values())


def number_together(candidates: Iterable[Candidate]) -> list[Citation]:
    """Return the sources of several answers under one numbering."""
    return merge_citations(citation for candidate in candidates for citation in candidate.citations)


def show_sources(candidates: Sequence[Candidate]) -> list[tuple[str, list[str]]]:
    """Return each answer with the numbers of `number_together`, and its sources, a line each: for other agents."""
    numbers = {make_key(source.url): i for i, source in enumerate(number_together(candidates), 1)}
    shown: list[tuple[str, list[str]]] = []
    for candidate in candidates:
        if not candidate.citations:
            shown.append((candidate.content, []))
            continue
        own = [numbers[make_key(citation.url)] for citation in candidate.citations]
        plain, marks = _take_out(candidate.content, len(own))
        pieces = [(mark.anchor, f"{mark.lead}[{own[mark.number - 1]}]") for mark in marks if mark.number <= len(own)]
        by_number = dict(sorted(zip(own, candidate.citations, strict=True), key=lambda pair: pair[0]))
        lines = [_describe(number, source, _SHOWN_QUOTE) for number, source in by_number.items()]
        shown.append((_insert(plain, pieces), lines))
    return shown


def number_sources(text: str, sources: Sources, agent_id: str) -> CitedText:
    """Return an answer with its sources: those that it names, in the order of first mention, then others of its reply.

    A source is named by a mark, by its address, and by a sentence that has it in one of the candidates, word for word;
    such a sentence gets its mark. Marks get the new numbers, and those that point nowhere are removed.

    agent_id: whose the sources of the replies are.
    """
    if not sources.all:
        return CitedText(text)
    numbering = _Numbering(text, sources, agent_id)
    numbering.add_taken()
    return numbering.finish()


class _Numbering:
    def __init__(self, text: str, sources: Sources, agent_id: str) -> None:
        self._text = text
        self._sources = sources
        self._agent_id = agent_id
        self._known = {make_key(source.url): source for source in sources.all}
        listed, foreign = self._read_own_list()
        self._plain, self._marks = _take_out(text, len(self._known), foreign)
        for mark in self._marks:
            mark.source = listed.get(mark.number) or sources.find(mark.number, mark.position + sources.offset)

    def _read_own_list(self) -> tuple[dict[int, Citation], set[int]]:
        """Return what the numbers of a list stand for that the text has itself, and those of other addresses in it."""
        listed: dict[int, Citation] = {}
        foreign = {int(match[1]) for match in _DEFINITION.finditer(self._text)}
        for match in _LISTED.finditer(self._text):
            if source := self._known.get(make_key(_trim_address(match[2]))):
                listed.setdefault(int(match[1]), source)
        return listed, foreign - listed.keys()

    def add_taken(self) -> None:
        """Add a mark to each sentence of a candidate whose source the text does not name."""
        taken: dict[str, dict[str, Citation]] = {}
        for candidate in (one for one in self._sources.candidates if one.citations):
            content, marks = _take_out(candidate.content, len(candidate.citations))
            parts = _split(content)
            for mark in marks:
                if mark.number <= len(candidate.citations) and (part := _find_part(parts, mark.anchor)) is not None:
                    citation = candidate.citations[mark.number - 1]
                    taken.setdefault(_fold(content[slice(*parts[part])]), {})[make_key(citation.url)] = citation
        taken.pop("", None)
        parts = _split(self._plain) if taken else []
        named = {(_find_part(parts, m.anchor), make_key(m.source.url)) for m in self._marks if m.source is not None}
        for i, (start, end) in enumerate(parts):
            sentence = self._plain[start:end]
            for key, citation in taken.get(_fold(sentence), {}).items():
                if (i, key) not in named:
                    anchor = start + len(sentence.rstrip().rstrip(_CLOSING))
                    self._marks.append(_Mark(anchor, " ", 0, source=citation))
        self._marks.sort(key=lambda mark: mark.anchor)

    def finish(self) -> CitedText:
        numbers, parts = self._number()
        pieces: list[tuple[int, str]] = []
        lost: dict[int, None] = {}
        last: tuple[int, int] | None = None
        for mark in self._marks:
            number = None if mark.source is None else numbers.get(make_key(mark.source.url))
            if number is None:
                lost[mark.number] = None
            elif (mark.anchor, number) != last:
                pieces.append((mark.anchor, f"{mark.lead}[{number}]"))
                last = mark.anchor, number
        text = _insert(self._plain, pieces)
        own = {make_key(source.url): source for source in merge_citations(self._sources.own)}
        citations = [self._clean(self._known[key], own.get(key), text) for key in numbers]
        for i, key in enumerate(numbers):
            if key in parts and citations[i].start is None:
                start, end = (_move(place, pieces) for place in parts[key])
                citations[i] = replace(citations[i], start=start, end=end)
        left_out = sum(_is_usable(source.url) for source in own.values()) - len(own.keys() & numbers.keys())
        return CitedText(text, tuple(citations), _describe_problem(list(lost), left_out))

    def _number(self) -> tuple[dict[str, int], dict[str, tuple[int, int]]]:
        """Return the number of each source, those that the text names first, and the parts that rest on these."""
        named = [(m.anchor, m.anchor, make_key(m.source.url)) for m in self._marks if m.source is not None]
        for match in _ADDRESS.finditer(self._plain):
            key = make_key(_trim_address(match[0]))
            named += [(match.start(), match.end(), key)] if key in self._known else []
        sentences, parts = _split(self._plain), dict[str, tuple[int, int]]()
        for _, end, key in sorted(named, key=lambda name: name[0]):
            if key not in parts and _is_usable(self._known[key].url):
                place = _find_part(sentences, end)
                start = end if place is None else sentences[place][0]
                parts[key] = (start + len(self._plain[start:end]) - len(self._plain[start:end].lstrip()), end)
        unnamed = (make_key(source.url) for source in self._sources.own if _is_usable(source.url))
        keys = list(dict.fromkeys([*parts, *unnamed]))[:MOST_SOURCES]
        return {key: number for number, key in enumerate(keys, 1)}, parts

    def _clean(self, source: Citation, own: Citation | None, text: str) -> Citation:
        start = end = None
        if own is not None and own.start is not None and own.end is not None and text == self._text:
            start, end = own.start - self._sources.offset, own.end - self._sources.offset
            if not 0 <= start < end <= len(text):
                start = end = None
        quote = one_line(source.quote, _LONGEST_QUOTE)
        return replace(source, quote=quote, agent_id=source.agent_id or self._agent_id, start=start, end=end)


def join(text: str, citations: Sequence[Citation], rest: str, more: Sequence[Citation]) -> tuple[str, list[Citation]]:
    """Return a reply and its continuation as one. more: of the rest, which numbers them from 1."""
    if not more:
        return text + rest, list(citations)
    first, second = merge_citations(citations), merge_citations(more)
    urls = [source.url for source in merge_citations([*first, *second])]
    plain, marks = _take_out(rest, len(second))
    numbers = [urls.index(source.url) + 1 for source in second]
    pieces = [(m.anchor, f"{m.lead}[{numbers[m.number - 1] if m.number <= len(numbers) else m.number}]") for m in marks]
    moved = [
        c if c.start is None or c.end is None else replace(c, start=c.start + len(text), end=c.end + len(text))
        for c in more
    ]
    return text + _insert(plain, pieces), [*citations, *moved]


def strip_sources(citations: Iterable[Citation]) -> tuple[Citation, ...]:
    """Return the sources with their addresses alone."""
    return tuple(replace(citation, title="", quote="") for citation in citations)


def remove_marks(text: str, count: int) -> str:
    """Return the text without the marks of its sources, which are so many."""
    return _take_out(text, count)[0] if count else text


def write_notes(citations: Sequence[Citation]) -> list[str]:
    """Return a numbered line for each source."""
    return [_describe(number, citation, 0) for number, citation in enumerate(citations, 1)]


def find_marks(text: str, citations: Sequence[Citation]) -> list[tuple[int, int, Citation]]:
    """Return where each mark of the text begins and ends, and the source that it names."""
    marks = [mark for mark in _take_out(text, len(citations))[1] if mark.number <= len(citations)]
    starts = [mark.position + len(mark.lead) for mark in marks]
    return [(i, i + len(f"[{m.number}]"), citations[m.number - 1]) for i, m in zip(starts, marks, strict=True)]


def read_citations(metadata: Mapping[str, Any]) -> tuple[Citation, ...]:
    """Return the sources that the metadata of a message has."""
    return tuple(Citation(**entry) for entry in metadata.get("citations", ()))


def _describe(number: int, source: Citation, longest_quote: int) -> str:
    """Return `[1] Title, https://example.org: "quoted"` on one line."""
    quote = one_line(source.quote, longest_quote) if longest_quote and source.quote else ""
    return f"[{number}] {', '.join(filter(None, (source.title, source.url)))}" + (f': "{quote}"' if quote else "")


def _describe_problem(lost: Sequence[int], left_out: int) -> str:
    parts = [f"numbers without a source were removed: {', '.join(f'[{n}]' for n in lost[:20])}"] if lost else []
    parts += [f"{left_out} sources beyond the first {MOST_SOURCES} were left out"] if left_out > 0 else []
    return "; ".join(parts)


def _join(source: Citation, other: Citation) -> Citation:
    quotes = source.quote if other.quote in source.quote else " … ".join(filter(None, (source.quote, other.quote)))
    return replace(source, title=source.title or other.title, quote=quotes[: 4 * _LONGEST_QUOTE])


def make_key(url: str) -> str:
    """Return what is the same for all spellings of an address; providers add where a reader comes from."""
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return url
    query = "&".join(value for value in parts.query.split("&") if not value.startswith("utm_"))
    return f"{parts.netloc.lower().removeprefix('www.')}{parts.path.rstrip('/')}?{query}" if parts.netloc else url


def _is_usable(url: str) -> bool:
    return 0 < len(url) <= _LONGEST_URL and url.isprintable() and " " not in url


def list_addresses(text: str) -> list[str]:
    """Return the addresses of pages in a text, as `https://example.org/a_(b)`."""
    return list(map(_trim_address, _ADDRESS.findall(text)))


def _trim_address(address: str) -> str:
    """Return an address without the signs of the sentence around it."""
    address = address.rstrip(".,;:!?'*_”’>|")
    while address.endswith(")") and address.count("(") < address.count(")"):
        address = address[:-1].rstrip(".,;:!?'*_”’")
    return address


def _take_out(text: str, count: int, foreign: Collection[int] = ()) -> tuple[str, list[_Mark]]:
    """Return the text without marks, and the marks.

    count: of the known sources: in a list of numbers, each has to be one. foreign: numbers that are no marks.
    """
    # Of an array or an object the brackets are no marks.
    protected = [(0, len(text))] if parse_json(text) is not None else _find_verbatim_parts(text)
    starts = [start for start, _ in protected]
    pieces, marks, length, last = list[str](), list[_Mark](), 0, 0
    for match in _MARK.finditer(text):
        numbers = [int(number) for number in match["numbers"].split(",")]
        opening = match.end("lead")
        place = bisect_left(starts, opening + 1) - 1
        is_protected = place >= 0 and opening < protected[place][1]
        if is_protected or not _is_mark(text, match, numbers, count, last) or set(numbers) & set(foreign):
            continue
        pieces.append(text[last : match.start()])
        length += len(pieces[-1])
        for i, number in enumerate(numbers):
            marks.append(_Mark(length, match["lead"] if i == 0 else "", number, match.start()))
        last = match.end()
    return "".join([*pieces, text[last:]]), marks


def _is_mark(text: str, match: re.Match[str], numbers: Sequence[int], count: int, last: int) -> bool:
    """Return whether a number in brackets names a source. last: where the mark before it ends."""
    opening = match.end("lead")
    before = text[max(0, opening - 40) : opening]
    if len(numbers) > 1 and (max(numbers) > count or _BEFORE_VALUES.search(before)):
        return False
    if match["lead"] or not before:
        return True
    if before[-1] in "\\![":
        return False
    if before[-1] == "]":
        return last == match.start()  # else it is the target of a link: [text][1]
    word = _LAST_WORD.search(before)
    return word is None or not _PLACE.match(word[0])


def _find_verbatim_parts(text: str) -> list[tuple[int, int]]:
    """Return where code, mathematics and links begin and end."""
    spans: list[tuple[int, int]] = []
    fence, start = "", 0
    for match in _FENCE.finditer(text):
        if not fence:
            fence, start = match[1], match.start()
        elif match[1].startswith(fence):
            spans.append((start, match.end()))
            fence = ""
    if fence:
        spans.append((start, len(text)))
    position = 0
    for fenced_start, fenced_end in [*spans, (len(text), len(text))]:
        spans += [match.span() for match in _PROTECTED.finditer(text, position, fenced_start)]
        position = fenced_end
    return sorted(spans)


def _split(plain: str) -> list[tuple[int, int]]:
    """Return where each sentence of a text without marks begins and ends."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in _SENTENCE_END.finditer(plain):
        end = match.start() if match[0] == "\n" else match.end()
        if plain[start:end].strip():
            spans.append((start, end))
        start = match.end()
    return [*spans, (start, len(plain))] if plain[start:].strip() else spans


def _find_part(spans: Sequence[tuple[int, int]], position: int) -> int | None:
    """Return which of the spans ends at the position, or has it within."""
    place = bisect_left(spans, (position, 0)) - 1
    return place if place >= 0 and spans[place][0] < position <= spans[place][1] else None


def _fold(sentence: str) -> str:
    """Return what is the same for sentences that are the same word for word; "" for one that is too short to tell."""
    words = re.findall(r"\w+", sentence.casefold())
    return " ".join(words) if len(words) >= _SHORTEST_SENTENCE else ""


def _insert(plain: str, pieces: Sequence[tuple[int, str]]) -> str:
    parts, last = list[str](), 0
    for anchor, piece in pieces:
        parts += [plain[last:anchor], piece]
        last = anchor
    return "".join([*parts, plain[last:]])


def _move(position: int, pieces: Sequence[tuple[int, str]]) -> int:
    """Return where a place of the text without marks is once the pieces are in it."""
    return position + sum(len(piece) for anchor, piece in pieces if anchor < position)
