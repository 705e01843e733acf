"""Messages, requests and streamed replies as all providers and agents share them, and the files of questions."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, Literal

PDF = "application/pdf"

_MAX_NAMED = 200
"""Characters of a name."""

_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""How files begin that models can see: the formats that all providers take."""

_PDF_HEADER = re.compile(rb"(?:\A|[\r\n\0])%PDF-\d")
_PDF_HEADER_WITHIN = 1_024
"""Bytes: as far as readers look for it."""

_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})(.*)$", re.MULTILINE)
_NAME_LINE = re.compile(r"^--- (.+) ---$", re.MULTILINE)
"""Stands above the text of a file."""

_NAME_IN_TITLE = re.compile(r" --- .+? ---(?: |$)| --- [^ ]+\.\w{1,5}$| \[attached: .*$")
"""The same within one line, which may end early."""
_GIF_END = 1_024
"""Bytes at the end of a GIF among which its trailer is; some programs write more behind it."""

TOKENS_PER_PAGE = 1_600
"""Of a picture, or of a page of a document.

Anthropic counts width x height / 750 and makes a picture smaller above about 1,600; OpenAI takes up to 1,105 for gpt-4o
(85 + 170 per tile of 512 x 512) and up to 1,536 patches for newer models; Gemini 258 per tile of 768 x 768.
"""


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that a question came with, as the log names it; its bytes are stored beside the log."""

    hash: str
    """SHA-256 of the bytes, as hexadecimal digits."""
    name: str
    media_type: str
    size: int
    """Bytes."""
    pages: int = 1
    """Of a document; 1 for a picture."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that a question came with."""

    file: AttachedFile
    data: bytes = field(repr=False, compare=False)
    optional: bool = field(default=False, compare=False)
    """The text of the question names it: models that see no pictures can go without."""

    @property
    def tokens(self) -> int:
        """About how many tokens a model reads of it."""
        return count_attached_tokens([self.file])


def make_attachment(name: str, media_type: str, data: bytes, pages: int = 1, *, optional: bool = False) -> Attachment:
    digest = sha256(data).hexdigest()
    file = AttachedFile(hash=digest, name=clean_name(name), media_type=media_type, size=len(data), pages=pages)
    return Attachment(file, data, optional)


def detect_media_type(data: bytes) -> str | None:
    """Return the media type of a picture or PDF by how it begins; None for anything else.

    A PDF may have other bytes before its header.
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    if _PDF_HEADER.search(data[:_PDF_HEADER_WITHIN]) and (data.startswith(b"%PDF-") or b"endobj" in data):
        return PDF
    return next((media_type for beginning, media_type in _BEGINNINGS.items() if data.startswith(beginning)), None)


def has_end(media_type: str, data: bytes) -> bool:
    """Whether a picture has its end: providers refuse one without, after it was sent. More may follow, as in phones'
    moving pictures."""
    match media_type:
        case "image/png":
            return b"IEND" in data
        case "image/jpeg":
            return data.find(b"\xff\xd9", _find_scan(data)) >= 0
        case "image/webp":
            return int.from_bytes(data[4:8], "little") + 8 <= len(data)
        case "image/gif":
            return b"\0;" in data[-_GIF_END:]
        case _:
            return True


def is_animated(media_type: str, data: bytes) -> bool:
    """Whether a picture has several frames, of which models see one."""
    match media_type:
        case "image/gif":
            return data.count(b"\x21\xf9\x04") > 1
        case "image/png":
            return b"acTL" in data[: data.find(b"IDAT")]
        case "image/webp":
            return b"ANIM" in data[:64]
        case _:
            return False


def _find_scan(data: bytes) -> int:
    """Return where the pixels of a JPEG begin: behind its header, which may hold a small picture with an end."""
    position = 2
    while data[position : position + 1] == b"\xff" and data[position + 1 : position + 2] != b"\xda":
        is_filler = data[position + 1 : position + 2] == b"\xff"
        position += 1 if is_filler else 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return position


def count_attached_tokens(files: Sequence[AttachedFile]) -> int:
    return sum(TOKENS_PER_PAGE * file.pages for file in files)


def clean_name(name: str) -> str:
    """Return the name of a file without its folder, as one short line of printable text that names nothing else."""
    last = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
    line = " ".join(last.replace("[", "(").replace("]", ")").split())
    return "".join(filter(str.isprintable, line))[:_MAX_NAMED] or "file"


def read_attached_files(metadata: Mapping[str, Any]) -> tuple[AttachedFile, ...]:
    return tuple(AttachedFile(**file) for file in metadata.get("attachments", ()))


def name_attachments(question: str, attachments: Sequence[Attachment]) -> str:
    """Return the question with a line for each file that it came with and does not name; they are added once."""
    names = "\n".join(f"[attached: {shown.file.name}]" for shown in attachments if not shown.optional)
    return question if question.endswith(names) else f"{question}\n\n{names}"


def add_text(question: str, name: str, text: str) -> str:
    """Return the question with the text of a file below it.

    Nothing in the text can end it: lines that look like the name of a next file are moved in by a blank, and a block of
    code that is left open is closed.
    """
    text = _NAME_LINE.sub(r" \g<0>", text.strip("\n"))
    if not text.strip():
        return f"{question}\n\n--- {name} (empty) ---"
    fence = _find_open_fence(text)
    return f"{question}\n\n--- {name} ---\n{text}" + (f"\n{fence}" if fence else "")


def _find_open_fence(text: str) -> str:
    """Return the fence of the block of code that has no end, "" when there is none."""
    fence = ""
    for line in _FENCE.finditer(text):
        mark, rest = line.groups()
        if not fence:
            fence = mark if "`" not in rest else ""
        elif mark.startswith(fence) and not rest.strip():
            fence = ""
    return fence


def split_texts(question: str) -> list[tuple[str, str]]:
    """Return the question itself, with the name "", and the texts that `add_text` put below it, with their names."""
    parts = _NAME_LINE.split(question)
    return [*zip(["", *parts[1::2]], parts[::2], strict=True)]


def split_question(question: str, files: Sequence[AttachedFile] = ()) -> tuple[str, list[tuple[str, str]], str]:
    """Return a question as it was asked, the texts of files below it with their names, and the description below these.

    files: the pictures and documents that it came with; it names those that no text stands for.
    """
    names = "\n".join(line for file in files if (line := f"[attached: {file.name}]") in question)
    before, separator, description = question.rpartition(f"\n\n{names}") if names else (question, "", "")
    if not separator:
        before, description = question, ""
    (_, asked), *texts = split_texts(before)
    return asked.rstrip("\n"), [(name, text.strip("\n")) for name, text in texts], description.strip("\n")


def cut_title(title: str) -> str:
    """Return a title without the texts of files: earlier releases made it of all that a question came with."""
    return _NAME_IN_TITLE.split(title, 1)[0] or title


def add_description(question: str, description: str) -> str:
    """Return the question with a description of what it shows below it; "" for none."""
    return f"{question}\n\n{description}" if description else question


def remove_description(question: str, description: str) -> str:
    return question.removesuffix(f"\n\n{description}") if description else question


Role = Literal["system", "user", "assistant", "tool"]
Purpose = Literal[
    "answer", "vote", "present", "report", "summary", "extract", "describe", "compare", "items", "check", "carry_out"
]  # fmt: skip
FORMS: tuple[Purpose, ...] = ("report", "items", "check")
"""What agents fill in: nobody reads it as it comes, and half of it is worth nothing."""
ToolChoice = Literal["required", "auto", "none"]

_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace what no provider and no database accepts (NUL, lone surrogates) by U+FFFD.

    Callers clean text where it enters (questions, model output) and again where it is sent, so that one odd character
    never makes a session unusable.
    """
    return _UNSENDABLE.sub("�", text)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool, as the model wrote it."""

    id: str
    name: str
    arguments: str
    """JSON of an object; what cannot be read as one is as the model wrote it."""
    state: str = field(default="", repr=False)
    """Given with the call by the provider, which wants it back (massmem.providers.dialects). It is no text: nobody is
    shown it, and no other provider or model is sent it."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as a model sees it."""

    role: Role
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    """The call that a message of role "tool" answers."""
    head: int = field(default=0, compare=False)
    """So many characters at its beginning stand in later requests too; the rest is for this step."""
    attachments: tuple[Attachment, ...] = ()
    """Files that a message of role "user" shows beside its text."""
    tool: str = field(default="", compare=False)
    """The name of the tool whose result the text is, or of several, between commas. No provider is sent it."""
    calls: tuple[str, ...] = field(default=(), compare=False)
    """Ids of the calls whose results the text holds. No provider is sent them."""
    same_as: str = field(default="", compare=False)
    """Id of an earlier call with the same result, to which the text points. No provider is sent it."""


@dataclass(frozen=True, slots=True)
class Citation:
    """A source of an answer, whichever provider named it."""

    url: str
    title: str = ""
    quote: str = ""
    """Text of the source, as far as the provider gives it."""
    agent_id: str = ""
    """The agent that had it."""
    start: int | None = None
    """Where the part of the answer that rests on it begins, in characters; None: it is not known."""
    end: int | None = None
    """Where that part ends; this character is not part of it."""


@dataclass(frozen=True, slots=True)
class PartialReply:
    """What an agent had written when the turn was stopped."""

    agent_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer as another agent sees it: under a label instead of the author's name."""

    label: str
    """A, B, ..."""
    agent_id: str
    content: str
    votable: bool = True
    """Who is shown it may vote for it; false: it is its own."""
    is_new: bool = False
    """Who is shown it has judged answers before, and not this one."""
    citations: tuple[Citation, ...] = ()
    """Its sources."""


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A function that a model may call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of an object."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    text: str
    """For the model and for the log."""
    failed: bool = False
    """The text says what went wrong."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one request or several."""

    prompt: int = 0
    """Tokens that were sent."""
    completion: int = 0
    """Tokens of replies."""
    cached: int = 0
    """Tokens of `prompt` that the provider read from its cache."""
    requests: int = 0
    """Requests that were sent, retries included."""
    reported: bool = True
    """The provider counted the tokens; false when any part is our estimate."""
    cost: float | None = None
    """US dollars (massmem.providers.pricing); None when any part has no known price."""
    reasoning: int = 0
    """Tokens of `completion` that the model thought with, as far as the provider says."""
    cache_written: int = 0
    """Tokens of `prompt` that the provider put into its cache and charges more for, as far as it says."""
    searches: int = 0
    """Searches of the web by the provider; `cost` has their price."""
    saved: float = 0.0
    """US dollars less than the tokens cost without a cache; below zero where filling it cost more than it gave."""

    def __add__(self, other: "Usage") -> "Usage":
        total = self._join(other, 1)
        cost = total.cost if self.prompt or self.completion else other.cost
        return replace(total, reported=self.reported and other.reported, cost=cost)

    def __sub__(self, part: "Usage") -> "Usage":
        """Return what is left of a sum without one part of it.

        Estimated when the sum is; without a cost when the sum or the part has tokens and no known price.
        """
        return self._join(part, -1)

    def _join(self, other: "Usage", sign: int) -> "Usage":
        cost = self.cost
        if other.prompt or other.completion:
            cost = None if cost is None or other.cost is None else round(cost + sign * other.cost, 10)
        return Usage(
            self.prompt + sign * other.prompt,
            self.completion + sign * other.completion,
            self.cached + sign * other.cached,
            self.requests + sign * other.requests,
            self.reported,
            cost,
            self.reasoning + sign * other.reasoning,
            self.cache_written + sign * other.cache_written,
            self.searches + sign * other.searches,
            round(self.saved + sign * other.saved, 10),
        )


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One request to a model.

    Give either tools or schema, not both. Real providers ignore purpose and agent_id, which say who asks and why;
    `scripted` and telemetry use them.
    """

    messages: tuple[ChatMessage, ...]
    purpose: Purpose
    agent_id: str = ""
    tools: tuple[ToolSpec, ...] = ()
    schema: Mapping[str, Any] | None = None
    """JSON Schema that the model's text must match."""
    temperature: float | None = None
    """None: the backend's configuration decides."""
    max_tokens: int | None = None
    """None: the backend's configuration decides."""
    deadline: float | None = None
    """Seconds for the whole reply, retries included; None: the backend's configuration decides."""
    tool_choice: ToolChoice = "required"
    """required: the model calls a tool; auto: it may; none: it must not, and `tools` only explain earlier calls."""

    @property
    def picture_tokens(self) -> int:
        """About how many tokens a model reads of what the messages show."""
        return sum(attachment.tokens for message in self.messages for attachment in message.attachments)


WRAPPER = "reply"
"""The one key of the object in which providers that take only objects as schemas wrap any other schema."""

Activity = Literal["loading", "reading", "working"]
"""Of a model on this machine before its first word: it is loaded, or reads the prompt. Of a program: it works."""

FinishReason = Literal["stop", "length", "tool_calls", "content_filter", "unknown"]
"""unknown: the server ended the reply with a word that we do not know; its end may be missing."""


@dataclass(frozen=True, slots=True)
class TextChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningChunk:
    text: str


@dataclass(frozen=True, slots=True)
class ThoughtsEndChunk:
    """The text so far was reasoning: the model has marked its end, and nothing its beginning."""


@dataclass(frozen=True, slots=True)
class ToolCallChunk:
    """A tool call whose arguments are complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class RetryChunk:
    """The request failed and is sent again: everything streamed so far is void."""

    error: str
    delay: float
    """Seconds until it is sent again."""
    attempt: int
    """Number of the request that follows; 0: nothing was sent, since the server wants no requests for so long."""
    usage: Usage = field(default_factory=Usage)
    """Tokens of what is void, as far as the server reported them."""


@dataclass(frozen=True, slots=True)
class ActivityChunk:
    """The model is busy before its first word."""

    activity: Activity
    share: float | None = None
    """How much of it is done, 0 to 1; None when that is not known."""
    what: str = ""
    """What an agent program does, such as `reads src/main.py`."""


@dataclass(frozen=True, slots=True)
class SearchChunk:
    """The provider searches the web, or opens a page, for the reply."""

    query: str
    """What it looks for, or the address of the page; "" when the provider does not say."""


@dataclass(frozen=True, slots=True)
class CitationChunk:
    """The reply has a source. `start` and `end` count in the text of the whole reply."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class NoticeChunk:
    """The request was sent with less than it has; the user is told once."""

    text: str


@dataclass(frozen=True, slots=True)
class FinishChunk:
    """The last chunk of every stream that ended well."""

    reason: FinishReason
    usage: Usage


Chunk = (
    TextChunk
    | ReasoningChunk
    | ThoughtsEndChunk
    | ToolCallChunk
    | RetryChunk
    | ActivityChunk
    | SearchChunk
    | CitationChunk
    | NoticeChunk
    | FinishChunk
)


@dataclass(slots=True)
class Reply:
    """The reply to one request, collected from its chunks."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])
    citations: list[Citation] = field(default_factory=list[Citation])
    finish: FinishReason | None = None
    """None until the stream has ended well."""
    usage: Usage = field(default_factory=Usage)

    @property
    def is_truncated(self) -> bool:
        """Whether the provider cut the reply at its limit of tokens, so that its end is missing."""
        return self.finish == "length"

    def feed(self, chunk: Chunk) -> None:
        match chunk:
            case TextChunk(text):
                self.text += text
            case ReasoningChunk(text):
                self.reasoning += text
            case ThoughtsEndChunk():
                self.reasoning, self.text = self.reasoning + self.text, ""
            case ToolCallChunk(call):
                self.tool_calls.append(call)
            case RetryChunk():
                self.text, self.reasoning = "", ""
                self.tool_calls.clear()
                self.citations.clear()
            case CitationChunk(citation):
                self.citations.append(citation)
            case ActivityChunk() | SearchChunk() | NoticeChunk():
                pass
            case FinishChunk(reason, usage):
                self.finish, self.usage = reason, usage
