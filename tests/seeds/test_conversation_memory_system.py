"""AgentCraft: Conversation Memory System

`ConversationMemory` of `backend/main.py`, its data, and the routes of its API.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from massmem import ConversationMemory, InMemoryConversationMemory, open_store
from massmem.config.load import load_config
from tests.support.cli import massmem, script, write_team
from tests.support.service import StartService, make_config

seed = pytest.mark.seed
SESSION = "session_1705750200_abc123"
AGENT = "Technical Integration Specialist"


@pytest.fixture
def conversation_memory() -> InMemoryConversationMemory:
    memory = ConversationMemory()
    memory.add_message(session_id=SESSION, role="user", message="How do I set up webhooks?")
    memory.add_message(session_id=SESSION, role="assistant", message="Follow these steps", agent_type=AGENT)
    memory.add_message(session_id=SESSION, role="user", message="What about signature verification?")
    return memory


@seed("`conversation_memory = ConversationMemory()`")
@seed(
    "`from backend.main import conversation_memory`", "`from massmem import ConversationMemory`", "massmem is a package"
)
@seed("`add_message(session_id, role, message, agent_type=None)`")
@seed("`conversations[session_id]`, `conversations.get(session_id, [])`")
@seed("a message: `role`, `content`, `timestamp` (ISO 8601), `agent_type`")
def test_messages(conversation_memory: InMemoryConversationMemory) -> None:
    assert SESSION in conversation_memory.conversations
    assert conversation_memory.conversations.get("another", []) == []
    user, agent = conversation_memory.conversations[SESSION][:2]
    assert (list(user), user["agent_type"]) == (["role", "content", "timestamp", "agent_type"], None)
    assert (agent["role"], agent["content"], agent["agent_type"]) == ("assistant", "Follow these steps", AGENT)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}", user["timestamp"])


@seed("`get_conversation_context(session_id)`: 6 messages, 200 characters of an answer")
@seed('`safe_get_context`: a session that is not there has the context `""`')
def test_context(conversation_memory: InMemoryConversationMemory) -> None:
    assert conversation_memory.get_conversation_context(SESSION) == (
        "User: How do I set up webhooks?\n"
        f"Assistant ({AGENT}): Follow these steps...\n"
        "User: What about signature verification?"
    )
    assert conversation_memory.get_conversation_context("session_12345") == ""
    for number in range(9):
        conversation_memory.add_message(SESSION, "assistant", f"{number}" * 300)
    lines = conversation_memory.get_conversation_context(SESSION).splitlines()
    assert (len(lines), lines[-1]) == (6, f"Assistant: {'8' * 200}...")


@seed("`get_conversation_summary`: `message_count`, `last_activity`, `session_started`")
def test_summary(conversation_memory: InMemoryConversationMemory) -> None:
    summary = conversation_memory.get_conversation_summary(SESSION)
    assert (set(summary), summary["message_count"]) == ({"message_count", "last_activity", "session_started"}, 3)


@seed("10 messages at most in a session")
def test_ten_messages(conversation_memory: InMemoryConversationMemory) -> None:
    for number in range(20):
        conversation_memory.add_message(SESSION, "user", str(number))
    assert [m["content"] for m in conversation_memory.conversations[SESSION]] == [str(n) for n in range(10, 20)]


@seed(
    "`CONTEXT_WINDOW = 6`, `ASSISTANT_PREVIEW = 200`",
    "`memory: {conversation_memory: {preset: brief}}`",
    "a configuration; a stored session keeps all messages, and a team is sent as many as fit",
)
@seed("`MAX_CONTEXT_LENGTH = 2000`", "`memory: {conversation_memory: {max_tokens: 500}}`", "limits are in tokens")
def test_limits_are_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        "agents: [{id: a, backend: {type: scripted, script: {answer: hi}}}]\n"
        "memory: {conversation_memory: {preset: brief, max_tokens: 500}}\n"
    )
    conversation = load_config(path, {})[0].memory.conversation_memory
    assert (conversation.preset, conversation.max_tokens) == ("brief", 500)


@seed("`cleanup_old_sessions()`: `del conversations[session_id]` after 24 hours")
def test_clean_up(conversation_memory: InMemoryConversationMemory) -> None:
    def clean_up(cutoff_time: datetime) -> None:
        for session_id in list(conversation_memory.conversations.keys()):
            summary = conversation_memory.get_conversation_summary(session_id)
            if datetime.fromisoformat(summary["last_activity"]) < cutoff_time:
                del conversation_memory.conversations[session_id]

    utcnow = datetime.now(UTC).replace(tzinfo=None)
    clean_up(utcnow - timedelta(hours=24))
    assert list(conversation_memory.conversations) == [SESSION]
    clean_up(utcnow + timedelta(hours=1))
    assert conversation_memory.conversations == {}


@seed("`get_memory_stats()`: the number of sessions and messages", "`massmem sessions stats`", "of what is stored")
@seed(
    "`get_conversation_insights()`: topics, `agents_used`, `user_messages`",
    "`massmem sessions insights`",
    "with time and cost",
)
@seed(
    "`export_conversation(session_id, format)`: `json`, `markdown`, `text`",
    "`massmem sessions export --format`",
    "with secrets redacted",
)
def test_figures_and_exports(tmp_path: Path) -> None:
    team = write_team(tmp_path, script("Follow these steps"))
    assert massmem("--config", team, "How do I set up webhooks?").returncode == 0
    stats = json.loads(massmem("sessions", "stats", "--json", text=True).stdout)
    assert (stats["activeConversations"], stats["totalMessages"] >= 2) == (1, True)
    session_id = massmem("--list-sessions", text=True).stdout.split("Session ID: ")[1].split()[0]
    insights = json.loads(massmem("sessions", "insights", session_id, "--json", text=True).stdout)
    assert (insights["user_messages"], insights["assistant_messages"], insights["agents_used"]) == (1, 1, ["a"])
    assert "webhooks" in insights["topics"]
    for form, expected in (("json", '"content"'), ("markdown", "Follow these steps"), ("text", "Follow these steps")):
        exported = massmem("sessions", "export", session_id, "--format", form, text=True)
        assert (exported.returncode, expected in exported.stdout) == (0, True), exported.stderr


@seed("`session_1705750200123_k7m9p3x2q`: an id that a browser draws")
@seed("`POST /api/multi-agent/query` with `query` and `session_id`")
@seed("`GET /api/conversation/{session_id}`")
@seed("`GET /api/conversations?limit=50&offset=0`")
@seed("`citations` of an answer")
@seed("`agents_used`: the agents whose answers were shown")
def test_routes(start_service: StartService) -> None:
    ann = start_service(make_config()).client("ann")
    session_id = "session_1705750200123_k7m9p3x2q"
    assert re.match(r"^session_\d+_[a-z0-9]+$", session_id)
    question = "How do I validate webhook signatures?"
    reply: dict[str, Any] = ann.post("/api/multi-agent/query", {"query": question, "session_id": session_id}).json()
    assert (reply["content"], reply["agent_name"], reply["agents_used"]) == ("It is blue.", "ann", ["ann"])
    conversation = ann.get(f"/api/conversation/{session_id}").json()
    assert (conversation["success"], conversation["message_count"], conversation["agents_used"]) == (True, 2, ["ann"])
    user, agent = conversation["messages"]
    assert (set(user), set(agent)) == (
        {"role", "content", "timestamp"}, {"role", "content", "timestamp", "agent", "citations"},
    )  # fmt: skip
    page = ann.get("/api/conversations?limit=50&offset=0").json()
    assert (page["success"], page["total_sessions"], page["limit"], page["offset"]) == (True, 1, 50, 0)
    (listed,) = page["sessions"]
    assert (listed["session_id"], listed["query"], listed["message_count"]) == (session_id, question, 2)
    assert listed["agents_used"] == ["ann"]


@seed(
    "`PersistentConversationMemory(redis_url)`, its key `conversation:{session_id}`",
    '`ConversationMemory(await open_store("redis://...", massmem_home()))`',
    "its methods are async; the keys are massmem's own, with the same 24 hours",
)
@seed(
    "`store_message_db(session_id, role, content, agent_type)`",
    "`await ConversationMemory(store).add_message(...)`",
    "the store makes the session",
)
async def test_a_store(redis_server: Any, tmp_path: Path) -> None:
    for url in (redis_server.new_url(), f"sqlite:///{tmp_path / 'talk.db'}"):
        store = await open_store(url, tmp_path)
        memory = ConversationMemory(store)
        await memory.add_message(SESSION, "user", "How do I set up webhooks?")
        await memory.add_message(SESSION, "assistant", "Follow these steps", AGENT)
        assert (await memory.get_conversation_context(SESSION)).splitlines()[0] == "User: How do I set up webhooks?"
        assert (await memory.get_conversation_summary(SESSION))["message_count"] == 2
        await store.close()
