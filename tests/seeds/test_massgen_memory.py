"""MassGen: Memory and Context Management

The two memories of a team, their configuration, commands, log lines and debug files.
"""

import json
import logging
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from massmem import ConversationMemory, Message, open_store
from massmem.config.load import load_config, resolve_agents
from tests.support.cli import call_massmem, massmem, script, write_team
from tests.support.extraction_stub import extraction_server
from tests.support.extraction_stub import memory as facts_reply

seed = pytest.mark.seed
ROOT = Path(__file__).parents[2]
AGENT = {"id": "researcher", "backend": {"type": "scripted", "script": {"answer": "hi"}}}

QUICK_START = """
memory:
  enabled: true
  conversation_memory: {enabled: true}
  persistent_memory:
    enabled: true
    llm: {provider: "openai", model: "gpt-4.1-nano-2025-04-14"}
    embedding: {provider: "openai", model: "text-embedding-3-small"}
    qdrant: {mode: "server", host: "localhost", port: 6333}
  compression: {trigger_threshold: 0.75, target_ratio: 0.40}
  retrieval: {limit: 5, exclude_recent: true}
  recording: {record_all_tool_calls: false, record_reasoning: false}
"""
OPTIONS = (
    "memory: {enabled: false}",
    "memory: {persistent_memory: {on_disk: true}}",
    "memory: {persistent_memory: {llm: {provider: anthropic, model: claude-3-5-haiku-20241022}}}",
    "memory: {persistent_memory: {llm: {provider: groq, model: llama-3.1-8b-instant}}}",
    "memory: {persistent_memory: {embedding: {provider: together, model: togethercomputer/m2-bert-80M-8k-retrieval}}}",
    "memory: {persistent_memory: {llm: {provider: azure_openai, model: gpt-4o-mini, "
    "api_key: '${AZURE_OPENAI_API_KEY}'}, embedding: {provider: azure_openai, model: text-embedding-ada-002}}}",
    "memory: {persistent_memory: {qdrant: {mode: local, path: .massgen/qdrant}}}",
    "memory: {persistent_memory: {session_name: my_project_analysis}}",
    "memory: {persistent_memory: {session_name: null}}",
    "memory: {compression: {target_ratio: 0.10}}",
    "memory: {retrieval: {limit: 20, exclude_recent: false}}",
    "memory: {recording: {record_all_tool_calls: true, summarize_large_results: true, summary_model: gpt-4o-mini}}",
    "session_id: session_20251028_143000",
)


@seed("the configuration of the quick start, and the complete one")
@seed("`llm`: `openai`, `anthropic`, `groq`, `azure_openai`")
@seed("`embedding`: `openai`, `together`, `azure_openai`")
@seed("`qdrant`: `mode`, `host`, `port`, `path`")
@seed('`session_name: "my_project_analysis"`, `session_name: null`')
@seed('`session_id: "session_20251028_143000"` in the file')
@seed("`compression: {trigger_threshold, target_ratio}`")
@seed("`recording`: `record_all_tool_calls`, `record_reasoning`, `summarize_large_results`, `summary_model`")
@seed("`memory: {enabled: false}`")
@pytest.mark.parametrize("text", [QUICK_START, *OPTIONS])
def test_configurations(text: str, tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"{text}\nagents: {json.dumps([AGENT])}\n")
    team, warnings = load_config(path, {"AZURE_OPENAI_API_KEY": "a-key"})
    assert warnings == []
    sections = yaml.safe_load(text).get("memory", {})
    for section, keys in sections.items():
        if isinstance(keys, dict):
            assert getattr(team.memory, section).model_fields_set >= keys.keys()  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]


@seed("`agents[].memory.retrieval.limit`: 20 for one agent, 3 for another")
def test_memory_of_each_agent(tmp_path: Path) -> None:
    agents = [
        {**AGENT, "memory": {"retrieval": {"limit": 20}}},
        {**AGENT, "id": "w", "memory": {"retrieval": {"limit": 3}}},
    ]
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": agents, "memory": {"retrieval": {"limit": 5}}}))
    assert [a.memory.retrieval.limit for a in resolve_agents(load_config(path, {})[0], {})] == [20, 3]


@seed(
    "`retrieval.limit`, left out: 5",
    "left out: as many as fit `retrieval.max_tokens: 1000`",
    "short facts are not cut off at five, and long ones do not fill the prompt",
)
@seed(
    "`session_name` left out: all sessions",
    "left out: this conversation alone",
    "`session_name: null` is all of them; the first run says which it is",
)
@seed(
    "`compression.target_ratio`, `trigger_threshold`: only after an error of the provider",
    "before it: tokens are counted",
    "`compression: {proactive: false}` is as it was",
)
@seed(
    "`qdrant: {mode: local}`: one agent only, locks, `Storage folder ... is already accessed`",
    "all agents and processes share it",
    "who opened it first serves the others; a server is for several machines",
)
def test_defaults(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"agents: {json.dumps([AGENT])}\n")
    memory = load_config(path, {})[0].memory
    assert (memory.retrieval.limit, memory.retrieval.max_tokens, memory.retrieval.exclude_recent) == (None, 1000, True)
    assert (memory.persistent_memory.session_name, memory.persistent_memory.all_sessions) == (None, False)
    assert (memory.compression.trigger_threshold, memory.compression.target_ratio) == (0.75, 0.20)
    assert (memory.compression.proactive, memory.persistent_memory.qdrant.mode) == (True, "embedded")


@seed("the first run says what a `session_name` that is left out means")
def test_first_run_says_what_is_recalled(tmp_path: Path) -> None:
    team = write_team(tmp_path, script("hi"))
    (tmp_path / "team.yaml").write_text(
        Path(team).read_text().replace('{"enabled": false}', '{"embedding": {"model": "none"}}')
    )
    first, second = (call_massmem("--config", team, "Hello?").stderr.decode() for _ in range(2))
    assert "agents recall this conversation alone" in first
    assert "recall this conversation" not in second


@seed(
    "`coordination: {compression_target_ratio: 0.20}`",
    "`memory: {compression: {target_ratio: 0.20}}`",
    "one key; below `orchestrator:` it works, too",
)
def test_the_ratio_of_the_orchestrator(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        f"orchestrator: {{coordination: {{compression_target_ratio: 0.3}}}}\nagents: {json.dumps([AGENT])}\n"
    )
    assert load_config(path, {})[0].memory.compression.target_ratio == 0.3


@seed("`--config @examples/memory/gpt5mini_gemini_context_window_management.yaml`, alone and with a question")
@seed(
    "`massgen/configs/memory/gpt5mini_high_reasoning_gemini.yaml`",
    "`@examples/memory/gpt5mini_high_reasoning_gemini.yaml`",
    "shipped files have one address; so have `single_agent`, `qdrant_server`, `continuation`",
)
@seed("`massgen ...`", "`massmem ...`", "with the same options")
@pytest.mark.parametrize("name", ["gpt5mini_gemini_context_window_management", "gpt5mini_high_reasoning_gemini"])
def test_examples(name: str) -> None:
    ran = call_massmem(
        "config", "validate", f"@examples/memory/{name}.yaml", env={"OPENAI_API_KEY": "x", "GEMINI_API_KEY": "y"}
    )
    assert (ran.returncode, b"valid; agents:" in ran.stdout + ran.stderr) == (0, True), ran.stderr


@seed("`--list-sessions`, with `Status`, `Started`, `Model`, `Description`, `Config`")
@seed('`--session-id session_20251028_143000 "What did we discuss?"`; before `session_id:` in the file')
@seed("ids such as `session_20251028_143000`")
@seed("`~/.massgen/sessions.json`", "`~/.massmem/sessions.json`", "beside it the store, `massmem.db`")
@seed("`rm -rf .massgen/memory_test_sessions/SESSION`", "`massmem sessions delete SESSION`", "with its memories")
@seed(
    "`rm -rf .massgen/qdrant_storage`",
    "`rm -rf ~/.massmem/memory`",
    "the index is made again from the log with `massmem memory rebuild`",
)
def test_sessions(tmp_path: Path, home: Path) -> None:
    team = write_team(tmp_path, script("hi"))
    massmem("--config", team, "Analyse the backend")
    listed = massmem("--list-sessions", text=True).stdout
    session_id = listed.split("Session ID: ")[1].split()[0]
    assert re.fullmatch(r"session_\d{8}_\d{6}", session_id)
    assert listed.startswith(f"Available Memory Sessions:\n{'=' * 60}\n\nSession ID: {session_id}\n")
    for label in ("Status:", "Started:", "Model:", "Description:", "Config:"):
        assert re.search(rf"^  {label} ", listed, re.MULTILINE), listed
    assert listed.endswith('To load a session, use: massmem --session-id <SESSION_ID> "Your question"\n')
    asked = massmem("--session-id", session_id, "What did we discuss about the backend?", text=True)
    assert (asked.returncode, f"{session_id} turn 2" in asked.stderr) == (0, True), asked.stderr
    named = {**json.loads(Path(team).read_text()), "session_id": session_id}
    (tmp_path / "named.yaml").write_text(json.dumps(named))
    again = massmem("--config", str(tmp_path / "named.yaml"), "And then?", text=True)
    assert (again.returncode, f"{session_id} turn 3" in again.stderr) == (0, True), again.stderr
    other = massmem("--session-id", "another", "--config", str(tmp_path / "named.yaml"), "And here?", text=True)
    assert (other.returncode, "another" in other.stderr) == (5, True)
    assert (home / ".massmem" / "sessions.json").exists()
    assert massmem("sessions", "delete", session_id, "--yes").returncode == 0
    assert session_id not in massmem("--list-sessions", text=True).stdout


@seed(
    "`massgen.memory.PersistentMemory`",
    "`massmem.memory.PersistentMemory(agent_name, session_name, llm_config, embedding_config, vector_store_config)`",
    "plain mappings as in a configuration; `await record(messages)`, `await retrieve(query, limit, previous_winners)`",
)
@seed("own memories, and those of previous winners: `[From agent_b Turn 1]`")
@seed("messages of the role system are not recorded")
async def test_persistent_memory() -> None:
    from massmem.memory import PersistentMemory

    words = {"provider": "local", "model": "none"}
    agent_b = PersistentMemory("agent_b", "session_123", embedding_config=words)
    assert await agent_b.retrieve("the adapter pattern of the backend") == ""
    messages = [
        {"role": "system", "content": "You are evaluating answers about the adapter pattern."},
        {"role": "user", "content": "How is the backend built?"},
        {"role": "assistant", "content": "The backend uses an adapter pattern in base.py."},
    ]
    assert await agent_b.record(messages, turn=1) == 0, "no model extracts facts"
    assert "You: The backend uses an adapter pattern in base.py." in await agent_b.retrieve("backend adapter pattern")
    await agent_b.close()
    agent_a = PersistentMemory("agent_a", "session_123", embedding_config=words)
    query = "backend adapter pattern"
    assert "base.py" not in await agent_a.retrieve(query), "the turn has no winner"
    winners = [{"agent_id": "agent_b", "turn": 1}]
    recalled = await agent_a.retrieve(query, limit=5, previous_winners=winners)
    assert "[From agent_b Turn 1] The backend uses an adapter pattern" in recalled
    assert "evaluating" not in recalled
    await agent_a.close()


@seed("`PersistentMemory` with `llm`: facts are extracted")
@seed(
    "`PointStruct` errors, `Invalid JSON response`",
    "do not occur: replies are read as far as they are whole",
    "what is left is tried again later",
)
async def test_persistent_memory_with_a_model() -> None:
    from massmem.memory import PersistentMemory

    with extraction_server(facts_reply("Deploys of Falcon happen on Thursdays.")) as url:
        llm, words = {"provider": "openai", "model": "m", "api_key": "x", "base_url": url}, {"model": "none"}
        memory = PersistentMemory("agent_a", "session_1", llm, words)
        assert await memory.record([{"role": "user", "content": "We deploy Falcon on Thursdays."}]) == 1
        assert "Deploys of Falcon" in await memory.retrieve("When are deploys of Falcon?")
        await memory.close()
    whole = facts_reply("Falcon is built with Bazel 7.", "Falcon has nine services.")
    with extraction_server(whole[: whole.index("nine")]) as url:
        memory = PersistentMemory("agent_a", "session_2", {**llm, "base_url": url}, words)
        assert await memory.record([{"role": "user", "content": "Falcon: built with Bazel 7, nine services."}]) == 1
        await memory.close()


@seed(
    "`massgen.memory.ConversationMemory`",
    "`massmem.memory.ConversationMemory()`; with a store `massmem.ConversationMemory(store)`",
    "the first ends with its process",
)
@seed(
    "`massgen.conversation_buffer.AgentConversationBuffer`",
    "the handle of a session: `ConversationMemory(store).for_session(id)`",
    "the log is the buffer",
)
@seed(
    "`estimate_tokens(calculator)`, `get_token_stats(calculator)`",
    "methods of the handle, with `await`",
    "a calculator counts the tokens of a text",
)
@seed(
    "`log_context_usage(messages, turn)`, `log_context_usage_from_buffer(buffer, turn)`",
    "`await handle.log_context_usage(window)`",
    "the handle knows its messages and turn",
)
@seed(
    "`log_context_usage_from_tokens(tokens, turn)`",
    "a turn logs it by itself",
    "`Context Window (Turn N): ... [API actual]`",
)
@seed("`clear_history=True`", "`/clear` in a conversation, `SessionHandle.clear()`", "the log keeps what was said")
async def test_conversation_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    from massmem.memory import ConversationMemory as InMemory

    assert isinstance(ConversationMemory(), InMemory)
    store = await open_store(f"sqlite:///{tmp_path / 'talk.db'}", tmp_path)
    handle = ConversationMemory(store).for_session("s")
    await handle.append(Message("user", "x" * 40))
    await handle.append(Message("agent", "y" * 400))
    assert await handle.get_token_stats(lambda text: len(text) // 4) == {"user": 10, "assistant": 100}
    assert await handle.estimate_tokens(lambda text: len(text) // 4) == 110
    with caplog.at_level(logging.INFO):
        await handle.log_context_usage(1_000)
        await handle.log_context_usage(120)
    assert "Context Buffer (Turn 0): 110 / 1,000 tokens (11%) [buffer]" in caplog.text
    assert "Approaching limit!" in caplog.text
    await handle.clear()
    assert await handle.history() == []
    await store.close()


@seed(
    "`📊 Context Window (Turn 5): 45,000 / 128,000 tokens (35%) [API actual]`",
    "`a: Context Window (Turn 5): ... [API actual]`",
    "with the agent's name; signs such as 📊 are left out",
)
@seed(
    "`🔄 Retrieving memories after reset for agent_a`",
    "`Searching memories (agent=a, session=..., turn=2, limit=5)`",
    "before each step of an agent, in whatever round",
)
@seed(
    "`🔍 [retrieve] Searching memories (agent=..., limit=5, winners=1)`",
    "the same line; `Found 2 memories (agent=a, ...)` counts those of winners",
    "the debug file names each memory",
)
@seed("`ℹ️ No relevant memories found`", "`No relevant memories found (agent=a, ...)`", "with the reason")
@seed(
    "`💾 Recording 10 messages before reset`, `🔍 [_mem0_add] Recording to mem0`",
    "`Recording facts (agent=a, session=..., turn=1): 2 message(s), combined content length: 85 chars`",
    "the log holds no content: the debug file has it",
)
@seed("`✅ mem0 extracted 5 fact(s)`", "`Extracted 5 fact(s) (agent=a, ...)`", "relations are not extracted")
@seed(
    "`⚠️ mem0 extracted 0 facts (check fact extraction prompt or content quality)`",
    "`Extracted 0 facts (...)`, with what to look at",
    "as a warning",
)
@seed("`Combined content length: X chars`", "`combined content length: X chars`", "in the line of the recording")
@seed(
    "`--debug`: `.massgen/massgen_logs/log_{timestamp}/attempt_{N}/memory_debug/{agent_id}/turn_1_....json`",
    "`.massmem/massmem_logs/...`",
    "the same places below it",
)
@seed(
    "the debug file: `timestamp`, `agent_id`, `session_id`, `turn`, `metadata`, `messages_sent`, `facts_extracted`, "
    "`extraction_count`"
)
def test_debug_files_and_log_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    fact = "Deploys of Falcon happen on Thursdays."
    with extraction_server(facts_reply(fact)) as url:
        llm = {"provider": "openai", "model": "m", "api_key": "x", "base_url": url}
        memory = {
            "persistent_memory": {"llm": llm, "embedding": {"model": "none"}},
            "retrieval": {"limit": 5, "exclude_recent": False},
        }
        team = write_team(
            tmp_path, script(["Falcon deploys on Thursdays."] * 2), script("On Thursdays."), memory=memory
        )
        for question in ("When does Falcon deploy?", "Falcon: which day is the deploy?"):
            resume = ["--continue"] if "which" in question else []
            assert call_massmem("--debug", "--config", team, *resume, question).returncode == 0
    dump = read_dumps(tmp_path, "turn_1_*")["a"]
    assert dump.keys() >= {
        "timestamp", "agent_id", "session_id", "turn", "metadata", "messages_sent", "facts_extracted",
        "extraction_count", "reason",
    }  # fmt: skip
    assert dump["metadata"].keys() == {"tools_used", "has_tools", "message_count"}
    assert dump["facts_extracted"][0].keys() == {"id", "memory", "event"}
    assert (dump["facts_extracted"][0]["memory"], dump["model"]) == (fact, "openai/m")
    assert dump["memories"], "what is remembered of the messages word for word"
    text = "".join(path.read_text() for path in sorted(tmp_path.rglob("massmem.log")))
    for line in (
        r"a: Context Window \(Turn 1\): [\d,]+ / [\d,]+ tokens \(\d+%\) \[API actual\]",
        r"Searching memories \(agent=a, session=session_\w+, turn=2, limit=5\)",
        r"Recording facts \(agent=a, session=session_\w+, turn=1\): \d message\(s\), combined content length: \d+",
        r"Extracted 1 fact\(s\) \(agent=\w, session=",
        r"Found \d memories \(agent=a, \d of winners, ",
        r"No relevant memories found \(agent=",
    ):
        assert re.search(line, text), line


def read_dumps(folder: Path, pattern: str) -> dict[str, dict[str, Any]]:
    paths = sorted(folder.rglob(f"memory_debug/*/{pattern}.json"))
    return {path.parent.name: json.loads(path.read_text()) for path in paths}


@seed(
    "debugging 0 facts: what was sent",
    "the same, and `reason` says why there are none",
    "`no llm that can extract is configured`, or the provider's error",
)
def test_reasons_in_debug_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for llm, reason in (
        (None, "no llm that can extract is configured"),
        ({"provider": "openai", "model": "m", "api_key": "x", "base_url": "http://127.0.0.1:9/v1"}, "127.0.0.1"),
    ):
        folder = tmp_path / str(reason == "127.0.0.1") / str(llm is None)
        folder.mkdir(parents=True)
        monkeypatch.chdir(folder)
        memory = {"persistent_memory": {"embedding": {"model": "none"}, **({"llm": llm} if llm else {})}}
        team = write_team(folder, script("Falcon deploys on Thursdays."), memory=memory)
        assert call_massmem("--debug", "--config", team, "When does Falcon deploy?").returncode == 0
        dump = read_dumps(folder, "turn_1_*")["a"]
        assert dump["messages_sent"][0]["content"] == "When does Falcon deploy?"
        assert (dump["facts_extracted"], dump["extraction_count"]) == ([], 0)
        assert reason in dump["reason"]


@seed("`docker-compose -f docker-compose.qdrant.yml up -d`")
@seed("`./scripts/cleanup_qdrant_lock.sh`")
@seed("`uv run python scripts/test_memory_setup.py`: TEST 1 to 5")
@seed(
    "`curl http://localhost:6333/health`",
    "`curl http://localhost:6333/healthz`",
    "Qdrant has renamed it; `massmem doctor` asks it",
)
@seed(
    "`MASSGEN_UNIVERSAL_FACT_EXTRACTION_PROMPT`",
    "`massmem/memory/extraction/prompts.py`",
    "the prompt of the extraction",
)
def test_files_of_the_checkout() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.qdrant.yml").read_text())["services"]
    assert any("6333" in str(service.get("ports")) for service in services.values())
    clean = subprocess.run([ROOT / "scripts" / "cleanup_qdrant_lock.sh"], capture_output=True, timeout=60, check=True)
    assert b"there is no index" in clean.stderr
    assert (ROOT / "massmem" / "memory" / "extraction" / "prompts.py").exists()
    assert (ROOT / "scripts" / "test_memory_setup.py").exists()


@seed(
    "`⚠️ OPENAI_API_KEY not found in environment`",
    "`OPENAI_API_KEY is not set`, and what to do",
    "before anything is paid",
)
@seed("`.env` with `OPENAI_API_KEY=sk-proj-...`")
def test_missing_key(tmp_path: Path, home: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(json.dumps({"agents": [{"id": "a", "backend": {"type": "openai", "model": "gpt-4o-mini"}}]}))
    ran = call_massmem("--config", str(path), "Hello?", cwd=tmp_path)
    assert (ran.returncode != 0, b"OPENAI_API_KEY is not set" in ran.stderr) == (True, True)
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-proj-0123456789abcdef\n")
    ran = call_massmem("config", "validate", str(path), cwd=tmp_path)
    assert ran.returncode == 0
