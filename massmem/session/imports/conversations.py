"""A conversation of another program as a person saw it there: the branch that was open, paired to turns."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from typing import Any

from massmem.core.events import now
from massmem.core.ids import MAX_NAME_LENGTH
from massmem.core.messages import Citation, clean_name, clean_text
from massmem.session.portable import PortableSession

PICTURE = "[picture]"
VOICE = "[voice message]"
MAX_ID_LENGTH = 100
"""Characters; clients of the service cannot name sessions with longer ones."""

_NEVER = datetime.min.replace(tzinfo=UTC)
_MOST_NAMED = 40
"""Characters of the name of a kind."""


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    question: str
    answer: str
    agent: str
    """Who answered."""
    time: datetime | None = None
    """Of the question."""
    answered_at: datetime | None = None
    citations: tuple[Citation, ...] = ()
    """Sources of the answer."""


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    session_id: str
    """The same in every export of the conversation."""
    title: str
    turns: tuple[ImportedTurn, ...]
    has_id: bool = False
    """The program gave it an id: what comes again under it is the same conversation."""
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Kinds of things that cannot be read or have no place in turns, and how often."""
    portable: PortableSession | None = None
    """The whole session, in an export of massmem."""
    folder: str = ""
    """In which it took place, on whichever machine; "": in none."""

    @property
    def newest(self) -> datetime | None:
        """When something was said last; None: the export does not say."""
        return max((t for turn in self.turns for t in (turn.time, turn.answered_at) if t is not None), default=None)


@dataclass(frozen=True, slots=True)
class Message:
    """A message as a person saw it. One of a tool, or a hidden one, is none."""

    is_user: bool
    text: str
    time: datetime | None = None
    agent: str = ""
    """Who answered; "": the program does not say."""
    unread: str = ""
    """The kind of a part that could not be read."""


def build(
    program: str, key: Any, title: Any, messages: Iterable[Message], agent: str, left_out: Counter[str] | None = None
) -> ImportedConversation:
    """Pair what the user wrote with the answers below it.

    program: makes ids of programs different. key: what it calls the conversation; None: its beginning tells it apart.
    agent: who answered where a message does not say. left_out: filled while `messages` is read.
    """
    left_out = Counter[str]() if left_out is None else left_out
    turns: list[ImportedTurn] = []
    questions: list[Message] = []
    answers: list[Message] = []

    def end_turn() -> None:
        if questions and answers:
            author = clean_text(next((m.agent for m in reversed(answers) if m.agent), agent))[:MAX_ID_LENGTH]
            turns.append(ImportedTurn(_join(questions), _join(answers), author, questions[0].time, answers[-1].time))
            questions.clear()
        elif answers:
            left_out["answer without a question"] += 1
        answers.clear()

    for message in messages:
        if not message.text.strip() and not message.unread:
            continue
        if message.is_user:
            end_turn()
            questions.append(message)
        else:
            answers.append(message)
    end_turn()
    left_out["question without an answer"] += len(questions)
    beginning = [(turn.question, turn.answer) for turn in turns[:1]]
    session_id = make_id(f"{program}:{key or beginning}")
    return ImportedConversation(session_id, make_title(title, turns), tuple(turns), bool(key), +left_out)


def _join(messages: Sequence[Message]) -> str:
    """Return the texts of messages, or what there is instead of a text."""
    if texts := [message.text.strip() for message in messages if message.text.strip()]:
        return clean_text("\n\n".join(texts))
    return clean_text("\n\n".join(f"[not read: {message.unread}]" for message in messages if message.unread))


def follow_branch(parents: Mapping[str, Any], end: Any, times: Mapping[str, datetime | None]) -> list[str]:
    """Return the ids of a tree's messages from the beginning to an open end.

    parents: the id of each message's parent, in the order of the export; what names none is a beginning.
    end: the open end; when it is none of them, it is the newest leaf.
    """
    parents = {name: parent if isinstance(parent, str) else None for name, parent in parents.items()}
    if not isinstance(end, str) or end not in parents:
        inner, newest = set(parents.values()), _find_newest_times(parents, times)
        leaves = [(newest[name], place, name) for place, name in enumerate(parents) if name not in inner]
        end = max(leaves)[2] if leaves else next(reversed(parents), None)
    branch: dict[str, None] = {}
    while end in parents and end not in branch:
        branch[end] = None
        end = parents[end]
    return [*reversed(branch)]


def _find_newest_times(parents: Mapping[str, Any], times: Mapping[str, datetime | None]) -> dict[str, datetime]:
    """Return for each message the newest time from the beginning to it: some have none of their own."""
    newest: dict[str, datetime] = {}
    for name in parents:
        path: dict[Any, None] = {}
        while name in parents and name not in newest and name not in path:
            path[name] = None
            name = parents[name]
        time = newest.get(name, _NEVER)
        for step in reversed(path):
            time = newest[step] = max(time, times.get(step) or _NEVER)
    return newest


_TEXTS = {"text", "input_text", "output_text", "refusal", "voice_note", "audio_transcription"}
_UNSEEN = {
    "thinking", "redacted_thinking", "reasoning", "think", "thought", "tool_use", "server_tool_use", "mcp_tool_use",
    "tool_result", "web_search_tool_result", "mcp_tool_result", "tool_call", "tool-call", "tool-result", "tool_calls",
    "function_call", "function_call_output", "functionCall", "functionResponse", "executableCode",
    "codeExecutionResult", "token_budget", "step-start",
}  # fmt: skip
"""Kinds of parts that programs fold away or show nobody."""
_PICTURES = {"image", "image_url", "input_image", "image_asset_pointer", "inlineData", "inline_data"}
_SOUNDS = {"audio", "input_audio", "audio_asset_pointer", "real_time_user_audio_video_asset_pointer"}
_FILES = {"file", "document", "input_file", "fileData", "attachment"}


@dataclass(slots=True)
class Parts:
    """Reads the parts of messages, and counts those of kinds that it does not know."""

    left_out: Counter[str] = field(default_factory=Counter[str])
    read_tool: Callable[[Mapping[str, Any]], str] = lambda _: ""
    """Returns what a person saw of a call of a tool."""
    unread: str = ""
    """The unknown kind of the last message."""
    _repeatable: int = 1_000_000
    """Characters that documents may still take when they are shown again, as changed."""

    def read(self, value: Any) -> str:
        """Return what a person saw of a message's content: a string, or a list of parts."""
        self.unread = ""
        parts: list[Any] = as_list(value) or [value]
        texts = [self._read_part(part) for part in parts]
        if any(text == VOICE for text in texts) and any(text not in ("", VOICE) for text in texts):
            texts = [text for text in texts if text != VOICE]  # it is there as a transcript
        return "\n".join(text for text in texts if text.strip())

    def may_change(self, document: str) -> bool:
        """Whether a document may be shown once more: a small export must not become a huge session."""
        self._repeatable -= len(document)
        return self._repeatable >= 0

    def leave_out(self, kind: str) -> None:
        """Count a part or message of an unknown kind."""
        self.unread = clean_text(" ".join(kind.split()))[:_MOST_NAMED]
        self.left_out[f"part of unknown kind {self.unread!r}"] += 1

    def _read_part(self, part: Any) -> str:
        if isinstance(part, str):
            return part
        part = as_object(part)
        kind = part.get("type") or part.get("content_type") or next((key for key in part if key in _BY_KEY), "")
        text = part.get("text")
        if isinstance(text, Mapping):  # OpenAI's Assistants, and Jan after them
            text = as_object(text).get("value")
        seen = ""
        if kind in _UNSEEN or part.get("thought") is True:
            seen = self.read_tool(part) if kind == "tool_use" else ""
        elif kind in _TEXTS or (not kind and isinstance(text, str)):
            seen = text if isinstance(text, str) else str(part.get("refusal") or "")
        elif kind in _PICTURES:
            seen = PICTURE
        elif kind in _SOUNDS:
            transcript = as_object(part.get(kind)).get("transcript") or part.get("transcript")
            seen = transcript if isinstance(transcript, str) else VOICE
        elif kind in _FILES:
            inner = as_object(part.get("file"))
            names = (part.get(name) or inner.get(name) for name in ("filename", "file_name", "name", "title"))
            seen = name_file(next(filter(None, names), ""))
        elif part:
            self.leave_out(str(kind or "/".join(list(part)[:3])))
        return seen


_BY_KEY = (_UNSEEN | _PICTURES | _FILES) & {
    "functionCall", "functionResponse", "executableCode", "codeExecutionResult", "inlineData", "inline_data", "fileData"
}  # fmt: skip
"""Gemini's parts have no type: their only key tells."""


def name_file(name: Any) -> str:
    """Return the line that stands for a file whose text the export does not have."""
    return f"[attached: {clean_name(str(name or 'file'))}]"


def add_files(text: str, names: Iterable[Any]) -> str:
    """Return the text of a message with a line for each file that it came with."""
    lines = dict.fromkeys(map(name_file, names))
    return "\n\n".join(filter(None, (text.strip(), "\n".join(lines))))


def cut_blocks(text: str, opening: re.Pattern[str], end: str) -> str:
    """Return the text without the blocks from a match of `opening` to the next `end`."""
    parts, place = list[str](), 0
    while (match := opening.search(text, place)) and (stop := text.find(end, match.end())) >= 0:
        parts.append(text[place : match.start()])
        place = stop + len(end)
    return "".join((*parts, text[place:].lstrip() if parts and not parts[-1].strip() else text[place:]))


def make_id(key: str) -> str:
    """Return the id of a session. key: what the program calls the conversation."""
    return f"import_{sha256(key.encode(errors='surrogatepass')).hexdigest()[:16]}"


def make_title(title: Any, turns: Sequence[ImportedTurn]) -> str:
    """Return the title, or the beginning of the first question."""
    text = title if isinstance(title, str) and title.strip() else turns[0].question if turns else ""
    return " ".join(clean_text(text).split())[:MAX_NAME_LENGTH]


_NUMBER = re.compile(r"\s*[0-9]{9,17}(\.[0-9]+)?\s*")


def read_time(value: Any, zone: tzinfo | None = UTC) -> datetime | None:
    """Return a time that is given in seconds, milliseconds or microseconds since 1970, in ISO 8601, or as MongoDB does.

    None for anything else, and for the future. zone: of a time that names none; None: this machine's.
    """
    try:
        while isinstance(value, Mapping):
            value = next(iter(as_object(value).values()), None)  # {"$date": {"$numberLong": "..."}}
        if isinstance(value, str):
            if _NUMBER.fullmatch(value):
                value = float(value)
            else:
                time = datetime.fromisoformat(value.strip())
                value = (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
        if isinstance(value, int | float):
            value = value / 1e6 if value > 1e14 else value / 1e3 if value > 1e11 else value
            if 0 <= value <= now().timestamp():
                return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def parse_json(text: str) -> Any:
    """Return the value that a text is the JSON of, None for another text."""
    try:
        return json.loads(text, strict=False)
    except (ValueError, TypeError, RecursionError):
        return None


def first_of(data: Mapping[str, Any], *names: str) -> Any:
    """Return the first of these fields that has a value."""
    return next((data[name] for name in names if data.get(name) not in (None, "")), None)


def as_object(value: Any) -> Mapping[str, Any]:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def as_list(value: Any) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
