"""The line that the user edits with prompt_toolkit: keys, completion, large pastes, and the history file."""

import json
import logging
import re
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, DummyCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import create_input
from prompt_toolkit.input.posix_utils import PosixStdinReader
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output

from massmem.config.home import lock_file, make_file, replace_file
from massmem.core.errors import MassmemError
from massmem.core.redact import redact

log = logging.getLogger(__name__)

_PROMPT = "> "
_CONTINUATION = "  "

MAX_HISTORY = 1_000
"""Lines in the history file."""
MAX_LINE = 10_000
"""Characters; longer lines are not stored."""

Offer = Callable[[str, Sequence[str]], Awaitable[Sequence[str]]]
"""(command, words): returns what may follow these words."""


MAX_INLINE_CHARACTERS = 2_000
MAX_INLINE_LINES = 30
"""Longer pastes get a placeholder."""

_PLACEHOLDER = re.compile(r"\[pasted ([\d,]+) characters #(\d+)\]")
_START, _END = "\x1b[200~", "\x1b[201~"
"""Sent by a terminal around a paste."""
_CHUNK = 65_536
_MAX_CHARACTERS = 4_000_000
"""Characters of a paste that are kept: more than a question may have, so that it is refused as too long."""


class Pastes:
    """The large pastes of a conversation."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Return what to insert into the line: the text, or the placeholder of a large one."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if len(text) <= MAX_INLINE_CHARACTERS and text.count("\n") < MAX_INLINE_LINES:
            return text
        self._texts.append(text)
        return f"[pasted {len(text):,} characters #{len(self._texts)}]"

    def expand(self, line: str) -> str:
        """Return the line with the pastes in place of their placeholders; text that only looks like one stays."""
        return _PLACEHOLDER.sub(self._find, line)

    def _find(self, match: re.Match[str]) -> str:
        number = int(match[2])
        is_known = 0 < number <= len(self._texts) and f"{len(self._texts[number - 1]):,}" == match[1]
        return self._texts[number - 1] if is_known else match[0]


class PasteReader(PosixStdinReader):
    """Reads from the terminal and replaces large pastes before prompt_toolkit parses them key by key."""

    def __init__(self, descriptor: int, pastes: Pastes) -> None:
        super().__init__(descriptor, encoding="utf-8")
        self._pastes = pastes
        self._parts: list[str] | None = None
        """Parts of the paste that is being read; None outside of a paste."""
        self._size = 0
        self._rest = ""
        """The last characters read, which may be the first of _END."""
        self._is_first = True

    def read(self, count: int = _CHUNK) -> str:
        data = super().read(_CHUNK)
        if data and self._is_first:
            self._is_first = False
            # Before massmem set up the terminal, Enter was a line feed, which is a key for a new line here.
            typed, mark, rest = data.partition(_START)
            if "\r" not in typed:
                typed = typed.replace("\n", "\r")
            data = typed + mark + rest
        return self.replace_pastes(data)

    def replace_pastes(self, data: str) -> str:
        """Return what prompt_toolkit gets of `data`, a piece of the input."""
        output = ""
        while data:
            if self._parts is None:
                before, mark, data = data.partition(_START)
                output += before
                if mark:
                    self._parts, self._size, self._rest = [], 0, ""
                continue
            pending = self._rest + data
            text, mark, data = pending.partition(_END)
            if mark:
                self._append(text)
                output += _START + self._pastes.add("".join(self._parts)) + _END
                self._parts = None
            else:
                split = max(len(pending) - len(_END), 0)
                self._append(pending[:split])
                self._rest = pending[split:]
        return output

    def _append(self, text: str) -> None:
        if self._parts is not None and self._size < _MAX_CHARACTERS:
            self._parts.append(text)
            self._size += len(text)


class LineEditor:
    """Reads lines from the user. Its output goes to stderr, so that stdout holds answers only."""

    def __init__(self, history: History, completer: Completer, on_interrupt: Callable[[], None]) -> None:
        """Ctrl-C is a key while a line is edited, and calls `on_interrupt`."""
        self._pastes = Pastes()
        self._output = output = create_output(sys.stderr)
        self._source = source = create_input()
        if isinstance(source, Vt100Input):
            source.stdin_reader = PasteReader(source.fileno(), self._pastes)
        keys = _bind_keys(self._pastes, on_interrupt)
        self._line: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._is_command),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=keys,
            multiline=True,
            prompt_continuation=_CONTINUATION,
            input=source,
            output=output,
        )
        self._reply: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            completer=DummyCompleter(),
            key_bindings=keys,
            multiline=True,
            input=source,
            output=output,
        )

    async def read(self) -> str:
        """Return what the user enters, one or several lines. Raises EOFError for Ctrl-D in an empty line."""
        return self._pastes.expand(await self._line.prompt_async(_PROMPT, handle_sigint=False))

    async def ask(self, prompt: str) -> str:
        """Return a reply, which is stored in no history because it may be private. Raises EOFError as `read`."""
        self._reply.history = InMemoryHistory()
        return self._pastes.expand(await self._reply.prompt_async(prompt, handle_sigint=False))

    @contextmanager
    def read_ahead(self, show: Callable[[str], object]) -> Generator[None]:
        """Read what is typed until the end of the block; the next calls of `read` and `ask` return it line by line.

        Enter ends a line, and a paste is a part of one, however many lines it has. show: gets each line that has ended.
        """
        line = ""

        def receive() -> None:
            nonlocal line
            # Programs that type send a line feed for Enter.
            keys = [KeyPress(Keys.ControlM, "\r") if k.key == Keys.ControlJ else k for k in self._source.read_keys()]
            store_typeahead(self._source, keys)
            for key in keys:
                if key.key == Keys.ControlM:
                    if line.strip():
                        show(line)
                    line = ""
                elif key.key in (Keys.ControlH, Keys.Backspace):
                    line = line[:-1]
                elif key.key == Keys.BracketedPaste or key.data.isprintable():
                    line += key.data

        self._output.enable_bracketed_paste()
        self._output.flush()
        try:
            with self._source.attach(receive):
                yield
        finally:
            self._output.disable_bracketed_paste()
            self._output.flush()

    def clear(self) -> None:
        """Empty the line that is edited."""
        for session in (self._line, self._reply):
            if session.app.is_running:
                session.default_buffer.reset()
                session.app.invalidate()

    def _is_command(self) -> bool:
        return self._line.default_buffer.document.text.startswith("/")


def _bind_keys(pastes: Pastes, on_interrupt: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    def start_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def paste(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.add(event.data))

    def interrupt(event: KeyPressEvent) -> None:
        on_interrupt()

    keys.add(Keys.ControlM)(accept)
    keys.add(Keys.Escape, Keys.ControlM)(start_line)
    keys.add(Keys.ControlJ)(start_line)
    keys.add(Keys.BracketedPaste)(paste)
    keys.add(Keys.ControlC)(interrupt)
    return keys


class CommandCompleter(Completer):
    """Completes a line that begins with a slash: command names, then what `offer` returns."""

    def __init__(self, summaries: dict[str, str], offer: Offer) -> None:
        self._summaries = summaries
        self._offer = offer

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Return nothing: prompt_toolkit calls the asynchronous method."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        line = document.text_before_cursor
        if not line.startswith("/") or "\n" in line:
            return
        name, space, rest = line[1:].partition(" ")
        if not space:
            for command, summary in self._summaries.items():
                if command.startswith(name):
                    yield Completion(f"/{command}", -len(line), display_meta=summary)
            return
        words = rest.split(" ")
        for text in await self._offer(name, words[:-1]):
            # A session title of several words is completed as a whole.
            typed = rest if " " in text else words[-1]
            if text.lower().startswith(typed.lower()) and text != typed:
                yield Completion(text, -len(typed))


class HistoryFile(History):
    """Stores the lines that a user enters, without secrets: one JSON string per line, oldest first.

    A file that cannot be read or written is ignored, so that the conversation goes on.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines, newest first."""
        lines = self._read()
        if len(lines) > 2 * MAX_HISTORY:
            try:
                with lock_file(self._path):
                    replace_file(self._path, "".join(map(_encode_line, self._read()[-MAX_HISTORY:])))
            except MassmemError as e:
                log.warning("the history was not shortened: %s", e)
        return reversed(lines[-MAX_HISTORY:])

    def store_string(self, string: str) -> None:
        if len(string) > MAX_LINE:
            return
        try:
            with lock_file(self._path):
                make_file(self._path)
                with self._path.open("ab", buffering=0) as file:
                    file.write(_encode_line(string).encode())
        except MassmemError as e:
            log.warning("a line was not added to the history: %s", e)

    def _read(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            return []
        return [text for line in lines if (text := _decode_line(line)) is not None]


def open_history(path: Path | None) -> History:
    """Return the history in this file; None: one that ends with the process."""
    return InMemoryHistory() if path is None else HistoryFile(path)


def _encode_line(text: str) -> str:
    return json.dumps(redact(text)) + "\n"


def _decode_line(line: str) -> str | None:
    try:
        text: object = json.loads(line)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
