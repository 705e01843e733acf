from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import ConversationMemoryConfig, MemoryConfig
from massmem.core.messages import ChatMessage
from massmem.core.records import MessageRecord
from massmem.memory.conversation import (
    MAX_MESSAGES,
    NO_ANSWER,
    HistoryBudget,
    HistoryView,
    HistoryWindow,
    alternate_roles,
    history_budget,
)


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


def window(budget: HistoryBudget, records: list[MessageRecord]) -> HistoryWindow:
    result = HistoryWindow(budget)
    for r in reversed(records):
        result.add(r)
    return result


def test_seed_003_example_newest_first_until_the_budget_is_used():
    sizes = {8: 200, 9: 150, 10: 180}
    records = [record(n, "user" if n % 2 else "assistant", "x" * 4 * tokens) for n, tokens in sizes.items()]
    kept = window(HistoryBudget(500), records)
    assert [r.seq for r in reversed(kept.records)] == [9, 10]
    assert kept.used == 330


def test_a_view_has_no_holes_even_where_an_older_message_would_fit():
    records = [record(1, "user", "a"), record(2, "assistant", "x" * 400), record(3, "user", "b")]
    kept = window(HistoryBudget(50), records)
    assert [r.seq for r in kept.records] == [3]
    assert kept.full


def test_the_number_of_messages_is_a_limit_too():
    records = [record(n, "user" if n % 2 else "assistant", "hi") for n in range(1, 11)]
    assert len(window(HistoryBudget(1000, messages=4), records).records) == 4


def test_history_off_sends_nothing():
    assert window(HistoryBudget(0, 0), [record(1, "user", "q")]).view() == HistoryView()
    off = MemoryConfig(conversation_memory=ConversationMemoryConfig(enabled=False))
    assert history_budget(off, 8_000) == HistoryBudget(0, 0)


def test_a_question_without_an_answer_gets_a_placeholder():
    records = [record(1, "user", "first"), record(2, "user", "second"), record(3, "assistant", "reply")]
    assert tuple(entry.message for entry in alternate_roles(records)) == (
        ChatMessage("user", "first"),
        ChatMessage("assistant", NO_ANSWER),
        ChatMessage("user", "second"),
        ChatMessage("assistant", "reply"),
    )


@given(st.lists(st.sampled_from(["user", "assistant"]), max_size=30), st.integers(0, 100))
def test_roles_always_alternate_and_end_with_the_assistant(kinds: list[str], tokens: int):
    records = [record(i, k, "word " * (i % 7)) for i, k in enumerate(kinds)]
    messages = window(HistoryBudget(tokens), records).view().messages
    assert [m.message.role for m in messages] == ["user", "assistant"] * (len(messages) // 2)


def test_each_preset_is_a_limit_that_other_keys_change():
    def budget(**keys: object) -> HistoryBudget:
        return history_budget(MemoryConfig.model_validate({"conversation_memory": keys}), 100_000)

    assert budget() == HistoryBudget(100_000)
    assert budget(preset="brief") == HistoryBudget(100_000, 6, answer=200)
    assert budget(preset="chat") == HistoryBudget(4_000, 20)
    assert budget(preset="long") == HistoryBudget(100_000, 50)
    assert budget(preset="chat", max_messages=8, max_answer_characters=10) == HistoryBudget(4_000, 8, answer=10)
    assert budget(max_tokens=500_000) == HistoryBudget(100_000)


def test_the_brief_preset_cuts_answers_and_leaves_questions_whole():
    kept = window(
        HistoryBudget(1_000, 6, answer=5),
        [record(1, "user", "a long question"), record(2, "assistant", "a long answer")],
    )
    assert [entry.message.content for entry in kept.view().messages] == ["a long question", "a lon..."]


def test_message_covered_by_a_summary_is_not_shown_again():
    kept = HistoryWindow(HistoryBudget(1_000), after=2)
    for n in (4, 3, 2, 1):
        kept.add(record(n, "user" if n % 2 else "assistant", f"m{n}"))
    assert [message.seq for message in kept.view("so far").messages] == [3, 4]
    assert kept.full
    assert kept.view("so far").summary == "so far"


def test_older_messages_that_bear_on_the_question_stand_before_the_newest_ones():
    kept = window(HistoryBudget(1_000, 2), [record(7, "user", "new"), record(8, "assistant", "newer")])
    view = kept.view(relevant=[record(2, "assistant", "old answer"), record(1, "user", "old question")])
    assert [message.seq for message in view.messages] == [1, 2, 7, 8]


def test_one_message_that_is_larger_than_the_window_is_not_lost():
    kept = window(HistoryBudget(10), [record(1, "user", "q"), record(2, "assistant", "x" * 400)])
    assert [r.seq for r in kept.records] == [2]
    assert kept.full


def test_a_view_has_a_bound_however_small_the_messages_are():
    kept = window(
        HistoryBudget(1_000_000), [record(n, "user" if n % 2 else "assistant", "hi") for n in range(1, 1_000)]
    )
    assert len(kept.records) == MAX_MESSAGES + 1
