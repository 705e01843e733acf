"""What may follow in a line that begins with a slash: commands, sessions, agents, models."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

Offers = Callable[[str, Sequence[str]], Awaitable[Sequence[str]]]
"""From a command's name and the whole words that follow it to what may come next."""


class Commands(Completer):
    """summaries: of the commands, by name."""

    def __init__(self, summaries: dict[str, str], offers: Offers) -> None:
        self._summaries = summaries
        self._offers = offers

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """prompt_toolkit asks the asynchronous one."""
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
        for offer in await self._offers(name, words[:-1]):
            # A name of several words is completed as a whole.
            typed = rest if " " in offer else words[-1]
            if offer.lower().startswith(typed.lower()) and offer != typed:
                yield Completion(offer, -len(typed))
