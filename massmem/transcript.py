"""The log of a session as people read it: turns with their question, answers, ballots and final answer. Pure."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from massmem.messages import Usage
from massmem.records import MessageRecord, TurnRecord


@dataclass(frozen=True, slots=True)
class Ballot:
    """stands: no new answer came in after it."""

    agent_id: str
    round: int
    choice: str
    reason: str
    stands: bool


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn. messages: all of it, in order, question and final answer included. plan: what is still to be done."""

    record: TurnRecord
    messages: tuple[MessageRecord, ...]
    ballots: tuple[Ballot, ...]
    plan: tuple[str, ...] = ()

    @property
    def added(self) -> bool:
        """It is no turn: these messages came before the first question, or between turns."""
        return self.record.turn == 0

    @property
    def final(self) -> MessageRecord | None:
        """The answer that the user was given."""
        return next((m for m in self.messages if m.final and "waiting_for" not in m.metadata), None)

    @property
    def dialogue(self) -> list[tuple[str, str]]:
        """What the user was asked meanwhile, and replied: the agent, "" for the user, and the words."""
        return [(m.agent_id or "", m.content) for m in self.messages if {"waiting_for", "param"} & m.metadata.keys()]

    @property
    def answers(self) -> list[MessageRecord]:
        """What the agents proposed, in order; what was cut off by a failure is not among it."""
        return [m for m in self.messages if is_answer(m)]

    @property
    def votes(self) -> dict[str, int]:
        """Standing ballots per agent that got any, most first."""
        return dict(Counter(ballot.choice for ballot in self.ballots if ballot.stands).most_common())

    @property
    def rounds(self) -> int:
        return max((m.round for m in self.messages), default=0)

    @property
    def agents(self) -> list[str]:
        """Who said anything, in order of first appearance."""
        return list(dict.fromkeys(m.agent_id for m in self.messages if m.agent_id is not None))

    @property
    def seconds(self) -> float | None:
        """How long the user waited; None when that is not known."""
        final = self.final
        noted = None if final is None else final.metadata.get("response_time")
        if isinstance(noted, int | float):
            return float(noted)
        ended = self.record.ended_at
        return None if ended is None else max((ended - self.record.started_at).total_seconds(), 0.0)

    @property
    def used(self) -> dict[str, Usage]:
        """What each agent's answers and ballots took, with their summaries; the presentation is in `usage` alone."""
        found: dict[str, Usage] = {}
        for message in self.messages:
            if message.agent_id is not None and message.kind != "injection":
                found[message.agent_id] = found.get(message.agent_id, Usage()) + (_usage(message, "usage") or Usage())
        return found

    @property
    def usage(self) -> Usage:
        """What the turn cost, as far as the log says."""
        final = self.final
        whole = None if final is None else _usage(final, "turn_usage")
        return whole or sum(self.used.values(), Usage())


def exchange(record: TurnRecord, messages: Sequence[MessageRecord]) -> Exchange:
    """The turn whose messages these are, oldest first."""
    return Exchange(record, tuple(messages), tuple(_ballots(messages)))


def is_answer(message: MessageRecord) -> bool:
    return message.kind == "assistant" and not message.final and not message.metadata.get("partial")


def _ballots(messages: Sequence[MessageRecord]) -> list[Ballot]:
    """A new answer voids every ballot of its round and of those before it; the first round has none."""
    voided = max((m.round for m in messages if is_answer(m) and m.round > 1), default=0)
    found: list[Ballot] = []
    for message in messages:
        if (said := vote(message)) is not None:
            found.append(Ballot(message.agent_id or "", message.round, *said, stands=message.round > voided))
    return found


def vote(message: MessageRecord) -> tuple[str, str] | None:
    """Choice and reason, when the message is a ballot."""
    if message.kind != "tool_call":
        return None
    try:
        said = _object(_object(json.loads(message.content)).get("vote"))
    except ValueError:
        return None
    match said:
        case {"choice": str(choice), "reason": str(reason)}:
            return choice, reason
        case _:
            return None


def _usage(message: MessageRecord, key: str) -> Usage | None:
    match message.metadata.get(key):
        case {"prompt": int(prompt), "completion": int(completion), "reported": bool(reported), **more}:
            cost = more.get("cost")
            return Usage(prompt, completion, reported=reported, cost=cost if isinstance(cost, float | int) else None)
        case _:
            return None


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
