"""What a backend type is: one row each. A new provider with the OpenAI protocol is a new row, and nothing else."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from massmem.core.messages import ToolChoice

Kind = Literal["openai", "anthropic", "local", "scripted", "acp"]
CompletionLimit = Literal["max_tokens", "max_completion_tokens"]
"""The name of the field that bounds the reply."""
Signer = Literal["entra", "bedrock", "vertex"]
"""What a plain key does not open: Azure with Entra ID, Claude on Amazon Bedrock and on Google's Vertex AI."""
Dialect = Literal["models", "anthropic", "llamacpp", "ollama", "lmstudio"]
"""How to ask for a window; "models" is the model list of the OpenAI protocol."""


@dataclass(frozen=True, slots=True)
class Abilities:
    tools: bool = True
    """It can call the tools of a request. Without this ability, send `ChatRequest.schema` instead of tools."""
    spare_tools: ToolChoice | None = None
    """With which choice tools are named that a step does not need; None: not at all.

    Where the provider's cache begins with the tools, the same ones stand in all requests of a turn: a cache that is
    read costs a tenth.
    """
    vision: bool | None = None
    """It sees pictures; None: nobody knows, so it is tried."""
    writes_calls: bool = False
    """Without `tools`, it writes a call in place of its answer; small models are asked first whether they need one."""


@dataclass(frozen=True, slots=True)
class Program:
    """An agent program that speaks the Agent Client Protocol over its standard input and output."""

    command: tuple[str, ...] = ()
    install: str = "give its command in backend.command"
    """What to do when it is not there."""
    login: str = ""
    """What makes it known to its provider; massmem never asks for its key."""
    folders: tuple[str, ...] = ()
    """Below the user's home: its settings, its login and its sessions, which a sandbox leaves to it."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set for it, so that it changes nothing where its modes alone do not hold it."""
    asks: Mapping[str, str] = field(default_factory=dict[str, str])
    """Set instead where it may change files, so that it asks before."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A backend type."""

    kind: Kind
    """The adapter."""
    base_url: str = ""
    key_variables: tuple[str, ...] = ()
    """Environment variables that may hold the key; the first that is set wins."""
    needs_key: bool = True
    key_start: str = ""
    """How all keys of this provider begin, and no others; "" where they have no mark."""
    url_variable: str = ""
    """Environment variable that replaces base_url."""
    region_variables: tuple[str, ...] = ()
    """Environment variables that may name the {region} of base_url; the first that is set wins."""
    signer: Signer | Literal[""] = ""
    """How its requests are signed; "": they have a key."""
    default_model: str = ""
    """Empty where a model must be named."""
    team_model: str | None = None
    """Of the team that a key alone makes, without a configuration; "": the shipped configuration of this name; None: a
    key alone makes none."""
    memory_model: str = ""
    """A cheap one, which extracts memories when none is configured; empty: default_model."""
    embedding_model: str = ""
    """Embeds memories when none is configured; empty where it must be named."""
    model_starts: tuple[str, ...] = ()
    """How the names of its models begin, and no others."""
    abilities: Abilities = field(default_factory=Abilities)
    completion_limit: CompletionLimit = "max_tokens"
    ends_with_user: bool = True
    """A conversation must not end with the assistant (see base.end_with_user)."""
    price_list: str = ""
    """Its name in the list of prices; "": it is not there."""
    hosts: tuple[str, ...] = ()
    """How other addresses of it end, beside that of base_url."""
    dialect: Dialect | None = None
    """None: it names no window."""
    server_name: str = ""
    """Of a server that people start on their machine, for people; "" for others."""
    window_setting: str = ""
    """How the server's window is set, for people."""
    program: Program | None = None
    """Of kind acp."""
    token_factor: float = 1.05
    """Its tokens for one of o200k_base, with which texts are counted.

    Anthropic's vocabulary is not public; it needs more tokens for the same text, in newer models more than in older
    ones. Qwen's needs 1.0 to 1.02 for English and code, 0.82 to 0.86 for Japanese and Chinese, 1.1 to 1.4 for other
    languages, up to 2.2 for numbers. Corrected by the first count that the provider reports (Buffer).
    """


_PROGRAMS: dict[str, Program] = {
    "acp": Program(),
    "claude-code": Program(
        ("claude-agent-acp",), "npm install -g @zed-industries/claude-agent-acp", "claude /login",
        (".claude", ".claude.json"),
    ),
    "codex": Program(("codex-acp",), "npm install -g @zed-industries/codex-acp", "codex login", (".codex",)),
    "copilot": Program(("copilot", "--acp"), "npm install -g @github/copilot", "copilot login", (".copilot",)),
    "gemini-cli": Program(("gemini", "--acp"), "npm install -g @google/gemini-cli", "gemini", (".gemini",)),
    "goose": Program(
        ("goose", "acp"), "see block.github.io/goose", "goose configure", (".config/goose", ".local/share/goose")
    ),
    # Its mode `plan` lets it run commands, and makes it write plans.
    "opencode": Program(
        ("opencode", "acp"), "npm install -g opencode-ai", "opencode auth login",
        (".config/opencode", ".local/share/opencode", ".local/state/opencode", ".cache/opencode"),
        {"OPENCODE_PERMISSION": '{"edit": "deny", "bash": "deny", "external_directory": "deny"}'},
        {"OPENCODE_PERMISSION": '{"edit": "ask", "bash": "ask", "external_directory": "deny"}'},
    ),
    "qwen-code": Program(("qwen", "--acp"), "npm install -g @qwen-code/qwen-code", "qwen auth", (".qwen",)),
}  # fmt: skip

PRESETS: dict[str, Preset] = {
    # Without a configuration, the first one with a team_model whose key is set is taken.
    "openai": Preset(
        "openai", "https://api.openai.com/v1", ("OPENAI_API_KEY",), url_variable="OPENAI_BASE_URL",
        key_start="sk-proj-", default_model="gpt-5-mini", team_model="", memory_model="gpt-4.1-nano-2025-04-14",
        embedding_model="text-embedding-3-small", model_starts=("gpt-", "chatgpt-", "o1", "o3", "o4"),
        completion_limit="max_completion_tokens", ends_with_user=False, price_list="openai", token_factor=1.0,
    ),
    "anthropic": Preset(
        "anthropic", "https://api.anthropic.com", ("ANTHROPIC_API_KEY",), url_variable="ANTHROPIC_BASE_URL",
        key_start="sk-ant-", default_model="claude-sonnet-5", team_model="", memory_model="claude-haiku-4-5",
        model_starts=("claude-",), abilities=Abilities(spare_tools="auto"), price_list="anthropic",
        dialect="anthropic", token_factor=1.25,
    ),
    "bedrock": Preset(
        "anthropic", "https://bedrock-runtime.{region}.amazonaws.com", ("AWS_BEARER_TOKEN_BEDROCK",),
        url_variable="ANTHROPIC_BEDROCK_BASE_URL", region_variables=("AWS_REGION", "AWS_DEFAULT_REGION"),
        signer="bedrock", abilities=Abilities(spare_tools="auto"), price_list="aws", token_factor=1.25,
    ),
    "vertex": Preset(
        "anthropic", "https://{region}-aiplatform.googleapis.com/v1", url_variable="ANTHROPIC_VERTEX_BASE_URL",
        region_variables=("CLOUD_ML_REGION",), signer="vertex", abilities=Abilities(spare_tools="auto"),
        price_list="google", token_factor=1.25,
    ),
    "gemini": Preset(
        "openai", "https://generativelanguage.googleapis.com/v1beta/openai", ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        key_start="AIza", default_model="gemini-flash-latest", team_model="gemini-flash-latest",
        embedding_model="gemini-embedding-001", model_starts=("gemini-",), price_list="google",
    ),
    "grok": Preset(
        "openai", "https://api.x.ai/v1", ("XAI_API_KEY",), key_start="xai-", team_model="grok-4",
        model_starts=("grok-",), price_list="x-ai",
    ),
    "mistral": Preset(
        "openai", "https://api.mistral.ai/v1", ("MISTRAL_API_KEY",), default_model="mistral-small-latest",
        team_model="mistral-medium-latest", model_starts=("mistral-",), price_list="mistral", dialect="models",
    ),
    "deepseek": Preset(
        "openai", "https://api.deepseek.com/v1", ("DEEPSEEK_API_KEY",), default_model="deepseek-chat",
        team_model="deepseek-chat", memory_model="deepseek-chat", model_starts=("deepseek-",), price_list="deepseek",
    ),
    "groq": Preset(
        "openai", "https://api.groq.com/openai/v1", ("GROQ_API_KEY",), key_start="gsk_",
        team_model="openai/gpt-oss-120b", memory_model="llama-3.1-8b-instant", price_list="groq", dialect="models",
    ),
    "cerebras": Preset(
        "openai", "https://api.cerebras.ai/v1", ("CEREBRAS_API_KEY",), key_start="csk-", team_model="gpt-oss-120b",
        price_list="cerebras",
    ),
    "together": Preset(
        "openai", "https://api.together.xyz/v1", ("TOGETHER_API_KEY",), team_model="openai/gpt-oss-120b",
        embedding_model="intfloat/multilingual-e5-large-instruct", price_list="together", hosts=("together.ai",),
        dialect="models",
    ),
    "fireworks": Preset(
        "openai", "https://api.fireworks.ai/inference/v1", ("FIREWORKS_API_KEY",), key_start="fw_",
        team_model="accounts/fireworks/models/gpt-oss-120b", price_list="fireworks", dialect="models",
    ),
    "openrouter": Preset(
        "openai", "https://openrouter.ai/api/v1", ("OPENROUTER_API_KEY",), key_start="sk-or-",
        team_model="openai/gpt-oss-120b", price_list="openrouter", dialect="models",
    ),
    # Its search models call no tools.
    "perplexity": Preset(
        "openai", "https://api.perplexity.ai", ("PERPLEXITY_API_KEY",), key_start="pplx-", default_model="sonar",
        team_model="sonar", abilities=Abilities(tools=False), price_list="perplexity",
    ),
    "minimax": Preset(
        "openai", "https://api.minimax.io/v1", ("MINIMAX_API_KEY",), default_model="MiniMax-M2.7"
    ),
    "sarvam": Preset("openai", "https://api.sarvam.ai/v1", ("SARVAM_API_KEY",), default_model="sarvam-m"),
    "azure_openai": Preset(
        "openai", "", ("AZURE_OPENAI_API_KEY",), url_variable="AZURE_OPENAI_ENDPOINT",
        embedding_model="text-embedding-3-small",
        completion_limit="max_completion_tokens", ends_with_user=False, token_factor=1.0,
    ),
    "ollama": Preset(
        "openai", "http://localhost:11434/v1", ("OLLAMA_API_KEY",), needs_key=False, embedding_model="nomic-embed-text",
        dialect="ollama", server_name="Ollama",
        window_setting="num_ctx in its Modelfile, or OLLAMA_CONTEXT_LENGTH where `ollama serve` runs",
    ),
    "lmstudio": Preset(
        "openai", "http://localhost:1234/v1", ("LMSTUDIO_API_KEY",), needs_key=False,
        embedding_model="text-embedding-nomic-embed-text-v1.5", dialect="lmstudio", server_name="LM Studio",
        window_setting="the context length that the model is loaded with",
    ),
    "vllm": Preset(
        "openai", "http://localhost:8000/v1", ("VLLM_API_KEY",), needs_key=False, dialect="models", server_name="vLLM",
        window_setting="--max-model-len",
    ),
    # llama-server answers with the model that it has loaded, whatever the name.
    "llamacpp": Preset(
        "openai", "http://localhost:8080/v1", ("LLAMA_API_KEY",), needs_key=False, default_model="default",
        dialect="llamacpp", server_name="llama.cpp",
        window_setting="--ctx-size of llama-server (it is divided by --parallel)",
    ),
    "local": Preset("local", needs_key=False, abilities=Abilities(tools=False, vision=False)),
    "scripted": Preset("scripted", needs_key=False),
    **{
        name: Preset("acp", needs_key=False, abilities=Abilities(tools=False, writes_calls=True), program=program)
        for name, program in _PROGRAMS.items()
    },
}  # fmt: skip

if TYPE_CHECKING:
    BackendType = str
else:
    BackendType = Literal[tuple(PRESETS)]  # so that a wrong one is answered with all of them

NETWORK_TYPES = frozenset(name for name, preset in PRESETS.items() if preset.kind in ("openai", "anthropic"))
CLAUDE_TYPES = frozenset(name for name, preset in PRESETS.items() if preset.kind == "anthropic")
PROGRAM_TYPES = frozenset(_PROGRAMS)
NEEDS_MODEL = frozenset(name for name in NETWORK_TYPES if not PRESETS[name].default_model)
SERVER_NAMES: Mapping[BackendType, str] = {
    name: preset.server_name for name, preset in PRESETS.items() if preset.server_name
}
PROVIDERS_BY_KEY: tuple[tuple[str, BackendType, str], ...] = tuple(
    (variable, name, preset.team_model)
    for name, preset in PRESETS.items()
    if preset.team_model is not None
    for variable in preset.key_variables
)
"""Without a configuration, the first of these variables that is set decides on provider and model (see team_model)."""
