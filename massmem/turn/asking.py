"""What the user is asked for and what the user gives: the params of one session, and how a reply is read."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from massmem import params
from massmem.config.models import ParamConfig, TeamConfig
from massmem.events import (
    AgentFailed,
    AgentRetrying,
    Event,
    Notice,
    ParamCleared,
    ParamProvided,
    ParamRequested,
    TurnAbandoned,
    TurnCompleted,
    TurnFailed,
    TurnWaiting,
    UserReplied,
    now,
)
from massmem.messages import ChatRequest, Usage, clean_text
from massmem.params import Value
from massmem.plan import plan_in
from massmem.prompts import reply_prompt
from massmem.providers.base import ChatProvider
from massmem.records import SessionState, TurnRecord
from massmem.redact import masked
from massmem.replies import Reply
from massmem.tools.ask_user import Asking
from massmem.voting import Tally
from massmem.waiting import Waiting

MOST_FREE = 8
"""Params of names of their own that agents may ask for in one turn."""

_MOST_READ = 4_000
"""Characters of a reply that a model is shown."""

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "intent": {"type": "string", "enum": ["answer", "change", "cancel", "reset"]},
        "provided": {"type": "boolean"},
        "value": {"type": "string", "maxLength": params.LONGEST},
    },
    "required": ["intent", "provided", "value"],
    "additionalProperties": False,
}
_OfUser = ParamRequested | TurnWaiting | UserReplied | ParamProvided | ParamCleared
_ChangesState = _OfUser | TurnAbandoned | TurnCompleted | TurnFailed

Intent = Literal["answer", "change", "reset", "cancel", "timeout"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a user's message is to a turn that waits. value None: the value is not in it."""

    intent: Intent
    value: Value | None = field(default=None, repr=False)
    usage: Usage = field(default_factory=lambda: Usage(requests=0))


class Params:
    """The params of one session: what may be asked for, what is known. One turn at a time.

    What is known changes with the events that are stored, never before: see `stored`.
    """

    def __init__(self, config: TeamConfig) -> None:
        self._config = config
        self._given: dict[str, Value] = {}
        self._tally = Tally()
        self._turn = 0
        self.state = SessionState()

    def begin(self, turn: int, past: Sequence[Event], state: SessionState) -> None:
        """A turn begins, or is taken up. past: what the log holds of it. state: what the store holds."""
        self.state, self._turn, self._given = state, turn, {}
        self._tally = Tally()
        self._tally.apply_all(past)

    @property
    def waiting(self) -> Waiting:
        return self._tally.waiting

    @property
    def waits(self) -> bool:
        """The turn can do nothing without the user."""
        return plan_in(self._tally).waiting_for is not None

    @property
    def hidden(self) -> Mapping[str, Value]:
        """Values that no log may show."""
        return {**self.state.params, **self._given}

    def asking(self, news: Sequence[Event] = ()) -> Asking:
        """What the agents may ask for in this turn, and what they are told. news: what the turn goes on with."""
        config, waiting = self._config, self.waiting
        given_up = waiting.given_up | {e.param for e in news if isinstance(e, ParamCleared) and e.why == "gave_up"}
        known, given_up = self.hidden, frozenset(given_up)
        if not config.asks:
            return Asking(known=known, given_up=given_up)
        own = (set(known) | given_up | set(waiting.params)) - set(config.params)
        free = config.coordination.ask_user is True and len(own) < MOST_FREE
        return Asking(config.params, free, known, given_up)

    def expired(self) -> bool:
        """Nobody replied for as long as the configuration allows."""
        limit, last = self._config.coordination.waiting_timeout, self.waiting.last
        return limit is not None and last is not None and (now() - last.at).total_seconds() > limit

    def opening(self, question: str) -> list[Event]:
        """News for a new turn whose question has the value that a program waits for (`SessionHandle.set_waiting`)."""
        name = self.state.waiting_for_param
        value = None if name is None else params.found(name, self._spec(name), question)
        if name is None or value is None:
            return []
        self._given = {name: value}
        return [ParamProvided(param=name)]

    def known(self) -> list[Event]:
        """News for a turn that waits for something that was given meanwhile, by another way."""
        return [ParamProvided(param=name) for name in self.waiting.params if name in self.state.params]

    async def read(
        self, question: str, message: str, chat: Mapping[str, ChatProvider], stop: asyncio.Event
    ) -> Reading | None:
        """What the message is to the turn that waits: by rule where possible, else one request to the asking agent.

        question: of the turn. Returns None when `stop` was set meanwhile: nothing has changed.

        Raises:
            ProviderError: the model cannot be asked; nothing has changed.
        """
        name, spec = self._wanted()
        if self.expired():
            return Reading("timeout")
        if (value := params.found(name, spec, message)) is not None:
            return Reading("answer", value)
        if (wish := params.wish(message)) is not None:
            return Reading(wish)
        asking = asyncio.create_task(self._ask_model(question, message, chat))
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return _reading(asking.result(), spec, message) if asking.done() else None
        finally:
            asking.cancel()
            stopping.cancel()
            await asyncio.gather(asking, stopping, return_exceptions=True)

    def _wanted(self) -> tuple[str, ParamConfig]:
        """What is waited for; the caller has found that there is something."""
        name = self.waiting.params[0]
        return name, self._spec(name)

    async def _ask_model(self, question: str, message: str, chat: Mapping[str, ChatProvider]) -> Reply:
        request, last = self.waiting.open[0], self.waiting.last
        provider = chat.get(request.agent_id) or next(iter(chat.values()))
        asked = last.prompt if last is not None and last.param == request.param else request.prompt
        messages = reply_prompt(_described(*self._wanted()), question, asked, message[:_MOST_READ])
        sent = ChatRequest(messages, "extract", request.agent_id, schema=_SCHEMA, temperature=0.0)
        reply = Reply()
        async with aclosing(provider.stream(sent)) as chunks:
            async for chunk in chunks:
                reply.feed(chunk)
        return reply

    def news(self, reading: Reading, message: str) -> list[Event]:
        """The events of a message that goes to the turn that waits; a value is kept until they are stored."""
        name = self.waiting.params[0]
        events: list[Event] = [UserReplied(param=name, text=message, usage=reading.usage)]
        if reading.value is not None:
            self._given = {name: reading.value, **self._others(message)}
            return events + [ParamProvided(param=given) for given in self._given]
        if self.waiting.asked(name) >= self._config.coordination.max_asks:
            events.append(ParamCleared(param=name, why="gave_up"))
        return events

    def abandoned(self, record: TurnRecord, reading: Reading, message: str) -> list[Event]:
        """The events of giving the turn up. What the user said is part of it unless it is a question of its own."""
        why = reading.intent
        assert why != "answer"  # an answer goes on with the turn
        own = [UserReplied(param=self.waiting.params[0], text=message)] if why in ("cancel", "reset") else []
        usage = self._tally.usage + reading.usage
        return [
            *own,
            *(ParamCleared(param=name, why=why) for name in self.waiting.params),
            TurnAbandoned(session_id=record.session_id, turn=record.turn, why=why, usage=usage),
        ]

    def stored(self, events: Sequence[Event]) -> SessionState | None:
        """The state to be stored with these events, None when they do not change it."""
        self._tally.apply_all(events)
        changed = [event for event in events if isinstance(event, _ChangesState)]
        if not changed or not (self._config.asks or self.state.waiting_for_param or self.waiting.open):
            return None
        known = dict(self.state.params)
        result = self.state.last_result
        for event in changed:
            match event:
                case ParamProvided(param=name) if name in self._given:
                    known[name] = self._given.pop(name)
                case TurnAbandoned(why="reset"):
                    known.clear()
                case TurnCompleted():
                    result = {"turn": self._turn, "winner": event.winner}
                case _:
                    pass
        over = isinstance(changed[-1], TurnCompleted | TurnAbandoned)
        plan = plan_in(self._tally)
        self.state = self.state.model_copy(
            update={
                "params": known,
                "waiting_for_param": None if over else plan.waiting_for,
                "plan_execution": None if over else {"turn": self._turn, **plan.data()},
                "last_result": result,
            }
        )
        return self.state

    def masked(self, event: Event) -> Event:
        """The event without values in what it says of errors: a server may quote what it was sent."""
        hidden = self.hidden
        if not hidden:
            return event
        match event:
            case AgentFailed(message=message, hint=hint) | TurnFailed(message=message, hint=hint):
                changed = {"message": masked(message, hidden), "hint": masked(hint, hidden)}
            case AgentRetrying(error=error):
                changed = {"error": masked(error, hidden)}
            case Notice(message=message):
                changed = {"message": masked(message, hidden)}
            case _:
                return event
        return event.model_copy(update=changed)

    def _others(self, message: str) -> dict[str, Value]:
        """Other values that are waited for and stand in the same message beyond doubt."""
        found: dict[str, Value] = {}
        for name in self.waiting.params[1:]:
            spec = self._spec(name)
            if spec.pattern is not None or spec.type == "email":
                value = params.found(name, spec, message)
                if value is not None:
                    found[name] = value
        return found

    def _spec(self, name: str) -> ParamConfig:
        return self._config.params.get(name, ParamConfig())


def _described(name: str, spec: ParamConfig) -> str:
    lines = [f"name: {name}", f"form: {params.form(spec)}"]
    if spec.description:
        lines.append(f"what it is: {spec.description}")
    if spec.pattern:
        lines.append(f"regular expression: {spec.pattern}")
    if spec.mapping:
        lines.append(f"also called: {', '.join(spec.mapping)}")
    if spec.examples:
        lines.append(f"examples of the form: {', '.join(spec.examples[:3])}")
    if spec.type == "date":
        lines.append(f"today: {now().astimezone().date().isoformat()}")
    return "\n".join(lines)


def _reading(reply: Reply, spec: ParamConfig, message: str) -> Reading:
    """What a model found in the message; a value counts only when it is of the right form and stands there."""
    used = reply.usage
    data = _object(reply.text)
    intent = data.get("intent")
    raw = data.get("value")
    if data.get("provided") is True and isinstance(raw, str):
        value = params.checked(spec, clean_text(raw))
        if value is not None and _stands_in(raw, spec, message):
            return Reading("answer", value, used)
    return Reading(intent if intent in ("change", "cancel", "reset") else "answer", None, used)


def _stands_in(raw: str, spec: ParamConfig, message: str) -> bool:
    """Small models write down an example of their prompt: letters and digits of a text must be in the message.

    A number, a date or a word of a list may have been said in other words ("twelve", "tomorrow"), but is no example.
    """
    said = _plain(raw) in _plain(message)
    if spec.type in ("string", "email") and not spec.values:
        return said
    return said or raw.strip() not in spec.examples


def _plain(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())


def _object(text: str) -> Mapping[str, Any]:
    start, end = text.find("{"), text.rfind("}")
    try:
        data = json.loads(text[start : end + 1]) if 0 <= start < end else None
    except (ValueError, RecursionError):
        data = None
    return cast("Mapping[str, Any]", data) if isinstance(data, dict) else {}
