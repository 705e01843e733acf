"""Translate MassGen's configurations into the shape of `massmem.config.models`.

`KEYS` says what becomes of each key: it works here, means nothing here, or asks for something that is missing here.
What is missing is a problem of the file, unless the user wants to go on without it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from massmem.config.models import MAX_SERVERS
from massmem.config.presets import PRESETS, PROGRAM_TYPES
from massmem.config.web_search import SEARCHES
from massmem.config.yaml import KeyPath, Report, format_path, how_to_set
from massmem.core.text import trim_value

BACKEND_WORDS = {
    "claude": "anthropic",
    "azure": "azure_openai",
    "chatcompletion": "openai",
    "google": "gemini",
    "xai": "grok",
    "inference": "vllm",
    "sglang": "vllm",
    "claude_code": "claude-code",
    "gemini_cli": "gemini-cli",
}


def _end_of(address: str) -> str:
    """Return the last two parts of the host."""
    return ".".join((urlsplit(address).hostname or "").split(".")[-2:])


# Services with the OpenAI protocol and no type of their own: the address, and the variable that holds the key.
SERVICES = {
    "zai": ("https://api.z.ai/api/paas/v4", "ZAI_API_KEY"),
    "moonshot": ("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nebius": ("https://api.studio.nebius.ai/v1", "NEBIUS_API_KEY"),
    "nvidia_nim": ("https://integrate.api.nvidia.com/v1", "NGC_API_KEY"),
    "poe": ("https://api.poe.com/v1", "POE_API_KEY"),
    "qwen": ("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "QWEN_API_KEY"),
}
_MORE_HOSTS = {"bigmodel.cn": "zai", "moonshot.cn": "moonshot", "nebius.com": "nebius"}
# The host of base_url says which service `chatcompletion` means, and so which key it needs.
HOSTS = {
    **{
        _end_of(preset.base_url): name
        for name, preset in PRESETS.items()
        if preset.kind == "openai" and preset.needs_key and preset.base_url
    },
    **{host: name for name, preset in PRESETS.items() for host in preset.hosts},
    **{_end_of(address): name for name, (address, _) in SERVICES.items()},
    **_MORE_HOSTS,
}
PROGRAMS = {
    "antigravity_cli": ("the program Antigravity as an agent", "type: gemini"),
    "ag2": ("agents of the framework AG2", "give each of them as an agent with its own backend"),
    "uitars": ("UI-TARS, a model that works a screen", "an agent with another model"),
}
"""Types of backends that are no models: what they are, and what to do instead."""

Kind = Literal["works", "nothing", "missing"]


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of some keys of MassGen's files."""

    kind: Kind
    section: str
    """Where they stand: "" for the top of the file, agent, backend, server, orchestrator, coordination, or timeouts."""
    keys: str
    """Between blanks; `*` stands for any characters."""
    meaning: str
    """Works: the key here. Nothing: why. Missing: what it asks for."""
    instead: str = ""
    """Missing: what to do instead."""


_OWN_TOOLS = ("Python tools of its own", "offer them by an MCP server (mcp_servers)")
_COMMANDS = ("running commands", "a tool server for commands (mcp_servers), in a container of its own")
_MEDIA = ("making and understanding of media by tools", "show pictures with --image; a tool server (mcp_servers)")
_SUBAGENTS = ("agents that start agents", "add agents to the team")
_PREPARED = ("prompts that a model writes before the agents begin", "write them into the system_message of each agent")
_SKILLS = ("skills, which agents read by commands", "write what matters into system_message, or give it with --file")
_OWN_SETTING = Row("nothing", "backend", "", "agent programs have settings of their own")
_OF_PROGRAMS = frozenset({
    "type", "model", "command", "folder", "allow", "sandbox", "timeout", "deadline", "context_window", "price",
    "fallback", "script", "api", "thinking_tokens",
})  # fmt: skip
"""Keys of backends that stay: of agent programs, and those that MassGen does not know, which are a mistake there."""
_UNKNOWN = ("a setting of MassGen that massmem does not know", "leave it out")

KEYS: tuple[Row, ...] = (
    Row("works", "", "agent agents memory", "the same"),
    Row("works", "", "timeout_settings timeout", "`coordination.timeout`"),
    Row("nothing", "", "ui display streaming_display logging", "massmem has its own display and logs"),
    Row("nothing", "", "rate_limits cwd nlip", "how it runs agents"),
    Row("nothing", "", "task", "the question is given on the command line"),
    Row("missing", "", "hooks", "code around each call of a tool", "coordination.confirm, mcp_servers[].deny"),
    Row("works", "agent", "id backend system_message mcp_servers", "the same"),
    Row("works", "agent", "append_system_prompt", "the end of `system_message`"),
    Row("nothing", "agent", "cwd enable_nlip nlip", "how it runs agents"),
    Row("nothing", "agent", "voting_sensitivity voting_threshold", "how it votes"),
    Row("missing", "agent", "subtask", "a part of the task for one agent", "say it in its system_message"),
    Row("missing", "agent", "subagent_agents", *_SUBAGENTS),
    Row("works", "backend", "type model base_url api_key temperature max_tokens", "the same"),
    Row("works", "backend", "mcp_servers", "`agents[].mcp_servers`"),
    Row("works", "backend", "system_prompt append_system_prompt", "`system_message`, of agent programs"),
    Row("works", "backend", "enable_web_search", "`web_search`, where the provider searches"),
    Row("works", "backend", "enable_code_interpreter enable_code_execution", "`code_execution`, where it is hosted"),
    Row("works", "backend", "context_paths", "`agents[].folders`, to read"),
    Row("works", "backend", "reasoning", "`effort`; its summary is asked for anyway"),
    Row("works", "backend", "text top_p top_k chat_template_kwargs extra_body", "`extra_body`, but for Claude"),
    Row("works", "backend", "allowed_tools exclude_tools disallowed_tools", "`mcp_servers[].allow` and `deny`"),
    Row("nothing", "backend", "cwd agent_temporary_workspace* session_storage_base", "agents have no workspace"),
    Row("nothing", "backend", "exclude_file_operation_mcps enforce_read_before_delete", "agents write no files"),
    Row("nothing", "backend", "exclude_custom_tools shared_tools_directory direct_mcp_servers", "tools are servers"),
    Row("nothing", "backend", "use_mcpwrapped_for_tool_filtering use_no_roots_wrapper", "tools are MCP servers"),
    Row("nothing", "backend", "concurrent_tool_execution max_concurrent_tools parallel_tool_calls", "they run at once"),
    Row("nothing", "backend", "enable_tool_search tool_search_variant", "every tool is shown"),
    Row("nothing", "backend", "websocket_mode enable_rate_limit instance_id", "how requests are sent"),
    Row("nothing", "backend", "enable_nlip nlip* debug_delay_*", "how it runs agents"),
    Row("nothing", "backend", "voting_sensitivity voting_threshold", "how it votes"),
    Row("missing", "backend", "custom_tools custom_tools_path auto_discover_custom_tools", *_OWN_TOOLS),
    Row("missing", "backend", "enable_mcp_command_line enable_code_based_tools", *_COMMANDS),
    Row("nothing", "backend", "command_line_*", "settings of commands"),
    Row("missing", "backend", "enable_*_generation enable_multimodal_tools", *_MEDIA),
    Row("nothing", "backend", "*_generation_backend *_generation_model multimodal_config", "settings of media tools"),
    Row("works", "backend", "upload_files", "`files.attached`, for all agents; missing: sound and films"),
    Row("missing", "backend", "permissions permission_mode", "rules for tools", "allow and deny at mcp_servers"),
    Row("missing", "backend", "hooks", "code around each call of a tool", "coordination.confirm, mcp_servers[].deny"),
    Row("missing", "backend", "output_schema", "the form of answers", "give it with the question: --schema FILE"),
    Row("missing", "backend", "betas", "features in testing of the Claude API", "leave it out"),
    Row("missing", "backend", "enable_programmatic_flow", "programs that call tools", "agents call tools one by one"),
    Row("missing", "backend", "enable_strict_tool_use", "checks of arguments", "the tool server checks them"),
    Row("missing", "backend", "agent_config group_config", "agents of AG2", "an agent with its own backend for each"),
    Row("missing", "backend", "context_write_access_enabled", "writing files", "agents say what to change"),
    Row("missing", "backend", "vote_only", "agents that only vote", "leave them out: all agents answer and vote"),
    Row("missing", "backend", "enable_*", *_UNKNOWN),
    Row("works", "server", "name command args env url headers type timeout", "the same"),
    Row("works", "server", "allowed_tools exclude_tools", "`allow` and `deny`"),
    Row("nothing", "server", "security description cwd defer_loading", "how MassGen runs tool servers"),
    Row("works", "orchestrator", "coordination", "`coordination`"),
    Row("works", "orchestrator", "context_paths", "`files.folders`, to read"),
    Row("works", "orchestrator", "max_new_answers_per_agent", "`coordination.max_rounds`, with a round more for votes"),
    Row("works", "orchestrator", "skip_final_presentation", "`coordination.presentation: as_is`"),
    Row("works", "orchestrator", "skip_coordination_rounds", "`coordination.max_rounds: 1`"),
    Row("works", "orchestrator", "final_answer_strategy", "`coordination.presentation`"),
    Row("works", "orchestrator", "timeout", "`coordination.timeout`"),
    Row("nothing", "orchestrator", "snapshot_storage agent_temporary_workspace docker", "agents have no workspace"),
    Row("nothing", "orchestrator", "voting_sensitivity voting_threshold answer_novelty_requirement", "how it votes"),
    Row("nothing", "orchestrator", "fairness_* max_new_answers_global *checklist* gap_report_mode", "how it votes"),
    Row("nothing", "orchestrator", "defer_* max_midstream_* disable_injection", "answers are read between rounds"),
    Row("nothing", "orchestrator", "max_orchestration_restarts max_turns type debug_final_answer", "how it votes"),
    Row("nothing", "orchestrator", "enable_nlip nlip* interactive_mode", "how it runs agents"),
    Row("missing", "orchestrator", "enable_multimodal_tools", *_MEDIA),
    Row("nothing", "orchestrator", "multimodal_config *_generation_backend", "settings of media tools"),
    Row("missing", "orchestrator", "dspy", *_PREPARED),
    Row("nothing", "orchestrator", "skills_directory", "a setting of skills"),
    Row("missing", "orchestrator", "coordination_mode presenter_agent", "splitting the task", "all agents answer"),
    Row("missing", "orchestrator", "skip_voting", "answers without votes", "coordination.max_rounds: 1"),
    Row("works", "coordination", "max_rounds", "`coordination`"),
    Row("works", "coordination", "compression_target_ratio", "`memory.compression.target_ratio`"),
    Row("works", "coordination", "broadcast", "`coordination.ask_user`, for `human`; missing for `agents`"),
    Row("missing", "coordination", "enable_planning_mode", "tools that run at the end only",
        "deny the tools that change something (mcp_servers[].deny), or coordination.confirm"),
    Row("missing", "coordination", "enable_subagents background_subagents subagent_orchestrator", *_SUBAGENTS),
    Row("missing", "coordination", "*managed_round_evaluator enable_*_analyzer auto_trace_analysis", *_SUBAGENTS),
    Row("missing", "coordination", "persona_generator evaluation_criteria_generator prompt_improver", *_PREPARED),
    Row("missing", "coordination", "task_decomposer enable_evaluator_personas", *_PREPARED),
    Row("missing", "coordination", "use_skills massgen_skills load_previous_session_skills", *_SKILLS),
    Row("missing", "coordination", "*checkpoint*", "teams that check the work of an agent", "coordination.confirm"),
    Row("missing", "coordination", "resume_from_log", "a session of MassGen", "massmem import .massgen/sessions"),
    Row("missing", "coordination", "web_review", "reviews in a browser", "massmem ui"),
    Row("nothing", "coordination", "skills_directory subagent_* *round_evaluator* planning_*", "of what is missing"),
    Row("nothing", "coordination", "broadcast_* max_broadcasts_per_agent response_depth", "settings of `broadcast`"),
    Row("nothing", "coordination", "enable_agent_task_planning max_tasks_per_plan plan_*", "a journal is kept"),
    Row("nothing", "coordination", "task_planning_* learning_capture_mode disable_final_only_*", "a journal is kept"),
    Row("nothing", "coordination", "enable_memory_filesystem_mode", "memory is kept without files"),
    Row("nothing", "coordination", "write_mode drift_conflict_policy use_two_tier_workspace", "no workspace"),
    Row("nothing", "coordination", "enable_changedoc skip_redundant_scaffolding", "no workspace"),
    Row("nothing", "coordination", "max_orchestration_restarts fast_iteration_mode", "how it votes"),
    Row("nothing", "coordination", "max_verifications_per_round max_internal_fix_loops", "how it votes"),
    Row("nothing", "coordination", "*criteria* checklist_* bootstrap_* pre_collab_voting_threshold", "how it votes"),
    Row("nothing", "coordination", "improvements novelty_injection *_on_iteration", "how it votes"),
    Row("works", "timeouts", "orchestrator_timeout_seconds", "`coordination.timeout`"),
    Row("nothing", "timeouts", "*_round_timeout_seconds round_timeout_grace_seconds", "a turn has one limit of time"),
)  # fmt: skip
"""The first row that has a key counts."""

_OFF = ("", "none", "null", "off", "false", "voting")
"""Words that ask for nothing."""
_SPECIFIC = ("orchestrator", "coordination", "timeouts")
"""Sections that only MassGen has: a key that no row has is missing, too."""
_FIELDS = {"text", "top_p", "top_k", "chat_template_kwargs"}
_TOOL_FILTERS = {"allowed_tools": "allow", "exclude_tools": "deny", "disallowed_tools": "deny"}
_TRANSPORTS = ("stdio", "sse", "http", "streamable-http", "streamable_http")
_COORDINATION = {
    "max_new_answers_per_agent": "max_rounds",
    "skip_coordination_rounds": "max_rounds",
    "skip_final_presentation": "presentation",
    "final_answer_strategy": "presentation",
    "orchestrator_timeout_seconds": "timeout",
    "broadcast": "ask_user",
    "compression_target_ratio": "target_ratio",
}
"""Other names of keys of `coordination`, and of one of `memory.compression`."""
_VALUES: Mapping[str, Mapping[str, Any]] = {
    "skip_coordination_rounds": {"true": 1},
    "skip_final_presentation": {"true": "as_is"},
    "final_answer_strategy": {"winner_reuse": "as_is", "winner_present": "synthesize"},
    "broadcast": {"human": True},
}
_WRITING = Row("missing", "", "", "writing files", "permission: read; agents say in the answer what to change")
_MEDIA_FILES = Row("missing", "", "", "sound and films", "give what is said as text")
_VECTOR_STORE = Row("nothing", "", "", "memory.persistent_memory.qdrant")
_HOSTED = (
    ("enable_web_search", "web_search", tuple(SEARCHES),
     Row("missing", "", "", "a web search of this provider", "an MCP server that searches (mcp_servers)")),
    *((key, "code_execution", ("openai", "anthropic", "gemini"),
       Row("missing", "", "", "running code at this provider", "an MCP server that runs code (mcp_servers)"))
      for key in ("enable_code_interpreter", "enable_code_execution")),
)  # fmt: skip
"""Key, key here, types whose provider does it on its own machines, and what is missing at others."""

_Mapping = dict[str, Any]


def translate(data: _Mapping, environ: Mapping[str, str], report: Report, *, allow_missing: bool = False) -> list[str]:
    """Change `data`, whose variables are expanded, in place; return warnings, a line each.

    `report` gets the keys that move or are ignored, and the problems. allow_missing: what asks for something that is
    missing here is left out, with a warning, and so are agents that cannot run, if one remains.
    """
    translator = _Translator(environ, report, allow_missing)
    translator.translate(data)
    return translator.list_warnings()


def list_mappings(value: Any, path: KeyPath) -> Iterable[tuple[KeyPath, _Mapping]]:
    if isinstance(value, list):
        for i, part in enumerate(cast("list[Any]", value)):
            if isinstance(part, dict):
                yield (*path, i), cast("_Mapping", part)


def find_row(section: str, key: str) -> Row | None:
    """Return what becomes of a key; None: it is not one of MassGen's."""
    for row in KEYS:
        if row.section == section and any(fnmatchcase(key, word) for word in row.keys.split()):
            return row
    return Row("missing", section, key, *_UNKNOWN) if section in _SPECIFIC else None


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _asks_for_something(value: Any) -> bool:
    if isinstance(value, dict):
        mapping = cast("_Mapping", value)
        return bool(mapping) and mapping.get("enabled", True) is not False
    return value.lower() not in _OFF if isinstance(value, str) else bool(value)


@dataclass(slots=True)
class _Translator:
    """One file on its way."""

    environ: Mapping[str, str]
    report: Report
    allow_missing: bool
    _without_meaning: set[str] = field(default_factory=set[str])
    _left_out: dict[tuple[str, str], list[int]] = field(default_factory=dict[tuple[str, str], list[int]])
    """By key and what it asks for: the lines."""

    def translate(self, data: _Mapping) -> None:
        self._move_agent(data)
        self._remove_programs(data)
        for key, section in {
            "orchestrator": "orchestrator",
            "timeout_settings": "timeouts",
            "timeout": "timeouts",
        }.items():
            if key in data:
                self._move_section(data, data.pop(key), (key,), section)
        self._sort(data, (), "")
        self._translate_memory(data, ())
        for path, agent in list_mappings(data.get("agents"), ("agents",)):
            self._translate_agent(agent, path)
            self._move_uploads(data, agent.get("backend"), (*path, "backend", "upload_files"))

    def list_warnings(self) -> list[str]:
        file, warnings = self.report.file, list[str]()
        for (key, meaning), lines in self._left_out.items():
            more = f", and {len(lines) - 1} more like it" if len(lines) > 1 else ""
            warnings.append(f"{file}:{lines[0]}: {key}: left out, missing here: {meaning}{more}")
        if self._without_meaning:
            names = ", ".join(sorted(self._without_meaning))
            warnings.append(f"{file}: keys of MassGen that mean nothing here are ignored: {names}")
        return warnings

    # One key

    def _sort(self, mapping: _Mapping, path: KeyPath, section: str) -> None:
        """Take out of a section the keys that do not work here."""
        for key in [*mapping]:
            row = find_row(section, key)
            if row is not None and row.kind != "works":
                self._drop((*path, key), mapping.pop(key), row)

    def _drop(self, path: KeyPath, value: Any, row: Row) -> None:
        """Account for a key that was taken out."""
        place = self.report.path_in_file(path)
        name = re.sub(r"\.\d+(?=\.)", ".*", format_path(place))
        if row.kind == "missing" and _asks_for_something(value):
            if not self.allow_missing:
                self.report.add_missing(path, f"missing here: {row.meaning}; instead: {row.instead}")
                return
            self._left_out.setdefault((name, row.meaning), []).append(self.report.find_line(place))
        elif _asks_for_something(value):
            self._without_meaning.add(name)
        self.report.ignored.add(place)

    def _set(self, section: _Mapping, key: str, value: Any, target: KeyPath, path: KeyPath) -> None:
        """Set a key that stands elsewhere in the file, unless it is set."""
        if key not in section:
            section[key] = value
            self.report.moved[*target, key] = path

    # The team

    def _move_agent(self, data: _Mapping) -> None:
        """Make a single `agent` the only one of `agents`."""
        if "agent" not in data:
            return
        agent = data.pop("agent")
        if "agents" in data:
            line = self.report.find_line(("agents",))
            self.report.add(("agent",), f"give either agent or agents, not both (agents is on line {line})")
            return
        data["agents"] = [agent]
        self.report.moved["agents", 0] = ("agent",)

    def _remove_programs(self, data: _Mapping) -> None:
        """Take out agents that are programs."""
        programs: list[int] = []
        for path, agent in list_mappings(data.get("agents"), ("agents",)):
            backend = agent.get("backend")
            kind = str(cast("_Mapping", backend).get("type")).lower() if isinstance(backend, dict) else ""
            if kind not in PROGRAMS:
                continue
            programs.append(cast("int", path[1]))
            place = self.report.path_in_file(path)
            # This problem is enough: what else such an agent has, or lacks, does not matter.
            self.report.problems[:] = [p for p in self.report.problems if p.path[: len(place)] != place]
            self._drop((*path, "backend", "type"), kind, Row("missing", "backend", "type", *PROGRAMS[kind]))
            agent["backend"] = {"type": "local"}
        others = [i for i in range(len(data["agents"])) if i not in programs] if programs else []
        if others:
            self.report.moved.update({("agents", new): ("agents", i) for new, i in enumerate(others) if new != i})
            data["agents"] = [data["agents"][i] for i in others]
        elif programs and self.allow_missing:
            self.report.add(("agents",), "no agent is left: massmem runs none of these programs")

    def _move_section(self, data: _Mapping, section: Any, path: KeyPath, name: str) -> None:
        """Move what works of a section that only MassGen has."""
        if not isinstance(section, dict):
            if section is not None:
                self.report.add(path, "must be a mapping")
            return
        section = cast("_Mapping", section)
        self._sort(section, path, name)
        for key, value in section.items():
            key_path = (*path, key)
            if key == "coordination":
                self._move_section(data, value, key_path, "coordination")
            elif key == "timeout":
                self._move_section(data, value, key_path, "timeouts")
            elif key == "context_paths":
                files = data.setdefault("files", {})
                self._move_folders(files, value, key_path, ("files",))
            else:
                self._move_to_coordination(data, key, value, key_path)

    def _move_to_coordination(self, data: _Mapping, key: str, value: Any, path: KeyPath) -> None:
        target = _COORDINATION.get(key, key)
        if key == "broadcast" and str(value).lower() != "human":
            self._drop(path, value, Row("missing", "coordination", key, "agents that ask each other", "leave it out"))
            return
        if key == "max_new_answers_per_agent" and isinstance(value, int):
            value = min(value + 1, 20)  # that many answers take as many rounds; one more is needed to vote
        elif isinstance(value, bool | str) and key in _VALUES:
            value = _VALUES[key].get(str(value).lower(), value)
        place = ("memory", "compression") if target == "target_ratio" else ("coordination",)
        section: Any = data
        for name in place:
            section = cast("_Mapping", section).setdefault(name, {}) if isinstance(section, dict) else None
        if isinstance(section, dict) and value is not False:
            self._set(cast("_Mapping", section), target, value, place, path)

    def _move_folders(self, owner: Any, value: Any, path: KeyPath, target: KeyPath) -> None:
        """Move the folders that agents may read to `owner`, which stands at `target`."""
        listed = cast("list[Any]", value) if isinstance(value, list) else []
        items = [{"path": item} if isinstance(item, str) else item for item in listed]
        if value is not None and not (isinstance(value, list) and all(isinstance(item, dict) for item in items)):
            self.report.add(path, "must be a list of folders")
            return
        if not items or not isinstance(owner, dict) or "folders" in owner:
            return
        folders: list[Any] = []
        for i, item in enumerate(cast("list[_Mapping]", items)):
            name, place = item.get("path"), (*path, i)
            if isinstance(name, str) and _is_file(name):
                self._drop((*place, "path"), name, Row("missing", "", "", "single files", "its folder, or --file FILE"))
                continue
            if item.get("permission") == "write":
                self._drop((*place, "permission"), "write", _WRITING)
            self.report.moved[*target, "folders", len(folders)] = (*place, "path")
            # MassGen's are relative to the working directory, massmem's to the file.
            folders.append(name if not isinstance(name, str) or name.startswith("~") else str(Path(name).absolute()))
        cast("_Mapping", owner)["folders"] = folders
        self.report.moved[*target, "folders"] = path

    def _move_uploads(self, data: _Mapping, backend: Any, path: KeyPath) -> None:
        """Move the files that come with the question of an agent to those that come with everybody's."""
        if not isinstance(backend, dict) or "upload_files" not in backend:
            return
        files = data.setdefault("files", {})
        present: Any = cast("_Mapping", files).setdefault("attached", []) if isinstance(files, dict) else []
        attached = cast("list[Any]", present) if isinstance(present, list) else []
        items: Any = cast("_Mapping", backend).pop("upload_files")
        listed = cast("list[Any]", items) if isinstance(items, list) else [items]
        if items and not all(isinstance(item, dict) for item in listed):
            self.report.add(path, "must be a list of mappings such as {image_path: FILE} and {file_path: FILE}")
        for item_path, item in list_mappings(listed, path):
            for key, name in item.items():
                if key not in ("image_path", "file_path"):
                    self._drop((*item_path, key), name, _MEDIA_FILES)
                elif name not in attached:
                    self.report.moved["files", "attached", len(attached)] = (*item_path, key)
                    attached.append(name)

    def _translate_memory(self, mapping: _Mapping, path: KeyPath) -> None:
        memory = mapping.get("memory")
        persistent = cast("_Mapping", memory).get("persistent_memory") if isinstance(memory, dict) else None
        if isinstance(persistent, dict) and "vector_store" in persistent:
            place = (*path, "memory", "persistent_memory", "vector_store")
            self._drop(place, cast("_Mapping", persistent).pop("vector_store"), _VECTOR_STORE)

    # An agent

    def _translate_agent(self, agent: _Mapping, path: KeyPath) -> None:
        self._sort(agent, path, "agent")
        self._translate_memory(agent, path)
        if isinstance(more := agent.pop("append_system_prompt", None), str):
            agent["system_message"] = f"{agent.get('system_message') or ''}\n\n{more}".strip()
        backend = agent.get("backend")
        if not isinstance(backend, dict):
            return
        backend = cast("_Mapping", backend)
        backend_path = (*path, "backend")
        self._move_servers(agent, backend, path)
        for server_path, server in list_mappings(agent.get("mcp_servers"), (*path, "mcp_servers")):
            self._translate_server(server, server_path)
        self._move_tool_filters(agent, backend, path)
        _move_role(agent, backend)
        if "context_paths" in backend:
            self._move_folders(agent, backend.pop("context_paths"), (*backend_path, "context_paths"), path)
        self._sort(backend, backend_path, "backend")
        self._move_effort(backend, backend_path)
        self._translate_type(backend, backend_path)
        if _is_program(backend):
            for key in backend.keys() - _OF_PROGRAMS:
                self._drop((*backend_path, key), backend.pop(key), _OWN_SETTING)
        self._move_fields(backend, backend_path)
        for key, target, kinds, missing in _HOSTED:
            if key in backend:
                value, kind = backend.pop(key), backend.get("type")
                is_own = not backend.get("base_url") or kind == _find_service(backend["base_url"]) != "openai"
                if value is True and kind in kinds and is_own:
                    self._set(backend, target, value, backend_path, (*backend_path, key))
                else:
                    self._drop((*backend_path, key), value, missing)

    def _move_effort(self, backend: _Mapping, path: KeyPath) -> None:
        if not isinstance(reasoning := backend.get("reasoning"), dict):
            return
        del backend["reasoning"]
        for name, value in cast("_Mapping", reasoning).items():
            if name == "effort":
                self._set(backend, name, value, path, (*path, "reasoning", name))
            elif name != "summary":
                self._drop((*path, "reasoning", name), value, Row("missing", "", "", *_UNKNOWN))

    def _move_fields(self, backend: _Mapping, path: KeyPath) -> None:
        """Move the fields of a request that massmem has no key for."""
        for key in _FIELDS & backend.keys():
            value = backend.pop(key)
            if backend.get("type") in ("anthropic", "local", "scripted"):
                self._drop((*path, key), value, Row("missing", "", "", "this field of a request", "leave it out"))
            elif isinstance(fields := backend.setdefault("extra_body", {}), dict):
                self._set(cast("_Mapping", fields), key, value, (*path, "extra_body"), (*path, key))

    def _move_servers(self, agent: _Mapping, backend: _Mapping, path: KeyPath) -> None:
        """Move mcp_servers from the backend, where it is a list or a mapping from names, to the agent as a list."""
        if "mcp_servers" in backend:
            place = (*path, "backend", "mcp_servers")
            self._set(agent, "mcp_servers", backend.pop("mcp_servers"), path, place)
        servers = agent.get("mcp_servers")
        if isinstance(servers, dict):
            named = cast("_Mapping", servers)
            agent["mcp_servers"] = [
                {"name": name, **cast("_Mapping", server)} if isinstance(server, dict) else server
                for name, server in named.items()
            ]
            for i, name in enumerate(named):
                self.report.moved[(*path, "mcp_servers", i)] = (*path, "mcp_servers", name)

    def _translate_server(self, server: _Mapping, path: KeyPath) -> None:
        self._sort(server, path, "server")
        if server.get("type") in _TRANSPORTS:
            # command or url says which transport it is.
            del server["type"]
        for key, target in _TOOL_FILTERS.items():
            if key in server:
                self._set(server, target, server.pop(key), path, (*path, key))

    def _move_tool_filters(self, agent: _Mapping, backend: _Mapping, path: KeyPath) -> None:
        """Move a filter in the backend, which is for the tools of all servers, to each server.

        It names tools with or without the prefix of their server; of an agent program, those without are its own.
        """
        for key, target in _TOOL_FILTERS.items():
            tools = backend.get(key)
            if not isinstance(tools, list):
                continue
            del backend[key]
            place = (*path, "backend", key)
            # More servers are refused; without this bound their number times that of the tools would fill the memory.
            servers = [*islice(list_mappings(agent.get("mcp_servers"), (*path, "mcp_servers")), MAX_SERVERS)]
            if _is_program(backend):
                own = [t for t in cast("list[Any]", tools) if not str(t).startswith("mcp__")]
                tools = [t for t in cast("list[Any]", tools) if t not in own]
                self._drop(place, own, _OWN_SETTING)
                if not tools:
                    continue
            if not servers:
                self._drop(place, tools, Row("nothing", "backend", key, "there is no tool"))
            for server_path, server in servers:
                prefix = f"mcp__{server.get('name')}__"
                names = [t.removeprefix(prefix) if isinstance(t, str) else t for t in cast("list[Any]", tools)]
                if target not in server:
                    self._set(server, target, names, server_path, place)
                elif target == "deny" and isinstance(server[target], list):
                    server[target] = [*server[target], *names]

    def _translate_type(self, backend: _Mapping, path: KeyPath) -> None:
        word = backend.get("type")
        if not isinstance(word, str):
            return
        kind = word.lower()
        if kind == "chatcompletion":
            kind = _find_service(backend.get("base_url"))
        if kind == "sglang":
            backend.setdefault("base_url", "http://localhost:30000/v1")
        if kind in SERVICES:
            self._translate_service(backend, path, kind)
        else:
            backend["type"] = BACKEND_WORDS.get(kind, kind)

    def _translate_service(self, backend: _Mapping, path: KeyPath, kind: str) -> None:
        base_url, variable = SERVICES[kind]
        backend["type"] = "openai"
        backend.setdefault("base_url", base_url)
        if backend.get("api_key") is not None:
            return
        if key := trim_value(self.environ.get(variable, "")):
            backend["api_key"] = key
            self.report.from_environment.add(self.report.path_in_file((*path, "api_key")))
        else:
            self.report.add((*path, "type"), f"{variable} is not set ({how_to_set(variable)})")


def _is_program(backend: _Mapping) -> bool:
    kind = str(backend.get("type")).lower()
    return BACKEND_WORDS.get(kind, kind) in PROGRAM_TYPES


def _move_role(agent: _Mapping, backend: _Mapping) -> None:
    """Move the prompts in the backend of an agent program to the agent's role."""
    if _is_program(backend):
        texts = backend.pop("system_prompt", ""), agent.get("system_message"), backend.pop("append_system_prompt", "")
        agent["system_message"] = "\n\n".join(str(text) for text in texts if text)


def _find_service(base_url: Any) -> str:
    """Return the type or service whose host `base_url` names, else `openai`."""
    try:
        host = (urlsplit(base_url).hostname or "") if isinstance(base_url, str) else ""
    except ValueError:
        host = ""
    return next((kind for end, kind in HOSTS.items() if host == end or host.endswith("." + end)), "openai")
