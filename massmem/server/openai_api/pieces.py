"""An answer as it comes: progress of the council, words of the answer, and its end."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Literal

from massmem.core.events import (
    AgentDelta,
    AgentStarted,
    Event,
    TurnAbandoned,
    TurnCompleted,
    TurnResumed,
    TurnStarted,
    TurnWaiting,
)
from massmem.core.messages import Usage
from massmem.core.outcome import TurnOutcome
from massmem.render.text import describe_event, pluralize
from massmem.render.turn_view import TurnView
from massmem.server.responses import get_text, hide_internals, require_answer
from massmem.server.turns import NumberedEvent

_BYTES_PER_TOKEN = 4
"""As massmem.memory.tokens estimates."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A piece of what the council does, or of what a model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class Words:
    text: str


@dataclass(frozen=True, slots=True)
class Finish:
    reason: Literal["stop", "length"]
    usage: Usage


Piece = Progress | Words | Finish
Pieces = AsyncGenerator[Piece, None]


async def read_turn(events: AsyncGenerator[NumberedEvent, None], *, live: bool, alone: bool) -> Pieces:
    """Yield a turn as pieces. Raise as `wait_for_outcome`, and what ended the turn.

    live: the final answer is sent while it is written. alone: the team's only agent, which has no tools, writes it in
    its first step.
    """
    reader = _TurnReader(live, alone)
    async with aclosing(events):
        async for _, event in events:
            for piece in reader.feed(event):
                yield piece
    for piece in reader.end():
        yield piece


async def limit_words(pieces: Pieces, stops: Sequence[str], max_tokens: int | None) -> Pieces:
    """Yield the pieces with an answer that ends before any of `stops`, and has `max_tokens` (estimated) at most."""
    hold = max((len(stop) for stop in stops), default=1) - 1
    held, room = "", None if max_tokens is None else max_tokens * _BYTES_PER_TOKEN
    reason: Literal["stop", "length"] | None = None
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, Progress):
                yield piece
                continue
            is_last = isinstance(piece, Finish)
            held += "" if is_last else piece.text
            # The stop that is complete first, as if the answer came one character after the other.
            cuts = [(start + len(stop), start) for stop in stops if (start := held.find(stop)) >= 0]
            ready = min(cuts)[1] if cuts else len(held) if is_last else max(len(held) - hold, 0)
            text, held = held[:ready], held[ready:]
            if reason is None and text:
                cut = text if room is None else text.encode()[:room].decode(errors="ignore")
                room = None if room is None else room - len(cut.encode())
                reason = None if cut == text else "length"
                if cut:
                    yield Words(cut)
            if cuts:
                reason, held = reason or "stop", ""
            if is_last:
                yield Finish(reason or piece.reason, piece.usage)


class _TurnReader:
    def __init__(self, live: bool, alone: bool) -> None:
        self._outcome = TurnOutcome()
        self._view = TurnView()
        self._live = live
        self._alone = alone
        self._writer = ""
        """The agent that writes the final answer now."""
        self._sent = ""

    def feed(self, event: Event) -> list[Piece]:
        self._outcome.feed(event)
        public = hide_internals(event)
        if public is not None:
            self._view.feed(public)
        match event:
            case AgentStarted(agent_id=agent_id, step=step) if self._live:
                is_final = step == "present" or (self._alone and step == "answer")
                self._writer = agent_id if is_final else ""
            case AgentDelta(agent_id=self._writer, channel="text", text=text) if self._writer:
                return self._send(text)
            case _:
                pass
        line = None if public is None or self._sent or isinstance(event, TurnCompleted) else self._describe(public)
        return [] if line is None else [Progress(f"{line}\n")]

    def end(self) -> list[Piece]:
        require_answer(self._outcome)
        end, answer = self._outcome.end, get_text(self._outcome)
        assert isinstance(end, TurnCompleted | TurnWaiting | TurnAbandoned)  # else there is no answer
        finish = Finish("length" if self._outcome.is_truncated else "stop", end.usage)
        sent = self._sent.rstrip()
        if answer.startswith(self._sent):
            rest = answer[len(self._sent) :]
        elif answer.startswith(sent):
            rest = ""
        else:  # the words that were sent are void: a request was sent again
            rest = f"\n\n{answer}"
        return [Words(rest), finish] if rest else [finish]

    def _send(self, text: str) -> list[Piece]:
        if not self._sent:
            text = text.lstrip()
            if self._alone and text.startswith("{"):  # it may be a question to the user, as JSON
                self._live, self._writer = False, ""
                return []
        self._sent += text
        return [Words(text)] if text else []

    def _describe(self, event: Event) -> str | None:
        if isinstance(event, TurnStarted | TurnResumed):  # without the id of the session
            return f"turn {event.turn}, {pluralize(len(event.agents), 'agent')}"
        return describe_event(event, self._view)
