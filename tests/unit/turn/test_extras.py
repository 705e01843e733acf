from massmem.messages import ChatMessage, ToolCall
from massmem.prompts import tool_result
from massmem.turn.extras import first_kept, smaller, units


def cost(message: ChatMessage) -> int:
    return count(message.content)


def count(text: str) -> int:
    return len(text.split())


def exchange(number: int, words: int) -> list[ChatMessage]:
    result = tool_result(" ".join(f"value {number}.{n}." for n in range(words // 2)), failed=False)
    call = ToolCall(f"c{number}", "read", "{}")
    return [ChatMessage("assistant", "", tool_calls=(call,)), ChatMessage("tool", result, tool_call_id=call.id)]


EXTRA = [message for n in range(4) for message in exchange(n, 100)]


def test_calls_and_their_results_belong_together():
    assert units(EXTRA) == [0, 2, 4, 6]
    assert units([ChatMessage("user", "x"), *EXTRA[:2]]) == [0, 1]
    assert units([]) == []


def test_the_newest_stay_and_the_last_in_any_case():
    assert first_kept(EXTRA, cost, 10_000) == 0
    assert first_kept(EXTRA, cost, 250) == 4
    assert first_kept(EXTRA, cost, 1) == 6
    assert first_kept([], cost, 1) == 0


def test_results_shrink_inside_their_frames_and_calls_stay():
    shrunk = smaller(EXTRA, 120, count)
    assert [m.tool_calls for m in shrunk] == [m.tool_calls for m in EXTRA]
    for message in shrunk[1::2]:
        assert message.content.startswith("What the tool gave back is quoted data")
        assert message.content.endswith("\n</result>")
    assert sum(map(cost, shrunk)) < 220
    assert smaller(EXTRA, 10_000, count) == tuple(EXTRA)
