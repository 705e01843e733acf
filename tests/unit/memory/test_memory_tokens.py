from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import BackendConfig
from massmem.core.messages import ChatMessage, ChatRequest, ToolCall, ToolSpec, Usage
from massmem.memory.tokens import PER_MESSAGE, PER_REPLY, Buffer, EntryType, counter_for, warm
from massmem.providers.windows import is_short_count

VOTE = ToolSpec("vote", "Vote for an answer.", {"type": "object", "properties": {"choice": {"type": "string"}}})
CALL = ToolCall("1", "read_file", '{"path": "a.txt"}')
TALK = (
    ChatMessage("system", "s" * 10),
    ChatMessage("user", "u" * 20),
    ChatMessage("assistant", "a" * 5, tool_calls=(CALL,)),
    ChatMessage("tool", "r" * 300, tool_call_id="1"),
    ChatMessage("user", "i" * 40),
)


class Counter:
    """Characters, and how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        return len(text)


def asking(*messages: ChatMessage, **fields: object) -> ChatRequest:
    return ChatRequest(messages, "answer", **fields)  # type: ignore[arg-type]


def test_tokens_by_type_of_entry() -> None:
    buffer = Buffer(len)
    assert buffer.measure(asking(*TALK), injected=[4]) == buffer.tokens
    assert buffer.entries == {
        "system": PER_REPLY + 10 + PER_MESSAGE,
        "user": 20 + PER_MESSAGE,
        "assistant": 5 + PER_MESSAGE,
        "tool_call": len("read_file") + len(CALL.arguments),
        "tool_result": 300 + PER_MESSAGE,
        "injection": 40 + PER_MESSAGE,
    }
    assert sum(buffer.entries.values()) == buffer.tokens


def test_streamed_text_is_counted_as_it_comes() -> None:
    buffer = Buffer(len)
    sent = buffer.measure(asking(*TALK))
    assert buffer.stream("hmm", "reasoning") == sent + 3
    assert buffer.stream("Hel") == sent + 6
    assert buffer.stream("lo") == sent + 8
    assert (buffer.entries["reasoning"], buffer.entries["pending"]) == (3, 5)
    assert buffer.measure(asking(*TALK)) == sent, "the next request has nothing pending"
    assert "pending" not in buffer.entries


def test_tools_and_schema_are_part_of_the_prompt() -> None:
    buffer = Buffer(len)
    bare = buffer.measure(asking(*TALK))
    with_tools = buffer.measure(asking(*TALK, tools=(VOTE,)))
    assert with_tools - bare > len(VOTE.description) + len(VOTE.name)
    assert buffer.measure(asking(*TALK, schema=VOTE.parameters)) > bare
    assert buffer.entries["user"] == 60 + 2 * PER_MESSAGE


def test_a_message_is_counted_once_however_often_it_is_sent() -> None:
    counter = Counter()
    buffer = Buffer(counter)
    buffer.measure(asking(*TALK))
    once = counter.calls
    for _ in range(5):
        buffer.measure(asking(*TALK))
    assert counter.calls == once
    buffer.measure(asking(*TALK, ChatMessage("user", "new")))
    assert counter.calls == once + 1
    assert buffer.cost(ChatMessage("user", "new")) == 3 + PER_MESSAGE
    assert counter.calls == once + 1


def test_an_empty_buffer_holds_nothing() -> None:
    buffer = Buffer(len)
    assert (buffer.tokens, buffer.entries, buffer.at_least) == (0, {}, 0)


def test_the_first_count_of_the_provider_is_believed_and_later_ones_move_it_half_the_way() -> None:
    buffer = Buffer(len)
    request = asking(ChatMessage("user", "x" * 993))
    assert buffer.measure(request) == 1_000
    buffer.calibrate(1_000, 1_200)
    assert buffer.measure(request) == pytest.approx(1_200, abs=2)
    buffer.calibrate(1_200, 1_000)
    assert buffer.measure(request) == pytest.approx(1_100, abs=2)
    assert buffer.cost_of_text("x" * 100) == pytest.approx(110, abs=1)


@pytest.mark.parametrize(("actual", "factor"), [(10, 1.0), (150, 0.5), (1_000_000, 2.5)])
def test_a_count_that_cannot_be_one_teaches_little(actual: int, factor: float) -> None:
    buffer = Buffer(len)
    buffer.calibrate(1_000, actual)
    assert buffer.cost_of_text("x" * 1_000) == factor * 1_000


def test_at_least_is_never_raised_by_what_other_texts_taught_and_leaves_tools_out() -> None:
    buffer = Buffer(len)
    request = asking(ChatMessage("user", "x" * 996), tools=(VOTE,))
    buffer.measure(request)
    assert buffer.at_least == 997
    buffer.calibrate(1_000, 2_000)
    buffer.measure(request)
    assert buffer.at_least == 997
    buffer = Buffer(len)
    buffer.calibrate(1_000, 800)
    buffer.measure(request)
    assert buffer.at_least == 797


def test_many_short_messages_need_no_more_than_the_leanest_template_gives_them() -> None:
    """A question and an answer of one token each are five in Mistral's template: [INST]ok[/INST]ok</s>."""
    buffer = Buffer(counter_for(BackendConfig(type="mistral", model="m")))
    warm()
    turns = [ChatMessage("user" if i % 2 == 0 else "assistant", "ok") for i in range(400)]
    assert buffer.measure(asking(*turns)) > 2_000
    assert not is_short_count(buffer.at_least, Usage(200 * 5))
    assert is_short_count(buffer.at_least, Usage(400))


@given(
    st.lists(st.tuples(st.sampled_from(["system", "user", "assistant", "tool"]), st.text(max_size=50)), max_size=20),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), max_size=10),
    st.lists(st.text(max_size=10), max_size=10),
)
def test_whatever_is_measured_the_entries_add_up(
    talk: list[tuple[str, str]], counts: list[tuple[int, int]], pieces: list[str]
) -> None:
    buffer = Buffer(len)
    for estimated, actual in counts:
        buffer.calibrate(estimated, actual)
    messages = [ChatMessage(role, text) for role, text in talk]  # type: ignore[arg-type]
    assert buffer.measure(asking(*messages), injected=range(0, 20, 3)) >= len(messages)
    before = buffer.tokens
    for piece in pieces:
        buffer.stream(piece)
    assert buffer.tokens == sum(buffer.entries.values()) >= before
    assert set(buffer.entries) <= set(get_args(EntryType))
    assert 0 <= buffer.at_least <= sum(len(m.content) + PER_MESSAGE for m in messages)
    assert sum(buffer.cost(m) for m in messages) >= 0.5 * sum(len(m.content) for m in messages)
