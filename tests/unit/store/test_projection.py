import json
from typing import Any, get_args

import pytest

from massmem.core.events import (
    AgentBusy,
    CarryOutStarted,
    Event,
    ItemsGiven,
    ItemsMerged,
    MemoryChanged,
    UsageBooked,
    VersionChosen,
    WebSearched,
)
from massmem.core.messages import Usage
from massmem.store.projection import (
    Change,
    InsertRow,
    QueueExtraction,
    UpdateSession,
    UpdateTurn,
    count_seqs,
    make_message_id,
    project,
)
from tests.contract.test_session_store import done
from tests.support.sample_turn import (
    SECRET,
    answer,
    ballot,
    begin,
    compression,
    event,
    measurement,
    other_ends,
    tool_call,
    tool_result,
    waiting,
    waiting_turn,
    whole_turn,
)


def rows(operations: list[Change], table: str) -> list[dict[str, Any]]:
    return [o.row for o in operations if isinstance(o, InsertRow) and o.table == table]


def test_every_kind_of_event_has_a_meaning() -> None:
    busy = AgentBusy(agent_id="ann", round=1, activity="loading")
    every = [
        *whole_turn(),
        *other_ends(),
        *waiting_turn(),
        measurement(0, 2_000),
        compression(0),
        tool_call(0),
        tool_result(0),
    ]
    changed = MemoryChanged(action="edit", kind="fact", agent_id="ann", turn=1, sources=(2,), old="a", text="b", by="u")
    chosen = VersionChosen(turn=1, withdrawn=(2,), restored=(1,))
    every += [busy, changed, chosen, WebSearched(agent_id="ann", round=1, query="sky")]
    every.append(UsageBooked(purpose="extract", usage=Usage()))
    every.append(CarryOutStarted(agent_id="ann", folder="/f", completed={}))
    every += [ItemsGiven(agent_id="ann", round=2, usage=Usage()), ItemsMerged(round=1, items=())]
    assert {type(e) for e in every} == set(get_args(Event))
    for e in every:
        assert project("s", 1, 5, e) == project("s", 1, 5, e)


def test_only_what_was_said_or_decided_touches_a_table() -> None:
    silent = {e.type for e in whole_turn() if not project("s", 1, 5, e)}
    assert silent == {"round_started", "agent_started", "agent_delta", "agent_retrying", "notice", "agent_failed"} | {
        "ballots_voided"
    }


def test_reasoning_takes_the_number_before_its_event() -> None:
    plain = answer(1, "ann", "A")
    thought = plain.model_copy(update={"reasoning": "because"})
    assert (count_seqs(plain), count_seqs(thought)) == (1, 2)
    messages = rows(project("s", 3, 9, thought), "chat_messages")
    assert [(m["seq"], m["kind"], m["content"]) for m in messages] == [
        (8, "reasoning", "because"),
        (9, "assistant", "A"),
    ]


def test_a_tool_call_and_its_result_are_messages_that_name_each_other() -> None:
    called_, returned_ = tool_call(1, text="I look."), tool_result(2)
    (call,) = rows(project("s", 1, 5, called_), "chat_messages")
    assert json.loads(str(call["content"])) == {"read_file": {"path": "a secret of the call"}}
    assert (call["kind"], call["metadata"]) == ("tool_call", {"call": "call_r1b1n1", "said": "I look."})
    result = returned_.model_copy(update={"call_id": "call_r1b1n1", "recorded": False})
    (row,) = rows(project("s", 1, 6, result), "chat_messages")
    assert (row["kind"], row["metadata"]) == (
        "tool_result",
        {"tool": "read_file", "call": "call_r1b1n1", "failed": False},
    )
    assert rows(project("s", 1, 6, result), "recordings") == []
    assert len(rows(project("s", 1, 6, returned_), "recordings")) == 1
    odd = called_.model_copy(update={"arguments": "[1, 2", "reasoning": "Look first."})
    thought, call = rows(project("s", 1, 5, odd), "chat_messages")
    assert json.loads(str(call["content"])) == {"read_file": "[1, 2"}
    assert (thought["kind"], thought["seq"], count_seqs(odd)) == ("reasoning", 4, 2)


def test_an_event_without_memory_queues_nothing_and_marks_its_messages() -> None:
    for e in (begin("ann"), answer(2, "ann", "A long answer."), ballot(3, "ann", "bob"), done(5)):
        changes = project("s", 1, 5, e.model_copy(update={"remember": False}))
        assert rows(changes, "recordings") == []
        assert [m["metadata"]["remember"] for m in rows(changes, "chat_messages")] == [False]
        assert all("remember" not in m["metadata"] for m in rows(project("s", 1, 5, e), "chat_messages"))


def test_a_ballot_is_kept_verbatim() -> None:
    (message,) = rows(project("s", 1, 2, ballot(1, "ann", "bob", reason='says "blue", ja — 青')), "chat_messages")
    assert message["content"] == '{"vote": {"reason": "says \\"blue\\", ja — 青", "choice": "bob"}}'
    assert (message["kind"], message["role"]) == ("tool_call", "assistant")


def test_reply_to_a_param_is_in_the_conversation_and_is_not_queued_for_memory() -> None:
    said = [o for e in waiting_turn() if e.type == "user_replied" for o in project("s", 1, 5, e)]
    (message,) = rows(said, "chat_messages")
    assert (message["kind"], message["content"], message["metadata"]) == ("user", SECRET, {"param": "order_id"})
    assert rows(said, "recordings") == []
    for e in waiting_turn():
        if e.type != "user_replied":
            assert SECRET not in str(project("s", 1, 5, e))


def test_a_prompt_stands_in_the_conversation_once() -> None:
    first, again = (project("s", 1, 5, waiting(1, "order_id", "ann", shown=shown)) for shown in (False, True))
    (message,) = rows(first, "chat_messages")
    assert (message["final"], message["content"]) == (True, "What is the order_id?")
    assert rows(again, "chat_messages") == []
    for operations in (first, again):
        assert UpdateTurn({"status": "waiting", "ended_at": waiting(1, "x", "ann").at}) in operations


def test_the_end_of_a_turn_names_winner_and_answer() -> None:
    operations = project("s", 1, 30, whole_turn()[-1])
    (final,) = rows(operations, "chat_messages")
    assert (final["final"], final["agent_id"], final["kind"]) == (True, "ann", "assistant")
    (turn,) = [o.values for o in operations if isinstance(o, UpdateTurn)]
    assert (turn["status"], turn["winner"], turn["answer_seq"]) == ("completed", "ann", 30)


def test_recording_jobs_follow_from_the_event_alone() -> None:
    queued = {e.type: rows(project("s", 1, 5, e), "recordings") for e in [*whole_turn(), *other_ends()]}
    assert {name: [row["kind"] for row in found] for name, found in queued.items() if found} == {
        "turn_started": ["episode"],
        "answer_submitted": ["episode"],
        "turn_completed": ["episode", "complete"],
    }
    ends = {e.type for e in [*whole_turn(), *other_ends()] if QueueExtraction(5, e.at) in project("s", 1, 5, e)}
    assert ends == {"round_started", "turn_completed", "turn_failed", "turn_interrupted"}


@pytest.mark.parametrize(("number", "queued"), [(1, False), (2, False), (3, True), (4, True)])
def test_facts_are_extracted_before_a_restart(number: int, queued: bool) -> None:
    started = event(1, "round_started", round=number, agents=("ann",), final=False)
    assert (QueueExtraction(5, started.at) in project("s", 1, 5, started)) is queued


def test_a_long_question_makes_a_short_title() -> None:
    (session,) = [
        o for o in project("s", 1, 1, begin("ann", question=" \n word" * 100_000)) if isinstance(o, UpdateSession)
    ]
    assert session.title is not None
    assert len(session.title) <= 80
    assert session.title.startswith("word word")


def test_title_has_no_texts_of_files() -> None:
    asked = "What is wrong?\n\n--- server.log ---\n12:00 worker started"
    (session,) = [o for o in project("s", 1, 1, begin("ann", question=asked)) if isinstance(o, UpdateSession)]
    assert (session.title, session.last_message) == ("What is wrong?", "What is wrong?")
    (session,) = [o for o in project("s", 1, 1, begin("ann", question=asked[16:])) if isinstance(o, UpdateSession)]
    assert session.title == "server.log"


def test_title_and_last_message_hold_no_secret() -> None:
    events = [begin("ann", question="my password is hunter\nand what now?"), whole_turn()[-1]]
    completed = events[1].model_copy(update={"answer": "curl -u admin:hunter https://host/"})
    updates = [o for event in (events[0], completed) for o in project("s", 1, 1, event) if isinstance(o, UpdateSession)]
    shown = [text for update in updates for text in (update.title, update.last_message) if text is not None]
    assert shown == ["my password is [redacted] and what now?"] * 2 + ["curl -u admin:[redacted] https://host/"]


def test_message_ids_are_32_hex_digits_unique_and_rising() -> None:
    ids = [make_message_id(s, n) for s in ("a", "b") for n in (1, 2, 10, 2**40)]
    assert len(set(ids)) == len(ids)
    assert all(len(i) == 32 and int(i, 16) >= 0 for i in ids)
    assert ids[:4] == sorted(ids[:4])
    assert make_message_id("a", 1) == make_message_id("a", 1)
