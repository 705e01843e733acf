from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import RecordingConfig
from massmem.core.events import Event
from massmem.core.records import (
    MessageRecord,
    MessageToRecord,
    RecordingJob,
    SessionRecord,
    SessionState,
    is_worth_recording,
)
from massmem.memory.persistent import USER
from massmem.recording.rules import is_ballot, is_reply, make_conversation, make_episodes, mask_params, write_out
from massmem.recording.turn_words import TurnWords
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import SECRET, START, answer, begin, event

BALLOT = '{"vote": {"reason": "names the cause", "choice": "bob"}}'
CALL = '{"read_file": {"path": "a.py"}}'


def message(seq: int, kind: str, content: str, agent: str | None = "ann", **more: Any) -> MessageRecord:
    return MessageRecord.model_validate(
        {"id": f"m{seq}", "session_id": "s", "seq": seq, "turn": 1, "round": 1, "kind": kind, "role": "assistant",
         "agent_id": agent, "content": content, "created_at": START + timedelta(seconds=seq)} | more
    )  # fmt: skip


def row(seq: int, kind: str = "episode", agent: str | None = "ann", **more: Any) -> RecordingJob:
    return RecordingJob.model_validate(
        {"session_id": "s", "seq": seq, "message_id": f"m{seq}", "kind": kind, "agent_id": agent, "turn": 1,
         "status": "pending", "attempts": 0, "created_at": START, **more}
    )  # fmt: skip


def to_record(messages: list[MessageRecord], winner: str | None = None, group: str = "") -> list[MessageToRecord]:
    return [MessageToRecord(message=m, winner=winner, group=group, params={"pin": "4711"}) for m in messages]


TURN = [
    message(1, "user", "Why is the sky blue?", None),
    message(2, "reasoning", "I should look first."),
    message(3, "tool_call", CALL),
    message(4, "tool_result", "class Sky: ..."),
    message(5, "tool_call", '{"list": {}}'),
    message(6, "assistant", "Rayleigh scattering."),
    message(7, "assistant", "Blue light scatters more.", "bob"),
    message(8, "tool_call", BALLOT),
    message(9, "system", "You are an agent of a team."),
    message(10, "assistant", "Rayleigh scattering.", final=True, metadata={"presented": False}),
]


def list_told(settings: RecordingConfig, **more: Any) -> list[tuple[str, str, str]]:
    found = make_conversation(row(10, "extract", **more), TURN, settings, {})
    assert found is not None
    return [(m.role, m.text, m.message_id) for m in found.messages]


@pytest.mark.parametrize(
    ("text", "worth"), [("123456789", False), ("1234567890", True), ("  12345678  ", False), ("", False)]
)
def test_nothing_under_ten_characters(text: str, worth: bool) -> None:
    assert is_worth_recording(text) is worth


def test_an_episode_is_the_message_with_its_place() -> None:
    rows = [row(1, agent=None, position=0), row(6, position=1), row(7, agent="bob", position=2), row(99, position=3)]
    episodes = make_episodes(rows, to_record(TURN, "ann", "project"))
    assert [(e.agent_id, e.position, e.won, e.message_id) for e in episodes] == [
        (USER, 0, False, "m1"),
        ("ann", 1, True, "m6"),
        ("bob", 2, False, "m7"),
    ]
    assert {e.group for e in episodes} == {"project"}
    assert [e.created_at for e in episodes] == [m.created_at for m in (TURN[0], TURN[5], TURN[6])]
    assert make_episodes(rows, to_record(TURN))[1].won is False
    assert episodes == make_episodes(rows, to_record(TURN, "ann", "project"))


def test_a_ballot_is_written_out_as_a_tool_call() -> None:
    assert write_out(TURN[7]) == '[Tool Call: vote]\nArguments: {"reason": "names the cause", "choice": "bob"}'
    for odd in ("no json", "[1]", '{"a": 1, "b": 2}', "{}", "3"):
        assert write_out(message(1, "tool_call", odd)) == odd


def test_a_ballot_is_no_memory() -> None:
    assert [e.message_id for e in make_episodes([row(6), row(8)], to_record(TURN, "ann"))] == ["m6"]
    assert [is_ballot(m) for m in TURN].count(True) == 1


def test_a_final_answer_with_the_text_of_an_answer_is_remembered_once() -> None:
    same = message(11, "assistant", "Rayleigh\nscattering. ", final=True, metadata={"presented": True})
    other = message(12, "assistant", "Rayleigh scattering, of sunlight.", final=True)
    turn = [*TURN, same, other]
    words = TurnWords([], [], [m for m in turn if m.kind == "assistant" and not m.final])
    episodes = make_episodes([row(6), row(11), row(12)], to_record(turn, "ann"), {("s", 1): words})
    assert [e.message_id for e in episodes] == ["m6", "m12"]


def test_by_default_only_questions_answers_and_workflow_tools_are_told() -> None:
    assert list_told(RecordingConfig()) == [
        ("user", "Why is the sky blue?", "m1"),
        ("assistant", "Rayleigh scattering.", "m6"),
        ("assistant", f"[Tool Usage]\n{write_out(TURN[7])}", "m8"),
    ]


def test_all_tool_calls_with_their_results() -> None:
    assert [text for _, text, _ in list_told(RecordingConfig(record_all_tool_calls=True))] == [
        "Why is the sky blue?",
        '[Tool Usage]\n[Tool Call: read_file]\nArguments: {"path": "a.py"}\nResult: class Sky: ...',
        "[Tool Call: list]\nArguments: {}",
        "Rayleigh scattering.",
        f"[Tool Usage]\n{write_out(TURN[7])}",
    ]


def test_a_result_without_its_call_is_told() -> None:
    settings = RecordingConfig(record_all_tool_calls=True)
    assert list_told(settings, since=3)[1] == ("assistant", "[Tool Usage]\nResult: class Sky: ...", "m4")


def test_calls_that_ran_at_once_have_their_own_results() -> None:
    def made(seq: int, kind: str, content: str, call: str) -> MessageRecord:
        return message(seq, kind, content, metadata={"call": call})

    turn = [
        made(1, "tool_call", '{"mcp__t__read": {"path": "a"}}', "c1"),
        made(2, "tool_call", '{"mcp__t__read": {"path": "b"}}', "c2"),
        made(3, "tool_result", "text of b", "c2"),
        made(4, "tool_result", "text of a", "c1"),
        message(5, "assistant", "Both are read now."),
    ]
    found = make_conversation(row(5, "extract"), turn, RecordingConfig(record_all_tool_calls=True), {})
    assert found is not None
    assert [m.text for m in found.messages] == [
        '[Tool Usage]\n[Tool Call: mcp__t__read]\nArguments: {"path": "a"}\nResult: text of a',
        '[Tool Call: mcp__t__read]\nArguments: {"path": "b"}\nResult: text of b',
        "Both are read now.",
    ]
    quiet = make_conversation(row(5, "extract"), turn, RecordingConfig(), {})
    assert quiet is not None
    assert [m.text for m in quiet.messages] == ["Both are read now."]


def test_reasoning_stands_apart() -> None:
    assert list_told(RecordingConfig(record_reasoning=True))[1] == (
        "assistant",
        "[Reasoning]\nI should look first.",
        "m2",
    )


def test_only_what_is_new_since_the_last_extraction() -> None:
    assert [id_ for _, _, id_ in list_told(RecordingConfig(), since=6)] == ["m1", "m8"]
    assert make_conversation(row(5, "extract", since=2), TURN, RecordingConfig(), {}) is None
    assert make_conversation(row(10, "extract", agent="eve"), TURN, RecordingConfig(), {}) is None


@pytest.mark.parametrize(("rounds", "attempt"), [((0,), 1), ((1, 1), 1), ((1, 3, 0), 3)])
def test_its_attempt_is_the_last_round_that_it_comes_from(rounds: tuple[int, ...], attempt: int) -> None:
    turn = [message(n, "assistant", "A long answer.", round=number) for n, number in enumerate(rounds, 1)]
    turn.append(message(8, "assistant", "Of another agent.", "bob", round=9))
    found = make_conversation(row(10, "extract"), turn, RecordingConfig(), {})
    assert found is not None
    assert found.origin.attempt == attempt


@pytest.mark.parametrize(("winners", "expected"), [({}, True), ({("s", 1): "ann"}, False), ({("s", 1): "bob"}, False)])
def test_a_turn_without_a_winner_is_undecided(winners: dict[tuple[str, int], str], expected: bool) -> None:
    found = make_conversation(row(10, "extract"), TURN, RecordingConfig(), winners)
    assert found is not None
    assert found.origin.undecided is expected


def test_whose_conversation_it_is() -> None:
    found = make_conversation(row(10, "extract", agent="bob"), TURN, RecordingConfig(), {("s", 1): "bob"}, "project")
    assert found is not None
    assert [m.message_id for m in found.messages] == ["m1", "m7"]
    origin = found.origin
    assert (origin.session_id, origin.agent_id, origin.turn, origin.won, origin.group) == (
        "s",
        "bob",
        1,
        True,
        "project",
    )


# -- values that the user gave when asked ---------------------------------------------------------------------------


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    await store.create_session(SessionRecord(session_id="session_a", created_at=START, updated_at=START))
    yield store
    await store.close()


async def test_replies_to_requests_are_left_out_and_values_are_masked(store: SessionStore):
    reply = event(1, "user_replied", param="order_id", text=f"it is {SECRET}")
    events: list[Event] = [begin("ann"), reply, answer(2, "ann", f"{SECRET} is on its way.")]
    await store.append("session_a", 1, events, state=SessionState(params={"order_id": SECRET}))
    messages = await store.read_turn_messages("session_a", 1)
    assert [is_reply(m) for m in messages] == [False, True, False]
    remembered = mask_params(await store.get_messages_to_record([m.id for m in messages]))
    assert [m.content for m in remembered] == ["Why is the sky blue?", "[order_id] is on its way."]


async def test_messages_of_a_session_without_params_stay_as_they_are(store: SessionStore):
    await store.append("session_a", 1, [begin("ann"), answer(2, "ann", "Blue.")])
    messages = await store.read_turn_messages("session_a", 1)
    assert mask_params(await store.get_messages_to_record([m.id for m in messages])) == messages
