"""A turn in which everything happens that an event can tell, for tests of whoever reads events."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from massmem.core.events import Event, RoundStarted, TurnCompleted, TurnStarted, read_event
from massmem.core.messages import Usage
from massmem.core.voting import Answer, Dissent, find_dissent

START = datetime(2025, 10, 28, 14, 30, tzinfo=UTC)
USAGE = Usage(prompt=100, completion=20, cached=10, requests=1)


def event(seconds: float, kind: str, /, **fields: Any) -> Event:
    return read_event({"type": kind, "at": START + timedelta(seconds=seconds), **fields})


def begin(
    *agents: str, at: float = 0.0, question: str = "Why is the sky blue?", names: dict[str, str] | None = None
) -> Event:
    fields = {"session_id": "session_a", "turn": 1, "question": question, "agents": agents, "seed": 7}
    return event(at, "turn_started", **fields, names=names or {})


def give_names(events: list[Event], names: dict[str, str]) -> list[Event]:
    """Return the events of a turn whose agents have these names, by id."""
    named: list[Event] = []
    for e in events:
        match e:
            case TurnStarted():
                named.append(e.model_copy(update={"names": names}))
            case TurnCompleted(winner=winner):
                named.append(e.model_copy(update={"winner_name": names.get(winner, "")}))
            case _:
                named.append(e)
    return named


def answer(at: float, agent: str, content: str, *, round: int = 1, number: int = 1) -> Event:
    return event(
        at, "answer_submitted", agent_id=agent, round=round, number=number, content=content, usage=USAGE
    )  # fmt: skip


def ballot(at: float, agent: str, choice: str, *, round: int = 2, reason: str = "most complete") -> Event:
    return event(at, "ballot_cast", agent_id=agent, round=round, choice=choice, reason=reason, usage=USAGE)


def search(moment: float, query: str = "sky colour") -> Event:
    return event(moment, "web_searched", agent_id="ann", round=1, query=query)


def busy(at: float) -> Event:
    return event(at, "agent_busy", agent_id="ann", round=1, activity="reading", share=0.4)


def turn_without_restart() -> list[Event]:
    """The same as `whole_turn`, but for the beginning of its third round, at which facts are extracted."""
    return [e for e in whole_turn() if not (isinstance(e, RoundStarted) and e.round == 3)]


def whole_turn() -> list[Event]:
    """Three agents: ann answers and improves, bob retries and votes, eve fails for good; ann wins and presents."""
    return [
        begin("ann", "bob", "eve"),
        event(0.1, "round_started", round=1, agents=("ann", "bob", "eve")),
        *(event(0.2, "agent_started", agent_id=a, round=1, step="answer") for a in ("ann", "bob", "eve")),
        event(0.5, "agent_delta", agent_id="ann", round=1, channel="reasoning", text="hm"),
        event(0.6, "agent_delta", agent_id="ann", round=1, channel="text", text="Rayleigh scattering."),
        event(0.7, "agent_retrying", agent_id="bob", round=1, error="429 slow down", delay=1.5, attempt=2),
        event(
            0.9,
            "agent_failed",
            agent_id="eve",
            round=1,
            step="answer",
            error="AuthenticationError",
            message="the key was refused",
            hint="check OPENAI_API_KEY",
            usage=Usage(requests=1),
        ),
        answer(1.2, "ann", "Rayleigh scattering.", number=1),
        answer(2.2, "bob", "Blue light scatters more.", number=2),
        event(2.3, "round_started", round=2, agents=("ann", "bob")),
        *(event(2.3, "agent_started", agent_id=a, round=2, step="vote") for a in ("ann", "bob")),
        ballot(2.8, "bob", "bob"),
        answer(3.0, "ann", "Rayleigh scattering, in short.", round=2, number=3),
        event(3.0, "ballots_voided", round=2, agents=("bob",)),
        event(3.1, "round_started", round=3, agents=("ann", "bob"), final=True),
        *(event(3.1, "agent_started", agent_id=a, round=3, step="vote") for a in ("ann", "bob")),
        ballot(3.5, "ann", "ann", round=3),
        ballot(4.0, "bob", "ann", round=3, reason="names the cause"),
        event(4.0, "winner_decided", agent_id="ann", votes={"ann": 2}, by="consensus"),
        event(4.0, "agent_started", agent_id="ann", round=3, step="present"),
        event(4.2, "agent_delta", agent_id="ann", round=3, channel="text", text="The sky is blue because"),
        event(4.3, "notice", message="the store is slow"),
        event(
            5.0,
            "turn_completed",
            winner="ann",
            answer="The sky is blue because of Rayleigh scattering.",
            presented=True,
            usage=Usage(prompt=700, completion=150, cached=60, requests=8),
        ),
    ]


def other_ends() -> list[Event]:
    """The events that `whole_turn` has no place for."""
    return [
        event(0, "turn_resumed", session_id="session_a", turn=1, question="Why?", agents=("ann",)),
        event(1, "turn_failed", message="no agent could answer", hint="try later", exit_code=3, usage=Usage()),
        event(1, "turn_interrupted", by="user"),
        event(1, "answer_now_requested"),
        event(
            1, "depth_decided", round=1, asked=("ann", "bob"), next=("eve",), reason="differ", text="ann and bob differ"
        ),
    ]


def waiting_turn() -> list[Event]:
    """Two agents ask the user, who gives one value and not the other; what the user says is a secret."""
    return [
        begin("ann", "bob"),
        event(0.1, "round_started", round=1, agents=("ann", "bob")),
        *(event(0.1, "agent_started", agent_id=a, round=1, step="answer") for a in ("ann", "bob")),
        param_request(0.2, "ann", "order_id"),
        param_request(0.3, "bob", "zip"),
        waiting(0.3, "order_id", "ann", usage=USAGE + USAGE),
        event(
            5, "turn_resumed", session_id="session_a", turn=1, question="Why is the sky blue?", agents=("ann", "bob")
        ),
        event(5, "user_replied", param="order_id", text=SECRET),
        event(5, "param_provided", param="order_id"),
        waiting(5, "zip", "bob", usage=USAGE + USAGE),
        event(9, "param_cleared", param="zip", why="change"),
        event(9, "turn_abandoned", session_id="session_a", turn=1, why="change", usage=USAGE + USAGE),
        event(9, "message_added", role="user", text="by the way"),
        event(9, "note_added", text="use tabs"),
        event(
            9,
            "memory_changed",
            action="edit",
            kind="episode",
            agent_id="user",
            turn=1,
            sources=(1,),
            old="use tabs",
            text="use four blanks",
            by="user",
        ),
        event(9, "history_cleared"),
        event(9, "turn_undone", session_id="session_a", turn=1),
    ]


SECRET = "O-98765-hush"


def param_request(at: float, agent: str, param: str, *, round: int = 1) -> Event:
    prompt = f"What is the {param}?"
    return event(at, "param_requested", agent_id=agent, round=round, param=param, prompt=prompt, usage=USAGE)


def waiting(at: float, param: str, *agents: str, asked: int = 1, usage: Usage = USAGE, shown: bool = False) -> Event:
    return event(
        at, "turn_waiting", param=param, prompt=f"What is the {param}?", agents=agents, asked=asked, shown=shown,
        usage=usage,
    )  # fmt: skip


def measurement(
    at: float, tokens: int, *, agent: str = "ann", window: int = 128_000, source: str = "buffer", recalled: int = 0
) -> Event:
    entries = {"system": 1_000, "user": tokens - 1_000}
    return event(
        at, "context_measured", agent_id=agent, round=1, tokens=tokens, window=window, source=source, entries=entries,
        threshold=0.75, recalled=recalled,
    )  # fmt: skip


def compression(at: float, *, agent: str = "ann") -> Event:
    return event(
        at, "context_compressed", agent_id=agent, round=1, why="threshold", before=96_000, after=51_200, kept=8,
        removed=15, window=128_000, summary="Ann counted to ten.", by="extract", usage=Usage(),
    )  # fmt: skip


def tool_call(at: float, *, agent: str = "ann", name: str = "read_file", number: int = 1, text: str = "") -> Event:
    return event(
        at, "tool_called", agent_id=agent, round=1, call_id=f"call_r1b1n{number}", batch=1, name=name,
        arguments='{"path": "a secret of the call"}', text=text, usage=USAGE,
    )  # fmt: skip


def tool_result(at: float, *, agent: str = "ann", name: str = "read_file") -> Event:
    return event(at, "tool_returned", agent_id=agent, round=1, name=name, content="a secret of the file")


def compare_texts(winner: str, answers: Mapping[str, str], ballots: Mapping[str, tuple[str, str]]) -> Dissent | None:
    """Return who agrees with the winner's text. ballots: choice and reason of each voter."""
    numbered = {agent: Answer(agent, number, text) for number, (agent, text) in enumerate(answers.items(), 1)}
    return find_dissent(winner, numbered, ballots)
