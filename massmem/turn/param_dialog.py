"""The dialog with the user about params: what agents may ask for, how a reply is read, and what is known afterwards."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from massmem.config.models import TeamConfig
from massmem.core import events as ev
from massmem.core import params
from massmem.core.events import now
from massmem.core.messages import ChatRequest, Reply, Usage, clean_text
from massmem.core.outcome import Waiting
from massmem.core.params import ParamSpec, Value
from massmem.core.prompts import build_reply_request
from massmem.core.records import SessionState, TurnRecord
from massmem.core.redact import mask
from massmem.core.voting import Tally, build_plan
from massmem.providers.base import ChatProvider, ask
from massmem.tools.actions import AskContext, build_object_schema, find_object
from massmem.turn.outbox import run_until

MAX_FREE_PARAMS = 8
"""Params under names of their own that agents may ask for in one turn."""

_MAX_REPLY = 4_000
"""Characters of a reply that a model is shown."""

_SCHEMA = build_object_schema(
    intent={"type": "string", "enum": ["answer", "change", "cancel", "reset"]},
    provided={"type": "boolean"},
    value={"type": "string", "maxLength": params.MAX_VALUE_LENGTH},
)
_StateEvent = (
    ev.ParamRequested
    | ev.TurnWaiting
    | ev.UserReplied
    | ev.ParamProvided
    | ev.ParamCleared
    | ev.TurnAbandoned
    | ev.TurnCompleted
    | ev.TurnFailed
)
"""Events that change the session's state."""

Intent = Literal["answer", "change", "reset", "cancel", "timeout"]


@dataclass(frozen=True, slots=True)
class ReplyReading:
    """The meaning of a user's message to a turn that waits for a param."""

    intent: Intent
    value: Value | None = field(default=None, repr=False)
    """None: the value is not in the message."""
    usage: Usage = field(default_factory=lambda: Usage(requests=0))


class ParamDialog:
    """The params of one turn: what may be asked for, what is asked for, and what is known.

    Values become known with the events that are stored, never before: see `apply`.
    """

    def __init__(self, config: TeamConfig, state: SessionState, turn: int, events: Sequence[ev.Event] = ()) -> None:
        """state: of the session, as the store has it. events: of the turn, as the log has them."""
        self.state = state
        self._config = config
        self._turn = turn
        self._tally = Tally()
        self._tally.apply_all(events)
        self._new_values: dict[str, Value] = {}

    @property
    def waiting(self) -> Waiting:
        return self._tally.waiting

    @property
    def is_waiting(self) -> bool:
        """The turn can do nothing without the user."""
        return build_plan(self._tally).waiting_for is not None

    @property
    def is_expired(self) -> bool:
        """The user has not replied for as long as the configuration allows."""
        limit, last = self._config.coordination.waiting_timeout, self.waiting.last_shown
        return limit is not None and last is not None and (now() - last.at).total_seconds() > limit

    @property
    def values(self) -> Mapping[str, Value]:
        """All values by name. No log may show them."""
        return {**self.state.params, **self._new_values}

    def build_ask_context(self, replies: Sequence[ev.Event] = ()) -> AskContext:
        """Return what the agents may ask for in this turn, and what they are told. replies: see `Turn.replies`."""
        config, waiting, values = self._config, self.waiting, self.values
        cleared = {event.param for event in replies if isinstance(event, ev.ParamCleared) and event.why == "gave_up"}
        given_up = frozenset(waiting.given_up | cleared)
        if not config.may_ask_user:
            return AskContext(known=values, given_up=given_up)
        free_names = (set(values) | given_up | set(waiting.params)) - set(config.params)
        free = config.coordination.ask_user is True and len(free_names) < MAX_FREE_PARAMS
        return AskContext(config.param_specs, free, values, given_up)

    def read_question(self, question: str) -> list[ev.Event]:
        """Return the events of a new turn whose question holds the value that a program waits for.

        See `SessionHandle.set_waiting`.
        """
        name = self.state.waiting_for_param
        value = None if name is None else params.find_value(name, self._spec(name), question)
        if name is None or value is None:
            return []
        self._new_values = {name: value}
        return [ev.ParamProvided(param=name)]

    def list_provided_params(self) -> list[ev.Event]:
        """Return the events of a turn that waits for values which the session has been given by other means."""
        return [ev.ParamProvided(param=name) for name in self.waiting.params if name in self.state.params]

    async def read_reply(
        self, question: str, message: str, providers: Mapping[str, ChatProvider], stop: asyncio.Event
    ) -> ReplyReading | None:
        """Read the user's message to a waiting turn: by rule where possible, else by the model of the agent that asks.

        question: of the turn. providers: by agent id. Return None when `stop` was set meanwhile: nothing has changed.

        Raises ProviderError: the model cannot be asked; nothing has changed.
        """
        name = self.waiting.params[0]
        spec = self._spec(name)
        if self.is_expired:
            return ReplyReading("timeout")
        if (value := params.find_value(name, spec, message)) is not None:
            return ReplyReading("answer", value)
        if (intent := params.detect_intent(message)) is not None:
            return ReplyReading(intent)
        reply = await run_until(stop, self._ask_model(question, message, providers))
        return None if reply is None else _read_model_reply(reply, spec, message)

    def accept(self, reading: ReplyReading, message: str) -> list[ev.Event]:
        """Return the events of a message that is the reply to a waiting turn; its values wait for `apply`."""
        name = self.waiting.params[0]
        is_value = reading.value is not None or _may_hold_value(message)
        events: list[ev.Event] = [ev.UserReplied(param=name, text=message, is_value=is_value, usage=reading.usage)]
        if reading.value is not None:
            self._new_values = {name: reading.value, **self._find_more_values(message)}
            return events + [ev.ParamProvided(param=param) for param in self._new_values]
        if self.waiting.ask_number(name) >= self._config.coordination.max_asks:
            events.append(ev.ParamCleared(param=name, why="gave_up"))
        return events

    def abandon(self, record: TurnRecord, reading: ReplyReading, message: str) -> list[ev.Event]:
        """Return the events of giving the turn up. The message is part of it, unless it is a question of its own."""
        why = reading.intent
        assert why != "answer"  # an answer goes on with the turn
        reply = ev.UserReplied(param=self.waiting.params[0], text=message, is_value=_may_hold_value(message))
        usage = self._tally.usage + reading.usage
        return [
            *([reply] if why in ("cancel", "reset") else []),
            *(ev.ParamCleared(param=name, why=why) for name in self.waiting.params),
            *([ev.HistoryCleared()] if why == "reset" else []),
            ev.TurnAbandoned(session_id=record.session_id, turn=record.turn, why=why, usage=usage),
        ]

    def apply(self, events: Sequence[ev.Event]) -> SessionState | None:
        """Take in events that are about to be stored; return the state to store with them, None when it stays."""
        self._tally.apply_all(events)
        changes = [event for event in events if isinstance(event, _StateEvent)]
        may_ask = self._config.may_ask_user or self._config.coordination.confirm is not None
        concerns = may_ask or self.state.waiting_for_param or self.waiting.open_requests or self.state.params
        if not changes or not concerns:
            return None
        values, result, intent = dict(self.state.params), self.state.last_result, self.state.last_intent_id
        for event in changes:
            match event:
                case ev.ParamProvided(param=name) if name in self._new_values:
                    values[name] = self._new_values.pop(name)
                case ev.UserReplied():
                    intent = "answer"
                case ev.TurnAbandoned(why=why):
                    intent, values = why, {} if why == "reset" else values
                case ev.TurnCompleted():
                    result = {"turn": self._turn, "winner": event.winner}
                case _:
                    pass
        over = isinstance(changes[-1], ev.TurnCompleted | ev.TurnAbandoned)
        if over:  # what the user allowed was for this turn
            values = {name: value for name, value in values.items() if not name.startswith(params.CONFIRMATION)}
        plan = build_plan(self._tally)
        self.state = self.state.model_copy(
            update={
                "params": values,
                "waiting_for_param": None if over else plan.waiting_for,
                "plan_execution": None if over else {"turn": self._turn, **asdict(plan)},
                "last_intent_id": intent,
                "last_result": result,
            }
        )
        return self.state

    def mask(self, event: ev.Event) -> ev.Event:
        """Return the event without values in its error texts: a server may quote what it was sent."""
        values = self.values
        if not values:
            return event
        match event:
            case ev.AgentFailed(message=message, hint=hint) | ev.TurnFailed(message=message, hint=hint):
                texts = {"message": mask(message, values), "hint": mask(hint, values)}
            case ev.AgentRetrying(error=error):
                texts = {"error": mask(error, values)}
            case ev.Notice(message=message):
                texts = {"message": mask(message, values)}
            case _:
                return event
        return event.model_copy(update=texts)

    async def _ask_model(self, question: str, message: str, providers: Mapping[str, ChatProvider]) -> Reply:
        request, last = self.waiting.open_requests[0], self.waiting.last_shown
        provider = providers.get(request.agent_id) or next(iter(providers.values()))
        prompt = last.prompt if last is not None and last.param == request.param else request.prompt
        name = self.waiting.params[0]
        messages = build_reply_request(_describe(name, self._spec(name)), question, prompt, message[:_MAX_REPLY])
        return await ask(provider, ChatRequest(messages, "extract", request.agent_id, schema=_SCHEMA, temperature=0.0))

    def _find_more_values(self, message: str) -> dict[str, Value]:
        """Return other values that are asked for and stand in the same message beyond doubt."""
        specs = {name: self._spec(name) for name in self.waiting.params[1:]}
        certain = {name: spec for name, spec in specs.items() if spec.pattern is not None or spec.type == "email"}
        values = {name: params.find_value(name, spec, message) for name, spec in certain.items()}
        return {name: value for name, value in values.items() if value is not None}

    def _spec(self, name: str) -> ParamSpec:
        if name.startswith(params.CONFIRMATION):
            return ParamSpec("whether a tool may be called", "boolean")
        return self._config.param_specs.get(name, ParamSpec())


def _describe(name: str, spec: ParamSpec) -> str:
    parts = {
        "name": name,
        "form": params.describe_form(spec),
        "what it is": spec.description,
        "regular expression": spec.pattern,
        "also called": ", ".join(spec.mapping),
        "examples of the form": ", ".join(spec.examples[:3]),
        "today": now().astimezone().date().isoformat() if spec.type == "date" else "",
    }
    return "\n".join(f"{part}: {text}" for part, text in parts.items() if text)


def _read_model_reply(reply: Reply, spec: ParamSpec, message: str) -> ReplyReading:
    """Return what a model found in the message; a value counts only when it has the right form and stands there."""
    data = find_object(reply.text) or {}
    intent, raw = data.get("intent"), data.get("value")
    if data.get("provided") is True and isinstance(raw, str):
        raw = clean_text(raw)
        if params.parse_value(spec, raw) is None:  # "the pro plan", where pro is the value
            raw = str(params.find_single(spec, raw) or raw)
        value = params.parse_value(spec, raw)
        if value is not None and _is_in_message(raw, spec, message):
            return ReplyReading("answer", value, reply.usage)
    return ReplyReading(intent if intent in ("change", "cancel", "reset") else "answer", None, reply.usage)


def _is_in_message(raw: str, spec: ParamSpec, message: str) -> bool:
    """Small models write down an example of their prompt: letters and digits of a text must be in the message.

    A number, a date or a word of a list may be said in other words ("twelve", "tomorrow"), but is no example.
    """
    literal = _letters_and_digits(raw) in _letters_and_digits(message)
    if spec.type in ("string", "email") and not spec.values:
        return literal
    return literal or raw.strip() not in spec.examples


def _may_hold_value(message: str) -> bool:  # a mistyped number, for one
    return any(char.isdigit() or char == "@" for char in message)


def _letters_and_digits(text: str) -> str:
    return "".join(char for char in text.casefold() if char.isalnum())
