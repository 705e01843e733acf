import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import (
    Reply,
    ToolCall,
)
from massmem.tools.workflow import (
    ActionError,
    NewAnswer,
    Vote,
    build_vote_schema,
    build_vote_tools,
    find_written_call,
    read_action,
)

LABELS = ["A", "B", "C"]


def call(name: str, **arguments: object) -> Reply:
    return Reply(tool_calls=[ToolCall("1", name, json.dumps(arguments))])


def test_a_vote_by_tool_call():
    assert read_action(call("vote", reason="clear", choice="B"), LABELS, final=True) == Vote("B", "clear")


def test_a_new_answer_by_tool_call():
    assert read_action(call("new_answer", content="x"), LABELS, final=False) == NewAnswer("x")


@pytest.mark.parametrize(
    "text",
    [
        '{"reason": "r", "action": "vote", "choice": "C"}',
        'Sure:\n```json\n{"reason": "r", "action": "vote", "choice": "c"}\n```',
        '{"reason": "r", "action": "vote", "choice": "Answer C."}',
        '{"reason": "r", "choice": "C"}',
        '{"name": "vote", "arguments": {"reason": "r", "choice": "C"}}',
        '{{"name": "vote", "arguments": {"reason": "r", "choice": "C"}}}',
    ],
)
def test_a_vote_as_json_text(text: str):
    assert read_action(Reply(text=text), LABELS, final=False) == Vote("C", "r")


def test_new_answer_as_json_text_needs_no_name():
    assert read_action(Reply(text='{"content": "x"}'), LABELS, final=False) == NewAnswer("x")


WRITTEN = '{"name": "vote", "arguments": {"choice": "C"}}'


@pytest.mark.parametrize("text", [WRITTEN, f"<tool_call>\n{WRITTEN}\n</tool_call>", f"```json\n{WRITTEN}\n```"])
def test_reply_that_is_a_tool_call_written_as_text_is_one(text: str):
    assert find_written_call(text) == ToolCall("", "vote", '{"choice": "C"}')


@pytest.mark.parametrize(
    "text",
    [
        "Rome",
        '{"city": "Rome"}',
        '{"choice": "C"}',
        '{"name": "Ann", "arguments": {"choice": "C"}}',
        f"To vote in this protocol a program sends the following object: {WRITTEN}",
    ],
)
def test_answer_that_only_looks_like_a_tool_call_is_none(text: str):
    assert find_written_call(text) is None


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (Reply(text="I like B"), "no JSON object"),
        (Reply(text='{"action": "vote", "choice": '), "no JSON object"),
        (Reply(text='{"action": "vote", "choice": }'), "cannot be parsed"),
        (Reply(text='{"action": "vote", "choice": "D"}'), "must be one of A, B, C"),
        (Reply(text='{"answer": "A"}'), "allowed: vote"),
        (call("sing"), "'sing'"),
        (call("new_answer", content="  "), "needs `content`"),
        (call("new_answer", content=7), "needs `content`"),
        (call("vote", reason="r"), "must be one of"),
        (Reply(tool_calls=[ToolCall("1", "vote", "[1]")]), "no JSON object"),
        (Reply(text="{" * 100_000 + "}" * 100_000), "cannot be parsed"),
    ],
)
def test_unusable_part_is_named(reply: Reply, problem: str):
    with pytest.raises(ActionError, match=problem):
        read_action(reply, LABELS, final=False)


def test_the_final_round_takes_votes_only():
    with pytest.raises(ActionError, match=r"allowed: vote$"):
        read_action(call("new_answer", content="late"), LABELS, final=True)
    assert [t.name for t in build_vote_tools(LABELS, final=True)] == ["vote"]
    assert [t.name for t in build_vote_tools(LABELS, final=False)] == ["vote", "new_answer"]
    assert "new_answer" not in json.dumps(build_vote_schema(LABELS, final=True))


def test_the_reason_stands_before_the_choice_in_every_form():
    for form in (build_vote_tools(LABELS, final=True)[0].parameters, build_vote_schema(LABELS, final=True)):
        names = list(form["properties"])
        assert names.index("reason") < names.index("choice")


@given(st.text())
def test_no_text_raises_anything_but_action_error(text: str):
    try:
        read_action(Reply(text=text), LABELS, final=False)
    except ActionError as e:
        assert str(e)
