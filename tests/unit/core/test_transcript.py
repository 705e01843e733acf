from massmem.core.transcript import parse_ballot
from tests.support.sessions_said import message


def test_a_tool_call_that_is_no_ballot():
    for content in ("", "{", "[]", '{"vote": 3}', '{"vote": {"choice": "a"}}', '{"search": {"q": "x"}}', "null"):
        assert parse_ballot(message(1, "tool_call", content, agent="ann")) is None
    assert parse_ballot(message(1, "assistant", '{"vote": {"choice": "a", "reason": "r"}}')) is None
