"""The configuration as validated values. The line under each field becomes the reference of all keys."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from massmem.config.presets import PROGRAM_TYPES, BackendType
from massmem.config.section import Section
from massmem.config.web_search import WebSearch
from massmem.core.errors import InputError
from massmem.core.params import ParamSpec, ParamType
from massmem.core.patterns import PatternError, compile_pattern
from massmem.core.text import one_line

Api = Literal["responses", "chat"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
EFFORT_BUDGETS: Mapping[Effort, int] = {
    "minimal": 1_024, "low": 4_096, "medium": 10_000, "high": 24_000, "xhigh": 32_000, "max": 32_000,
}  # fmt: skip
"""Tokens of thinking that an effort stands for, where a model is too old for efforts."""
Presentation = Literal["auto", "synthesize", "as_is", "report"]
Shape = Literal["vote", "union", "decide", "revise"]
Draft = Literal["own", "given"]
HistoryPreset = Literal["brief", "chat", "long"]
NO_KEYS = {"source", "job", "note", "variation", "base", "may_write"}
"""Fields of the models that no file may set."""

MAX_SERVERS = 100
WRITTEN_FIELDS = frozenset({
    "model", "messages", "input", "stream", "stream_options", "store", "tools", "tool_choice", "response_format",
    "temperature", "max_tokens", "max_completion_tokens", "max_output_tokens",
})  # fmt: skip
"""Fields of a request that massmem writes itself."""
NO_STORE = "memory:"
"""The store.url that writes nothing."""
PARAM_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
Secret = Annotated[SecretStr, Field(min_length=1)]
"""A value that no repr, error or dump shows. An empty one is a mistake."""


class PriceConfig(Section):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    """Prompt tokens."""
    output: float = Field(ge=0)
    """Tokens of the reply."""
    cached: float | None = Field(default=None, ge=0)
    """Prompt tokens that the provider reads from its cache; left out: as `input`."""
    search: float | None = Field(default=None, ge=0)
    """1,000 searches of the web by the provider; left out: the provider's list price, where massmem knows it."""


class ModelConfig(Section):
    type: BackendType
    """The provider; all but Claude's, local, scripted and agent programs speak the OpenAI protocol."""
    model: str = ""
    """The model's name at the provider; for local a .gguf path, a URL, or empty for the embedded model."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""
    api_key: Secret | None = None
    """The key; normally ${VAR}. Left out: the provider's usual environment variable."""
    auth: Literal["entra"] | None = None
    """azure_openai only: entra signs in with Entra ID, as what runs massmem, instead of a key."""
    context_window: int | None = Field(default=None, ge=512)
    """Size of the context window in tokens; left out: the server is asked, or a list of known models."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Sampling temperature; left out: the provider's default."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Most tokens of one reply."""
    timeout: float = Field(default=120, gt=0)
    """Seconds without any progress of a reply after which a request fails."""
    deadline: float | None = Field(default=None, gt=0)
    """Seconds for a whole reply, retries included; left out: three times `timeout`, for local no limit."""
    max_retries: int = Field(default=3, ge=0, le=20)
    """Repeats of a failed request (408, 409, 429, 5xx, connection)."""
    tools: bool | None = None
    """Whether the model supports tool calls; left out: the provider's default; false: JSON Schema output instead."""
    vision: bool | None = None
    """Whether the model sees pictures; left out: what is known of it, else it is tried."""
    api: Api | None = None
    """Which API of OpenAI; left out: responses at OpenAI and Azure, else chat, and the other one when it is refused."""
    effort: Effort | None = None
    """How much a reasoning model thinks; left out: the model's default."""
    extra_body: dict[str, Any] = Field(default_factory=dict[str, Any])
    """OpenAI protocol: fields that each request gets as they are, such as `top_p` or `chat_template_kwargs`."""
    code_execution: bool = False
    """The provider runs programs that the model writes for an answer or a vote, on its own machines (OpenAI, Anthropic,
    Gemini; Gemini before 3 only where a request has no other tools). OpenAI and Anthropic charge for the machine, which
    massmem does not count: the cost of such an agent is not known."""
    thinking_tokens: int | None = Field(default=None, ge=1024)
    """Claude only: token budget for thinking; newer models take `effort` instead, and get the one nearest to it."""
    command: tuple[str, ...] | None = None
    """Agent programs only: the program, which speaks the Agent Client Protocol, and its arguments; left out: the usual
    one of the type."""
    folder: str | None = None
    """Agent programs only: where it works; left out: the first folder that the agent may read, else an empty one."""
    allow: tuple[Literal["read", "search", "fetch"], ...] | None = None
    """Agent programs only: what it may do when it asks for permission, all else is refused; left out: read and search.
    """
    sandbox: Literal["bwrap"] | None = None
    """Agent programs only: run it by bubblewrap, which lets it read its folder and write nothing but its own files."""
    script: dict[str, Any] | None = None
    """scripted only: replies, delays and errors."""
    price: PriceConfig | None = None
    """Price of tokens; left out: the provider's list price, where massmem knows it."""
    web_search: WebSearch = None
    """true: the provider's own search of the web; or its options. Only answers and votes search."""

    @field_validator("extra_body")
    @classmethod
    def _check_extra_body(cls, fields: dict[str, Any]) -> dict[str, Any]:
        if written := sorted(WRITTEN_FIELDS & fields.keys()):
            raise ValueError(f"massmem writes {', '.join(written)} itself")
        return fields

    @property
    def is_in_process(self) -> bool:
        """Whether the model runs in this process, and has no provider."""
        return self.type in ("local", "scripted")

    @property
    def is_program(self) -> bool:
        """Whether an agent program answers, which adds prompts and tools of its own."""
        return self.type in PROGRAM_TYPES

    @property
    def label(self) -> str:
        """Type and model for people, such as `openai gpt-5`."""
        return one_line(f"{self.type} {self.model}")

    @property
    def usual_effort(self) -> Effort | None:
        """The configured effort, else the one that stands for `thinking_tokens`."""
        if self.effort is not None or self.thinking_tokens is None:
            return self.effort
        for effort, budget in EFFORT_BUDGETS.items():
            if self.thinking_tokens <= budget:
                return effort
        return "max"


class BackendConfig(ModelConfig):
    fallback: tuple[ModelConfig, ...] = Field(default=(), max_length=10)
    """Models that stand in, each with the keys of a backend: when a request fails for good, the agent goes on with the
    next one for the rest of the turn."""

    @property
    def fallbacks(self) -> "tuple[BackendConfig, ...]":
        """The fallbacks, each as the backend of an agent."""
        return tuple(BackendConfig(**model.model_dump(exclude_unset=True)) for model in self.fallback)


class ConversationMemoryConfig(Section):
    enabled: bool = True
    """Send earlier turns of the session. Environment: CONVERSATION_HISTORY_ENABLED."""
    max_messages: int | None = Field(default=None, ge=0)
    """How many of the newest messages are sent. Environment: CONVERSATION_HISTORY_MAX_MESSAGES."""
    max_tokens: int | None = Field(default=None, ge=0)
    """Token budget of the history. Environment: CONVERSATION_HISTORY_MAX_TOKENS."""
    preset: HistoryPreset | None = None
    """Limits in one word; keys that are set win. brief: 6 messages, long answers shortened; chat: 20 messages and 4,000
    tokens; long: 50 messages."""
    max_answer_characters: int | None = Field(default=None, ge=1)
    """Characters of an earlier answer that are sent; the rest is left to recall."""
    relevant_messages: int = Field(default=0, ge=0, le=100)
    """How many older messages are sent because they share words with the question."""


class MemoryLlmConfig(Section):
    provider: str = ""
    """Provider of the model, by mem0's name, or local; required when `llm` is given."""
    model: str | None = None
    """Model for extraction."""
    api_key: Secret | None = None
    """Key; left out: the provider's environment variable."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""

    @model_validator(mode="after")
    def _refuse_embedded_model(self) -> Self:
        if self.provider == "local" and not self.model:
            raise ValueError(
                "the embedded model finds no facts: name a larger one (model: FILE.gguf), or leave llm out"
            )
        return self


class EmbeddingConfig(Section):
    provider: str = "local"
    """Provider of the model, by mem0's name, or local."""
    model: str | None = None
    """Embedding model."""
    api_key: Secret | None = None
    """Key; left out: the provider's environment variable."""
    base_url: str | None = None
    """Endpoint, when it is not the provider's own."""


class ExtractionConfig(Section):
    prompt: Literal["own", "mem0"] = "own"
    """own: massmem's instructions, 700 tokens; mem0: those of mem0, 9,000 tokens with ours."""


class QdrantConfig(Section):
    mode: Literal["embedded", "server", "local"] = "embedded"
    """embedded: in this process, no Docker; server: a Qdrant server or cluster; local: same as embedded."""
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
    shards: int | None = Field(default=None, ge=1, le=10_000)
    """Parts into which a cluster splits a new collection; left out: one for each of its machines."""
    replicas: int = Field(default=1, ge=1, le=100)
    """Machines of a cluster that hold each part of a new collection; with more than 1 most of them have to take each
    write, and agree on what is read."""


class PersistentMemoryConfig(Section):
    enabled: bool = True
    """Keep searchable facts."""
    on_disk: bool = True
    """Keep memories on disk; false: they last for one run, and a later run with on_disk builds them again."""
    session_name: str | None = None
    """Left out: this session only; null: all sessions of the user; a name: shared by all runs with this
    name, and that of one session, its id or title, pins that session too."""
    llm: MemoryLlmConfig | None = None
    """Model that extracts facts; left out: verbatim episodes only."""
    extraction: ExtractionConfig = ExtractionConfig()
    """How facts are extracted."""
    embedding: EmbeddingConfig = EmbeddingConfig()
    """Model that embeds."""
    qdrant: QdrantConfig = QdrantConfig()
    """Where vectors live."""

    @property
    def all_sessions(self) -> bool:
        """Whether session_name is given, as null."""
        return self.session_name is None and "session_name" in self.model_fields_set


class CompressionConfig(Section):
    trigger_threshold: float = Field(default=0.75, gt=0, le=1)
    """Share of the context window at which old messages are compressed."""
    target_ratio: float = Field(default=0.20, gt=0, lt=1)
    """Share of the messages that stays verbatim."""
    proactive: bool = True
    """Compress before a prompt passes the threshold, and after a turn; false: only when the provider refuses one."""
    mid_stream: bool = True
    """Tell an agent to end its reply when it nears the end of the window."""
    summary: Literal["model", "extract"] = "model"
    """model: the agent's model writes the summary; extract: code alone does, without a request."""


class RetrievalConfig(Section):
    limit: int | None = Field(default=None, ge=0, le=1000)
    """Most messages and facts that are recalled; a message counts once, however many of its passages are shown. Left
    out: as many as fit into max_tokens."""
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
    """Use memory; false switches both tiers off."""
    conversation_memory: ConversationMemoryConfig = ConversationMemoryConfig()
    """The verbatim tier."""
    persistent_memory: PersistentMemoryConfig = PersistentMemoryConfig()
    """The searchable tier."""
    compression: CompressionConfig = CompressionConfig()
    """When and how far prompts are compressed."""
    retrieval: RetrievalConfig = RetrievalConfig()
    """How memories are recalled."""
    recording: RecordingConfig = RecordingConfig()
    """How memories are recorded."""


class McpServerConfig(Section):
    name: str
    """Name of the server; prefix of its tools."""
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
    """Answer no question when the server does not start; false: the agent goes on without its tools."""
    max_result_tokens: int = Field(default=10_000, ge=100)
    """Most tokens of one result that the model sees, never more than a quarter of its window; the log keeps up to
    1,000,000 characters."""

    @model_validator(mode="after")
    def _check_transport(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give either command (stdio) or url (HTTP)")
        return self


class FolderConfig(Section):
    path: str = Field(min_length=1)
    """The folder; relative to the configuration's file. A folder may be written as its path alone."""
    include: tuple[str, ...] = Field(default=(), max_length=1000)
    """What is read although it is ignored by git, hidden, binary, or may hold secrets: patterns as in a .gitignore.
    Where a folder is left out, the pattern begins with its path."""

    @model_validator(mode="before")
    @classmethod
    def _accept_path(cls, value: Any) -> Any:
        return {"path": value} if isinstance(value, str) else value


def _accept_paths(schema: dict[str, Any]) -> None:
    schema["items"] = {"anyOf": [{"type": "string"}, schema["items"]]}


Folders = Annotated[tuple[FolderConfig, ...], Field(max_length=20, json_schema_extra=_accept_paths)]


class AgentSpec(Section):
    """One agent as the file has it; only the given keys of `memory` count (see `resolve_agents`)."""

    id: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")
    """Key of the agent, unique in the team: in stored data and filters."""
    name: str = Field(default="", max_length=64)
    """Name for people in place of the id, such as "Technical Specialist"; unique in the team."""
    backend: BackendConfig
    """Its model."""
    system_message: str = ""
    """The agent's role."""
    memory: MemoryConfig = MemoryConfig()
    """Any key of `memory`, for this agent only; other keys stay as the team has them."""
    mcp_servers: tuple[McpServerConfig, ...] = Field(default=(), max_length=MAX_SERVERS)
    """Tool servers."""
    folders: Folders = ()
    """Folders that this agent may read, beside those of `files.folders`."""

    @field_validator("name")
    @classmethod
    def _check_name(cls, name: str) -> str:
        if name != one_line(name):
            raise ValueError("must be one line of printable characters")
        return name


class AgentConfig(AgentSpec):
    """One agent as it runs: its own memory settings over those of the team, and the team's folders before its own."""

    @property
    def display_name(self) -> str:
        """The name, or the id of an agent without one."""
        return self.name or self.id

    @property
    def has_tools(self) -> bool:
        """Whether it may write before it calls a tool, what is not its answer."""
        return bool(self.mcp_servers or self.folders)


class ItemsConfig(Section):
    """What agents list in a turn of shape union."""

    kinds: tuple[str, ...] = Field(default=("finding", "risk", "option", "idea"), min_length=1, max_length=20)
    """What an item can be."""
    task: str = "List what you have to say to this as separate items."
    """What to list; stands behind the question."""
    check: str = "Say of each whether it is right."
    """What the others are asked about the items."""
    places: bool = True
    """Items have a place, a severity and a quote, as far as they are about a text."""
    sources: bool = False
    """Items name a page or a file, and quote it; massmem reads each once, and the others judge by what stands there.
    Agents that give one item different kinds contradict each other."""
    overview: str = "Write a summary in at most five sentences: what matters most, and what is contested, if any is."
    """What one agent writes above the list."""


class CoordinationConfig(Section):
    shape: Shape = "vote"
    """vote: one answer wins; union: agents list items, which are merged, and the others confirm or reject them; decide:
    agents list options and criteria, and score them; revise: the first agent drafts, the others criticise, it
    revises."""
    items: ItemsConfig = ItemsConfig()
    """The form of the items of a union."""
    draft: Draft = "own"
    """given: of shape revise, the text of the question's files is the draft, else the question itself."""
    max_rounds: int = Field(default=3, ge=1, le=20)
    """Rounds of a turn: agents answer in the first and can only vote in the last."""
    majority_wins: bool = True
    """Hold no last vote when more than half of the agents gave the same answer; false: vote all the same."""
    early_stop: bool = True
    """In the last round, do not ask for ballots that cannot change the winner; false: ask everybody, all at once."""
    depth: Literal["full", "adaptive"] = "full"
    """adaptive: two agents answer first (those that differ most, or by the calibration), the others only when they do
    not agree; what asks for a text, such as a greeting or a translation, is answered by one. full: always all."""
    presentation: Presentation = "auto"
    """synthesize: the winner writes the final answer from all answers; as_is: its answer is used unchanged; auto: as_is
    for an answer that ends in a number, a letter, yes or no, which others cannot add to, else synthesize; report: with
    the final answer the winner writes who says what, and what is disputed."""
    max_concurrency: int = Field(default=16, ge=1, le=1000)
    """Most requests of a turn at the same time."""
    timeout: float = Field(default=600, gt=0)
    """Seconds for a turn; then it ends with what it has (exit 4)."""
    max_cost: float | None = Field(default=None, gt=0)
    """US dollars for a turn; then it ends with what it has (exit 4). Every model's price must be known."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Tokens for a turn, of prompts and replies; then it ends with what it has (exit 4)."""
    max_tool_rounds: int | None = Field(default=None, ge=0)
    """Most replies with tool calls in a step, each with one call or several; then the agent must act, and the turn says
    so (exit 4). Left out: as many as the turn's other limits allow. 0: no tools."""
    ask_user: bool | None = None
    """Let agents ask the user for what only the user knows. Left out: when `params` are set, and for those alone."""
    max_asks: int = Field(default=3, ge=1, le=10)
    """How often the user is asked for one value before the agents go on without it."""
    waiting_timeout: float | None = Field(default=None, gt=0)
    """Seconds after which a turn that waits for the user is given up; left out: never."""
    confirm: Literal["tool_origin"] | None = None
    """tool_origin: ask the user before a tool is called with an argument whose words are from results of tools alone.
    Left out: never."""
    max_error: float | None = Field(default=None, gt=0, lt=1)
    """Share of wrong answers that you accept among those that are given, by the team's calibration (`massmem eval
    --calibrate`): an answer that is less sure is `unsure`. Without calibration: as `escalate_below` of 1 less this."""
    escalate_below: float | None = Field(default=None, ge=0, le=1)
    """Answers on which the agents agree less are `unsure`, for a person to check; left out: none."""
    weights: Literal["equal", "measured"] = "equal"
    """measured: an agent's voice counts by how often it was right in the team's calibration."""


class ParamConfig(Section):
    """A value that agents may ask the user for."""

    description: str = ""
    """Meaning of the value, for the agents and for the user who is asked for it."""
    type: ParamType = "string"
    """Type of the value; a date is stored as YYYY-MM-DD."""
    pattern: str | None = Field(default=None, max_length=500)
    """Regular expression that the whole value must match, without look-around; only for type string."""
    values: tuple[str, ...] = Field(default=(), max_length=1000)
    """The only allowed values; upper and lower case do not matter."""
    examples: tuple[str, ...] = Field(default=(), max_length=20)
    """Example values, shown from the third time that the user is asked."""
    mapping: tuple[str, ...] = Field(default=(), max_length=50)
    """Other names that users have for it: "order number", "ticket"."""

    @model_validator(mode="after")
    def _check_pattern(self) -> Self:
        if self.pattern is None:
            return self
        if self.type != "string":
            raise ValueError(f"a pattern is for type string; a value of type {self.type} has its own form")
        try:
            pattern = compile_pattern(self.pattern)
        except PatternError as e:
            raise ValueError(f"the pattern cannot be used: {e}") from e
        if wrong := next((text for text in (*self.values, *self.examples) if not pattern.fullmatch(text)), None):
            raise ValueError(f"{wrong[:60]!r} does not match the pattern")
        return self


class FilesConfig(Section):
    folders: Folders = ()
    """Folders that all agents may read, with tools of massmem itself; `--dir` adds to them."""
    agents_file: bool = True
    """Show agents the AGENTS.md of a folder, else its CLAUDE.md, as material about it."""
    attached: tuple[str, ...] = Field(default=(), max_length=20)
    """Files, and addresses of pages, that a new conversation on the command line begins with, as by `--file`; relative
    to the working directory. The service does not add them."""
    max_size: int = Field(default=10_000_000, ge=1_000, le=100_000_000)
    """Largest file in bytes, and most of all pictures of a question together; earlier ones are sent again up to that
    size. Providers take about 20 MB in a request."""
    describe: bool = False
    """An agent that sees pictures describes them for those that do not; false: a question with pictures is refused when
    an agent does not see them."""


class StoreConfig(Section):
    url: str = "sqlite:///~/.massmem/massmem.db"
    """Where sessions live: sqlite:///PATH, postgresql://..., redis://... (rediss:// with TLS, unix:///SOCKET; redis://
    alone: the address in REDIS_URL), or memory: (nothing is written, and a conversation ends with its process)."""
    on_unavailable: Literal["memory", "fail"] = "memory"
    """Redis only, when it is down at start. memory: a new conversation is held in this process alone, and every answer
    says so; fail: an error."""
    ttl: float | None = Field(default=86_400, gt=0, le=315_360_000)
    """Redis only: seconds that a session lives after its last use; null: for ever."""
    max_messages: int = Field(default=50, ge=1, le=10_000)
    """Redis only: user messages and answers that a session keeps; the oldest turns go, the last one and system messages
    never."""


class JwtConfig(Section):
    algorithm: Literal["HS256", "RS256", "ES256"] = "HS256"
    """The only algorithm accepted."""
    secret: Secret | None = None
    """HS256 key, 32 bytes at least, for tokens without a key id (kid); left out: MASSMEM_JWT_SECRET, else one
    that `massmem serve` makes and keeps."""
    keys: dict[str, Secret] = Field(default_factory=dict[str, Secret], max_length=20)
    """HS256 keys by key id (kid); the last one signs new tokens."""
    jwks_file: str | None = None
    """File of public keys for RS256 and ES256; read again when it changes."""
    audience: str | None = None
    """Required audience."""
    issuer: str | None = None
    """Required issuer."""
    max_lifetime: int = Field(default=86_400, ge=60)
    """Longest lifetime of a token in seconds."""
    revoked_file: str | None = None
    """File of revoked tokens, one `jti` a line; read again when it changes."""


class LimitsConfig(Section):
    header: int = Field(default=32_000, ge=1_000, le=1_000_000)
    """Largest header of a request in bytes."""
    header_timeout: float = Field(default=10, gt=0)
    """Seconds in which a header must arrive."""
    body: int = Field(default=16_000_000, ge=1_000, le=100_000_000)
    """Largest body of a request in bytes."""
    body_timeout: float = Field(default=30, gt=0)
    """Seconds in which a body must arrive."""
    requests: int = Field(default=600, ge=1)
    """Requests of one user per minute."""
    wrong_keys: int = Field(default=30, ge=1)
    """Wrong keys and tokens from one address per minute; more are answered with 429, right ones as ever."""
    bytes_per_user: int | None = Field(default=1_000_000_000, ge=0)
    """Bytes of one user's conversations with their files; 0: no limit."""
    sessions_per_user: int | None = Field(default=10_000, ge=0)
    """Conversations of one user; 0: no limit."""
    memories_per_user: int | None = Field(default=1_000_000, ge=0)
    """Messages of one user's conversations, of which memories are made; 0: no limit."""
    turns_per_user: int = Field(default=4, ge=1)
    """Questions of one user at the same time, on this host."""
    turns: int = Field(default=64, ge=1)
    """Questions at the same time, on this host."""
    streams_per_user: int = Field(default=50, ge=1)
    """Open event streams of one user, on this host."""
    counted_in: str | None = None
    """Where hosts count requests and share the limits of model servers, redis://...; left out: each for itself."""


class CorsConfig(Section):
    origins: tuple[str, ...] = ()
    """Origins (https://HOST) whose pages may call the service from a browser; none: no page of another origin may."""


class ServerConfig(Section):
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=4000, ge=0, le=65535)
    """Port to listen on."""
    workers: int = Field(default=1, ge=1, le=64)
    """Worker processes."""
    jwt: JwtConfig = JwtConfig()
    """How tokens are checked."""
    cors: CorsConfig = CorsConfig()
    """Pages of other origins."""
    hosts: tuple[str, ...] = Field(default=(), max_length=100)
    """Names (HOST or HOST:PORT) under which browsers reach the page, as behind a proxy; addresses, localhost and the
    name of this machine are always known."""
    limits: LimitsConfig = LimitsConfig()
    """Limits for one user and for all."""
    teams: dict[str, str] = Field(default_factory=dict[str, str], max_length=100)
    """More teams that requests may name: a configuration file each, of which agents, coordination and files count."""
    record: bool = True
    """Record memories and compress histories here; false: `massmem worker` does."""
    grace: float = Field(default=20, ge=0)
    """Seconds that a stopping process goes on with its questions; another process finishes the rest."""


class TelemetryConfig(Section):
    otel: bool = False
    """Send OpenTelemetry spans to where the variables OTEL_EXPORTER_OTLP_* say."""
    stages: str | None = None
    """File that gets a line of JSON for every question (received) and answer (respond): numbers and names only."""
    redact: tuple[str, ...] = ("api_key", "token", "password", "secret")
    """Keys whose values never leave the process."""


class TeamConfig(Section):
    """A whole configuration file."""

    session_id: str | None = None
    """Session to continue; the command line wins."""
    agents: tuple[AgentSpec, ...] = Field(min_length=1, max_length=100)
    """The council; `agent:` for one."""
    coordination: CoordinationConfig = CoordinationConfig()
    """How a turn runs."""
    memory: MemoryConfig = MemoryConfig()
    """The two tiers of memory."""
    files: FilesConfig = FilesConfig()
    """Files and pictures in questions."""
    store: StoreConfig = StoreConfig()
    """Where sessions are stored."""
    server: ServerConfig = ServerConfig()
    """The HTTP service."""
    telemetry: TelemetryConfig = TelemetryConfig()
    """Spans, stages and what they leave out."""
    params: dict[str, ParamConfig] = Field(default_factory=dict[str, ParamConfig], max_length=100)
    """Values that agents may ask the user for, by name."""
    allow_missing: bool = False
    """Go on without what a file of MassGen asks for and massmem lacks, and say what is left out; also --allow-missing.
    """
    source: str = ""
    """Not a key: the file that this configuration came from."""
    job: str = ""
    """Not a key: the job that the team does, see massmem.config.jobs."""
    note: str = ""
    """Not a key: what the user should know of who does the job."""
    variation: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Not a key: what the question changes of the team, see massmem.config.variation."""
    base: Any = None
    """Not a key: the TeamConfig without that; None: the same."""
    may_write: bool = False
    """Not a key: a question may let an agent program change files: it is asked on the command line."""

    @field_validator("params")
    @classmethod
    def _check_names(cls, params: dict[str, ParamConfig]) -> dict[str, ParamConfig]:
        for name in params:
            if not PARAM_NAME.fullmatch(name):
                raise ValueError(f"{name[:60]!r} must be 1 to 64 letters, digits or '_', with no digit first")
        return params

    @property
    def path(self) -> str:
        """The file that this configuration came from, wherever the working directory is; "" for none."""
        return str(Path(self.source).absolute()) if self.source else ""

    @property
    def param_specs(self) -> dict[str, ParamSpec]:
        return {name: ParamSpec(**dict(param)) for name, param in self.params.items()}

    @property
    def has_folders(self) -> bool:
        """Whether an agent may read a folder."""
        return bool(self.files.folders) or any(agent.folders for agent in self.agents)

    @property
    def may_ask_user(self) -> bool:
        ask_user = self.coordination.ask_user
        return bool(self.params) if ask_user is None else ask_user

    def select_agent(self, agent_id: str = "") -> Self:
        """Return the team of this agent alone; "": of the first one. Raises InputError when there is no such agent."""
        agent = next((agent for agent in self.agents if agent_id in ("", agent.id)), None)
        if agent is None:
            raise InputError(f"there is no agent {agent_id!r}", f"agents: {', '.join(a.id for a in self.agents)}")
        return self.model_copy(update={"agents": (agent,)})
