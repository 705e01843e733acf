from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.conversation import NO_ANSWER, Budget, Window, alternate, estimate_tokens
from massmem.messages import ChatMessage
from massmem.records import MessageRecord


def record(seq: int, kind: str, content: str) -> MessageRecord:
    return MessageRecord(
        id=str(seq),
        session_id="s",
        seq=seq,
        turn=1,
        round=0,
        kind="user" if kind == "user" else "assistant",
        role=kind,
        content=content,
        final=kind != "user",
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def window(budget: Budget, records: list[MessageRecord]) -> Window:
    result = Window(budget)
    for r in reversed(records):
        result.add(r)
    return result


def test_seed_003_example_newest_first_until_the_budget_is_used():
    sizes = {8: 200, 9: 150, 10: 180}
    records = [record(n, "user" if n % 2 else "assistant", "x" * 4 * tokens) for n, tokens in sizes.items()]
    kept = window(Budget(500), records)
    assert [r.seq for r in reversed(kept.records)] == [9, 10]
    assert kept.used == 330


def test_a_view_has_no_holes_even_where_an_older_message_would_fit():
    records = [record(1, "user", "a"), record(2, "assistant", "x" * 400), record(3, "user", "b")]
    kept = window(Budget(50), records)
    assert [r.seq for r in kept.records] == [3]
    assert kept.full


def test_the_number_of_messages_is_a_limit_too():
    records = [record(n, "user" if n % 2 else "assistant", "hi") for n in range(1, 11)]
    assert len(window(Budget(1000, messages=4), records).records) == 4


def test_history_off_sends_nothing():
    assert window(Budget(0, 0), [record(1, "user", "q")]).messages() == ()


def test_a_question_without_an_answer_gets_a_placeholder():
    records = [record(1, "user", "first"), record(2, "user", "second"), record(3, "assistant", "reply")]
    assert alternate(records) == (
        ChatMessage("user", "first"),
        ChatMessage("assistant", NO_ANSWER),
        ChatMessage("user", "second"),
        ChatMessage("assistant", "reply"),
    )


@given(st.lists(st.sampled_from(["user", "assistant"]), max_size=30), st.integers(0, 100))
def test_roles_always_alternate_and_end_with_the_assistant(kinds: list[str], tokens: int):
    records = [record(i, k, "word " * (i % 7)) for i, k in enumerate(kinds)]
    messages = window(Budget(tokens), records).messages()
    assert [m.role for m in messages] == ["user", "assistant"] * (len(messages) // 2)


@given(st.text())
def test_the_estimate_is_a_quarter_of_the_characters_rounded_up(text: str):
    assert len(text) / 4 <= estimate_tokens(text) < len(text) / 4 + 1
