from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from massmem.core.errors import InputError
from massmem.session.handle import ConversationMemory, Message, SessionHandle
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.sample_turn import begin, param_request, waiting, whole_turn


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SessionStore]:
    store = await open_store(f"sqlite:///{tmp_path / 'massmem.db'}", tmp_path)
    yield store
    await store.close()


@pytest.fixture
def handle(store: SessionStore) -> SessionHandle:
    return ConversationMemory(store).for_session("session_a")


async def test_an_unknown_session_is_empty_and_is_made_by_its_first_message(store: SessionStore, handle: SessionHandle):
    assert (await handle.history(), await handle.params(), await handle.waiting()) == ([], {}, None)
    assert await store.get_session("session_a") is None
    await handle.append(Message("user", "hello", metadata={"channel": "chat"}))
    (said,) = await handle.history()
    assert (said.role, said.text, said.metadata) == ("user", "hello", {"channel": "chat"})
    assert await store.get_session("session_a") is not None


async def test_messages_come_back_in_order_and_with_their_roles(handle: SessionHandle):
    said = [("user", "which?"), ("agent", "this one"), ("tool", "42")]
    for role, text in said:
        await handle.append(Message(role, text))  # pyright: ignore[reportArgumentType]  # one of the three
    assert [(m.role, m.text) for m in await handle.history()] == said


async def test_a_turn_is_history_without_what_agents_thought(store: SessionStore, handle: SessionHandle):
    await handle.append(Message("user", "before"))
    await store.append("session_a", 1, whole_turn())
    history = await handle.history()
    assert [m.role for m in history] == ["user", "user", "agent", "agent", "tool", "agent", "tool", "tool", "agent"]
    assert history[-1].text == "The sky is blue because of Rayleigh scattering."


async def test_values_are_merged(handle: SessionHandle):
    await handle.merge({"order_id": "O-1", "size": 2})
    await handle.merge({"order_id": "O-2"})
    assert await handle.params() == {"order_id": "O-2", "size": 2}


async def test_waiting_is_set_and_cleared(handle: SessionHandle):
    await handle.set_waiting("order_id")
    assert await handle.waiting() == "order_id"
    await handle.set_waiting(None)
    assert await handle.waiting() is None


async def test_a_turn_that_waited_is_told_that_nobody_waits_any_more(store: SessionStore, handle: SessionHandle):
    await handle.merge({})
    round_ = [begin("ann"), param_request(1, "ann", "zip"), waiting(1, "zip", "ann")]
    await store.append("session_a", 1, round_)
    await handle.set_waiting(None)
    last = (await store.read_turn_events("session_a", 1))[-1]
    assert (last.type, getattr(last, "param", None), getattr(last, "why", None)) == ("param_cleared", "zip", "gave_up")


async def test_clear_forgets_values_and_hides_the_history_that_the_log_keeps(
    store: SessionStore, handle: SessionHandle
):
    await handle.append(Message("user", "hello"))
    await handle.merge({"order_id": "O-1"})
    await handle.set_waiting("zip")
    await handle.clear()
    assert (await handle.history(), await handle.params(), await handle.waiting()) == ([], {}, None)
    assert [m.content for m in await store.read_messages("session_a") if m.kind == "user"] == ["hello"]
    assert await ConversationMemory(store).for_session("session_a").history() == []
    await handle.append(Message("user", "again"))
    assert [m.text for m in await handle.history()] == ["again"]


async def test_prune_hides_older_messages_from_all_handles_and_deletes_nothing(
    store: SessionStore, handle: SessionHandle
):
    await handle.prune()
    assert await store.get_session("session_a") is None
    for number in range(15):
        await handle.append(Message("user", str(number)))
    await handle.prune()
    memory = ConversationMemory(store)
    other = memory.for_session("session_a")
    assert [m.text for m in await other.history()] == [str(n) for n in range(5, 15)]
    await other.append(Message("agent", "15"))
    assert [m.text for m in await handle.history()] == [str(n) for n in range(5, 16)]
    await handle.prune(max_messages=2)
    assert [m.text for m in await other.history()] == ["14", "15"]
    assert await handle.get_token_stats(len) == {"user": 2, "assistant": 2}
    assert await memory.get_conversation_context("session_a") == "User: 14\nAssistant: 15..."
    await handle.prune(max_messages=0)
    assert await other.history() == []
    logged = [m.content for m in await store.read_messages("session_a") if m.kind in ("user", "assistant")]
    assert logged == [str(n) for n in range(16)]


async def test_two_handles_see_the_same(store: SessionStore, handle: SessionHandle):
    other = ConversationMemory(store).for_session("session_a")
    await handle.merge({"order_id": "O-1"})
    assert await other.params() == {"order_id": "O-1"}


def test_impossible_id_is_refused(store: SessionStore):
    with pytest.raises(InputError):
        ConversationMemory(store).for_session("../etc")


async def test_conversation_context_has_the_last_six_messages_with_short_answers(store: SessionStore):
    memory = ConversationMemory(store)
    assert await memory.get_conversation_context("session_12345") == ""
    for number in range(4):
        await memory.add_message("session_12345", "user", f"How do I fix error {number}?")
        await memory.add_message(
            session_id="session_12345", role="assistant", message="x" * 250, agent_type="Integration Specialist"
        )
    await memory.add_message("session_12345", "assistant", "Done")
    lines = (await memory.get_conversation_context("session_12345")).splitlines()
    assert len(lines) == 6
    assert lines[1] == "User: How do I fix error 2?"
    assert lines[4] == f"Assistant (Integration Specialist): {'x' * 200}..."
    assert lines[5] == "Assistant: Done..."


def test_without_a_store_conversations_are_in_memory():
    conversation_memory = ConversationMemory()
    session_id = "session_1705750200_abc123"
    assert conversation_memory.get_conversation_context(session_id) == ""
    conversation_memory.add_message(session_id=session_id, role="user", message="How do I set up webhooks?")
    conversation_memory.add_message(
        session_id=session_id,
        role="assistant",
        message="To set up webhooks, follow these steps",
        agent_type="Technical Integration Specialist",
    )
    conversation_memory.add_message(session_id=session_id, role="user", message="What about signature verification?")
    assert conversation_memory.get_conversation_context(session_id) == (
        "User: How do I set up webhooks?\n"
        "Assistant (Technical Integration Specialist): To set up webhooks, follow these steps...\n"
        "User: What about signature verification?"
    )
    summary = conversation_memory.get_conversation_summary(session_id)
    assert list(summary) == ["message_count", "last_activity", "session_started"]
    last_activity = datetime.fromisoformat(summary["last_activity"])
    assert timedelta(0) <= datetime.now(UTC).replace(tzinfo=None) - last_activity < timedelta(minutes=5)
    messages = conversation_memory.conversations.get(session_id, [])
    assert [m["agent_type"] for m in messages] == [None, "Technical Integration Specialist", None]
    assert list(messages[0]) == ["role", "content", "timestamp", "agent_type"]
    for number in range(10):
        conversation_memory.add_message(session_id, "user", str(number))
    assert [m["content"] for m in conversation_memory.conversations[session_id]] == [str(n) for n in range(10)]
    del conversation_memory.conversations[session_id]
    assert conversation_memory.get_conversation_summary(session_id) == {}


async def test_conversation_context_has_only_final_answers_of_turns(store: SessionStore, handle: SessionHandle):
    await handle.append(Message("user", "hello"))
    await store.append("session_a", 1, whole_turn())
    context = await ConversationMemory(store).get_conversation_context("session_a")
    assert context.count("Assistant (") == 1
    assert context.count("User: ") == 2


async def test_conversation_summary_counts_messages_and_has_both_times(store: SessionStore):
    memory = ConversationMemory(store)
    assert await memory.get_conversation_summary("session_1") == {}
    await memory.add_message("session_1", "user", "hello")
    await memory.add_message("session_1", "assistant", "hi", agent_type="Greeter")
    await memory.add_message("session_12", "user", "another session")
    summary = await memory.get_conversation_summary("session_1")
    assert list(summary) == ["message_count", "last_activity", "session_started"]
    assert summary["message_count"] == 2
    assert datetime.fromisoformat(summary["session_started"]) <= datetime.fromisoformat(summary["last_activity"])


async def test_message_with_another_role_is_rejected(store: SessionStore):
    with pytest.raises(InputError, match="role"):
        await ConversationMemory(store).add_message("session_1", "robot", "hello")  # pyright: ignore[reportArgumentType]
    assert await ConversationMemory(store).get_conversation_summary("session_1") == {}
    with pytest.raises(InputError, match="role"):
        ConversationMemory().add_message("session_1", "robot", "hello")  # pyright: ignore[reportArgumentType]


async def test_tokens_of_a_conversation_are_counted_by_kind_and_logged(
    handle: SessionHandle, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO", "massmem")
    assert (await handle.estimate_tokens(), await handle.get_token_stats()) == (0, {})
    await handle.append(Message("user", "x" * 40))
    await handle.append(Message("agent", "y" * 100))
    assert await handle.get_token_stats(len) == {"user": 40, "assistant": 100}
    assert await handle.estimate_tokens() == 35
    await handle.log_context_usage(1_000)
    await handle.log_context_usage(160, len)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "Context Buffer (Turn 0): 35 / 1,000 tokens (4%) [buffer]"),
        ("WARNING", "Context Buffer (Turn 0): 140 / 160 tokens (88%) [buffer] - Approaching limit!"),
    ]
