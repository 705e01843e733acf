"""The log of a session as people read it: turns with their question, answers, ballots and final answer."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from massmem.core.citations import read_citations
from massmem.core.messages import AttachedFile, Attachment, Citation, Usage, read_attached_files
from massmem.core.records import MessageRecord, TurnRecord
from massmem.core.report import Report
from massmem.core.reporting import Section, list_sections, report_votes
from massmem.core.voting import Dissent, find_dissent


@dataclass(frozen=True, slots=True)
class Ballot:
    agent_id: str
    round: int
    choice: str
    """Id of the agent whose answer the ballot is for."""
    reason: str
    stands: bool
    """No new answer came in after it."""


@dataclass(frozen=True, slots=True)
class TurnTranscript:
    """One turn, or the messages that stand between two turns."""

    record: TurnRecord
    messages: tuple[MessageRecord, ...]
    """All messages in order, question and final answer included."""
    ballots: tuple[Ballot, ...]
    plan: tuple[str, ...] = ()
    """Steps that are still to be done, a line each."""
    attachments: tuple[Attachment, ...] = ()
    """Files of the question, where they were loaded."""
    versions: tuple[int, ...] = ()
    """Numbers of all versions of the turn, where there are several, the oldest first."""

    @property
    def is_between_turns(self) -> bool:
        """Whether these messages came before the first question or between turns."""
        return self.record.turn == 0

    @property
    def names(self) -> dict[str, str]:
        """Names of agents for people, by id; some have none."""
        names: dict[str, str] = {}
        for message in self.messages:
            names |= message.metadata.get("names", {})
        return names

    def name(self, agent_id: str) -> str:
        return self.names.get(agent_id, agent_id)

    @property
    def files(self) -> list[AttachedFile]:
        """Files that the question came with."""
        return [file for message in self.messages for file in read_attached_files(message.metadata)]

    @property
    def final(self) -> MessageRecord | None:
        """The answer that the user was given."""
        return next((m for m in self.messages if m.final and "waiting_for" not in m.metadata), None)

    @property
    def winner(self) -> str:
        """The agent whose answer came first, also in an unsure turn; "" when there is none."""
        return self.record.winner or ("" if self.final is None else self.final.agent_id or "")

    @property
    def citations(self) -> tuple[Citation, ...]:
        """Sources of that answer: `[n]` in it names the n-th."""
        return () if self.final is None else read_citations(self.final.metadata)

    @property
    def dialogue(self) -> list[tuple[str, str]]:
        """Questions to the user and the replies, as (name of the agent, text); the name is empty for the user."""
        return [(m.agent_name, m.content) for m in self.messages if {"waiting_for", "param"} & m.metadata.keys()]

    @property
    def answers(self) -> list[MessageRecord]:
        """Proposals of the agents, in order, without those that a failure cut off."""
        return [m for m in self.messages if is_answer(m)]

    @property
    def votes(self) -> dict[str, int]:
        """Standing ballots per agent that got any, most first."""
        return dict(Counter(ballot.choice for ballot in self.ballots if ballot.stands).most_common())

    @property
    def dissent(self) -> Dissent | None:
        """Who agrees with the answer, and who does not; None when there was one agent, or no answer."""
        last = {message.agent_id or "": message for message in self.answers}
        answers = {m.agent_id or "": m.content for m in self.answers if m is last[m.agent_id or ""]}
        ballots = {ballot.agent_id: (ballot.choice, ballot.reason) for ballot in self.ballots if ballot.stands}
        citations = {agent: read_citations(message.metadata) for agent, message in last.items()}
        same = () if self.final is None else self.final.metadata.get("same", ())
        return find_dissent(self.winner, answers, ballots, citations, same) if self.winner else None

    @property
    def report(self) -> Report | None:
        """The report of the council that is stored with the answer."""
        data = None if self.final is None else self.final.metadata.get("report")
        return None if data is None else Report.model_validate(data)

    def make_report(self) -> Report | None:
        """Return the stored report, or one that is made from the votes; None for an agent alone."""
        if (report := self.report) is not None or self.dissent is None:
            return report
        citations = {message.agent_id or "": read_citations(message.metadata) for message in self.answers}
        return report_votes(self.dissent, self.winner, citations)

    def list_report(self, report: Report | None) -> Iterator[Section]:
        """Yield the parts of a report of this turn."""
        if report is not None:
            yield from list_sections(report, list({m.agent_id or "": m for m in self.answers}), self.name)

    @property
    def rounds(self) -> int:
        return max((m.round for m in self.messages), default=0)

    @property
    def agents(self) -> list[str]:
        """Agents with a message, in order of first appearance."""
        return list(dict.fromkeys(m.agent_id for m in self.messages if m.agent_id is not None))

    @property
    def seconds(self) -> float | None:
        """How long the user waited; None when the log does not say."""
        response_time = None if self.final is None else self.final.metadata.get("response_time")
        if isinstance(response_time, int | float):
            return float(response_time)
        ended = self.record.ended_at
        return None if ended is None else max((ended - self.record.started_at).total_seconds(), 0.0)

    @property
    def usage_by_agent(self) -> dict[str, Usage]:
        """Of each agent's answers, ballots and summaries; the presentation counts in `usage` alone."""
        usage: dict[str, Usage] = {}
        for message in self.messages:
            if message.agent_id is not None and message.kind != "injection":
                spent = _read_usage(message, "usage") or Usage()
                usage[message.agent_id] = usage.get(message.agent_id, Usage()) + spent
        return usage

    @property
    def usage(self) -> Usage:
        """Of the turn, as far as the log says."""
        total = None if self.final is None else _read_usage(self.final, "turn_usage")
        return total or sum(self.usage_by_agent.values(), Usage())


def build_transcript(record: TurnRecord, messages: Sequence[MessageRecord]) -> TurnTranscript:
    """Return the transcript of a turn. messages: all of the turn, oldest first."""
    # A new answer voids every ballot of its round and of those before it; the first round has none.
    voided_round = max((m.round for m in messages if is_answer(m) and m.round > 1), default=0)
    ballots = [
        Ballot(message.agent_id or "", message.round, *vote, stands=message.round > voided_round)
        for message in messages
        if (vote := parse_ballot(message)) is not None
    ]
    return TurnTranscript(record, tuple(messages), tuple(ballots))


def is_answer(message: MessageRecord) -> bool:
    """Return whether the message is an agent's answer to the question: neither the final one nor a partial one."""
    return message.kind == "assistant" and not message.final and not message.metadata.get("partial")


def parse_ballot(message: MessageRecord) -> tuple[str, str] | None:
    if message.kind != "tool_call":
        return None
    try:
        content: Any = json.loads(message.content)
    except ValueError:
        return None
    match content:
        case {"vote": {"choice": str(choice), "reason": str(reason)}}:
            return choice, reason
        case _:
            return None


def _read_usage(message: MessageRecord, key: str) -> Usage | None:
    match message.metadata.get(key):
        case {"prompt": int(prompt), "completion": int(completion), "reported": bool(reported), **more}:
            cost, cached, saved = more.get("cost"), more.get("cached", 0), more.get("saved", 0.0)
            searches = more.get("searches", 0)
            return Usage(
                prompt,
                completion,
                cached if isinstance(cached, int) else 0,
                reported=reported,
                cost=cost if isinstance(cost, float | int) else None,
                searches=searches if isinstance(searches, int) else 0,
                saved=saved if isinstance(saved, float | int) else 0.0,
            )
        case _:
            return None
