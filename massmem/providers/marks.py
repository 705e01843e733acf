"""The sources of a reply, and the marks in its text: `[n]` for the n-th address, whatever the provider writes; and the
marks of chat templates, which are cut off its end.

Providers cite in four ways: by Markdown links in the text (OpenAI, xAI), by numbers of a list that comes beside it
(Perplexity), by parts of the text with their sources (Anthropic), and by offsets that come after the text (Gemini,
OpenRouter).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from massmem.core.citations import make_key
from massmem.core.messages import Citation

_TEMPLATE_MARK = r"(?:<\|(?:eot_id|eom_id|im_end|end|endoftext|end_of_text|return)\|>|<end_of_turn>|<turn\|>|</s>)"
_THOUGHT = r"<\|channel>thought"
_BEGIN = re.compile(rf"(?<![ \t`\"'(])(?:{_TEMPLATE_MARK}|{_THOUGHT})")
_MAY_BEGIN = re.compile(rf"{_BEGIN.pattern}|<[|/]?[a-z_|]{{0,15}}>?[a-z]{{0,7}}\Z")
"""A mark of a chat template that is no word of its sentence, or the beginning of one."""
_LEAK = re.compile(
    rf"(?:{_TEMPLATE_MARK}\s*)+(?P<turn>(?:<\|?(?:im_start|start_header_id|start_of_turn|turn|start)\|?>\s*)?"
    r"(?i:user|human|assistant|model|system|tool)(?=[:\n<]|\Z).*)?"
    rf"|{_THOUGHT}(?:(?!<channel\|>).)*(?:<channel\|>)?\s*",
    re.DOTALL,
)


class TemplateEnd:
    """Takes marks of a chat template off the end of a text, and the turn that a model invents after them.

    A text of nothing else stays, and so does one that has them in its code.
    """

    def __init__(self) -> None:
        self._text, self._held = "", ""
        self.cut = ""
        """What was taken off, in words."""

    def feed(self, text: str, *, final: bool = False) -> str:
        """Return what is certain of the text."""
        self._held += text
        start = len(self._held)
        if "<" in self._held:
            whole, size = self._text + self._held, len(self._text)
            places = [match.start() for match in (_BEGIN if final else _MAY_BEGIN).finditer(whole, size)]
            places = [place for place in places if whole.count("```", 0, place) % 2 == 0]
            if final:
                leaks = (leak for place in places if whole[:place].strip() and (leak := _LEAK.fullmatch(whole, place)))
                if leak := next(leaks, None):
                    self.cut = "marks of its chat template" + (" and the turn that it invented" if leak["turn"] else "")
                    self._held = self._held[: leak.start() - size]
            elif places:
                start = places[0] - size
        certain, self._held = self._held[:start], self._held[start:]
        self._text += certain
        return certain


Form = Literal["links", "numbers", "parts", "offsets", "none"]
"""How the text is cited. none: it stays as it is, for it is a vote or JSON."""

_LABEL = re.compile(r"\[((?:\[[^\[\]\n]{0,40}\]|[^\[\]\n]){0,300})\]")
_TARGET = re.compile(r"\(<?(https?://(?:[^\s()<>]|\([^\s()<>]{0,200}\)){1,2000})>?(?:[ \t]\"[^\"\n]{0,300}\")?\)")
_BETWEEN = re.compile(r"[,;]?[ \t]{0,4}(?=\[)")
_NUMBERS = re.compile(r"\[(\d{1,3}(?:[ \t]?[,;][ \t]?\d{1,3}){0,9})\]|【(\d{1,3})[^】\n]{0,40}】")
_BARE_NAME = re.compile(r"\[?\d{1,3}\]?|(?:[\w-]{1,63}\.){1,8}[a-z]{2,24}(?:/\S{0,300})?|source|link", re.IGNORECASE)
"""A label that is no word of the sentence around it."""
_MARKS = re.compile(r"(?:\[\d{1,3}\])+")
_TRACKING = re.compile(r"[?&]utm_source=(?:openai|chatgpt\.com)(?=&|#|$)")
_MAX_OPEN = 2_500
"""Characters after a bracket that may still become a link."""
_MAX_LABEL = 350
"""Of them those that are its words."""


@dataclass(slots=True)
class Source:
    url: str
    title: str = ""
    quote: str = ""
    number: int = 0
    """Of its marks; 0: it has none."""
    is_cited: bool = False
    """The provider says that the text rests on it."""
    parts: list[tuple[int, int, str]] = field(default_factory=list[tuple[int, int, str]])
    """Where the text rests on it, with what the source says there."""


@dataclass(slots=True)
class SourceMarker:
    """Gathers the sources of one reply, and puts the marks into its text while it streams."""

    form: Form = "none"
    length: int = 0
    """Characters of the text so far, with its marks."""
    has_nameless: bool = False
    """A citation had no address, and was left out."""
    has_lost_marks: bool = False
    """A number of the provider pointed nowhere, and was removed."""
    _sources: dict[str, Source] = field(default_factory=dict[str, Source])
    _list: list[Source] = field(default_factory=list[Source])
    """Those to which the provider's own numbers point."""
    _held: str = ""
    """Text that may be a mark, or waits for its source."""
    _spans: list[tuple[int, int, Source]] = field(default_factory=list["tuple[int, int, Source]"])
    """Parts that rest on a source, by offsets in the text as it came."""
    _count: int = 0
    _last: str = ""
    """The last character of the text so far."""

    @property
    def has_sources(self) -> bool:
        return bool(self._sources)

    def add_source(
        self, url: object, title: object = "", quote: object = "", *, is_cited: bool = False
    ) -> Source | None:
        """Note a page that the provider has read; is_cited: and says to be a source. None: it has no address."""
        if not isinstance(url, str) or not url.strip():
            self.has_nameless |= is_cited
            return None
        source = self._sources.setdefault(make_key(url), Source(_clean_address(url)))
        source.title = source.title or (title.strip() if isinstance(title, str) else "")
        source.quote = source.quote or (quote.strip() if isinstance(quote, str) else "")
        source.is_cited |= is_cited
        return source

    def add_pages(self, pages: list[Mapping[str, Any]]) -> None:
        """Note the pages to which numbers in the text point, the first by 1. Later lists have all of earlier ones."""
        sources = [self.add_source(page.get("url"), page.get("title"), page.get("snippet")) for page in pages]
        if len(pages) >= len(self._list):
            self._list = [source or Source("") for source in sources]

    def add_span(self, source: Source, start: object, end: object) -> None:
        """Note that a part of the text as it came, in characters, rests on a source."""
        if isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
            self._spans.append((start, end, source))

    def feed(self, text: str, *, final: bool = False) -> Iterator[str]:
        """Yield what is certain of the text: with its marks, and without the provider's."""
        self._held += text
        if self.form != "offsets":
            yield from self._scan(final=final)
        elif final:
            yield from self._place_spans()

    def end_part(self, start: int, sources: list[tuple[Source, str]]) -> Iterator[str]:
        """Yield the marks of a part of the text that ends here. sources: with what each says.

        start: the `length` at which it began.
        """
        yield from self._scan(final=True)
        end = self.length
        for source, quote in sources if self.form != "none" else ():
            if not any(part[0] == start for part in source.parts):
                yield from self._emit(self._set_apart(self._mark(source)))
            source.parts.append((start, end, quote))

    def mark_links(self, text: str) -> str:
        """Return a text beside the reply's own, such as an argument of a call, with its links to sources as marks."""
        inner = replace(self, form="parts", _held="", length=0)
        marked = "".join(inner.feed(text, final=True))
        self._count = inner._count
        return marked

    def list_citations(self) -> list[Citation]:
        """Return the sources in the order of their numbers; those without a mark last."""
        marked = sorted((s for s in self._sources.values() if s.number), key=lambda source: source.number)
        unmarked = [s for s in self._sources.values() if s.is_cited and not s.number]
        if self.form == "numbers" and not marked:
            unmarked = [source for source in self._list if source.url]
        citations: dict[Citation, None] = {}
        for source in (*marked, *(unmarked if self.form != "none" else ())):
            parts = source.parts or [(None, None, "")]
            for start, end, quote in parts:
                citations[Citation(source.url, source.title, quote or source.quote, start=start, end=end)] = None
        return list(citations)

    def _mark(self, source: Source) -> str:
        if not source.number:
            self._count += 1
            source.number = self._count
        return f"[{source.number}]"

    def _set_apart(self, marks: str, before: str = "") -> str:
        """Return marks with a blank before them where a word stands there: `m[1]` would be a place in an array.

        before: the end of the text between what is out already and the marks. Other texts stay as they are.
        """
        return f" {marks}" if (before or self._last)[-1:].isalnum() and _MARKS.fullmatch(marks) else marks

    def _emit(self, text: str) -> Iterator[str]:
        self.length += len(text)
        if text:
            self._last = text[-1]
            yield text

    def _scan(self, *, final: bool) -> Iterator[str]:
        """Yield the held text with its marks, up to one that is not decided."""
        text, done, written, last = self._held, 0, list[str](), ""
        limit = len(text) - (text.endswith("(") and not final)
        place = _find_bracket(text, 0)
        while place >= 0:
            numbers = _NUMBERS.match(text, place) if self.form == "numbers" else None
            is_link = numbers is not None and _TARGET.match(text, numbers.end())
            if numbers is not None and not is_link:
                mark = self._read_numbers(numbers, final=final)
            else:
                mark = self._read_links(place, final=final)
            if mark is None:
                limit = place - (text[place - 1 : place] == "(")
                break
            begin, end, instead = mark
            instead = self._set_apart(instead, text[done:begin] or last)
            last = instead or text[done:begin] or last
            written += (text[done:begin], instead)
            done, place = end, _find_bracket(text, end)
        self._held = text[limit:]
        yield from self._emit("".join((*written, text[done:limit])))

    def _read_numbers(self, match: re.Match[str], *, final: bool) -> tuple[int, int, str] | None:
        """Return where a mark of the provider begins and ends, and what stands instead; None: its list is to come."""
        if not final and (not self._list or match.end() == len(self._held)):
            return None
        if not self._list:
            return match.start(), match.end(), match[0]
        numbers = [int(number) for number in re.findall(r"\d+", match[1] or match[2])]
        sources = [self._list[n - 1] for n in numbers if 0 < n <= len(self._list) and self._list[n - 1].url]
        self.has_lost_marks |= len(sources) < len(numbers)
        return match.start(), match.end(), "".join(map(self._mark, sources))

    def _read_links(self, place: int, *, final: bool) -> tuple[int, int, str] | None:
        """Return where links in a row begin and end, and what stands instead; None: more text may decide it.

        A bracket that begins no link stays as it is.
        """
        text, position, written = self._held, place, list[str]()
        in_parentheses = text[place - 1 : place] == "("
        rows: list[tuple[str, str, Source | None]] = []
        while (label := _LABEL.match(text, position)) and (target := _TARGET.match(text, label.end())):
            rows.append((label[1], text[position : target.end()], self._sources.get(make_key(target[1]))))
            position = target.end()
            between = _BETWEEN.match(text, position) if in_parentheses else None
            if between is None:
                break
            position = between.end()
        is_known = bool(rows) and all(source is not None for _, _, source in rows)
        may_grow = (
            not final and (not rows or in_parentheses) and _may_become_link(text, position, in_row=in_parentheses)
        )
        if may_grow or (rows and not is_known and self.form == "links" and not final):
            return None
        if not rows:
            return place, place + 1, text[place]
        in_parentheses = in_parentheses and is_known and text[position : position + 1] == ")"
        for label_text, whole, source in rows:
            if source is None:
                written.append(whole)
            elif in_parentheses or _BARE_NAME.fullmatch(label_text):
                written.append(self._mark(source))
            else:
                written.append(label_text + self._set_apart(self._mark(source), label_text))
        return place - in_parentheses, position + in_parentheses, ("" if is_known else ", ").join(written)

    def _place_spans(self) -> Iterator[str]:
        """Yield the whole text with the marks of its spans, each behind its part, and those of links."""
        text, self._held, done = self._held, "", 0
        linked = {make_key(target[1]) for target in _TARGET.finditer(text)}
        spans = [span for span in self._spans if span[1] <= len(text) and make_key(span[2].url) not in linked]
        starts: dict[int, int] = {}
        for place in sorted({place for start, end, _ in spans for place in (start, end)}):
            self._held, done = text[done:place], place
            yield from self._scan(final=True)
            end = self.length
            ending = {span[2].url: span for span in spans if span[1] == place}
            for start, _, source in ending.values():
                yield from self._emit(self._set_apart(self._mark(source)))
                source.parts.append((starts[start], end, ""))
            starts[place] = self.length
        self._held = text[done:]
        yield from self._scan(final=True)


def _find_bracket(text: str, start: int) -> int:
    places = [place for place in (text.find("[", start), text.find("【", start)) if place >= 0]
    return min(places, default=-1)


def _may_become_link(text: str, position: int, *, in_row: bool) -> bool:
    """Whether the end of the text, which begins at this position, may become a link.

    in_row: or goes on with more of them in the same parentheses.
    """
    if len(text) - position > _MAX_OPEN:
        return False
    rest = text[position:]
    if not rest or (in_row and re.fullmatch(r"[,;]?[ \t]{0,4}", rest)):
        return True
    if "\n" in rest or rest[0] not in "[【":
        return False
    if (label := _LABEL.match(rest)) is None:
        return len(rest) <= _MAX_LABEL
    target = rest[label.end() :].replace("<", "")
    return "(https://".startswith(target[:9]) or re.match(r"\(https?:", target) is not None


def _clean_address(url: str) -> str:
    """Return an address without what OpenAI adds to it."""
    cleaned = _TRACKING.sub("", url.strip())
    return cleaned if "?" in cleaned else cleaned.replace("&", "?", 1) if cleaned != url.strip() else cleaned
