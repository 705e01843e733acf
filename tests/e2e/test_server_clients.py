"""Clients written for older interfaces run unchanged: Python with requests, JavaScript with axios, curl."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.support.service import Client, Service, make_agent, make_config

SESSION = "user-123-support-chat"

PYTHON = """
import requests

API_URL = '{url}/api/ai-memory'
TOKEN = '{token}'
HEADERS = {{'Authorization': f'Bearer {{TOKEN}}'}}

# Get conversation
def get_conversation(session_id):
    response = requests.get(
        f'{{API_URL}}/conversations/{{session_id}}',
        headers=HEADERS
    )
    return response.json()

# List all sessions
def list_sessions():
    response = requests.get(
        f'{{API_URL}}/conversations',
        headers=HEADERS
    )
    return response.json()

# Clear conversation
def clear_conversation(session_id):
    response = requests.delete(
        f'{{API_URL}}/conversations/{{session_id}}',
        headers=HEADERS
    )
    return response.json()

# Get stats
def get_stats():
    response = requests.get(
        f'{{API_URL}}/stats',
        headers=HEADERS
    )
    return response.json()

import json
print(json.dumps([get_conversation('{session}'), list_sessions(), get_stats(), clear_conversation('{session}'),
                  get_conversation('{session}')]))
"""

JAVASCRIPT = """
const axios = require('axios');

const API_URL = '{url}/api/ai-memory';
const TOKEN = '{token}';

// Get conversation
async function getConversation(sessionId) {{
  const response = await axios.get(
    `${{API_URL}}/conversations/${{sessionId}}`,
    {{ headers: {{ Authorization: `Bearer ${{TOKEN}}` }} }}
  );
  return response.data;
}}

// List all sessions
async function listSessions() {{
  const response = await axios.get(
    `${{API_URL}}/conversations`,
    {{ headers: {{ Authorization: `Bearer ${{TOKEN}}` }} }}
  );
  return response.data;
}}

// Clear conversation
async function clearConversation(sessionId) {{
  const response = await axios.delete(
    `${{API_URL}}/conversations/${{sessionId}}`,
    {{ headers: {{ Authorization: `Bearer ${{TOKEN}}` }} }}
  );
  return response.data;
}}

// Get stats
async function getStats() {{
  const response = await axios.get(
    `${{API_URL}}/stats`,
    {{ headers: {{ Authorization: `Bearer ${{TOKEN}}` }} }}
  );
  return response.data;
}}

(async () => {{
  const results = [await getConversation('{session}'), await listSessions(), await getStats(),
                   await clearConversation('{session}')];
  try {{ await getConversation('{session}'); }} catch (e) {{ results.push(e.response.data); }}
  console.log(JSON.stringify(results));
}})();
"""

# Stands in for axios where that is not installed: no test loads anything from the network.
AXIOS = """
// What the client uses of axios, over the fetch of Node: a response that is not a success is thrown.
const send = (method) => async (url, { headers }) => {
  const result = await fetch(url, { method, headers });
  const response = { status: result.status, data: await result.json() };
  if (!result.ok) throw Object.assign(new Error(`status ${result.status}`), { response });
  return response;
};
module.exports = { get: send('GET'), delete: send('DELETE') };
"""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    config = make_config(make_agent("ann", "Hi! How can I help you today?"))
    service = Service(tmp_path_factory.mktemp("clients"), config).start()
    yield service
    service.stop()


def check_results(results: list[dict[str, object]]) -> None:
    conversation, sessions, stats, cleared, deleted = results
    data = conversation["data"]
    assert isinstance(data, dict)
    assert conversation["success"] is True
    assert set(data) == {"sessionId", "messages", "createdAt", "updatedAt"}
    assert data["sessionId"] == SESSION
    assert [(m["role"], m["content"]) for m in data["messages"]] == [
        ("user", "Hello!"), ("assistant", "Hi! How can I help you today?"),
    ]  # fmt: skip
    assert all(set(m) == {"role", "content", "timestamp"} and m["timestamp"] > 1.7e12 for m in data["messages"])
    assert sessions == {"success": True, "data": [SESSION]}
    figures = stats["data"]
    assert isinstance(figures, dict)
    assert {"activeConversations", "totalMessages", "averageMessagesPerConversation", "usingRedis"} <= set(figures)
    assert (figures["activeConversations"], figures["totalMessages"]) == (1, 2)
    assert cleared == {"success": True, "message": f"Conversation {SESSION} cleared"}
    assert deleted == {"success": False, "error": "Session not found"}


def ask_first_question(service: Service, user: str) -> dict[str, str]:
    """Return what the texts of the clients need."""
    client = service.client(user)
    assert client.chat("Hello!", SESSION).status_code == 200
    return {"url": service.url, "token": client.token, "session": SESSION}


def test_python_client(service: Service, tmp_path: Path) -> None:
    program = tmp_path / "client.py"
    program.write_text(PYTHON.format(**ask_first_question(service, "python")))
    run = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60, check=True)
    check_results(json.loads(run.stdout))


def test_javascript_client(service: Service, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node on this machine")
    environment = os.environ
    if subprocess.run([node, "-e", "require('axios')"], capture_output=True, check=False).returncode:
        (tmp_path / "axios").mkdir()
        (tmp_path / "axios" / "index.js").write_text(AXIOS)
        environment = os.environ | {"NODE_PATH": str(tmp_path)}
    program = tmp_path / "client.js"
    program.write_text(JAVASCRIPT.format(**ask_first_question(service, "javascript")))
    run = subprocess.run([node, program], capture_output=True, text=True, timeout=60, check=True, env=environment)
    check_results(json.loads(run.stdout))


def test_curl_client(service: Service) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl on this machine")
    values = ask_first_question(service, "curl")
    head = f'curl -s -H "Authorization: Bearer {values["token"]}"'
    base = f"{service.url}/api/ai-memory"
    results: list[dict[str, object]] = []
    for command in (
        f"{head} \\\n  {base}/conversations/{SESSION}",
        f"{head} \\\n  {base}/conversations",
        f"{head} \\\n  {base}/stats",
        f'curl -s -X DELETE \\\n  -H "Authorization: Bearer {values["token"]}" \\\n  {base}/conversations/{SESSION}',
        f"{head} \\\n  {base}/conversations/{SESSION}",
    ):
        run = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True)
        results.append(json.loads(run.stdout))
    check_results(results)


def test_shapes_of_chat_and_history(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.client('chat').token}"}
    body = {"message": "How long does it take?", "session_id": "session-123", "user_id": "chat"}
    response = requests.post(f"{service.url}/api/v1/chat", json=body, headers=headers, timeout=60)
    assert response.status_code == 200
    history = requests.get(
        f"{service.url}/api/v1/chat/history/session-123?limit=50", headers=headers, timeout=60
    ).json()
    assert set(history) == {"session_id", "messages", "count"}
    assert (history["session_id"], history["count"]) == ("session-123", 2)
    user, assistant = history["messages"]
    assert set(user) == {"role", "content", "timestamp"}
    assert (user["role"], user["content"], user["timestamp"][-1]) == ("user", "How long does it take?", "Z")
    assert {"role", "content", "timestamp"} <= set(assistant)


def test_shapes_of_conversations_with_an_id_drawn_by_a_browser(service: Service) -> None:
    headers = {"Authorization": f"Bearer {service.client('browser').token}"}
    session_id = "session_1705750200123_k7m9p3x2q"
    body = {"query": "How do I validate webhook signatures?", "session_id": session_id}
    response = requests.post(f"{service.url}/api/multi-agent/query", json=body, headers=headers, timeout=60).json()
    assert (response["content"], response.get("agent_name")) == ("Hi! How can I help you today?", "ann")
    conversation = requests.get(f"{service.url}/api/conversation/{session_id}", headers=headers, timeout=60).json()
    assert set(conversation) == {"success", "session_id", "messages", "agents_used", "created_at", "message_count"}
    assert [set(m) for m in conversation["messages"]] == [
        {"role", "content", "timestamp"}, {"role", "content", "timestamp", "agent", "citations"},
    ]  # fmt: skip
    page = requests.get(f"{service.url}/api/conversations?limit=50&offset=0", headers=headers, timeout=60).json()
    assert set(page) == {"success", "sessions", "total_sessions", "limit", "offset"}
    assert set(page["sessions"][0]) == {
        "session_id", "query", "created_at", "last_activity", "message_count", "agents_used",
    }  # fmt: skip
    assert page["sessions"][0]["query"] == "How do I validate webhook signatures?"


def test_token_of_the_command_line_is_accepted(service: Service) -> None:
    command = [sys.executable, "-m", "massmem", "token", "create", "--sub", "alice", "--ttl", "1h"]
    run = subprocess.run(
        [*command, "--config", str(service.config_file)],
        capture_output=True, text=True, timeout=60, check=True, env=os.environ | {"HOME": str(service.home)},
    )  # fmt: skip
    assert Client(service.url, run.stdout.strip()).list_sessions() == []
