import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.load import RESERVED_ID, find_config, load_config, load_default, resolve_agents
from massmem.core.errors import ConfigError
from massmem.memory.persistent import USER
from tests.support.configs import AGENT, SECRET, load, problems


@pytest.mark.parametrize(
    "text",
    [
        AGENT + "server: {port: '${S}'}\n",
        AGENT + "session_id: 'a/${S}'\n",
        AGENT + "store: {url: '${S}'}\n",
        AGENT + "memory: {persistent_memory: {qdrant: {url: '${S}', mode: '${S}', port: '${S}'}}}\n",
        AGENT + "server: {jwt: {secret: hunter2hunter2}}\n",
        AGENT + "server: {jwt: {secret: [hunter2hunter2]}}\n",
        AGENT + "    mcp_servers: [{name: f, command: x, env: {A: [hunter2hunter2]}, headers: hunter2hunter2}]\n",
        AGENT + "memory: {persistent_memory: {llm: {provider: openai, api_key: {hunter2hunter2: 1}}}}\n",
        AGENT + "coordination: {max_rounds: 'postgresql://me:hunter2hunter2@db'}\n",
        AGENT + "coordination: {max_rounds: sk-hunter2hunter2hunter2}\n",
        AGENT + "api_key: *hunter2hunter2\n",
        AGENT + "api_key: !hunter2hunter2 x\n",
        AGENT + "api_key: !hunter2!hunter2hunter2 x\n",
        AGENT + "api_key: 'hunter2hunter2\n",
        AGENT + "api_key: hunter2hunter2: [\n",
        AGENT + "api_key: [hunter2hunter2: {\n",
        AGENT + "    backend: {type: scripted, api_key: '${S}', base_url: '${S}'}\n",
    ],
)
def test_no_error_shows_a_secret(tmp_path: Path, text: str) -> None:
    found = problems(tmp_path, text, {"S": SECRET})
    # The name of an unknown key is no value.
    assert not any(SECRET in problem for problem in found if "unknown key" not in problem)


def test_repr_shows_no_secret(tmp_path: Path) -> None:
    text = f"""\
agent:
  id: a
  backend: {{type: openai, api_key: "${{S}}", base_url: "http://me:{SECRET}@host/v1"}}
  memory: {{persistent_memory: {{llm: {{provider: openai, api_key: {SECRET}}}}}}}
  mcp_servers:
    - {{name: f, command: x, args: [--token, "${{S}}"], env: {{T: {SECRET}}}}}
    - {{name: g, url: "https://h/?token={SECRET}", headers: {{A: {SECRET}}}}}
store: {{url: "postgresql://me:{SECRET}@db/x"}}
server: {{jwt: {{secret: {SECRET * 3}}}}}
memory: {{persistent_memory: {{qdrant: {{api_key: {SECRET}}}}}}}
"""
    team = load(tmp_path, text, {"S": SECRET})
    assert SECRET not in repr(team)
    assert SECRET not in repr(resolve_agents(team, {}))
    assert team.agents[0].backend.api_key is not None
    assert team.agents[0].backend.api_key.get_secret_value() == SECRET


def test_agents_get_the_teams_memory_with_their_own_laid_over(tmp_path: Path) -> None:
    text = """\
agents:
  - id: a
    backend: {type: scripted}
    memory: {retrieval: {limit: 20}, persistent_memory: {llm: {model: big}}}
  - id: b
    backend: {type: scripted}
    memory: {enabled: false, persistent_memory: {llm: {provider: ollama}, session_name: null}}
memory:
  retrieval: {limit: 7, max_tokens: 50}
  persistent_memory:
    llm: {provider: openai, model: small, api_key: k}
"""
    a, b = resolve_agents(load(tmp_path, text), {})
    assert (a.memory.retrieval.limit, a.memory.retrieval.max_tokens) == (20, 50)
    assert (b.memory.retrieval.limit, b.memory.enabled) == (7, False)
    assert a.memory.persistent_memory.llm is not None
    assert a.memory.persistent_memory.llm.model == "big"
    assert a.memory.persistent_memory.llm.provider == "openai"
    # Another provider inherits neither the model nor the key of the first.
    assert b.memory.persistent_memory.llm is not None
    assert b.memory.persistent_memory.llm.model is None
    assert b.memory.persistent_memory.llm.api_key is None
    assert not a.memory.persistent_memory.all_sessions
    assert b.memory.persistent_memory.all_sessions


def test_the_token_budget_decides_how_much_is_recalled_unless_a_number_is_given(tmp_path: Path) -> None:
    text = """\
agents:
  - {id: a, backend: {type: scripted}}
  - {id: b, backend: {type: scripted}, memory: {retrieval: {limit: null}}}
"""
    assert load(tmp_path, text).memory.retrieval.limit is None
    a, b = resolve_agents(load(tmp_path, text + "memory: {retrieval: {limit: 5}}\n"), {})
    assert (a.memory.retrieval.limit, b.memory.retrieval.limit) == (5, None)


@pytest.mark.parametrize(
    ("own", "team", "all_sessions", "name"),
    [
        ("", "", False, None),
        ("", "session_name: null", True, None),
        ("session_name: null", "", True, None),
        ("session_name: null", "session_name: x", True, None),
        ("session_name: y", "session_name: null", False, "y"),
        ("enabled: true", "session_name: x", False, "x"),
    ],
)
def test_no_session_name_is_not_null(tmp_path: Path, own: str, team: str, all_sessions: bool, name: str | None) -> None:
    text = AGENT + f"    memory: {{persistent_memory: {{{own}}}}}\nmemory: {{persistent_memory: {{{team}}}}}\n"
    memory = resolve_agents(load(tmp_path, text), {})[0].memory.persistent_memory
    assert (memory.all_sessions, memory.session_name) == (all_sessions, name)


def test_find_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("team.yaml").write_text(AGENT)
    assert find_config("team.yaml").read_text() == AGENT
    assert find_config("@examples/openai") == find_config("@examples/openai.yaml")
    for name, near in (
        ("taem.yaml", "did you mean team.yaml?"),
        ("@examples/opanai", "did you mean @examples/openai?"),
        ("@examples/../../etc/passwd", "did you mean @examples/"),
        ("openai", "did you mean @examples/openai?"),
        ("openai.yaml", "did you mean @examples/openai?"),
        ("q", "write one with: massmem init"),
        ("\x00", "shipped ones"),
        ("x" * 5_000, ""),
        ("~nobody-here/x.yaml", ""),
        ("no/such/folder.yaml", "shipped ones"),
    ):
        with pytest.raises(ConfigError) as caught:
            load_config(find_config(name), {})
        assert near in caught.value.hint
        assert len(str(caught.value)) < 6_000


@pytest.mark.parametrize(
    ("environ", "kind"),
    [
        ({"OPENAI_API_KEY": "k"}, "openai"),
        ({"ANTHROPIC_API_KEY": "k"}, "anthropic"),
        ({"GOOGLE_API_KEY": "k"}, "gemini"),
        ({"XAI_API_KEY": "k", "OPENAI_API_KEY": ""}, "grok"),
    ],
)
def test_default_by_key(tmp_path: Path, environ: dict[str, str], kind: str) -> None:
    team = load_default(environ, tmp_path).team
    assert [agent.backend.type for agent in team.agents] == [kind] * 3
    assert all(agent.backend.model for agent in team.agents)


@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "k"}, {"GEMINI_API_KEY": "k"}])
def test_team_that_massmem_chooses_remembers_across_conversations(tmp_path: Path, environ: dict[str, str]) -> None:
    agents = resolve_agents(load_default(environ, tmp_path).team, {})
    assert all(agent.memory.persistent_memory.all_sessions for agent in agents)


def test_default_is_the_users_own_file(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(AGENT)
    team = load_default({"OPENAI_API_KEY": "k"}, tmp_path).team
    assert team.source == str(tmp_path / "config.yaml")


HUGE = {
    "types": "agents:\n" + "  - {id: a, backend: {type: opnai}}\n" * 4_000,
    "aliases": "agents:\n  - &a {id: a, backend: {type: opnai, zz: 1}}\n" + "  - *a\n" * 3_000,
    "keys": "agents: []\n" + "".join(f"key{i}: 1\n" for i in range(19_000)),
    "filters": "agents:\n  - id: a\n    backend:\n      type: openai\n      exclude_tools: [" + "x," * 9_000 + "]\n"
    "      mcp_servers:\n" + "        - {name: x, command: y}\n" * 2_500,
    "references": AGENT + "    system_message: '" + "${" * 400_000 + "'\n",
    "unset": "agent: {id: a, backend: {type: scripted, script: {answer: [" + "'${ZZ}'," * 19_000 + "]}}}\n",
    "address": "agent: {id: a, backend: {type: openai, base_url: 'http://" + "[:" * 400_000 + "'}}\n",
    "session": AGENT + "session_id: '" + "a.." * 300_000 + "'\n",
}


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_hostile_files_are_answered_in_a_second(tmp_path: Path, text: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        load_config(path, {})
    except ConfigError as e:
        assert len(str(e)) < 20_000
    assert time.process_time() - start < 3, "seconds of CPU; about 0.5 on an idle machine"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150_000


def test_import_is_cheap() -> None:
    code = (
        "import sys, massmem.config.load; heavy = {'openai', 'anthropic', 'sqlalchemy', 'httpx2', 'rich', 'typer'}"
        " & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "any.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError):
        load_config(path, {})


_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["${A}", "${B:-1}", "openai", "sqlite://x"])
)
_KEYS = st.sampled_from(
    [
        "agent",
        "agents",
        "id",
        "backend",
        "type",
        "model",
        "base_url",
        "api_key",
        "memory",
        "persistent_memory",
        "llm",
        "provider",
        "retrieval",
        "limit",
        "coordination",
        "timeout",
        "orchestrator",
        "max_new_answers_per_agent",
        "timeout_settings",
        "store",
        "url",
        "server",
        "jwt",
        "secret",
        "mcp_servers",
        "exclude_tools",
        "env",
        "args",
        "name",
        "command",
        "ui",
        "cwd",
        "session_id",
        "script",
        "source",
    ]
) | st.text(max_size=5)
_DATA = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5), max_leaves=25
)


@given(st.dictionaries(_KEYS, _DATA, max_size=6))
def test_any_data(tmp_path: Path, data: dict[str, object]) -> None:
    path = tmp_path / "data.yaml"
    # JSON is YAML; escaped, so that every string gets through.
    path.write_text(json.dumps(data))
    try:
        team, _ = load_config(path, {"A": "x"})
        resolve_agents(team, {})
    except ConfigError as e:
        assert e.problems


def test_no_agent_may_pass_for_the_user(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("agents:\n  - {id: user, backend: {type: scripted}}\n")
    with pytest.raises(ConfigError, match=r"team\.yaml:2: agents\.0\.id: 'user' is the name of the person who asks"):
        load_config(path, {})
    assert RESERVED_ID == USER


STORES = "is no supported store; supported: sqlite://, postgresql://, redis://, rediss://, unix://"
ADDRESS = "must be an address such as http://localhost:8080"
ID = "must be 1 to 64 letters, digits, '_', '-' or '.', with no '-' or '.' first"
TRANSPORT = "give either command (stdio) or url (HTTP)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            AGENT + "  - {id: a, backend: {type: local}}\n",
            "4: agents.1.id: 'a' is already the id of the agent on line 2",
        ),
        (
            "    name: Ann\n  - {id: b, name: Ann, backend: {type: local}}\n",
            "5: agents.1.name: 'Ann' is already the name of the agent on line 4",
        ),
        (
            "  - {id: b, name: a, backend: {type: local}}\n",
            "4: agents.1.name: 'a' is already the id of the agent on line 2",
        ),
        (
            "    name: User\n",
            "4: agents.0.name: 'User' is the name of the person who asks; call the agent something else",
        ),
        ('    name: "two\\nlines"\n', "4: agents.0.name: must be one line of printable characters"),
        ("session_id: ../etc\n", "4: session_id: '../etc' must be 1 to 128 letters, digits, '_', '-' or '.'"),
        ("session_id: a..b\n", "4: session_id: 'a..b' must be 1 to 128 letters, digits, '_', '-' or '.'"),
        ("store: {url: postgrsql://db/x}\n", f"4: store.url: 'postgrsql://' {STORES} (did you mean 'postgresql'?)"),
        ("store: {url: mysql://me:hunter2hunter2@db/x}\n", f"4: store.url: 'mysql://' {STORES}"),
        ("store: {url: /tmp/x.db}\n", f"4: store.url: '/tmp/x.db' {STORES}; a file is written as sqlite:///PATH"),
        ("server: {jwt: {secret: short}}\n", "4: server.jwt.secret: must be at least 32 bytes"),
        ("    mcp_servers: [{name: f}]\n", f"4: agents.0.mcp_servers.0: {TRANSPORT}"),
        ("    mcp_servers: [{name: f, command: x, url: 'http://x'}]\n", f"4: agents.0.mcp_servers.0: {TRANSPORT}"),
        ("    mcp_servers: [{name: f, url: here}]\n", f"4: agents.0.mcp_servers.0.url: 'here' {ADDRESS}"),
        (
            "memory:\n  persistent_memory:\n    llm: {model: x}\n",
            "6: memory.persistent_memory.llm.provider: is missing",
        ),
        (
            "    memory: {persistent_memory: {llm: {model: x}}}\n",
            "4: agents.0.memory.persistent_memory.llm.provider: is missing",
        ),
        (
            "memory: {persistent_memory: {qdrant: {url: 'qdrant:6333'}}}\n",
            f"4: memory.persistent_memory.qdrant.url: 'qdrant:6333' {ADDRESS}",
        ),
    ],
)
def test_rules_outside_the_backend(tmp_path: Path, text: str, expected: str) -> None:
    text = text if text.startswith("agents") else AGENT + text
    assert problems(tmp_path, text) == [f"team.yaml:{expected}"]


@pytest.mark.parametrize(
    ("backend", "expected"),
    [
        ("type: openai, script: {}", "script: does not belong to type openai; only scripted has it"),
        (
            "type: openai, thinking_tokens: 2048",
            "thinking_tokens: does not belong to type openai; only anthropic, bedrock, vertex have it",
        ),
        ("type: local, base_url: 'http://x'", "base_url: does not belong to type local"),
        ("type: scripted, api_key: k", "api_key: does not belong to type scripted"),
        (
            "type: anthropic, thinking_tokens: 2048, max_tokens: 2048",
            "thinking_tokens: must be less than max_tokens, which counts thinking too",
        ),
        ("type: groq", "model: is missing: type groq needs the name of a model"),
        ("type: openai, base_url: 'models.lan:11434'", f"base_url: 'models.lan:11434' {ADDRESS}"),
        ("type: openai, base_url: 'http://[::1'", f"base_url: 'http://[::1' {ADDRESS}"),
    ],
)
def test_rules_of_a_backend(tmp_path: Path, backend: str, expected: str) -> None:
    text = f"agent:\n  id: a\n  backend: {{{backend}}}\n"
    assert problems(tmp_path, text) == [f"team.yaml:3: agent.backend.{expected}"]


@pytest.mark.parametrize(
    "url",
    ["sqlite:///x.db", "postgresql://h/x", "redis://h:6379/0", "rediss://h", "unix:///run/redis.sock?db=1", "memory:"],
)
def test_supported_stores_are_accepted(tmp_path: Path, url: str) -> None:
    assert load(tmp_path, AGENT + f"store: {{url: '{url}'}}\n").store.url == url


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("postgres://u@h/d", "postgresql://u@h/d"),
        ("postgresql+asyncpg://u@h/d", "postgresql://u@h/d"),
        ("Postgres+psycopg://u@h/d", "postgresql://u@h/d"),
        ("sqlite+aiosqlite:///x.db", "sqlite:///x.db"),
        (' "redis://h:6379/0"\n', "redis://h:6379/0"),
    ],
)
def test_address_of_a_store_is_taken_as_people_write_it(tmp_path: Path, written: str, url: str) -> None:
    text = AGENT + 'store: {url: "${URL}"}\n'
    assert load(tmp_path, text, {"URL": written}).store.url == url


def test_keys_and_addresses_lose_what_is_around_them(tmp_path: Path) -> None:
    text = """\
agent: {id: a, backend: {type: openai, model: m, api_key: " 'sk-1' ", base_url: "${BASE}"}}
memory: {persistent_memory: {qdrant: {mode: server, url: "${BASE}", api_key: "${KEY}"}}}
"""
    team = load(tmp_path, text, {"BASE": "http://h:1/v1\r\n", "KEY": '"qd-2"\n'})
    backend, qdrant = team.agents[0].backend, team.memory.persistent_memory.qdrant
    assert backend.api_key is not None
    assert qdrant.api_key is not None
    assert (backend.api_key.get_secret_value(), qdrant.api_key.get_secret_value()) == ("sk-1", "qd-2")
    assert (backend.base_url, qdrant.url) == ("http://h:1/v1", "http://h:1/v1")


def test_key_of_two_lines_is_refused_and_not_shown(tmp_path: Path) -> None:
    text = 'agent: {id: a, backend: {type: openai, api_key: "${KEY}"}}\n'
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, {"KEY": "sk-one\nsk-two"})
    assert "agent.backend.api_key: has a line break in it" in str(caught.value)
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("$OPENAI_API_KEY", "is the name of a variable, not its value"),
        ("Bearer sk-0123", "begins with 'Bearer', which is no part of it"),
        ("sk-schlüssel", "has characters that no key has (spaces, line breaks, quotes, letters beyond ASCII)"),
    ],
)
def test_keys_that_are_none_are_refused_in_every_section(tmp_path: Path, value: str, problem: str) -> None:
    text = (
        "agent: {id: a, backend: {type: openai, api_key: '${KEY}'}}\n"
        "memory: {persistent_memory: {embedding: {provider: openai, api_key: '${KEY}'}}}\n"
    )
    assert problems(tmp_path, text, {"KEY": value}) == [
        f"team.yaml:1: agent.backend.api_key: {problem}",
        f"team.yaml:2: memory.persistent_memory.embedding.api_key: {problem}",
    ]


def test_host_of_qdrant_is_no_address(tmp_path: Path) -> None:
    text = AGENT + "memory: {persistent_memory: {qdrant: {host: 'http://h'}}}\n"
    (problem,) = problems(tmp_path, text)
    assert problem.endswith("qdrant.host: must be the name of a machine; an address is given as url instead")


def test_all_problems_are_reported_at_once_with_lines_and_suggestions(tmp_path: Path) -> None:
    text = """\
agents:
  - id: a
    backend: {type: opnai}
    temperature: 1
  - id: a
    backend:
      type: openai
      temprature: 3
      max_tokens: none
    memory:
      retrieval: {limitt: 3}
cordination: {}
memory:
  enabled: maybe
  retrieval: [5]
server:
  port: 70000
"""
    messages = problems(tmp_path, text)
    assert messages[0].startswith(
        "team.yaml:3: agents.0.backend.type: 'opnai' is not one of openai, anthropic, bedrock, vertex, gemini,"
    )
    assert messages[0].endswith(" (did you mean 'openai'?)")
    assert messages[1:] == [
        "team.yaml:4: agents.0.temperature: unknown key (did you mean 'backend.temperature'?)",
        "team.yaml:5: agents.1.id: 'a' is already the id of the agent on line 2",
        "team.yaml:8: agents.1.backend.temprature: unknown key (did you mean 'temperature'?)",
        "team.yaml:9: agents.1.backend.max_tokens: must be a whole number, not 'none'",
        "team.yaml:11: agents.1.memory.retrieval.limitt: unknown key (did you mean 'limit'?)",
        "team.yaml:12: cordination: unknown key (did you mean 'coordination'?)",
        "team.yaml:14: memory.enabled: must be true or false, not 'maybe'",
        "team.yaml:15: memory.retrieval: must be a mapping, not a list",
        "team.yaml:17: server.port: must be less than or equal to 65535, not 70000",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("memory: {}\n", "1: agents: is missing: give agents (a list) or agent"),
        ("agents: []\n", "1: agents: must not be empty"),
        ("agents: {a: 1}\n", "1: agents: must be a list, not a mapping"),
        ("agents: [7]\n", "1: agents.0: must be a mapping, not 7"),
        ("agents:\n  - id: a\n", "2: agents.0.backend: is missing"),
        ("agents:\n  - backend: {type: scripted}\n", "2: agents.0.id: is missing"),
        ("agent:\n  id: a b\n  backend: {type: scripted}\n", f"2: agent.id: {ID}, not 'a b'"),
        ("agent:\n  id: 7\n  backend: {type: scripted}\n", "2: agent.id: must be text (put it in quotes), not 7"),
        ("agent:\n  id: a\n  backend: scripted\n", "3: agent.backend: must be a mapping, not 'scripted'"),
        ("agent: {id: a, backend: {type: openai, api_key: ''}}\n", "1: agent.backend.api_key: must not be empty"),
        (
            "agents:\n" + "".join(f"  - {{id: a{i}, backend: {{type: scripted}}}}\n" for i in range(101)),
            "1: agents: must have at most 100 entries",
        ),
        (AGENT + "source: x\n", "4: source: unknown key"),
        (AGENT + "a b: x\n", "4: 'a b': unknown key"),
        (AGENT + "memory:\n  retrieval:\n    limit: true\n", "6: memory.retrieval.limit: must be a number"),
        (
            AGENT + "memory:\n  retrieval:\n    max_tokens:\n",
            "6: memory.retrieval.max_tokens: must be a whole number, not null",
        ),
        (
            AGENT + "memory:\n  retrieval:\n    limit: -1\n",
            "6: memory.retrieval.limit: must be greater than or equal to 0, not -1",
        ),
        (AGENT + "coordination:\n  timeout: .inf\n", "5: coordination.timeout: must be a finite number, not inf"),
        (AGENT + "coordination:\n  timeout: .nan\n", "5: coordination.timeout: must be a finite number, not nan"),
        (
            AGENT + "coordination:\n  presentation: synthesise\n",
            "5: coordination.presentation: 'synthesise' is not one of auto, synthesize, as_is, report "
            "(did you mean 'synthesize'?)",
        ),
        (
            AGENT + "coordination: {max_rounds: " + "x" * 90 + "}\n",
            "4: coordination.max_rounds: must be a whole number, not '" + "x" * 58 + "…",
        ),
    ],
)
def test_message_of_one_problem(tmp_path: Path, text: str, expected: str) -> None:
    assert problems(tmp_path, text) == [f"team.yaml:{expected}"]


def test_massgen_words_are_suggested(tmp_path: Path) -> None:
    messages = problems(tmp_path, "agent: {id: a, backend: {type: chatcompletions}}\n")
    assert messages[0].endswith("(did you mean 'chatcompletion'?)")


def test_at_most_fifty_problems_are_listed(tmp_path: Path) -> None:
    text = AGENT + "".join(f"key{i}: 1\n" for i in range(5_000))
    messages = problems(tmp_path, text)
    assert len(messages) == 51
    assert messages[-1] == "team.yaml: and 4,950 more problems"


def test_empty_section_means_the_defaults(tmp_path: Path) -> None:
    team = load(tmp_path, AGENT + "memory:\n  # enabled: false\nstore:\n")
    assert team.memory.enabled
    assert team.store.url.startswith("sqlite")


def test_budgets_for_thinking_are_explained_once_for_all_agents(tmp_path: Path) -> None:
    agent = "{{id: {}, backend: {{type: anthropic, model: m, thinking_tokens: {}}}}}"
    file = tmp_path / "team.yaml"
    file.write_text(f"agents: [{agent.format('a', 2048)}, {agent.format('b', 2048)}, {agent.format('c', 20_000)}]")
    team, warnings = load_config(file, {})
    assert [member.backend.usual_effort for member in team.agents] == ["low", "low", "high"]
    (warning,) = warnings
    assert "2,048 as effort: low, 20,000 as effort: high" in warning


@pytest.mark.parametrize(
    ("backend", "problem"),
    [
        ("type: openai, api: chat, code_execution: true",
         "api: with code_execution, openai is asked by the Responses API: leave out api"),
        ("type: gemini, code_execution: true, extra_body: {top_k: 5}",
         "extra_body: with web_search or code_execution Gemini's own API is asked, without it"),
        (
            "type: groq, model: m, code_execution: true",
            "code_execution: does not belong to type groq; only anthropic, gemini, openai have it",
        ),
        ("type: openai, extra_body: {model: m}", "extra_body: massmem writes model itself"),
    ],
)  # fmt: skip
def test_fields_of_a_backend_that_exclude_each_other_are_named(tmp_path: Path, backend: str, problem: str):
    text = f"agents:\n  - id: a\n    backend: {{{backend}}}\n"
    assert problems(tmp_path, text) == [f"team.yaml:3: agents.0.backend.{problem}"]
