"""Replies become chunks here, whoever sends them: one place between the wire and the core.

Servers differ in frames, words and forms, and some send what no protocol has. An element that cannot be read costs
itself: what stands around it counts, and what is left out is named once for each reply.
"""

import ast
import codecs
import io
import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, ClassVar, cast

from massmem.core.calls import find_tool_name, parse_object
from massmem.core.errors import ContentRefused, ContextOverflow, MalformedResponse, ProviderError, StreamInterrupted
from massmem.core.messages import (
    ChatRequest,
    Chunk,
    CitationChunk,
    FinishChunk,
    FinishReason,
    NoticeChunk,
    ReasoningChunk,
    SearchChunk,
    TextChunk,
    ThoughtsEndChunk,
    ToolCall,
    ToolCallChunk,
    ToolSpec,
    Usage,
)
from massmem.core.text import one_line
from massmem.providers.base import read_count, read_usage
from massmem.providers.dialects import TOOL_MARK, write_state
from massmem.providers.failures import ErrorContext, clean_message, find_failure, parse_error_body
from massmem.providers.marks import SourceMarker, TemplateEnd

log = logging.getLogger(__name__)

Json = Mapping[str, Any]

_JSON = json.JSONDecoder(strict=False)
_BETWEEN_VALUES = re.compile(r"[\s,]*")
_NOISE = ("", "[done]", "ping", "pong", "keepalive", "keep-alive", "heartbeat")
"""Data of events that say nothing."""


def parse_values(text: str) -> tuple[list[Any], str]:
    """Return the JSON values of which a text consists, one after another, and the rest, which is none."""
    values, start = list[Any](), 0
    while (start := cast("re.Match[str]", _BETWEEN_VALUES.match(text, start)).end()) < len(text):
        try:
            value, start = _JSON.raw_decode(text, start)
        except (ValueError, RecursionError):
            break
        values.append(value)
    return values, text[start:]


class Frames:
    """Splits the bytes of a reply into its elements: server-sent events, lines of JSON, or one JSON text."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._decoder = io.IncrementalNewlineDecoder(decoder, translate=True)
        self._line: list[str] = []
        """Pieces of a line that has not ended."""
        self._name = ""
        self._data: list[str] = []
        self._others: list[str] = []
        """Lines that are no fields of events: a reply that is JSON, or a page."""

    def feed(self, block: bytes, *, final: bool = False) -> Iterator[Any]:
        """Yield the elements that end in this block: JSON values, and texts that are no JSON."""
        first, *lines = self._decoder.decode(block, final).split("\n")
        self._line.append(first)
        for line in lines:
            yield from self._read_line("".join(self._line))
            self._line = [line]
        if final:
            yield from self._read_line("".join(self._line))
            yield from self._end_event()
            yield from _read_elements(self._others)

    def _read_line(self, line: str) -> Iterator[Any]:
        field, _, value = line.partition(":")
        match field.strip().lower():
            case "" if not line.strip():
                yield from self._end_event()
            case "" | "id" | "retry":
                pass
            case "event":
                self._name = value.strip()
            case "data":
                # Some servers leave out the empty line between events.
                if len(self._data) == 1 and not parse_values(self._data[0])[1]:
                    yield from self._end_event()
                self._data.append(value.strip())
            case _ if not self._others and line.rstrip().endswith("}") and not parse_values(line)[1]:
                yield from _read_elements([line])
            case _:
                self._others.append(line)

    def _end_event(self) -> Iterator[Any]:
        name, lines = self._name, self._data
        self._name, self._data = "", []
        yield from _read_elements(lines, name)


def _read_elements(lines: Sequence[str], name: str = "") -> Iterator[Any]:
    """Yield the elements of an event of this name, or of the lines of a text."""
    text = "\n".join(lines).removeprefix("data:")
    if text.strip().lower() in _NOISE:
        return
    values, rest = parse_values(text)
    if rest and name == "error":
        yield {"type": "error", "error": text}
    elif rest and len(lines) > 1:
        for line in lines:
            yield from _read_elements([line], name)
    else:
        for value in (*values, rest) if rest else values:
            for element in cast("list[Any]", value) if isinstance(value, list) else [value]:
                yield {"type": name, **element} if name and isinstance(element, dict) else element


_WHOLE = {
    "stop", "endturn", "end", "eos", "eostoken", "eosfound", "endoftext", "endofturn", "complete", "completed", "done",
    "finish", "finished", "stopsequence", "stopstring", "stopstringfound", "stopword", "stoptoken", "normal",
}  # fmt: skip
_CALLING = {"toolcall", "toolcalls", "tooluse", "functioncall", "functioncalls"}
_OVERFLOW = re.compile("context(?:window|length)?exceed")
_CUT = re.compile("length|max.{0,60}tokens?|token.{0,60}(?:limit|reached)|truncated|pauseturn")
"""The last: the server wants to be asked to go on, as after its limit of tokens."""
_REFUSED = re.compile(
    "contentfilter|contentpolicy|safety|refus|sensitive|recitation|prohibited|blocklist|blocked|spii|guardrail|toxic"
    "|moderat|policyviolation|copyright"
)
_FAILED = re.compile(
    "error|fail|cancel|queued|malformed|abort|interrupt|timeout|shutdown|insufficient|toolcall|unavailable"
)


def find_finish(word: str) -> FinishReason | type[ProviderError] | None:
    """Return what a server means by its word for the end of a reply; None: it has not ended."""
    plain = re.sub("[^a-z]", "", word.casefold()).removeprefix("finishreason")
    if plain in ("", "null", "none", "unspecified", "inprogress"):
        return None
    if plain in _WHOLE:
        return "stop"
    if plain in _CALLING:
        return "tool_calls"
    if _OVERFLOW.search(plain):
        return ContextOverflow
    if _CUT.search(plain):
        return "length"
    failure = ContentRefused if _REFUSED.search(plain) else StreamInterrupted if _FAILED.search(plain) else None
    return failure or "unknown"


_TAGS = ("think", "thinking", "thought", "thoughts", "reasoning", "seed:think", "mm:think", "antthinking")
_OPENING = re.compile(
    rf"""(?<!\s)\s*+(?:<(?P<tag>{"|".join(_TAGS)})(?:\s[^<>]{{0,60}})?>|(?P<round>◁)think▷|(?P<square>\[)THINK\]"""
    r"|(?:<\|start\|>(?:assistant)?)?<\|channel\|>(?P<channel>\w+)(?P<call> to=)?[^<]{0,60}"
    r"(?:<\|constrain\|>\w{0,20})?<\|message\|>"
    r"|<\|(?P<begin>begin_of|start)_(?P<part>thought|thinking|solution|response)\|>)",
    re.IGNORECASE,
)
"""Marks before what a model thinks, and before what it says after that."""
_MAY_OPEN = re.compile(r"\s*(?:<[\w:]{0,20}(?:\s[^<>]{0,60})?|◁\w{0,5}|\[\w{0,5}|<\|[^\n]{0,160})?")
_MAX_QUOTES = 10
_LOOSE_ENDS = (*(f"</{tag}>" for tag in _TAGS), "◁/think▷", "[/think]")


class Thinking:
    """Tells what a model thinks from what it says, where a server sends both as its text.

    Only marks at the beginning count: elsewhere the text may be about them. The mark at the beginning may be missing.
    """

    def __init__(self) -> None:
        self._held = ""
        """Text that may be a mark, or the beginning of one."""
        self._ends: tuple[str, ...] = ()
        """Marks that end the part; none: it goes on to the end of the reply."""
        self._is_thought = self._has_parts = False
        self._is_new = True
        """Nothing of the part has been read."""
        self._text = ""
        self._quotes = 0
        """Marks that are words of the text. With many of them it is about marks."""

    def feed(self, piece: str, *, final: bool = False) -> Iterator[Chunk]:
        self._held += piece
        while self._held:
            if self._is_new and not self._ends:
                if match := _OPENING.match(self._held):
                    self._begin(match)
                    continue
                if not final and _MAY_OPEN.fullmatch(self._held):
                    return
            if self._is_new and self._has_parts:
                self._held = self._held.lstrip()
            self._is_new = not self._held
            end = self._find_end()
            size = 0 if end or final else _count_open(self._held, self._ends or _LOOSE_ENDS)
            text = self._held[: end.start() if end else len(self._held) - size]
            self._held = self._held[end.end() if end else len(text) :]
            if text:
                self._text += text
                yield ReasoningChunk(text) if self._is_thought else TextChunk(text)
            if end is None:
                return
            if not self._ends:
                yield ThoughtsEndChunk()
            self._ends, self._is_thought, self._is_new, self._has_parts = (), False, True, True

    def _begin(self, match: re.Match[str]) -> None:
        self._held = self._held[match.end() :]
        marks = {name: mark.lower() for name, mark in match.groupdict(default="").items()}
        if marks["begin"]:
            self._ends = (f"<|{marks['begin'].replace('begin', 'end').replace('start', 'end')}_{marks['part']}|>",)
        elif marks["channel"]:
            self._ends = ("<|end|>", "<|return|>", "<|call|>")
        else:
            self._ends = (f"</{marks['tag']}>" if marks["tag"] else "◁/think▷" if marks["round"] else "[/think]",)
        self._is_thought = not (marks["call"] or {"final", "solution", "response"} & set(marks.values()))
        self._has_parts = True

    def _find_end(self) -> re.Match[str] | None:
        if self._has_parts and not self._ends:
            return None
        marks = re.finditer("|".join(map(re.escape, self._ends or _LOOSE_ENDS)), self._held, re.IGNORECASE)
        if self._ends:
            return next(marks, None)
        return next(filter(self._ends_thoughts, islice(marks, _MAX_QUOTES - self._quotes)), None)

    def _ends_thoughts(self, mark: re.Match[str]) -> bool:
        """Whether a mark in the text, without one that begins, is no word of it: it is not quoted, and no code."""
        before = self._text + self._held[: mark.start()]
        line = before.rpartition("\n")[2]
        is_code = before.count("```") % 2 or line.count("`") % 2 or _OPENING.search(before)
        is_end = not line.strip() or line.rstrip()[-1] in ".!?…" or line[-1] not in " \t\"'([{«“‘"
        self._quotes += bool(is_code) or not is_end
        return is_end and not is_code


def _count_open(text: str, marks: Sequence[str]) -> int:
    """Return how many characters at the end of the text may begin one of the marks."""
    sizes = range(min(len(text), max(map(len, marks)) - 1), 0, -1)
    return next((size for size in sizes if any(mark.startswith(text[-size:].lower()) for mark in marks)), 0)


_MAX_LITERAL = 20_000


def read_arguments(text: str, properties: Collection[str] = ()) -> list[Json]:
    """Return the JSON objects that the arguments of a call are; none when they cannot be read.

    Models quote or fence them, wrap them once more, and put two calls into one. properties: what the tool takes.
    """
    start, end = text.find("{"), text.rfind("}") + 1
    for written in (text, text[start:end]):
        values, rest = parse_values(written)
        if values and not re.search(r"[{\[\w]", rest):
            break
    else:
        values = [_read_literal(text[start:end])]
    if isinstance(values[0], str) and values[0] != text:
        return read_arguments(values[0], properties)
    items = [item for value in values for item in (cast("list[Any]", value) if isinstance(value, list) else [value])]
    return [_unwrap(cast("Json", item), properties) for item in items if isinstance(item, dict)]


def _read_literal(text: str) -> object:
    """Return the value of an object as Python writes it: in other quotes, or with a comma at its end."""
    try:
        return ast.literal_eval(text) if len(text) < _MAX_LITERAL else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None


def _unwrap(data: Json, properties: Collection[str]) -> Json:
    """Return the arguments themselves, where a model has wrapped them in something that the tool does not take."""
    if properties and data.keys().isdisjoint(properties):
        for inner in data.values():
            objects = [_unwrap(cast("Json", inner), properties)] if isinstance(inner, dict) else []
            objects = read_arguments(inner, properties) if isinstance(inner, str) else objects
            if len(objects) == 1 and not objects[0].keys().isdisjoint(properties):
                return objects[0]
    return data


def pair_halves(text: str) -> str:
    """Return the text with characters whole that two pieces had one half each of; other halves become U+FFFD."""
    whole = text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")  # no database takes it


@dataclass(slots=True)
class _Call:
    id: str = ""
    name: str = ""
    arguments: str = ""
    state: dict[str, Json] = field(default_factory=dict[str, Json])


class Calls:
    """Puts the tool calls of a reply together: pieces of one belong together by index, id and completeness."""

    def __init__(self, tools: Sequence[ToolSpec]) -> None:
        self._properties = {tool.name: cast("Json", tool.parameters.get("properties") or {}) for tool in tools}
        self._calls: list[_Call] = []
        self._open: dict[object, _Call] = {}
        self.length = 0
        """Characters of arguments."""

    def add(self, key: object, id_: str, name: str, arguments: str, *, whole: bool = False) -> dict[str, Json]:
        """Add a piece, or the whole of what may have come in pieces. Return what goes back with the call, by place.

        key: where the server says that it belongs; None: it does not say, so that a piece belongs to the last call.
        """
        self.length += 0 if whole else len(arguments)
        call = self._open.get(key)
        if whole and key is None:
            call = next((other for other in self._calls if (other.name, other.arguments) == (name, arguments)), None)
        if call is None or call.id != id_:
            call = next((other for other in self._calls if id_ and other.id == id_), call)
        if call is not None and (id_ != call.id if whole and id_ and call.id else self._begins_other(call, id_, name)):
            call = None
        if call is None:
            if not (id_ or name):
                return {}
            call = _Call()
            self._calls.append(call)
        self._open[key] = self._open[None] = call
        call.id = call.id or id_
        # A name comes at once, in pieces, or again with every piece.
        call.name = name if name.startswith(call.name) else call.name + name
        call.arguments = arguments if whole and arguments else call.arguments + arguments
        return call.state

    def _begins_other(self, call: _Call, id_: str, name: str) -> bool:
        """Whether a piece with this id and name begins another call in the place of this one."""
        if not name or not call.name:
            return False
        meant = {find_tool_name(written, self._properties) for written in (name, call.name)}
        if name != call.name and meant <= self._properties.keys():
            return True
        if id_ and id_ == call.id:
            return False
        is_whole = call.arguments.rstrip().endswith(("}", '"', "`")) and any(read_arguments(call.arguments))
        return is_whole or bool(id_ and call.id and name != call.name)

    def build(self, first_state: Json) -> list[ToolCall]:
        """Return the calls, under the names of the tools that the request offers, with ids that differ.

        Arguments are JSON of an object; those that cannot be read are as the model wrote them. first_state: what
        goes back with the first.
        """
        calls: dict[str, ToolCall] = {}
        for call in self._calls:
            name, text = find_tool_name(call.name, self._properties), pair_halves(call.arguments)
            text = "{}" if text.strip() in ("", "null") else text
            objects = read_arguments(text, self._properties.get(name, ()))
            # A first piece may be {}, and a last one the whole again.
            filled = [*filter(None, objects)] or objects[:1]
            texts = dict.fromkeys(json.dumps(data, ensure_ascii=False) for data in filled)
            is_plain = not objects or (len(objects) == 1 and parse_object(text) == objects[0])
            for arguments in [text] if is_plain else texts:
                id_ = call.id if call.id and call.id not in calls else f"call_{len(calls)}"
                state = write_state(call.state if calls else {**first_state, **call.state})
                calls[id_] = ToolCall(id_, name, arguments, state)
        return list(calls.values())


class ReplyReader(ABC):
    """Turns the elements of one reply into chunks."""

    marks: ClassVar[Collection[str]]
    """Fields of which every event of the protocol has one."""
    _ending: TemplateEnd | None = None
    """Where the wire is known to leak marks of chat templates."""

    def __init__(self, request: ChatRequest, context: ErrorContext) -> None:
        self._request = request
        self._context = context
        self._calls = Calls(request.tools)
        self._length = 0
        self._thinking = Thinking()
        self.is_unmarked = False
        """The reply marks only the end of its thoughts."""
        self.held: str | None = None
        """Text that may be a thought, where earlier replies were unmarked; None: text is sent as it comes."""
        self._halves = {False: "", True: ""}
        """Of characters whose other half has not come: of the text, and of what was thought."""
        self._refusal = ""
        self._finish = ""
        """The server's word for the end."""
        self._why = ""
        """The server's reason to end the reply early, if it names one."""
        self._odd: dict[str, None] = {}
        """Elements that were left out, in words."""
        self._unknown: Json = {}
        """The first element that is nothing of the protocol."""
        self._counts: dict[str, int] = {}
        """Tokens, by the names that the server gives them."""
        self._state: dict[str, Any] = {}
        """Wanted back by the server with the first call."""
        self.cited = SourceMarker()
        self._searches: set[object] = set()
        """Searches of the web, by their ids."""
        self._cost: float | None = None
        """US dollars, where the server says what the reply costs."""
        self._told: set[str] = set()
        self.requests = 1
        """That the reply took; a server may pause in it."""
        self._received = 0
        """Grows with each piece of content, also with one that is held back."""

    @property
    def length(self) -> int:
        """Characters of content so far: text, reasoning and arguments of tool calls."""
        return self._length + self._calls.length

    @property
    def progress(self) -> tuple[int, ...]:
        """Changes with each piece of content, also with one that is held back."""
        return self._received, self.length, self.is_complete

    @property
    def is_complete(self) -> bool:
        """The finish reason has arrived; only the usage may be missing."""
        return bool(self._finish)

    def feed(self, element: Any) -> Iterator[Chunk]:
        """Yield the chunks of one element. Raises ProviderError: it is an error of the server."""
        if not isinstance(element, dict):
            self._leave_out(one_line(element, 60) if isinstance(element, str) else f"an event that is {element!r:.20}")
            return
        event = cast("Json", element)
        if (error := find_failure(event)) and not self.is_complete:
            raise error.error(self._context)
        self._unknown = self._unknown if set(self.marks) & event.keys() else self._unknown or event
        try:
            yield from self._read(event)
        except (AttributeError, TypeError, LookupError, ValueError, RecursionError):
            self._leave_out("an event of an unknown form")

    def close(self) -> Iterator[Chunk]:
        """Yield the last chunks.

        Raises:
            StreamInterrupted: there was no finish reason; or none that is known, and nothing came before it.
            MalformedResponse: nothing could be read.
            ProviderError: the finish reason is a failure.
        """
        for is_thought in self._halves:
            yield from self._write("", is_thought=is_thought, final=True)
        if self._odd:
            what = clean_message("; ".join(self._odd), self._context.key)
            log.warning("%s (%s): left out of a reply: %s", self._context.provider, self._context.model, what)
        if not self._finish:
            raise self._explain_missing_end()
        finish = find_finish(self._finish) or StreamInterrupted
        if not isinstance(finish, str):
            why = f": {self._why}" if self._why else ""
            raise self._context.error(finish, f"the server ended the reply early ({self._finish}){why}")
        if self._refusal:
            raise self._context.error(ContentRefused, f"the model refused: {self._refusal}")
        calls = [self._mark_links(call) for call in self._calls.build(self._state)]
        if self._odd and not (self._length or calls):
            raise self._explain_missing_end()
        if finish == "unknown":
            if not (self._length or calls):
                raise self._context.error(StreamInterrupted, f"the server ended the reply early ({self._finish})")
            word = clean_message(self._finish, self._context.key)
            yield from self._say(f"its stop reason is unknown ({word}), and so whether the end of its reply is missing")
        yield from map(ToolCallChunk, calls)
        yield from self._list_sources()
        yield FinishChunk("tool_calls" if calls and finish in ("stop", "unknown") else finish, self._make_usage())

    def _make_usage(self) -> Usage:
        prompt = sum(len(message.content) for message in self._request.messages)
        estimate = Usage(prompt // 4 + self._request.picture_tokens, self.length // 4, reported=False)
        usage = read_usage(self._counts, estimate)
        return replace(usage, searches=self._count_searches(), cost=self._cost, requests=self.requests)

    def find_usage(self) -> Usage | None:
        """What the server has reported of a reply that failed, without the number of requests; None: nothing."""
        usage = replace(self._make_usage(), requests=0) if self._counts else None
        return usage and replace(usage, reported=usage.reported and self.is_complete)

    def _explain_missing_end(self) -> ProviderError:
        if self._unknown and (error := parse_error_body(200, self._unknown)).text:
            return error.error(self._context)
        if not self.length and (self._odd or self._unknown):
            what = "; ".join(self._odd) or f"an object with {', '.join(self._unknown)}"
            return self._context.error(MalformedResponse, f"it sent no reply, but {what}")
        return self._context.error(StreamInterrupted, "the stream ended without a finish reason")

    @abstractmethod
    def _read(self, event: Json) -> Iterator[Chunk]:
        """Yield the chunks of one event and note its finish reason and usage."""

    def _add_counts(self, usage: object) -> None:
        """Note the token counts of an event. They are running totals, and each event may have some of them."""
        fields = self._object(usage, "usage")
        parts = (fields.get(name) for name in fields if name.endswith(("_tokens_details", *_OF_SEARCHES)))
        self._cost = _read_cost(fields) or self._cost
        for group in (*(cast("Json", part) for part in parts if isinstance(part, dict)), fields):
            counts = {name: count for name, value in group.items() if (count := read_count(value)) is not None}
            self._counts |= {name: count for name, count in counts.items() if count or name not in self._counts}

    def _write(self, text: str, *, is_thought: bool = False, final: bool = False) -> Iterator[Chunk]:
        """Yield a piece of the text, or of what the model thought."""
        self._received += len(text)
        is_cited = not is_thought and self.cited.form != "none"
        pieces = self.cited.feed(text, final=final) if is_cited else (text,)
        for piece in pieces:
            yield from self._write_piece(piece, is_thought=is_thought)
        if final:
            yield from self._write_piece("", is_thought=is_thought, final=True)

    def _write_piece(self, text: str, *, is_thought: bool, final: bool = False) -> Iterator[Chunk]:
        self._length += len(text)
        text = self._halves[is_thought] + text
        has_half = not final and "\ud800" <= text[-1:] <= "\udbff"
        self._halves[is_thought] = text[-1:] if has_half else ""
        text = pair_halves(text[:-1] if has_half else text)
        if is_thought:
            yield from [ReasoningChunk(text)] if text else ()
            return
        for chunk in self._thinking.feed(text, final=final):
            match chunk:
                case TextChunk(text) if self.held is not None:
                    self.held += text
                case ThoughtsEndChunk():
                    yield chunk if self.held is None else ReasoningChunk(self.held)
                    self.is_unmarked, self.held = True, None
                    self._ending = self._ending and TemplateEnd()
                case TextChunk(text):
                    yield from self._cut_ending(text)
                case _:
                    yield chunk
        if final:
            yield from self._cut_ending(self.held or "", final=True)

    def _cut_ending(self, text: str, *, final: bool = False) -> Iterator[Chunk]:
        text = text if self._ending is None else self._ending.feed(text, final=final)
        yield from [TextChunk(text)] if text else ()
        if final and self._ending is not None and self._ending.cut:
            yield from self._say(f"the end of its reply is cut off: {self._ending.cut}")

    def _search(self, id_: object, query: str, *, is_page: bool = False) -> Iterator[Chunk]:
        """Yield a search, once. is_page: a page is opened, which is no search."""
        if (id_, is_page) not in self._searches:
            self._searches.add((id_, is_page))
            self._received += 1
            yield SearchChunk(query)

    def _write_program(self, code: str, output: str) -> Iterator[Chunk]:
        """Show a program that the provider ran, and what it printed, among the thoughts."""
        for text in filter(str.strip, (code, output)):
            yield from self._write(f"\n```\n{text.strip()}\n```\n", is_thought=True)

    def _count_searches(self) -> int:
        named = ("web_search_requests", "web_search_calls", "num_search_queries")
        seen = sum(not is_page for _, is_page in cast("set[tuple[object, bool]]", self._searches))
        return next((self._counts[name] for name in named if name in self._counts), seen)

    def _say(self, text: str) -> Iterator[Chunk]:
        """Yield a notice for the user, once."""
        if text not in self._told:
            self._told.add(text)
            yield NoticeChunk(text)

    def _list_sources(self) -> Iterator[Chunk]:
        yield from map(CitationChunk, self.cited.list_citations())
        if self.cited.has_nameless:
            yield from self._say("a source of its answer has no address, and is left out")
        if self.cited.has_lost_marks:
            yield from self._say("a number in its answer points to no source, and is removed")

    def _mark_links(self, call: ToolCall) -> ToolCall:
        """Return a call with its links to sources as marks, when it is an action of the agent, such as an answer."""
        arguments = None if call.name.startswith(TOOL_MARK) else parse_object(call.arguments)
        if not (arguments and self.cited.has_sources):
            return call
        marked = {k: self.cited.mark_links(v) if isinstance(v, str) else v for k, v in arguments.items()}
        return call if marked == arguments else replace(call, arguments=json.dumps(marked, ensure_ascii=False))

    def _read_annotation(self, annotation: Json) -> None:
        """Note a source of the text as OpenAI's APIs and OpenRouter say it; other kinds are no pages of the web."""
        inner = annotation.get("url_citation")
        fields = cast("Json", inner) if isinstance(inner, dict) else annotation
        if annotation.get("type") == "url_citation" or inner:
            address = (fields.get("url"), fields.get("title"), fields.get("content"))
            if source := self.cited.add_source(*address, is_cited=True):
                self.cited.add_span(source, fields.get("start_index"), fields.get("end_index"))

    def _write_parts(self, value: object, *, is_thought: bool = False) -> Iterator[Chunk]:
        """Yield a text, or a list of parts: Mistral's models send what they think so, Responses and Anthropic all."""
        for part in cast("list[object]", value) if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                yield from self._write(self._text(part, "content"), is_thought=is_thought)
                continue
            fields = cast("Json", part)
            self._refusal += self._text(fields.get("refusal"), "refusal")
            yield from self._write_parts(fields.get("thinking"), is_thought=True)
            yield from self._write_parts(fields.get("text"), is_thought=is_thought)

    def _add_call(
        self, key: object, id_: object, name: object, arguments: object, *, whole: bool = False
    ) -> dict[str, Json]:
        """See `Calls.add`. arguments: text, or what it stands for."""
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        return self._calls.add(key, self._text(id_, "id"), self._text(name, "name"), text, whole=whole)

    def _find_place(self, *values: object) -> object:
        """Return the first value that says where something belongs; None: nothing is there."""
        place: object = None
        for value in values:
            if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
                return int(value) if isinstance(value, str) and value.isdecimal() else value
            if value is not None and value != "":
                self._leave_out(f"index that is {_name_kind(value)}")
                place = object()  # of something, but nobody knows of what
        return place

    def _end(self, word: object) -> None:
        """Note the server's word for the end of the reply, unless it says that there is more."""
        text = self._text(cast("Json", word).get("type") if isinstance(word, dict) else word, "finish reason")
        if find_finish(text) is not None:
            self._finish = text

    # What servers send in the place of something may be anything. Nothing there, null, is no mistake.

    def _text(self, value: object, name: str = "text") -> str:
        if isinstance(value, str) or value is None:
            return value or ""
        if isinstance(value, int | float) and not isinstance(value, bool):
            return json.dumps(value)
        self._leave_out(f"{name} that is {_name_kind(value)}")
        return ""

    def _object(self, value: object, name: str = "object") -> Json:
        if isinstance(value, dict):
            return cast("Json", value)
        if value is not None:
            self._leave_out(f"{name} that is {_name_kind(value)}")
        return {}

    def _objects(self, value: object, name: str) -> list[Json]:
        """Return the objects of a list; one object stands for a list with it."""
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        return [item for item in (self._object(item, name) for item in items) if item]

    def _leave_out(self, what: str) -> None:
        self._odd[what] = None


_OF_SEARCHES = ("server_tool_use", "server_tool_use_details", "server_side_tool_usage_details")
"""Where servers count searches of the web: Anthropic and OpenRouter; xAI."""
_MOST_DOLLARS = 10_000
"""No reply costs more; a server that says so is wrong."""


def _read_cost(usage: Json) -> float | None:
    """Return the US dollars that a server says to charge: OpenRouter, Perplexity, xAI. None: it does not say."""
    cost, ticks = usage.get("cost"), usage.get("cost_in_usd_ticks")
    cost = cast("Json", cost).get("total_cost") if isinstance(cost, dict) else cost
    cost = ticks / 10_000_000_000 if isinstance(ticks, int) else cost
    if not isinstance(cost, int | float) or usage.get("is_byok"):
        return None
    return float(cost) if 0 < cost < _MOST_DOLLARS else None


def _name_kind(value: object) -> str:
    kinds: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "a text"}
    return kinds.get(type(value), "a list" if isinstance(value, list) else "an object")
