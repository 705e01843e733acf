from pathlib import Path

import pytest

from massmem.config.load import load_config, resolve_agents
from massmem.config.models import TeamConfig
from tests.support.configs import problems


def load(folder: Path, text: str, environ: dict[str, str] | None = None) -> tuple[TeamConfig, list[str]]:
    path = folder / "team.yaml"
    path.write_text(text)
    team, warnings = load_config(path, environ or {})
    return team, [warning.replace(f"{folder}/", "") for warning in warnings]


MASSGEN = """\
agents:
  - id: gpt
    backend:
      type: openai
      model: gpt-5-mini
      text: {verbosity: medium}
      reasoning: {effort: medium, summary: auto}
      enable_web_search: true
      enable_code_interpreter: true
      cwd: workspace1
      custom_tools: [{name: [x], path: y}]
    system_message: You check facts.
  - id: claude
    backend:
      type: claude
      model: claude-sonnet-4-5
      command_line_execution_mode: docker
      cwd: workspace2
memory:
  enabled: true
  conversation_memory: {enabled: true}
  persistent_memory:
    enabled: true
    on_disk: true
    session_name: research
    vector_store: qdrant
    llm: {provider: openai, model: gpt-4.1-nano-2025-04-14}
    embedding: {provider: openai, model: text-embedding-3-small}
    qdrant: {mode: server, host: localhost, port: 6333}
  compression: {trigger_threshold: 0.75, target_ratio: 0.40}
  retrieval: {limit: 10, exclude_recent: true}
  recording: {record_all_tool_calls: true, record_reasoning: true}
orchestrator:
  snapshot_storage: snapshots
  agent_temporary_workspace: temp
  voting_sensitivity: balanced
  max_new_answers_per_agent: 2
  context_paths: [{path: "${NOT_NEEDED}", permission: read}]
  coordination:
    enable_planning_mode: true
    compression_target_ratio: 0.3
timeout_settings:
  orchestrator_timeout_seconds: 90
ui:
  display_type: rich_terminal
  logging_enabled: true
"""


def test_a_file_with_everything(tmp_path: Path) -> None:
    team, warnings = load(tmp_path, MASSGEN)
    assert [agent.backend.type for agent in team.agents] == ["openai", "anthropic"]
    assert team.agents[0].system_message == "You check facts."
    assert team.memory.persistent_memory.session_name == "research"
    assert team.memory.persistent_memory.qdrant.mode == "server"
    assert team.memory.retrieval.limit == 10
    assert team.target_ratio == 0.40
    # Two answers of each agent, and a last round for votes.
    assert (team.coordination.max_rounds, team.coordination.timeout) == (3, 90)
    assert team.coordination.compression_target_ratio == 0.3
    assert warnings == [
        "team.yaml: keys of MassGen that mean nothing here are ignored: "
        "agents.*.backend.command_line_execution_mode, agents.*.backend.custom_tools, agents.*.backend.cwd, "
        "agents.*.backend.enable_code_interpreter, agents.*.backend.enable_web_search, agents.*.backend.reasoning, "
        "agents.*.backend.text, memory.persistent_memory.vector_store, orchestrator.agent_temporary_workspace, "
        "orchestrator.context_paths, orchestrator.coordination.enable_planning_mode, orchestrator.snapshot_storage, "
        "orchestrator.voting_sensitivity, ui"
    ]


def test_own_keys_win_over_massgens(tmp_path: Path) -> None:
    text = MASSGEN + "coordination: {max_rounds: 5, timeout: 7}\n"
    team, _ = load(tmp_path, text)
    assert (team.coordination.max_rounds, team.coordination.timeout) == (5, 7)


def test_a_wrong_value_is_named_where_it_was_written(tmp_path: Path) -> None:
    text = MASSGEN.replace("seconds: 90", "seconds: soon").replace("ratio: 0.3", "ratio: 3")
    assert problems(tmp_path, text) == [
        "team.yaml:41: orchestrator.coordination.compression_target_ratio: must be less than 1, not 3",
        "team.yaml:43: timeout_settings.orchestrator_timeout_seconds: must be a number, not 'soon'",
    ]


@pytest.mark.parametrize(
    ("backend", "kind", "base_url"),
    [
        ("type: claude", "anthropic", None),
        ("type: Gemini", "gemini", None),
        ("type: grok, model: grok-4", "grok", None),
        ("type: lmstudio, model: x", "lmstudio", None),
        ("type: sglang, model: x", "vllm", "http://localhost:30000/v1"),
        ("type: inference, model: x, base_url: 'http://h:1/v1'", "vllm", "http://h:1/v1"),
        ("type: chatcompletion, model: x", "openai", None),
        ("type: chatcompletion, model: x, base_url: 'https://me.example/v1'", "openai", "https://me.example/v1"),
        ("type: chatcompletion, model: x, base_url: 'https://api.cerebras.ai/v1'", "cerebras", "https://api.cerebras.ai/v1"),
        ("type: chatcompletion, model: x, base_url: 'https://notgroq.com/v1'", "openai", "https://notgroq.com/v1"),
    ],
)  # fmt: skip
def test_types(tmp_path: Path, backend: str, kind: str, base_url: str | None) -> None:
    team, _ = load(tmp_path, f"agent: {{id: a, backend: {{{backend}}}}}\n")
    assert (team.agents[0].backend.type, team.agents[0].backend.base_url) == (kind, base_url)


@pytest.mark.parametrize("backend", ["type: zai", "type: chatcompletion, base_url: 'https://api.z.ai/api/paas/v4'"])
def test_a_service_gets_its_own_key_and_never_another(tmp_path: Path, backend: str) -> None:
    text = f"agent:\n  id: a\n  backend: {{model: glm-4.5, {backend}}}\n"
    team, _ = load(tmp_path, text, {"ZAI_API_KEY": "zai-key", "OPENAI_API_KEY": "openai-key"})
    key = team.agents[0].backend.api_key
    assert (team.agents[0].backend.type, team.agents[0].backend.base_url) == ("openai", "https://api.z.ai/api/paas/v4")
    assert key is not None
    assert key.get_secret_value() == "zai-key"
    assert problems(tmp_path, text, {"OPENAI_API_KEY": "openai-key"}) == [
        "team.yaml:3: agent.backend.type: ZAI_API_KEY is not set (set it: export ZAI_API_KEY=..., or a line "
        "ZAI_API_KEY=... in .env)"
    ]


def test_types_that_cannot_run_here_are_the_only_problem(tmp_path: Path) -> None:
    text = """\
agents:
  - id: a
    backend: {type: claude_code, permission_mode: acceptEdits, model: x, api_key: k}
  - id: b
    backend: {type: ag2, agent_config: {}}
"""
    assert problems(tmp_path, text) == [
        "team.yaml:3: agents.0.backend.type: 'claude_code' runs the Claude Code program, which is no model endpoint; "
        "use type: anthropic",
        "team.yaml:5: agents.1.backend.type: 'ag2' runs agents of the AG2 framework; give each of them as an agent "
        "with its own backend",
    ]


def test_agent_and_agents(tmp_path: Path) -> None:
    text = "agents: [{id: a, backend: {type: scripted}}]\nagent: {id: b, backend: {type: scripted}}\n"
    assert problems(tmp_path, text) == [
        "team.yaml:2: agent: give either agent or agents, not both (agents is on line 1)"
    ]


def test_tool_servers_move_from_the_backend_to_the_agent(tmp_path: Path) -> None:
    text = """\
agent:
  id: a
  backend:
    type: openai
    cwd: workspace
    mcp_servers:
      weather: {type: stdio, command: npx, args: [-y, "--dir=${cwd}/x"], security: {level: high}}
      web: {type: streamable-http, url: "https://h/mcp", exclude_tools: [post]}
    exclude_tools: [mcp__weather__delete, other]
"""
    team, warnings = load(tmp_path, text)
    weather, web = resolve_agents(team, {})[0].mcp_servers
    assert (weather.name, weather.command, weather.args) == ("weather", "npx", ("-y", "--dir=workspace/x"))
    assert weather.deny == ("delete", "other")
    assert (web.name, web.url, web.deny) == ("web", "https://h/mcp", ("post", "mcp__weather__delete", "other"))
    assert "agent.backend.mcp_servers.weather.security" in warnings[0]
    assert "exclude_tools" not in warnings[0]
    wrong = text.replace("command: npx", "comand: npx")
    assert problems(tmp_path, wrong) == [
        "team.yaml:7: agent.backend.mcp_servers.weather.comand: unknown key (did you mean 'command'?)",
    ]


def test_a_plain_file_has_no_warning(tmp_path: Path) -> None:
    assert load(tmp_path, "agent: {id: a, backend: {type: scripted}}\n")[1] == []
