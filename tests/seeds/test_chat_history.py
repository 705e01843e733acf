"""Conversation Memory Implementation (LangGraph, PostgreSQL)

The history of a chat in PostgreSQL, within limits of messages and tokens.
"""

import logging
from pathlib import Path

import pytest

from massmem import ConversationMemory, open_store
from massmem.config.load import load_config, resolve_agents
from tests.support.cli import call_massmem, script, write_team
from tests.support.postgres_server import PostgresServer
from tests.support.service import StartService, make_agent, make_config

seed = pytest.mark.seed
SESSION = "session-123"


@pytest.fixture
def limits(tmp_path: Path) -> Path:
    path = tmp_path / "team.yaml"
    path.write_text("agents: [{id: a, backend: {type: scripted, script: {answer: hi}}}]\n")
    return path


@seed("`CONVERSATION_HISTORY_ENABLED`")
@seed("`CONVERSATION_HISTORY_MAX_MESSAGES`")
@seed("`CONVERSATION_HISTORY_MAX_TOKENS`")
@seed(
    "`conversation_history_enabled`, `_max_messages`, `_max_tokens`",
    "`memory: {conversation_memory: {enabled, max_messages, max_tokens}}`",
    "sections; `preset: chat` is 20 messages and 4,000 tokens. Left out, an agent is sent as much as fits its window",
)
@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"ENABLED": "true", "MAX_MESSAGES": "20", "MAX_TOKENS": "4000"}, (True, 20, 4000)),
        ({"ENABLED": "true", "MAX_MESSAGES": "10", "MAX_TOKENS": "2000"}, (True, 10, 2000)),
        ({"ENABLED": "false"}, (False, None, None)),
    ],
)
def test_variables(limits: Path, environ: dict[str, str], expected: tuple[bool, int | None, int | None]) -> None:
    variables = {f"CONVERSATION_HISTORY_{name}": value for name, value in environ.items()}
    (agent,) = resolve_agents(load_config(limits, variables)[0], variables)
    conversation = agent.memory.conversation_memory
    assert (conversation.enabled, conversation.max_messages, conversation.max_tokens) == expected


@seed(
    "`get_conversation_history_for_agent(session_id, max_messages=20, max_tokens=4000)`",
    "a method of `ConversationMemory(store)`, with the same arguments and result",
    "the store is named, not global",
)
@seed("the sliding window: 180, 150 and 200 tokens with a limit of 500 give two messages")
async def test_history_for_agent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = await open_store(f"sqlite:///{tmp_path / 'talk.db'}", tmp_path)
    memory = ConversationMemory(store)
    assert await memory.get_conversation_history_for_agent(session_id=SESSION) == []
    for role, tokens in (("user", 100), ("assistant", 200), ("user", 150), ("assistant", 180)):
        await memory.add_message(SESSION, "user" if role == "user" else "assistant", f"{tokens:4}" * tokens)
    with caplog.at_level(logging.INFO):
        history = await memory.get_conversation_history_for_agent(SESSION, max_messages=20, max_tokens=500)
    assert [(m["role"], m["content"][:4].strip()) for m in history] == [("user", "150"), ("assistant", "180")]
    assert "Retrieved 2 conversation messages for agent (~330 tokens) from session session-123" in caplog.text
    newest = await memory.get_conversation_history_for_agent(SESSION, max_messages=1)
    assert [m["role"] for m in newest] == ["assistant"]
    assert len(await memory.get_conversation_history_for_agent(SESSION)) == 4
    await store.close()


@seed("`POST /api/v1/chat` with `message`, `session_id` and `user_id`")
@seed("`GET /api/v1/chat/history/{session_id}?limit=50`: `session_id`, `messages`, `count`, `confidence`")
@seed("another user's `user_id` in a body", "422: the token names the user", "a body proves nothing")
@seed(
    "`SELECT * FROM chat_messages WHERE session_id = '...'`",
    "`SELECT * FROM conversation_messages WHERE session_id = '...'`",
    "`chat_messages` has all that agents said, under ids that differ for each user",
)
@seed(
    "`chat_sessions`: `session_id`, `user_id`, `title`, `last_message`, `message_count`, `active`",
    "the view `conversations`",
    "so is `chat_sessions`, whose `message_count` has all messages",
)
@seed("`idx_chat_messages_session_id`")
@seed("`EXPLAIN ANALYZE SELECT ...`")
def test_api_and_sql(start_service: StartService, postgres: PostgresServer) -> None:
    database = postgres.new_database()
    agents = [make_agent(name, "It takes 5 days.") for name in ("ann", "bob")]
    service = start_service(make_config(*agents, store={"url": postgres.url(database)}))
    user = service.client("user-456")
    body = {"message": "How long does it take?", "session_id": SESSION, "user_id": "user-456"}
    assert user.post("/api/v1/chat", body).json()["response"] == "It takes 5 days."
    refused = user.post("/api/v1/chat", {**body, "user_id": "user-789"})
    assert (refused.status_code, "another user" in refused.json()["error"]) == (422, True)
    assert user.post("/api/v1/chat", {"message": "And by air?", "session_id": SESSION}).status_code == 200
    history = user.get(f"/api/v1/chat/history/{SESSION}?limit=50").json()
    assert (history["session_id"], history["count"]) == (SESSION, 4)
    assert [message["role"] for message in history["messages"]] == ["user", "assistant", "user", "assistant"]
    assert 0 <= history["messages"][1]["confidence"] <= 1
    rows = postgres.execute(f"SELECT role, content FROM conversation_messages WHERE session_id = '{SESSION}'", database)
    assert sorted(rows) == sorted((message["role"], message["content"]) for message in history["messages"])
    sessions = postgres.execute("SELECT session_id, user_id, title, message_count, active FROM conversations", database)
    assert sessions == [(SESSION, "user-456", "How long does it take?", 4, True)]
    query = f"EXPLAIN ANALYZE SELECT * FROM chat_messages WHERE session_id = '{SESSION}'"
    assert "Execution Time" in str(postgres.execute(query, database))
    assert "idx_chat_messages_session_id" in str(postgres.execute("SELECT indexname FROM pg_indexes", database))


@seed("`INFO: Retrieved 4 conversation messages for agent (~850 tokens) from session abc-123`")
@seed("`DEBUG: Including 4 previous messages in context`")
@seed("`INFO: Response generated: 250 chars, 1200 tokens`")
@seed("`test_conversation_memory.py`, a script", "`massmem doctor`", "and `scripts/test` in a checkout")
@seed(
    "`Conversation History:`, `Knowledge Base Context:` in one prompt",
    "earlier messages are messages; what is recalled stands before the question",
    "models are trained on that form",
)
def test_log_lines(tmp_path: Path) -> None:
    team = write_team(tmp_path, script(["It takes 5 days.", "10 days.", "It costs more."]))
    for question in ("How long does it take?", "And by sea?", "And by air?"):
        call_massmem(
            "--debug", "--config", team, *(["--continue"] if question != "How long does it take?" else []), question
        )
    text = "".join(path.read_text() for path in sorted((tmp_path / "home").rglob("massmem.log")))
    text += "".join(path.read_text() for path in sorted(Path.cwd().glob(".massmem/massmem_logs/*/massmem.log")))
    assert "Retrieved 4 conversation messages for agent (~" in text
    assert "Including 4 previous messages in context" in text
    assert "Response generated: 16 chars, " in text
