"""DESIGN-002: Conversation Memory

Sessions with messages, params, and a value that is waited for.
"""

import json
import sqlite3
from pathlib import Path

import pytest

from massmem import ConversationMemory, InMemoryConversationMemory, Message, open_store
from massmem.config.load import load_config
from tests.support.cli import massmem

seed = pytest.mark.seed


@seed("`InMemoryConversationMemory()`")
@seed("`ConversationMemory.for_session(session_id) -> SessionHandle`")
@seed("`SessionHandle.history()`, `append(message)`")
@seed("`SessionHandle.params()`, `merge(params)`")
@seed("`SessionHandle.waiting()`, `set_waiting(name)`")
@seed("`SessionHandle.clear()`, `prune(max_messages=10)`")
@seed("a message: `role` (`user`, `agent`, `tool`), `text`, `timestamp`, `metadata`")
def test_handle_in_memory() -> None:
    memory = InMemoryConversationMemory()
    handle = memory.for_session("sid-1")
    assert (handle.history(), handle.params(), handle.waiting()) == ([], {}, None)
    handle.append(Message("user", "I want to check my order"))
    handle.set_waiting("order_id")
    handle.append(Message("agent", "What's your order ID?", metadata={"agent_type": "router"}))
    handle.append(Message("tool", "found"))
    assert [(m.role, m.text) for m in memory.for_session("sid-1").history()] == [
        ("user", "I want to check my order"), ("agent", "What's your order ID?"), ("tool", "found"),
    ]  # fmt: skip
    assert handle.history()[1].metadata == {"agent_type": "router"}
    assert handle.history()[0].timestamp.tzinfo is not None
    handle.merge({"size": 2})
    assert handle.waiting() == "order_id", "another value was given"
    handle.merge({"order_id": "O-12345"})
    assert (handle.params(), handle.waiting()) == ({"size": 2, "order_id": "O-12345"}, None)
    handle.set_waiting("zip")
    handle.set_waiting(None)
    assert handle.waiting() is None
    for number in range(12):
        handle.append(Message("user", str(number)))
    assert len(handle.history()) == 10
    handle.prune(max_messages=2)
    assert [m.text for m in handle.history()] == ["10", "11"]
    handle.clear()
    assert (handle.history(), handle.params()) == ([], {})


@seed("`memory.get_history(sid)`", "`memory.for_session(sid).history()`", "the handle is the one form")
@seed(
    "`memory.get_params(sid)`, `merge_params(sid, params)`",
    "`for_session(sid).params()`, `merge(params)`",
    "so is this",
)
@seed("`memory.set_waiting_param(sid, param)`", "`for_session(sid).set_waiting(param)`", "so is this")
@seed("`clear(session_id)`", "`for_session(sid).clear()`", "so is this")
@seed(
    "persisted later: SQLite",
    "`ConversationMemory(store)`: the same handle, with `await`",
    "SQLite, PostgreSQL or Redis",
)
@seed("an unknown session is created by its first message")
async def test_handle_in_a_store(tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'talk.db'}", tmp_path)
    handle = ConversationMemory(store).for_session("sid-1")
    assert (await store.get_session("sid-1"), await handle.history()) == (None, [])
    await handle.append(Message("user", "It's O-12345"))
    await handle.merge({"order_id": "O-12345"})
    await handle.set_waiting("zip")
    assert [m.text for m in await handle.history()] == ["It's O-12345"]
    assert (await handle.params(), await handle.waiting()) == ({"order_id": "O-12345"}, "zip")
    await handle.clear()
    assert (await handle.history(), await handle.params(), await handle.waiting()) == ([], {}, None)
    await store.close()


@seed(
    "`AskUser(param, prompt)`",
    "`coordination: {ask_user: true}` or `params:` in the configuration",
    "agents ask with a tool",
)
@seed("ask, answer, continue: `order_id`, `It's O-12345`")
@seed("a reset at any time")
@seed(
    "`last_intent_id` of the state",
    "what the user's last message to a waiting turn meant: `answer`, `cancel`, `change`, `reset`",
    "massmem has no classifier of its own",
)
@seed(
    "`state(session_id, params_json, waiting_for_param, last_intent_id, plan_exec_json)`",
    "the table `session_state`",
    "`last_result` and `updated_at` beside them",
)
@seed("`sessions(...)`, `messages(...)`", "the tables `chat_sessions`, `chat_messages`", "with more columns")
@seed(
    "`interaction.context.session_id`, else `interaction.id`",
    "`session_id` of the request; left out: a new one",
    "HTTP and the command line name sessions",
)
def test_a_value_is_asked_for(home: Path) -> None:
    asked = massmem("--config", "@examples/order", "I want to check my order", text=True)
    assert (asked.returncode, "order" in asked.stdout) == (6, True), "the agents ask for it in two ways"
    assert read_state(home) == ({}, "order_id", None)
    answer = massmem("--continue", "It's O-12345", text=True)
    assert (answer.returncode, answer.stdout) == (
        0, "Your order left Lisbon on Tuesday and should be with you on Friday.\n",
    )  # fmt: skip
    assert read_state(home) == ({"order_id": "O-12345"}, None, "answer")
    reset = massmem("--continue", "reset", text=True)
    assert (reset.returncode, reset.stdout) == (0, "")
    assert "Started over: the values that you gave are forgotten" in reset.stderr
    assert read_state(home) == ({}, None, "reset")
    again = massmem("--continue", "Where is my order?", text=True)
    assert again.returncode == 6, "the value is gone"


def read_state(home: Path) -> tuple[object, object, object]:
    with sqlite3.connect(home / ".massmem" / "massmem.db") as database:
        row = database.execute("SELECT params_json, waiting_for_param, last_intent_id FROM session_state").fetchone()
    return json.loads(row[0]), *row[1:]


@seed(
    "`payload.memory: {history_count, params_keys}` at `received` and `respond`",
    "`telemetry: {stages: FILE}`",
    "one line of JSON a stage; `redaction.params` is `telemetry.redact`, and values are never there",
)
def test_stages_have_names_and_no_values(tmp_path: Path) -> None:
    team = tmp_path / "team.yaml"
    text = (Path(__file__).parents[2] / "configs" / "order.yaml").read_text()
    team.write_text(f"{text}\ntelemetry: {{stages: {tmp_path / 'stages.jsonl'}}}\n")
    massmem("--config", str(team), "Where is my order?")
    massmem("--continue", "--config", str(team), "It's O-12345")
    lines = [json.loads(line) for line in (tmp_path / "stages.jsonl").read_text().splitlines()]
    assert {line["stage"] for line in lines} >= {"received", "respond"}
    assert "O-12345" not in (tmp_path / "stages.jsonl").read_text()
    memory = lines[-1]["payload"]["memory"]
    assert (memory["params_keys"], memory["history_count"] > 0) == (["order_id"], True)


@seed("re-ask; escalate after N attempts", "`coordination: {max_asks: 3}`", "then the agents go on without the value")
@seed("later: a timeout of the waiting state", "`coordination: {waiting_timeout: SECONDS}`", "it exists")
def test_the_dialog_is_configured(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        "agents: [{id: a, backend: {type: scripted, script: {answer: hi}}}]\n"
        "coordination: {ask_user: true, max_asks: 3, waiting_timeout: 600}\n"
    )
    coordination = load_config(path, {})[0].coordination
    assert (coordination.max_asks, coordination.waiting_timeout) == (3, 600)
