"""The final answer on a terminal: its Markdown laid out, its lines broken between words.

Nothing that it says is lost: what Markdown would take away (HTML, references, escapes, line ends) stays as it is.
"""

import re
from typing import TextIO

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown

from massmem.render.printable import printable

_LONGEST = 100_000
"""Characters that are laid out, in up to half a second; a longer answer is written as it is."""

_TAKE_SOMETHING_AWAY = ["entity", "escape", "html_block", "html_inline", "image", "reference"]


_PADDING = re.compile(r" +((?:\x1b\[0m)*)$", re.MULTILINE)
"""rich fills every line with blanks, which would come along when a line is copied."""


def laid_out(answer: str, terminal: TextIO) -> str:
    """The answer as it is to be written to this terminal, with nothing from the model that could command it."""
    text = printable(answer).rstrip("\n") + "\n"
    if len(text) > _LONGEST:
        return text
    # Links are shown with their address: a text that leads elsewhere than it says is a trap.
    shown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    shown.parsed = MarkdownIt().enable(["strikethrough", "table"]).disable(_TAKE_SOMETHING_AWAY).parse(text)
    for token in shown.parsed:
        for child in token.children or ():
            if child.type == "softbreak":  # models end lines where they mean it
                child.type = "hardbreak"
    console = Console(file=terminal, highlight=False)
    with console.capture() as drawn:
        console.print(shown)
    return _PADDING.sub(r"\1", drawn.get())
