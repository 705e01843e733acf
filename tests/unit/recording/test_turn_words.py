"""What tools gave back before a message was written, read from the log."""

from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import RecordingConfig
from massmem.core.records import MessageRecord
from massmem.memory.origins import ToolText, ToolWords
from massmem.memory.persistent import USER, Fact
from massmem.recording.rules import Conversation, make_conversation, make_episodes, mark_facts
from massmem.recording.turn_words import (
    ToolResult,
    TurnWords,
    add_repeated,
    find_message_origin,
    list_results,
    read_tool_words,
)
from massmem.store import open_store
from tests.contract.test_session_store import session
from tests.support.sample_turn import START, USAGE, answer, begin, event
from tests.unit.recording.test_rules import message, row, to_record

PAGE = "The vault opens with REED-4410."
TURN = [
    message(1, "user", "Where is the key?", None),
    message(2, "assistant", "Let me look around first."),
    message(3, "tool_call", '{"fetch": {"url": "x.example 4711"}}', metadata={"call": "c1"}),
    message(4, "tool_result", PAGE, metadata={"tool": "fetch", "call": "c1"}),
    message(5, "assistant", "REED-4410 is the key."),
]
RESULT = ToolText("fetch", PAGE, '{"fetch": {"url": "x.example 4711"}}')


def test_results_come_with_their_calls():
    assert list_results(TURN) == [ToolResult(TURN[3], RESULT)]
    outside = [message(1, "tool_call", "{}"), message(2, "tool_result", "Rain.", metadata={"tool": "sky"})]
    assert list_results(outside) == [ToolResult(outside[1], ToolText("sky", "Rain."))]


def test_messages_before_a_result_do_not_come_from_it():
    words = TurnWords(list_results(TURN), ["Where is the key?"])
    assert words.list_before("ann", 1, 4).results == []
    assert words.list_before("ann", 1, 5).results == [RESULT]
    assert words.list_before("ann", 1, 9) is words.list_before("ann", 1, 5), "prepared once for all messages behind"


def test_an_agent_rests_on_the_results_of_others_once_it_has_read_their_answers():
    words = TurnWords(list_results(TURN))
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
    episodes = make_episodes(rows, to_record(TURN), {("s", 1): TurnWords(list_results(TURN))})
    assert [e.call for e in episodes] == ["", "", "fetch x.example [pin]", ""]
    assert [e.origin for e in episodes] == ["", "", "tool:fetch", ""]
    hits = [e.tool_words.find_tool("REED-4410") if e.tool_words else None for e in episodes]
    assert hits == [None, "", "", "fetch"]
    assert make_episodes(rows, to_record(TURN))[3].tool_words == ToolWords([])


def test_facts_are_the_users_when_all_their_messages_are():
    words = TurnWords(list_results(TURN), ["Where is the key?"])
    conversation = make_conversation(row(5, "extract"), TURN, RecordingConfig(), {}, words=words)
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
