import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import (
    Reply,
    ToolCall,
    ToolSpec,
)
from massmem.core.params import ParamSpec
from massmem.tools.actions import (
    ANSWER,
    ActionError,
    AskContext,
    AskUser,
    NewAnswer,
    Vote,
    build_ask_schema,
    build_ask_tool,
    build_call_schemas,
    build_decision_schema,
    build_vote_schema,
    build_vote_tools,
    describe_tools,
    find_ask_request,
    find_written_call,
    format_call,
    read_action,
    read_call,
    simplify_schema,
)

READ = ToolSpec(
    "mcp__f__read",
    "Read a\n file.",
    {"type": "object", "properties": {"path": {"type": "string"}, "head": {"type": "integer"}}, "required": ["path"]},
)
NAMES = frozenset({"mcp__f__read"})


def test_a_line_for_each_tool():
    assert describe_tools([READ]) == "mcp__f__read(path, head?): Read a file."


def test_a_reply_is_a_call_or_says_that_none_is_needed():
    call, answer = build_decision_schema([READ])["anyOf"]
    assert call["properties"]["action"] == {"type": "string", "const": "mcp__f__read"}
    assert call["properties"]["arguments"]["required"] == ["path"]
    assert answer["properties"] == {"action": {"type": "string", "const": ANSWER}}
    assert build_call_schemas([READ]) == [call]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"action": "mcp__f__read", "arguments": {"path": "a"}}', {"path": "a"}),
        ('Sure:\n```json\n{"action": "mcp__f__read"}\n```', {}),
        ('{"name": "f.read", "arguments": "{\\"path\\": \\"a\\"}"}', {"path": "a"}),
        ("<tool_call>mcp__f__read\n<arg_key>path</arg_key>\n<arg_value>a</arg_value></tool_call>", {"path": "a"}),
    ],
)
def test_a_call_is_read(text: str, arguments: dict[str, Any]):
    call = read_call(text, NAMES)
    assert call is not None
    assert (call.name, json.loads(call.arguments)) == ("mcp__f__read", arguments)
    assert read_call(format_call(call), NAMES) == call


@pytest.mark.parametrize("text", ["no", '{"action": "answer_now"}', '{"action": "x"}', "{[}", "[1]", '{"action": 1}'])
def test_anything_else_is_no_call(text: str):
    assert read_call(text, NAMES) is None


def test_a_schema_is_reduced_to_what_a_grammar_is_made_of():
    schema = {
        "type": "object",
        "$defs": {"x": {}},
        "properties": {
            "when": {"type": ["string", "null"], "format": "date", "pattern": "^x$", "description": "a day"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "ref": {"$ref": "#/$defs/x"},
        },
        "required": ["when", "gone"],
    }
    assert simplify_schema(schema) == {
        "type": "object",
        "properties": {
            "when": {"description": "a day"},
            "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
            "ref": {},
        },
        "required": ["when"],
        "additionalProperties": False,
    }
    deep: dict[str, Any] = {}
    for _ in range(500):
        deep = {"type": "object", "properties": {"a": deep}}
    assert len(json.dumps(simplify_schema(deep))) < 2_000


def test_a_call_without_arguments_is_written_as_one_that_can_be_read():
    assert format_call(ToolCall("1", "mcp__f__read", "")) == '{"action": "mcp__f__read", "arguments": {}}'


PARAMS = {
    "order_id": ParamSpec(description="The order's number", mapping=("order number",)),
    "zip": ParamSpec(),
}
ASKING = AskContext(PARAMS)
REQUEST = {"action": "ask_user", "param": "order_id", "prompt": "Which order?"}


def ask_call(**arguments: object) -> Reply:
    return Reply(tool_calls=[ToolCall("1", "ask_user", json.dumps(arguments))])


def test_a_request_by_tool_call():
    assert find_ask_request(ask_call(param="order_id", prompt=" Which\norder? "), ASKING) == AskUser(
        "order_id", "Which order?"
    )


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(REQUEST),
        f"```json\n{json.dumps(REQUEST, indent=2)}\n```",
        f"I need to know that first.\n{json.dumps(REQUEST)}",
        json.dumps({"name": "ask_user", "arguments": {"param": "order_id", "prompt": "Which order?"}}),
        json.dumps({**REQUEST, "param": "Order Number"}),
        json.dumps({**REQUEST, "param": "ORDER ID"}),
    ],
)
def test_a_request_in_the_text_of_a_model_without_tools(text: str):
    assert find_ask_request(Reply(text=text), ASKING) == AskUser("order_id", "Which order?")


@pytest.mark.parametrize(
    "text",
    [
        "Paris.",
        '{"capital": "Paris"}',
        "{",
        '{"action": "vote", "choice": "A"}',
        f"{json.dumps(REQUEST)} is how an agent asks. " + "It is a small protocol. " * 40,
        "[1, 2]",
    ],
)
def test_an_answer_is_no_request(text: str):
    assert find_ask_request(Reply(text=text), ASKING) is None


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (ask_call(param="shoe size", prompt="?"), "`param` must be one of: order_id, zip"),
        (ask_call(prompt="?"), "`param` must be one of"),
        (ask_call(param="zip", prompt="  "), "`prompt` must be your question"),
        (ask_call(param="zip"), "`prompt` must be your question"),
        (Reply(tool_calls=[ToolCall("1", "ask_user", "no json")]), "`param` must be one of"),
    ],
)
def test_unusable_part_of_a_question_is_named(reply: Reply, problem: str):
    with pytest.raises(ActionError, match=problem):
        find_ask_request(reply, ASKING)


def test_param_known_or_asked_in_vain_is_not_offered():
    asking = AskContext(PARAMS, known={"zip": "12345"})
    assert asking.names == ("order_id",)
    assert build_ask_tool(asking).parameters["properties"]["param"]["enum"] == ["order_id"]
    assert not AskContext(PARAMS, known={"zip": "1"}, given_up=frozenset({"order_id"})).may_ask
    assert not AskContext().may_ask
    assert "12345" not in repr(asking)


def test_in_vain_is_said():
    with pytest.raises(ActionError, match="did not give it"):
        find_ask_request(ask_call(param="zip", prompt="?"), AskContext(PARAMS, given_up=frozenset({"zip"})))


def test_free_names_are_made_plain():
    free = AskContext(free=True)
    assert find_ask_request(ask_call(param="Shoe size", prompt="Which?"), free) == AskUser("shoe_size", "Which?")
    with pytest.raises(ActionError, match="a short name of your own"):
        find_ask_request(ask_call(param="../../etc", prompt="?"), free)
    assert "enum" not in build_ask_schema(free)["properties"]["param"]


def test_descriptions_reach_the_model():
    assert "order_id: The order's number; zip: zip" in json.dumps(build_ask_tool(ASKING).parameters)


@given(st.text())
def test_no_text_raises_anything_but_ask_error(text: str):
    try:
        find_ask_request(Reply(text=text), ASKING)
    except ActionError as e:
        assert str(e)


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
        '{"reason": "r", "choice": "**answer c**"}',
        '{"name": "vote", "arguments": {"reason": "r", "choice": "C"}}',
        '{{"name": "vote", "arguments": {"reason": "r", "choice": "C"}}}',
        'I compare {a} with {"a": 1}: {"reason": "r", "choice": "C"}',
        '{"type": "function", "function": {"name": "functions.vote", "arguments": '
        '"{\\"reason\\": \\"r\\", \\"choice\\": \\"C\\"}"}}',
        '{"tool": "Vote", "parameters": {"reason": "r", "choice": "C"}}',
        '<|python_tag|>{"name": "vote", "parameters": {"reason": "r", "choice": "C"}}',
        '[TOOL_CALLS]vote{"reason": "r", "choice": "C"}',
        '<|tool_call_begin|>functions.vote:0<|tool_call_argument_begin|>{"reason": "r", "choice": "C"}',
        "<tool_call>\n<function=vote>\n<parameter=reason>\nr\n</parameter>\n<parameter=choice>\nC\n</parameter>\n</function>",
        "<tool_call>vote\n<arg_key>reason</arg_key>\n<arg_value>r</arg_value>\n<arg_key>choice</arg_key><arg_value>C</arg_value>",
        '<invoke name="vote"><parameter name="reason">r</parameter><parameter name="choice">C</parameter></invoke>',
    ],
)
def test_a_vote_as_json_text(text: str):
    assert read_action(Reply(text=text), LABELS, final=False) == Vote("C", "r")


def test_new_answer_as_json_text_needs_no_name():
    assert read_action(Reply(text='{"content": "x"}'), LABELS, final=False) == NewAnswer("x")


WRITTEN = '{"name": "vote", "arguments": {"choice": "C"}}'


@pytest.mark.parametrize(
    "text",
    [
        WRITTEN,
        '<function=vote>{"choice": "C"}</function>',
        f"<tool_call>\n{WRITTEN}\n</tool_call>",
        f"```json\n{WRITTEN}\n```",
    ],
)
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
        (Reply(text='{"answer": "A", "other": "B"}'), "must be one of A, B, C"),
        (Reply(text='{"mood": 7}'), "allowed: vote"),
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


@pytest.mark.parametrize(
    ("reply", "vote"),
    [
        (Reply(text='{"vote": "A"}'), Vote("A", "")),
        (Reply(text='{"reason": "r", "my_choice": "Option B"}'), Vote("B", "r")),
        (Reply(text="Vote: A"), Vote("A", "")),
        (Reply(text="It has the figures.\n\n**My vote is for (C).**"), Vote("C", "It has the figures.")),
        (call("functions.vote", vote="(B)"), Vote("B", "")),
        (call("cast", choice="Answer C", reason="r"), Vote("C", "r")),
        (call("vote", choice="B", reason="Sound.", verdict="Wait.", depends_on=["load", "cost"]),
         Vote("B", 'Sound.\nverdict: Wait.\ndepends on: "load", "cost"')),
    ],
)  # fmt: skip
def test_any_single_field_that_names_an_answer_is_a_vote(reply: Reply, vote: Vote):
    assert read_action(reply, LABELS, final=False) == vote


def test_new_answer_is_read_from_its_only_text():
    assert read_action(call("new_answer", text="Lyon", reason="all wrong"), LABELS, final=False) == NewAnswer(
        "Lyon", "all wrong"
    )
    with pytest.raises(ActionError, match="no call of a tool"):
        read_action(Reply(text="I am not sure."), LABELS, final=False, native=True)


def test_every_constant_and_list_of_a_form_has_a_type():
    def check(schema: Any) -> None:
        if isinstance(schema, dict):
            assert "type" in schema or not {"const", "enum"} & schema.keys()
        for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
            check(part)

    check(build_vote_schema(LABELS, final=False, ask_context=AskContext(free=True), calls=build_call_schemas([READ])))
    check(build_decision_schema([READ]))


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


def test_allowed_values_of_a_param_are_shown_in_every_form():
    context = AskContext({"plan": ParamSpec(values=("basic", "pro")), "city": ParamSpec("The place.")})
    assert context.descriptions == {"plan": "plan, one of: basic, pro", "city": "The place."}
    for schema in (build_ask_tool(context).parameters, build_ask_schema(context)):
        assert schema["properties"]["param"]["description"] == "plan: plan, one of: basic, pro; city: The place."
