"""What a turn came to has one form: live, stored, over an export and its import, in every store and front end."""

import io
import json
import re
from collections.abc import Sequence
from contextlib import aclosing, redirect_stdout
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel

from massmem.cli.session_view import format_turn
from massmem.core.events import AnswerSubmitted, Event
from massmem.core.records import EVERYBODY
from massmem.core.transcript import LoggedTurn
from massmem.core.turn_result import AgentResult, TurnResult, TurnSummary
from massmem.export import FORMATS, dump_turn
from massmem.server.schemas import ChatAnswer, HistoryMessage
from massmem.session.fork import fork_session
from massmem.store.lookup import find_session, read_results, read_transcript, require_session
from massmem.store.ports import SessionStore
from tests.contract.test_session_export import ID, bring_in, elsewhere, export, open_memories
from tests.contract.test_session_store import session
from tests.support.sample_turn import USAGE, answer, begin, event, waiting_turn, whole_turn
from tests.support.sessions_said import log_turn, make_events

__all__ = ["elsewhere"]

SOURCE = {"url": "https://a.example", "title": "A", "quote": "It is so.", "agent_id": "ann"}
CLAIM = {"text": "It is blue.", "agents": ["ann", "bob"], "sources": [1]}
CANDIDATE = {"answer": "42", "agents": ["ann"]}
MEASURED = {"right": 29, "asked": 30, "low": 0.8, "high": 1.0, "group": "number"}
PARTIALS = [{"agent_id": "bob", "text": "Blue li"}]


def fail(agent: str) -> Event:
    fields = {"step": "answer", "error": "AuthenticationError", "message": "the key was refused", "partial": "Bl"}
    return event(1, "agent_failed", agent_id=agent, round=1, usage=USAGE, **fields)


def make_turns() -> dict[str, list[Event]]:
    spare: dict[str, Any] = {"fallback": "scripted spare", "truncated": True}
    answers = [e.model_copy(update=spare) if isinstance(e, AnswerSubmitted) else e for e in make_events(**spare)]
    stopped = event(2, "turn_interrupted", by="user", partials=PARTIALS)
    failed = event(2, "turn_failed", message="no agent could answer", hint="try later", exit_code=3, usage=USAGE)
    depth = event(1, "depth_decided", round=1, asked=("ann",), reason="asks_for_text", text="ann is enough")
    notice = event(0, "notice", message="the store is slow")
    hurry = [begin("ann", "bob"), event(1, "answer_now_requested"), answer(1, "ann", "42"), depth]
    decided = event(2, "winner_decided", agent_id="ann", votes={}, by="answer_now", not_asked=("bob",))
    done = {"winner": "ann", "answer": "42", "presented": False, "usage": USAGE}
    tool = event(1, "tool_returned", agent_id="ann", round=1, name="read", content="x", call_id="c", failed=True)
    report = {"made_from": "answers", "agreed": [CLAIM], "sources": [SOURCE]}
    return {
        "fallback and cut": [notice, *answers],
        "unsure": make_events(verdict="unsure", escalated=True, candidates=[CANDIDATE], measured_confidence=MEASURED),
        "report": make_events(report=report, citations=[SOURCE], agreement="2 of 2 agents gave this answer"),
        "stopped in round 2": [*make_events(end=stopped)[:6], stopped],
        "all failed": [begin("ann", "bob"), fail("ann"), fail("bob"), failed],
        "waiting": waiting_turn()[:6],
        "given up": waiting_turn()[:12],
        "imported": [e.model_copy(update={"imported": True}) if hasattr(e, "imported") else e for e in hurry]
        + [event(3, "turn_completed", imported=True, **done)],
        "answer now": [*hurry, decided, event(3, "turn_completed", limit="timeout", **done)],
        "schema": make_events(data={"port": 5432}),
        "carried out": make_events(carried_out={"folder": "/f", "changes": {"a.py": "new"}, "error": "it was stopped"}),
        "no form": make_events(form_error="no agent could answer in the form"),
        "work cut": [begin("ann"), tool, answer(1, "ann", "42"), event(3, "turn_completed", work_cut="time", **done)],
        "whole": whole_turn(),
    }


def number_turn(events: Sequence[Event], turn: int) -> list[Event]:
    return [e.model_copy(update={"turn": turn}) if hasattr(e, "turn") else e for e in events]


def strip(form: dict[str, Any]) -> dict[str, Any]:
    """Return the form without what belongs to the place: a fork and an import may have an id of their own."""
    return {name: value for name, value in form.items() if name not in ("session_id", "messages")}


async def read_forms(store: SessionStore, session_id: str = ID) -> list[dict[str, Any]]:
    async with aclosing(read_results(store, await require_session(store, session_id))) as results:
        return [strip(result.model_dump(mode="json")) async for result in results]


async def test_the_form_is_the_same_everywhere(store: SessionStore, elsewhere: SessionStore, tmp_path: Path) -> None:
    turns = [number_turn(events, n) for n, events in enumerate(make_turns().values(), 1)]
    live = [strip(TurnResult.of(events).model_dump(mode="json")) for events in turns]
    await store.create_session(session(ID))
    for number, events in enumerate(turns, 1):
        await store.append(ID, number, events)
    assert await read_forms(store) == live
    stored = await require_session(store, ID)
    async with aclosing(read_transcript(store, stored)) as transcript:
        assert [strip(dump_turn(turn)) async for turn in transcript] == live
    text = await export(store)
    assert [strip(turn) for turn in json.loads(text)["turns"]] == live
    await bring_in(text, open_memories(elsewhere, tmp_path / "elsewhere"))
    assert await read_forms(elsewhere) == live
    fork = await fork_session(store, ID)
    assert await read_forms(store, fork.session_id) == live


async def test_a_turn_that_goes_on_in_another_process_has_its_beginning(store: SessionStore) -> None:
    stopped, *_, completed = event(2, "turn_interrupted", by="signal"), make_events()[-1]
    resumed = event(9, "turn_resumed", session_id=ID, turn=1, question="Why?", agents=("ann", "bob"))
    await store.create_session(session(ID))
    events = [*make_events()[:-1], stopped, resumed, completed]
    for one in events:
        await store.append(ID, 1, [one])
    assert await read_forms(store) == [strip(TurnResult.of(events).model_dump(mode="json"))]
    assert (await find_session(store, ID, EVERYBODY)).status == "completed"


# Whoever adds a field shows it, or says here why only programs see it.
ONLY_IN_JSON = {
    "schema_version": "of the form", "session_id": "stands above the turns", "parent": "versions show it",
    "citations": "of an agent: those of the answer are shown", "depth": "the line of progress says it",
    "decided_by": "votes and agreement say it", "verdict": "escalated says it", "not_asked": "as depth",
    "measured_confidence": "the sentence on the agreement says it", "candidates": "so does the answer",
    "data": "the answer is the same as text", "files": "the question names them", "ended_at": "seconds",
    "notices": "stderr shows them", "usage": "in the line on the decision", "is_whole": "see title",
    "names": "in place of ids", "number": "order", "id": "name", "type": "error says it", "step": "error says it",
    "fix": "stderr shows it with the failure", "agent": "name", "tools": "show --all has the results",
    "spent": "/cost and sessions insights show it", "job": "the command has it, and the form of the answer shows it",
    "carried_out": "the answer ends with it", "waiting_for": "plan says it",
    "winner": "its name is shown", "turn": "the title has it",
}  # fmt: skip


def read_text(turns: Sequence[LoggedTurn]) -> str:
    with redirect_stdout(io.StringIO()):
        return "\n".join(format_turn(turn, detailed=detailed) for turn in turns for detailed in (False, True))


def list_values(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return each scalar of a form with the name of its field."""
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return [pair for key, part in parts.items() for pair in list_values(part, name if name == "usage" else key)]
    if isinstance(value, list):
        items = cast("list[Any]", value)
        return [pair for part in items for pair in list_values(part, name)]
    return [(name, str(value))]


def test_every_field_is_shown_or_said_to_be_for_programs() -> None:
    fields = {*TurnResult.model_fields, *AgentResult.model_fields}
    turns = [log_turn(events) for events in make_turns().values()]
    text = re.sub(r"\s+", " ", read_text(turns))
    form = [pair for turn in turns for pair in list_values(turn.result.model_dump(mode="json"))]
    shown = {
        name for name, value in form if len(value) > 1 and value not in ("None", "False", "True") and value in text
    }
    flags = {name for name in fields if name in ("escalated", "truncated", "stands", "withdrawn", "versions")}
    composed = {
        "agents",
        "answers",
        "ballots",
        "errors",
        "asked",
        "votes",
        "rounds",
        "seconds",
        "started_at",
        "dissent",
    }
    composed |= {"agreement", "confidence", "report", "items", "revisions"}
    assert fields - shown - flags - composed - ONLY_IN_JSON.keys() == set()


def test_every_field_is_in_every_form_and_in_the_docs() -> None:
    fields = set(TurnResult.model_fields)
    turn = log_turn(make_events())
    assert set(dump_turn(turn)) == fields | {"messages"}
    exported = json.loads(FORMATS["json"].write_turn(turn, True, False))
    assert set(exported) == fields | {"messages"}
    assert fields < set(ChatAnswer.model_fields)
    assert HistoryMessage.model_fields["result"].annotation == TurnSummary | None
    assert set(TurnSummary.model_fields) == fields - {"agents"}
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text()
    parts: list[type[BaseModel]] = [TurnSummary, AgentResult]
    missing = [name for part in parts for name in part.model_fields if f"`{name}`" not in page.split("# The result")[1]]
    assert missing == []
