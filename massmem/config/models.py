"""The configuration as validated values. One line under each field: it becomes the README reference."""

import re
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from massmem.config.section import Secret, Section
from massmem.config.service import ServerConfig

BackendType = Literal[
    "openai", "anthropic", "local", "scripted",
    "gemini", "grok", "groq", "together", "openrouter", "deepseek", "mistral", "fireworks", "cerebras", "azure_openai",
    "ollama", "lmstudio", "vllm", "llamacpp",
]  # fmt: skip
Presentation = Literal["synthesize", "as_is"]
HistoryPreset = Literal["brief", "chat", "long"]
ParamType = Literal["string", "integer", "number", "boolean", "date", "email"]


MAX_SERVERS = 100
NO_STORE = "memory:"
"""The store.url of those who want nothing written."""
PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class PriceConfig(Section):
    """Dollars for a million tokens."""

    input: float = Field(ge=0)
    """Of the prompt."""
    output: float = Field(ge=0)
    """Of the reply."""
    cached: float | None = Field(default=None, ge=0)
    """Of the part of the prompt that the provider has in its cache; left out: as `input`."""


class BackendConfig(Section):
    type: BackendType
    """Which provider; all but anthropic, local and scripted speak the OpenAI protocol."""
    model: str = ""
    """The model's name at the provider; for local a .gguf path, a URL, or empty for the embedded model."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""
    api_key: Secret | None = None
    """The key; normally ${VAR}. Left out: the provider's usual environment variable."""
    context_window: int | None = Field(default=None, ge=512)
    """Tokens that the model reads; left out: asked from the server or taken from a table."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature; left out: the provider's default."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of one reply."""
    timeout: float = Field(default=120, gt=0)
    """Seconds without any byte from the server before a request counts as failed."""
    max_retries: int = Field(default=3, ge=0, le=20)
    """Repeats of a failed request (408, 409, 429, 5xx, connection)."""
    tools: bool | None = None
    """Whether the model takes tool calls; left out: the provider's default. false: JSON-schema output instead."""
    thinking_tokens: int | None = Field(default=None, ge=1024)
    """Anthropic: budget for extended thinking."""
    script: dict[str, Any] | None = None
    """scripted only: its replies, delays and errors."""
    price: PriceConfig | None = None
    """What tokens cost; left out: the provider's list price, where massmem knows it."""


class ConversationMemoryConfig(Section):
    enabled: bool = True
    """Send earlier turns of the session. Environment: CONVERSATION_HISTORY_ENABLED."""
    max_messages: int | None = Field(default=None, ge=0)
    """Newest messages to send. Environment: CONVERSATION_HISTORY_MAX_MESSAGES."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Token budget of the history. Environment: CONVERSATION_HISTORY_MAX_TOKENS."""
    preset: HistoryPreset | None = None
    """Limits in one word; other keys win. brief: 6 messages, answers cut; chat: 20 and 4,000 tokens; long: 50."""
    max_answer_characters: int | None = Field(default=None, ge=1)
    """Longest answer that is shown of an earlier turn; the rest of it is recalled."""
    relevant_messages: int = Field(default=0, ge=0, le=100)
    """Messages older than those, shown for their words in common with the question."""


class MemoryLlmConfig(Section):
    provider: str = ""
    """Who extracts facts, by mem0's name, or local; needed as soon as `llm` is given."""
    model: str | None = None
    """Model for extraction."""
    api_key: Secret | None = None
    """Key; left out: the provider's environment variable."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""


class EmbeddingConfig(Section):
    provider: str = "local"
    """Who embeds, by mem0's name, or local."""
    model: str | None = None
    """Embedding model."""
    api_key: Secret | None = None
    """Key; left out: the provider's environment variable."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""


class QdrantConfig(Section):
    mode: Literal["embedded", "server", "local"] = "embedded"
    """embedded: in this process, no Docker; server: a Qdrant server or cluster; local: another word for embedded."""
    path: str | None = None
    """Folder of the embedded store; left out: below ~/.massmem."""
    url: str | None = None
    """Server URL; wins over host and port."""
    host: str = "localhost"
    """Server host."""
    port: int = Field(default=6333, ge=1, le=65535)
    """Server port."""
    api_key: Secret | None = None
    """Server key."""


class PersistentMemoryConfig(Section):
    enabled: bool = True
    """Keep searchable facts."""
    on_disk: bool = True
    """Keep them between runs; false: they last for one run, and the next run that keeps them makes them again."""
    session_name: str | None = None
    """Left out: this session only; null: all sessions of the user; a name: that one, for all runs that name it."""
    llm: MemoryLlmConfig | None = None
    """Model that extracts facts; left out: verbatim episodes only."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Model that embeds."""
    qdrant: QdrantConfig = QdrantConfig()
    """Where vectors live."""

    @property
    def all_sessions(self) -> bool:
        """session_name was given, as null."""
        return self.session_name is None and "session_name" in self.model_fields_set


class CompressionConfig(Section):
    trigger_threshold: float = Field(default=0.75, gt=0, le=1)
    """Share of the context window at which old messages are compressed."""
    target_ratio: float = Field(default=0.20, gt=0, lt=1)
    """Share of the messages that stays verbatim."""
    proactive: bool = True
    """Compress before a prompt passes the threshold, and after a turn; false: only when the provider refuses one."""
    mid_stream: bool = True
    """Ask an agent to end its reply when it nears the end of the window."""
    summary: Literal["model", "extract"] = "model"
    """Who writes the summary: the agent's model, from an extract; or code alone, which sends no request."""


class RetrievalConfig(Section):
    limit: int | None = Field(default=None, ge=0, le=1000)
    """Most messages and facts that are recalled; a message counts once, however many of its passages are shown. Left
    out: as many as max_tokens holds, which bounds what they cost: a few short ones would leave most of it unused."""
    max_tokens: int = Field(default=1000, ge=0)
    """Token budget of the recalled memories."""
    exclude_recent: bool = True
    """Leave out what the conversation still shows verbatim."""


class RecordingConfig(Section):
    record_all_tool_calls: bool = False
    """Record every tool call, not only new_answer and vote."""
    record_reasoning: bool = False
    """Record reasoning separately."""
    summarize_large_results: bool = False
    """Summarise tool results over 5 kB before recording."""
    summary_model: str | None = None
    """Model for those summaries."""


class MemoryConfig(Section):
    enabled: bool = True
    """Both tiers."""
    conversation_memory: ConversationMemoryConfig = ConversationMemoryConfig()
    """The verbatim tier."""
    persistent_memory: PersistentMemoryConfig = PersistentMemoryConfig()
    """The searchable tier."""
    compression: CompressionConfig = CompressionConfig()
    """When and how far the view is compressed."""
    retrieval: RetrievalConfig = RetrievalConfig()
    """What is recalled."""
    recording: RecordingConfig = RecordingConfig()
    """What is recorded."""


class McpServerConfig(Section):
    name: str
    """Name, the prefix of its tools."""
    command: str | None = None
    """Program of a stdio server."""
    args: tuple[str, ...] = Field(default=(), repr=False)
    """Its arguments."""
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """Its environment."""
    url: str | None = None
    """Address of an HTTP server."""
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    """HTTP headers."""
    allow: tuple[str, ...] | None = None
    """Tools that may be called; left out: all."""
    deny: tuple[str, ...] = ()
    """Tools that may not be called."""
    timeout: float = Field(default=60, gt=0)
    """Seconds for one call."""
    start_timeout: float = Field(default=30, gt=0)
    """Seconds for it to start and to list its tools."""
    required: bool = False
    """No question is answered without it; false: where it does not start, the agent goes on without its tools."""
    max_result_tokens: int = Field(default=10_000, ge=100)
    """Most tokens of one result that the model is shown, and never more than a quarter of its window; the log has it
    all, up to 1,000,000 characters."""

    @model_validator(mode="after")
    def _one_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command (stdio) or url (HTTP)")
        return self


class AgentSpec(Section):
    """One agent as written; of `memory` only the keys that were given count (`resolve_agents`)."""

    id: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")
    """Name of the agent, unique in the team."""
    backend: BackendConfig
    """Its model."""
    system_message: str = ""
    """Who the agent is and what it looks at."""
    memory: MemoryConfig = MemoryConfig()
    """Any key of `memory`, for this agent only; the others stay as the team has them."""
    mcp_servers: tuple[McpServerConfig, ...] = Field(default=(), max_length=MAX_SERVERS)
    """Tool servers."""


class AgentConfig(Section):
    """One agent as it runs: the team's memory settings with this agent's own laid over them."""

    id: str
    backend: BackendConfig
    system_message: str
    memory: MemoryConfig
    mcp_servers: tuple[McpServerConfig, ...]


class CoordinationConfig(Section):
    max_rounds: int = Field(default=3, ge=1, le=20)
    """Rounds of a turn: the first answers, the last only votes."""
    presentation: Presentation = "synthesize"
    """synthesize: the winner writes the final answer from all answers; as_is: its answer is used unchanged."""
    max_concurrency: int = Field(default=16, ge=1, le=1000)
    """Requests of a turn at the same time."""
    compression_target_ratio: float | None = Field(default=None, gt=0, lt=1)
    """Second name of memory.compression.target_ratio, which wins."""
    timeout: float = Field(default=600, gt=0)
    """Seconds for a turn; then it ends with what it has (exit 4)."""
    max_cost: float | None = Field(default=None, gt=0)
    """US dollars for a turn; then it ends with what it has (exit 4). Every model's price must be known."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens for a turn, of prompts and replies; then it ends with what it has (exit 4)."""
    max_tool_rounds: int = Field(default=20, ge=0)
    """Replies with tool calls in a step, each with one call or several; then the agent must act. 0: no tools."""
    ask_user: bool | None = None
    """Agents may ask the user for what only the user knows. Left out: when `params` are given, and for those alone."""
    max_asks: int = Field(default=3, ge=1, le=10)
    """How often the user is asked for one value before the agents go on without it."""
    waiting_timeout: float | None = Field(default=None, gt=0)
    """Seconds after which a question that waits for the user is given up; left out: never."""
    escalate_below: float | None = Field(default=None, ge=0, le=1)
    """Mark answers whose confidence is lower, for somebody to look at; left out: none."""


class ParamConfig(Section):
    """Something that the agents may need from the user."""

    description: str = ""
    """What it is, for the agents and for the user who is asked for it."""
    type: ParamType = "string"
    """What a value must be; a date is kept as YYYY-MM-DD."""
    pattern: str | None = Field(default=None, max_length=500)
    """Regular expression that the whole value must match; type string only."""
    values: tuple[str, ...] = Field(default=(), max_length=1000)
    """The only values there are; upper and lower case do not matter."""
    examples: tuple[str, ...] = Field(default=(), max_length=20)
    """Values as they may look, shown when the user is asked for the third time."""
    mapping: tuple[str, ...] = Field(default=(), max_length=50)
    """Other words that users call it by: "order number", "ticket"."""

    @model_validator(mode="after")
    def _can_be_matched(self) -> Self:
        if self.pattern is None:
            return self
        if self.type != "string":
            raise ValueError(f"a pattern is for type string; a value of type {self.type} has its own form")
        try:
            pattern = re.compile(self.pattern)
        except re.error as e:
            raise ValueError(f"the pattern is no regular expression: {e}") from e
        if wrong := next((text for text in (*self.values, *self.examples) if not pattern.fullmatch(text)), None):
            raise ValueError(f"{wrong[:60]!r} does not match the pattern")
        return self


class StoreConfig(Section):
    url: str = "sqlite:///~/.massmem/massmem.db"
    """Where sessions live: sqlite:///PATH, postgresql://..., redis://... (rediss:// with TLS, unix:///SOCKET), or
    memory: for nowhere: nothing is written, and a conversation ends with its process."""
    on_unavailable: Literal["memory", "fail"] = "memory"
    """Redis only, when it is down at start. memory: a new conversation is held in this process alone, and every answer
    says so; fail: no answer."""
    ttl: float | None = Field(default=86_400, gt=0, le=315_360_000)
    """Redis only: seconds that a session lives after its last use; null: for ever."""
    max_messages: int = Field(default=50, ge=1, le=10_000)
    """Redis only: messages that are kept of a session; the oldest turns go, the last one and system messages never."""


class TelemetryConfig(Section):
    otel: bool = False
    """Send OpenTelemetry spans, where the variables OTEL_EXPORTER_OTLP_* say."""
    stages: str | None = None
    """File to which a line of JSON is added for every question (received) and answer (respond): numbers and names."""
    redact: tuple[str, ...] = ("api_key", "token", "password", "secret")
    """Keys whose values never leave the process."""


class TeamConfig(Section):
    """A whole configuration file."""

    session_id: str | None = None
    """Session to go on with; the command line wins."""
    agents: tuple[AgentSpec, ...] = Field(min_length=1, max_length=100)
    """The council; `agent:` for one."""
    coordination: CoordinationConfig = CoordinationConfig()
    """How a turn runs."""
    memory: MemoryConfig = MemoryConfig()
    """What is remembered."""
    store: StoreConfig = StoreConfig()
    """Where sessions live."""
    server: ServerConfig = ServerConfig()
    """The HTTP service."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """What is observed."""
    params: dict[str, ParamConfig] = Field(default_factory=dict[str, ParamConfig], max_length=100)
    """What agents may need from the user, by name."""
    source: str = ""
    """Not a key: the file that this came from."""

    @field_validator("params")
    @classmethod
    def _plain_names(cls, params: dict[str, ParamConfig]) -> dict[str, ParamConfig]:
        for name in params:
            if not PARAM_NAME.fullmatch(name):
                raise ValueError(f"{name[:60]!r} must be 1 to 64 letters, digits or '_', with no digit first")
        return params

    @property
    def asks(self) -> bool:
        """Whether agents may ask the user."""
        given = self.coordination.ask_user
        return bool(self.params) if given is None else given

    @property
    def target_ratio(self) -> float:
        """Share of the messages that stays verbatim; memory's own key wins over coordination's."""
        given = "target_ratio" in self.memory.compression.model_fields_set
        second = self.coordination.compression_target_ratio
        return self.memory.compression.target_ratio if given or second is None else second
