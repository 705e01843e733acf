"""The line that the user types: edited with prompt_toolkit on a terminal that can move its cursor."""

import sys
from collections.abc import Callable

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import Completer, DummyCompleter
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.output import create_output

from massmem.cli.chat.paste_reader import PasteReader
from massmem.cli.chat.pastes import Pastes

_PROMPT = "> "
_MORE = "  "


class Line:
    """pressed: called for Ctrl-C, which is a key while a line is edited."""

    def __init__(self, history: History, completer: Completer, pressed: Callable[[], None]) -> None:
        self._pastes = Pastes()
        # Answers alone go to stdout, which may be a file.
        output = create_output(sys.stderr)
        source, keys = _input(self._pastes), _keys(self._pastes, pressed)
        self._line: PromptSession[str] = PromptSession(
            history=history,
            completer=completer,
            complete_while_typing=Condition(self._is_command),
            auto_suggest=AutoSuggestFromHistory(),
            key_bindings=keys,
            multiline=True,
            prompt_continuation=_MORE,
            input=source,
            output=output,
        )
        # What is asked for may be a value: it is not to be found again with a key.
        self._reply: PromptSession[str] = PromptSession(
            history=InMemoryHistory(),
            completer=DummyCompleter(),
            key_bindings=keys,
            multiline=True,
            input=source,
            output=output,
        )

    async def read(self) -> str:
        """A whole line, or several. Raises EOFError for Ctrl-D in an empty one."""
        self._pastes.clear()
        return self._pastes.whole(await self._line.prompt_async(_PROMPT, handle_sigint=False))

    async def ask(self, prompt: str) -> str:
        """A reply, which is kept nowhere. Raises EOFError as `read`."""
        self._pastes.clear()
        self._reply.history = InMemoryHistory()
        return self._pastes.whole(await self._reply.prompt_async(prompt, handle_sigint=False))

    def clear(self) -> None:
        """Begin the line that is edited anew."""
        for session in (self._line, self._reply):
            if session.app.is_running:
                session.default_buffer.reset()
                session.app.invalidate()

    def _is_command(self) -> bool:
        return self._line.default_buffer.document.text.startswith("/")


def _input(pastes: Pastes) -> Input:
    source = create_input()
    if isinstance(source, Vt100Input):
        source.stdin_reader = PasteReader(source.fileno(), pastes)
    return source


def _keys(pastes: Pastes, pressed: Callable[[], None]) -> KeyBindings:
    keys = KeyBindings()

    def accept(event: KeyPressEvent) -> None:
        event.current_buffer.validate_and_handle()

    def new_line(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    def paste(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(pastes.taken(event.data))

    def interrupt(event: KeyPressEvent) -> None:
        pressed()

    keys.add(Keys.ControlM)(accept)
    keys.add(Keys.Escape, Keys.ControlM)(new_line)
    keys.add(Keys.ControlJ)(new_line)
    keys.add(Keys.BracketedPaste)(paste)
    keys.add(Keys.ControlC)(interrupt)
    return keys
