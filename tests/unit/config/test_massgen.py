import re
from pathlib import Path

import pytest

from massmem.config.load import load_config, resolve_agents
from massmem.config.models import TeamConfig
from massmem.core.errors import ConfigError
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
      text: {verbosity: low}
      top_p: 0.7
      reasoning: {effort: medium, summary: auto}
      enable_web_search: false
      enable_code_interpreter: true
      custom_tools: []
      upload_files: [{image_path: a.png}, {file_path: "https://x.org/b.pdf"}]
      cwd: workspace1
    system_message: You check facts.
    append_system_prompt: Be brief.
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
  skip_final_presentation: true
  context_paths: []
  dspy: {enabled: false, num_variants: 3}
  coordination:
    broadcast: human
    enable_planning_mode: false
    compression_target_ratio: 0.3
timeout_settings:
  orchestrator_timeout_seconds: 90
ui:
  display_type: rich_terminal
  logging_enabled: true
"""


def test_a_file_with_everything(tmp_path: Path) -> None:
    team, warnings = load(tmp_path, MASSGEN)
    gpt = team.agents[0]
    assert [agent.backend.type for agent in team.agents] == ["openai", "anthropic"]
    assert gpt.system_message == "You check facts.\n\nBe brief."
    assert (gpt.backend.effort, gpt.backend.code_execution) == ("medium", True)
    assert gpt.backend.extra_body == {"text": {"verbosity": "low"}, "top_p": 0.7}
    assert team.memory.persistent_memory.session_name == "research"
    assert team.memory.persistent_memory.qdrant.mode == "server"
    assert team.memory.retrieval.limit == 10
    assert team.memory.compression.target_ratio == 0.40
    assert team.files.attached == ("a.png", "https://x.org/b.pdf")
    # Two answers of each agent, and a last round for votes.
    assert (team.coordination.max_rounds, team.coordination.timeout) == (3, 90)
    assert (team.coordination.presentation, team.coordination.ask_user) == ("as_is", True)
    # What asks for nothing is passed over.
    assert warnings == [
        "team.yaml: keys of MassGen that mean nothing here are ignored: "
        "agents.*.backend.command_line_execution_mode, agents.*.backend.cwd, memory.persistent_memory.vector_store, "
        "orchestrator.agent_temporary_workspace, orchestrator.snapshot_storage, orchestrator.voting_sensitivity, ui"
    ]


LACKING = """\
agents:
  - id: coder
    backend: {type: antigravity_cli, permission_mode: plan, model: x, api_key: "${NOT_SET}"}
  - id: a
    backend:
      type: chatcompletion
      base_url: http://localhost:1/v1
      model: ${NOT_SET:-m}
      custom_tools: [{name: [x]}]
      enable_web_search: true
      auto_discover_custom_tools: true
  - id: b
    backend: {type: scripted, custom_tools: [{name: [y]}], reasoning: {budget: 5}}
orchestrator:
  coordination: {enable_planning_mode: true, broadcast: agents, of_a_later_release: 1}
"""


def test_capabilities_that_are_missing_are_problems_or_left_out_and_named(tmp_path: Path) -> None:
    missing = {
        3: ("agents.0.backend.type", "the program Antigravity as an agent"),
        9: ("agents.1.backend.custom_tools", "Python tools of its own"),
        10: ("agents.1.backend.enable_web_search", "a web search of this provider"),
        13: ("agents.2.backend.reasoning.budget", "a setting of MassGen that massmem does not know"),
        15: ("orchestrator.coordination.enable_planning_mode", "tools that run at the end only"),
    }
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, LACKING)
    assert caught.value.exit_code == 2
    assert "allow_missing: true" in caught.value.hint
    text = str(caught.value).replace(f"{tmp_path}/", "")
    for line, (key, what) in missing.items():
        assert f"team.yaml:{line}: {key}: missing here: {what}; instead: " in text
    assert "of_a_later_release" in text
    assert "NOT_SET" not in text
    for team, warnings in (
        load(tmp_path, LACKING, {"MASSMEM_ALLOW_MISSING": "1"}),
        load(tmp_path, f"{LACKING}allow_missing: true\n"),
    ):
        assert [agent.id for agent in team.agents] == ["a", "b"]
        shown = "\n".join(warnings)
        for line, (key, what) in missing.items():
            name = re.sub("[.][0-9]", ".*", key)
            assert f"team.yaml:{line}: {name}: left out, missing here: {what}" in shown
        assert "Python tools of its own, and 1 more like it" in shown


def test_other_problems_stand_where_they_were_written_when_an_agent_is_left_out(tmp_path: Path) -> None:
    text = LACKING.replace("type: scripted", "type: scriptet") + "allow_missing: true\n"
    assert problems(tmp_path, text)[0].startswith("team.yaml:13: agents.2.backend.type: 'scriptet' is not one of")


def test_a_council_of_programs_alone_is_an_error_even_then(tmp_path: Path) -> None:
    text = "allow_missing: true\nagents: [{id: a, backend: {type: uitars}}, {id: b, backend: {type: ag2}}]\n"
    assert problems(tmp_path, text) == ["team.yaml:2: agents: no agent is left: massmem runs none of these programs"]


def test_context_paths_are_folders_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    (tmp_path / "one.txt").write_text("1")
    paths = "[{path: src, permission: write}, {path: one.txt, permission: read}]"
    text = f"agent: {{id: a, backend: {{type: scripted}}}}\norchestrator: {{context_paths: {paths}}}\n"
    assert [problem.split("; instead")[0] for problem in problems(tmp_path, text)] == [
        "team.yaml:2: orchestrator.context_paths.0.permission: missing here: writing files",
        "team.yaml:2: orchestrator.context_paths.1.path: missing here: single files",
    ]
    team, _ = load(tmp_path, text, {"MASSMEM_ALLOW_MISSING": "1"})
    assert [folder.path for folder in team.files.folders] == [str(tmp_path / "src")]


def test_own_keys_win_over_massgens(tmp_path: Path) -> None:
    text = MASSGEN + "coordination: {max_rounds: 5, timeout: 7}\n"
    team, _ = load(tmp_path, text)
    assert (team.coordination.max_rounds, team.coordination.timeout) == (5, 7)


def test_a_wrong_value_is_named_where_it_was_written(tmp_path: Path) -> None:
    text = (
        MASSGEN.replace("seconds: 90", "seconds: soon")
        .replace("ratio: 0.3", "ratio: 3")
        .replace(", target_ratio: 0.40", "")
    )
    assert problems(tmp_path, text) == [
        "team.yaml:47: orchestrator.coordination.compression_target_ratio: must be less than 1, not 3",
        "team.yaml:49: timeout_settings.orchestrator_timeout_seconds: must be a number, not 'soon'",
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


PROGRAMS = """\
agents:
  - {id: a, backend: {type: claude_code, cwd: work, temperature: 0.5, api_key: x, context_paths: [{path: src}]}}
  - {id: b, backend: {type: codex, model: gpt-5, enable_web_search: true, max_tokens: 100}}
  - {id: c, backend: {type: gemini_cli}}
  - {id: d, backend: {type: copilot}}
"""


def test_programs_of_massgen_are_agent_programs_here(tmp_path: Path) -> None:
    team, _ = load(tmp_path, PROGRAMS)
    backends = [agent.backend for agent in team.agents]
    assert [backend.type for backend in backends] == ["claude-code", "codex", "gemini-cli", "copilot"]
    assert backends[1].model == "gpt-5"
    assert all(backend.is_program and backend.api_key is None for backend in backends)


def test_roles_and_tools_of_programs(tmp_path: Path) -> None:
    servers = "mcp_servers: [{name: t, command: python3}]"
    tools = "allowed_tools: [Read, mcp__t__echo], disallowed_tools: [Bash]"
    prompts = "system_prompt: Be brief., append_system_prompt: Be kind."
    text = f"agent: {{id: a, backend: {{type: claude_code, {servers}, {tools}, {prompts}, max_thinking_tokens: 9}}}}\n"
    team, warnings = load(tmp_path, text)
    (agent,) = team.agents
    assert agent.system_message == "Be brief.\n\nBe kind."
    assert [(server.allow, server.deny) for server in agent.mcp_servers] == [(("echo",), ())]
    for key in ("allowed_tools", "disallowed_tools", "max_thinking_tokens"):
        assert key in warnings[0]
