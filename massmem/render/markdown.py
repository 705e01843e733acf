"""Lays out the Markdown of the final answer on a terminal.

The text stays complete: what Markdown would hide (HTML, references, escapes, line ends) is shown as it is.
"""

import re
from typing import TextIO

from markdown_it import MarkdownIt
from rich.console import Console
from rich.markdown import Markdown

from massmem.core.text import make_printable

_LONGEST = 100_000
"""Characters that are laid out, which takes up to half a second. A longer answer is returned as it is."""

_HIDING_RULES = ["entity", "escape", "html_block", "html_inline", "image", "reference"]

_PADDING = re.compile(r" +((?:\x1b\[0m)*)$", re.MULTILINE)
"""rich fills every line with blanks, which would be copied with the line."""


def render_markdown(answer: str, terminal: TextIO) -> str:
    """Return the answer as text to write to this terminal, without control sequences of the model."""
    text = make_printable(answer).rstrip("\n") + "\n"
    if len(text) > _LONGEST:
        return text
    # Links show their address: link text may claim another destination.
    markdown = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    markdown.parsed = MarkdownIt().enable(["strikethrough", "table"]).disable(_HIDING_RULES).parse(text)
    for token in markdown.parsed:
        for child in token.children or ():
            if child.type == "softbreak":  # models break lines on purpose
                child.type = "hardbreak"
    console = Console(file=terminal, highlight=False)
    with console.capture() as capture:
        console.print(markdown)
    return _PADDING.sub(r"\1", capture.get())
