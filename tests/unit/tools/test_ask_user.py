import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.messages import (
    Reply,
    ToolCall,
)
from massmem.core.params import ParamSpec
from massmem.tools.ask_user import AskContext, AskError, AskUser, build_ask_schema, build_ask_tool, find_ask_request

PARAMS = {
    "order_id": ParamSpec(description="The order's number", mapping=("order number",)),
    "zip": ParamSpec(),
}
ASKING = AskContext(PARAMS)
REQUEST = {"action": "ask_user", "param": "order_id", "prompt": "Which order?"}


def call(**arguments: object) -> Reply:
    return Reply(tool_calls=[ToolCall("1", "ask_user", json.dumps(arguments))])


def test_a_request_by_tool_call():
    assert find_ask_request(call(param="order_id", prompt=" Which\norder? "), ASKING) == AskUser(
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
        (call(param="shoe size", prompt="?"), "`param` must be one of: order_id, zip"),
        (call(prompt="?"), "`param` must be one of"),
        (call(param="zip", prompt="  "), "`prompt` must be your question"),
        (call(param="zip"), "`prompt` must be your question"),
        (Reply(tool_calls=[ToolCall("1", "ask_user", "no json")]), "`param` must be one of"),
    ],
)
def test_unusable_part_is_named(reply: Reply, problem: str):
    with pytest.raises(AskError, match=problem):
        find_ask_request(reply, ASKING)


def test_param_known_or_asked_in_vain_is_not_offered():
    asking = AskContext(PARAMS, known={"zip": "12345"})
    assert asking.names == ("order_id",)
    assert build_ask_tool(asking).parameters["properties"]["param"]["enum"] == ["order_id"]
    assert not AskContext(PARAMS, known={"zip": "1"}, given_up=frozenset({"order_id"})).may_ask
    assert not AskContext().may_ask
    assert "12345" not in repr(asking)


def test_in_vain_is_said():
    with pytest.raises(AskError, match="did not give it"):
        find_ask_request(call(param="zip", prompt="?"), AskContext(PARAMS, given_up=frozenset({"zip"})))


def test_free_names_are_made_plain():
    free = AskContext(free=True)
    assert find_ask_request(call(param="Shoe size", prompt="Which?"), free) == AskUser("shoe_size", "Which?")
    with pytest.raises(AskError, match="a short name of your own"):
        find_ask_request(call(param="../../etc", prompt="?"), free)
    assert "enum" not in build_ask_schema(free)["properties"]["param"]


def test_descriptions_reach_the_model():
    assert "order_id: The order's number; zip: zip" in json.dumps(build_ask_tool(ASKING).parameters)


@given(st.text())
def test_no_text_raises_anything_but_ask_error(text: str):
    try:
        find_ask_request(Reply(text=text), ASKING)
    except AskError as e:
        assert str(e)
