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
from massmem.memory.origins import ToolText, ToolWords
from massmem.memory.persistent import USER, Fact
from massmem.recording.rules import (
    Conversation,
    ToolResult,
    TurnWords,
    add_repeated,
    find_message_origin,
    is_ballot,
    is_reply,
    list_results,
    make_conversation,
    make_episodes,
    mark_facts,
    mask_params,
    read_tool_words,
    write_out,
)
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session
from tests.support.sample_turn import SECRET, START, USAGE, answer, begin, event

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
    found = make_conversation(
        row(10, "extract", agent="bob"), TURN, RecordingConfig(), {("s", 1): "bob"}, ("team", "/alpha")
    )
    assert found is not None
    assert [m.message_id for m in found.messages] == ["m1", "m7"]
    origin = found.origin
    assert (origin.session_id, origin.agent_id, origin.turn, origin.won, origin.group) == (
        "s",
        "bob",
        1,
        True,
        "team",
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


PAGE = "The vault opens with REED-4410."
FETCHING = [
    message(1, "user", "Where is the key?", None),
    message(2, "assistant", "Let me look around first."),
    message(3, "tool_call", '{"fetch": {"url": "x.example 4711"}}', metadata={"call": "c1"}),
    message(4, "tool_result", PAGE, metadata={"tool": "fetch", "call": "c1"}),
    message(5, "assistant", "REED-4410 is the key."),
]
RESULT = ToolText("fetch", PAGE, '{"fetch": {"url": "x.example 4711"}}')


def test_results_come_with_their_calls():
    assert list_results(FETCHING) == [ToolResult(FETCHING[3], RESULT)]
    outside = [message(1, "tool_call", "{}"), message(2, "tool_result", "Rain.", metadata={"tool": "sky"})]
    assert list_results(outside) == [ToolResult(outside[1], ToolText("sky", "Rain."))]


def test_messages_before_a_result_do_not_come_from_it():
    words = TurnWords(list_results(FETCHING), ["Where is the key?"])
    assert words.list_before("ann", 1, 4).results == []
    assert words.list_before("ann", 1, 5).results == [RESULT]
    assert words.list_before("ann", 1, 9) is words.list_before("ann", 1, 5), "prepared once for all messages behind"


def test_an_agent_rests_on_the_results_of_others_once_it_has_read_their_answers():
    words = TurnWords(list_results(FETCHING))
    rounds = {round_: words.list_before("bob", round_, 9).results for round_ in (1, 2, 0)}
    assert rounds == {1: [], 2: [RESULT], 0: [RESULT]}


@pytest.mark.parametrize(
    ("fields", "origin"),
    [
        ({"kind": "tool_result", "metadata": {"tool": "fetch"}}, "tool:fetch"),
        ({"kind": "tool_result"}, "tool:unknown"),
        ({"kind": "assistant"}, ""),
        ({"kind": "user", "metadata": {"imported": True}}, "import"),
        ({"kind": "assistant", "session_id": "import_of_mine"}, ""),
    ],
)
def test_the_log_names_tools_and_imports(fields: dict[str, Any], origin: str):
    record: MessageRecord = message(1, "assistant", "x").model_copy(update=fields)
    assert find_message_origin(record) == origin


def test_a_fact_about_a_repetition_is_from_the_tool_too():
    words = ToolWords([RESULT])
    own = [message(5, "assistant", "REED-4410 lets one enter. I am done.")]
    assert words.find_tool("Whoever is permitted may enter.") == ""
    assert add_repeated(words, own).find_tool("One may enter.") == "fetch"
    assert add_repeated(words, own).find_tool("The agent is done.") == ""
    assert add_repeated(ToolWords(), own) == ToolWords()
    summary = [message(6, "tool_result", "Summary: doors, locks.", metadata={"tool": "fetch"})]
    assert add_repeated(words, summary).find_tool("Doors have locks") == "fetch"


def test_episodes_know_what_their_author_had_read():
    rows = [row(1, agent=None), row(2), row(4), row(5)]
    episodes = make_episodes(rows, to_record(FETCHING), {("s", 1): TurnWords(list_results(FETCHING))})
    assert [e.call for e in episodes] == ["", "", "fetch x.example [pin]", ""]
    assert [e.origin for e in episodes] == ["", "", "tool:fetch", ""]
    hits = [e.tool_words.find_tool("REED-4410") if e.tool_words else None for e in episodes]
    assert hits == [None, "", "", "fetch"]
    assert make_episodes(rows, to_record(FETCHING))[3].tool_words == ToolWords([])


def test_facts_are_the_users_when_all_their_messages_are():
    words = TurnWords(list_results(FETCHING), ["Where is the key?"])
    conversation = make_conversation(row(5, "extract"), FETCHING, RecordingConfig(), {}, words=words)
    assert conversation is not None
    facts = [Fact("s", 1, "ann", "x", ids, START) for ids in (("m1",), ("m1", "m5"), ("m5",))]
    assert [fact.origin for fact in mark_facts(facts, conversation)] == [USER, "", ""]
    assert all(fact.tool_words is conversation.tool_words for fact in mark_facts(facts, conversation))
    imported = Conversation(conversation.origin, conversation.messages, imported=True)
    assert {fact.origin for fact in mark_facts(facts, imported)} == {"import"}


async def test_the_users_words_of_earlier_turns_count(tmp_path: Path):
    store = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    try:
        await store.create_session(session())
        await store.append("session_a", 1, [begin("ann", question="My key is REED-4410."), answer(1, "ann", "Fine.")])
        second = begin("ann", question="Check it, please.").model_copy(update={"turn": 2})
        call = {"agent_id": "ann", "round": 1, "name": "fetch", "call_id": "c1"}
        events = [
            second,
            event(1, "tool_called", batch=1, arguments="{}", usage=USAGE, **call),
            event(2, "tool_returned", content=PAGE, **call),
            answer(3, "ann", "REED-4410 opens the vault."),
        ]
        await store.append("session_a", 2, events)
        assert (await read_tool_words(store, "session_a", 1)) == TurnWords([], ["My key is REED-4410."])
        words = (await read_tool_words(store, "session_a", 2)).list_before("ann", 1, 99)
        assert [(r.tool, r.text) for r in words.results] == [("fetch", PAGE)]
        assert words.find_tool("It is REED-4410.") == ""
        assert words.find_tool("It opens the vault.") == "fetch"
    finally:
        await store.close()
