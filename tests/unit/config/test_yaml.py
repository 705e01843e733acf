import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest

from massmem.config.load import resolve_agents
from massmem.config.yaml import MAX_DEPTH, read_yaml
from massmem.core.errors import ConfigError
from tests.support.configs import AGENT, SECRET, load, problems

BOMB = "a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 10)
)
ALIAS_TOWER = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 3_000))
MERGE_BOMB = "a0: &a0 {k: x}\n" + "".join(
    f"a{i}: &a{i} {{<<: [{','.join([f'*a{i - 1}'] * 9)}], k{i}: x}}\n" for i in range(1, 10)
)

TOO_DEEP = f":1: is nested deeper than {MAX_DEPTH} levels"

REFUSED = [
    (b"", "is empty: a team needs at least `agent:` with an id and a backend (`massmem init` writes"),
    (b"  \n\t\n", "is empty"),
    (b"# only a comment\n", "is empty"),
    (b"- a\n- b\n", "the top level must be a mapping of keys such as agents, not a list"),
    (b"hello\n", "the top level must be a mapping of keys such as agents, not a single value"),
    (b"a: 1\nb: \xff\n", ":2: is not UTF-8 text"),
    ("a: 1".encode("utf-16-le"), "holds the character"),
    (b"a: 1\nb: x\x00y\n", r":2: holds the character '\x00'"),
    (b"a: 1\nb: \x1b[31m\n", r":2: holds the character '\x1b'"),
    (b"a:\n\tb: 1\n", ":2: not valid YAML: a tab indents this line, use spaces"),
    (b"a: [1\nb: 2\n", ":2: not valid YAML: "),
    (b"a: {api_key: ${MY_KEY}}\n", ':1: put quotes around the variable: "${MY_KEY}"; without them'),
    (
        b"a:\n- {model: m, api_key: ${MY_KEY:-hunter}, x: 1}\n",
        ':2: put quotes around the variable: "${MY_KEY}"; without',
    ),
    (b"a: 'x\n", "not valid YAML: "),
    (b"a: x: y\n", ":1: not valid YAML: mapping values are not allowed"),
    (b"a: @x\n", ":1: not valid YAML: found character"),
    (b"a: !!python/object/apply:os.system ['true']\n", ":1: tags (!) mean nothing here"),
    (b"a: !secret x\n", ":1: tags (!) mean nothing here"),
    (b"a: 1\n---\nb: 2\n", ":2: a second document starts here"),
    (b"[a]: 1\n", ":1: a key must be plain text, not a list or a mapping"),
    (b"? {a: 1}\n: 1\n", ":1: a key must be plain text, not a list or a mapping"),
    (b"a: *x\n", ":1: this alias (*) has no anchor (&) before it"),
    (b"a: &x 1\nb: &x 2\n", ":2: an anchor (&) of this name is there before"),
    (b"a: &x [*x]\n", ":1: this alias (*) stands inside what it names"),
    (b"a: {<<: 5}\n", ":1: << takes a mapping or a list of mappings"),
    (b"a: " + b"[" * 10_000 + b"]" * 10_000, TOO_DEEP),
    (b"a: " + b"{a: " * 10_000, f":1: is nested deeper than {MAX_DEPTH} levels"),
    (
        b"a:\n" + b"".join(b" " * i + b"a:\n" for i in range(1, 1_000)),
        ":1000: is nested deeper than",
    ),
    (b"a:\n" + b"".join(b" " * i + b"a:\n" for i in range(1, 100)), f":41: is nested deeper than {MAX_DEPTH} levels"),
    (b"a: " + b"- " * 400_000, "not valid YAML"),
    (b"- " * 400_000, "is nested deeper"),
    (b"[" * 900_000, TOO_DEEP),
    (b"a: [" + b"x," * 400_000 + b"]", "holds more than 20,000 values"),
    (BOMB.encode(), "holds more than 20,000 values, aliases included"),
    (MERGE_BOMB.encode(), "holds more than 20,000 values, aliases included"),
    (ALIAS_TOWER.encode(), f":1: is nested deeper than {MAX_DEPTH} levels"),
    (b"a: x\n" * 190_000, "too large|more than 20,000|duplicate"),
]


@pytest.mark.parametrize(("content", "expected"), REFUSED, ids=range(len(REFUSED)))
def test_hostile_or_wrong_file_is_refused_quickly(tmp_path: Path, content: bytes, expected: str) -> None:
    path = tmp_path / "team.yaml"
    path.write_bytes(content)
    start = time.process_time()
    with pytest.raises(ConfigError) as caught:
        source = read_yaml(path)
        raise ConfigError([problem.message for problem in source.problems])
    assert time.process_time() - start < 3
    assert any(part in str(caught.value) for part in expected.split("|"))


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(100_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ConfigError, match="too large for a configuration: more than 1,000,000 bytes"):
            read_yaml(path)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak memory from /proc")
def test_alias_bomb_stays_small_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.yaml"
    path.write_text("agents:\n" + "  - &a {id: a, backend: {type: scripted}}\n" + "  - *a\n" * 5_000 + BOMB)
    # The peak of the new program alone: what the kernel counts for a child begins with its parent's size.
    code = (
        "import sys\n"
        "from massmem.config.load import load_config\n"
        "from massmem.core.errors import ConfigError\n"
        "try: load_config(sys.argv[1], {})\n"
        "except ConfigError: print(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=20)
    assert int(done.stdout) < 200_000


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("folder", "is a folder"),
        ("none.yaml", "there is no such file"),
        ("fifo", "is not a regular file"),
        ("a\x00b", "is not a possible file name"),
        ("x" * 4_000, "cannot be read: File name too long"),
        ("loop", "cannot be read: Too many levels of symbolic links"),
    ],
)
def test_path_that_is_no_regular_file_is_refused(tmp_path: Path, name: str, expected: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigError, match=expected):
        read_yaml(tmp_path / name)


def test_file_without_permission_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("a: 1\n")
    path.chmod(0)
    code = (
        "import os, sys, pathlib\n"
        "from massmem.config.yaml import read_yaml\n"
        "from massmem.core.errors import ConfigError\n"
        "if os.geteuid() == 0: os.seteuid(65534)\n"
        "try: read_yaml(pathlib.Path(sys.argv[1]))\n"
        "except ConfigError as e: print(e)\n"
    )
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == path.owner() and not folder.stat().st_mode & 0o001 and str(folder) != "/":
            folder.chmod(0o711)
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True, timeout=20)
    assert "cannot be read: Permission denied" in done.stdout


def test_duplicate_key_names_both_lines(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\na: 2\n'a': 3\n")
    source = read_yaml(path)
    assert [(p.path, p.message, p.line) for p in source.problems] == [
        (("b", "c"), "duplicate key, first on line 3", 5),
        (("a",), "duplicate key, first on line 1", 6),
        (("a",), "duplicate key, first on line 1", 7),
    ]


def test_values_aliases_and_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(
        """\
\ufeffbase: &base {x: 1, y: [a]}
list:
  - no
  -
    k: 12:30
copy: *base
merged:
  <<: *base
  y: 2026-01-01
words: [~, null, true, FALSE, 0x1f, 0o17, 010, -7, 1.5, 1e3, .5, "1", '', !!str 5, yes, "${A}", 1_000]
block: |
  two
  lines
again: [*base]
big: 123456789012345678901234567890123456789012345678901234567890
"""
    )
    source = read_yaml(path)
    assert source.data == {
        "base": {"x": 1, "y": ["a"]},
        "list": ["no", {"k": "12:30"}],
        "copy": {"x": 1, "y": ["a"]},
        "merged": {"x": 1, "y": "2026-01-01"},
        "words": [None, None, True, False, 31, 15, 10, -7, 1.5, 1000.0, 0.5, "1", "", "5", "yes", "${A}", "1_000"],
        "block": "two\nlines\n",
        "again": [{"x": 1, "y": ["a"]}],
        "big": "123456789012345678901234567890123456789012345678901234567890",
    }
    assert source.lines[("list", 1, "k")] == 5
    assert source.lines[("again", 0, "x")] == 1  # where it is written
    assert source.lines[("merged", "y")] == 9
    assert source.lines[("merged", "x")] == 8
    assert source.lines[("copy",)] == source.lines[("copy", "x")] == source.lines[("copy", "y", 0)] == 6


def test_numbers_and_switches_from_the_environment(tmp_path: Path) -> None:
    text = AGENT + "server: {port: '${PORT}'}\nmemory: {enabled: '${ON:-no}'}\n"
    team = load(tmp_path, text, {"PORT": "8080"})
    assert (team.server.port, team.memory.enabled) == (8080, False)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${NAME}", "Ada"),
        ("Hello ${NAME}!", "Hello Ada!"),
        ("${NONE:-you}", "you"),
        ("${EMPTY:-you}", "you"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("$${NAME}", "${NAME}"),
        ("$NAME costs $5 and ${", "$NAME costs $5 and ${"),
        ("${NESTED}", "${NAME}"),
        ("${YAML}", "x: [1\n- {"),
    ],
)
def test_expansion(tmp_path: Path, value: str, expected: str) -> None:
    environ = {"NAME": "Ada", "EMPTY": "", "NESTED": "${NAME}", "YAML": "x: [1\n- {"}
    team = load(tmp_path, AGENT + f"    system_message: {json.dumps(value)}\n", environ)
    assert team.agents[0].system_message == expected


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("redis://", {"REDIS_URL": "redis://cache:6380/2"}, "redis://cache:6380/2"),
        ("redis://", {}, "redis://localhost:6379"),
        ("redis://host/1", {"REDIS_URL": "redis://cache:6380/2"}, "redis://host/1"),
    ],
)
def test_address_of_redis_is_read_where_the_configuration_has_none(
    tmp_path: Path, url: str, environ: dict[str, str], expected: str
) -> None:
    assert load(tmp_path, AGENT + f"store: {{url: '{url}'}}\n", environ).store.url == expected


def test_unset_variables_are_all_named(tmp_path: Path) -> None:
    text = """\
agent:
  id: a
  backend:
    type: openai
    api_key: ${OPENAI_API_KEY}
  system_message: ${WHO} ${a b}
"""
    assert problems(tmp_path, text) == [
        "team.yaml:5: agent.backend.api_key: OPENAI_API_KEY is not set (set it: export OPENAI_API_KEY=..., or a line "
        "OPENAI_API_KEY=... in .env; $${ is a literal ${)",
        "team.yaml:6: agent.system_message: ${...} takes a variable's name or NAME:-default; "
        "write $${ for a literal ${",
        "team.yaml:6: agent.system_message: WHO is not set (set it: export WHO=..., or a line WHO=... in .env; "
        "$${ is a literal ${)",
    ]


def test_expansion_cannot_fill_the_memory(tmp_path: Path) -> None:
    text = AGENT + f"    system_message: '{'${BIG}' * 100_000}'\n"
    messages = problems(tmp_path, text, {"BIG": "x" * 100_000})
    assert messages == [
        "team.yaml:4: agents.0.system_message: the values from the environment make more than 1,000,000 characters"
    ]


def test_bytes_in_the_environment_that_are_no_text(tmp_path: Path) -> None:
    messages = problems(tmp_path, AGENT + "    system_message: ${BAD}\n", {"BAD": os.fsdecode(b"\xff")})
    assert messages == ["team.yaml:4: agents.0.system_message: the environment variable BAD is not UTF-8"]


def test_environment_overrides_the_history_settings(tmp_path: Path) -> None:
    text = AGENT + "    memory: {conversation_memory: {max_messages: 9}}\n"
    environ = {
        "CONVERSATION_HISTORY_ENABLED": "False",
        "CONVERSATION_HISTORY_MAX_MESSAGES": "4",
        "CONVERSATION_HISTORY_MAX_TOKENS": "",
    }
    team = load(tmp_path, text, environ)
    history = resolve_agents(team, environ)[0].memory.conversation_memory
    assert (history.enabled, history.max_messages, history.max_tokens) == (False, 4, None)


def test_wrong_environment_overrides_are_problems(tmp_path: Path) -> None:
    environ = {"CONVERSATION_HISTORY_ENABLED": SECRET, "CONVERSATION_HISTORY_MAX_TOKENS": "-1"}
    assert problems(tmp_path, AGENT + "x: 1\n", environ) == [
        "team.yaml:4: x: unknown key",
        "environment: CONVERSATION_HISTORY_ENABLED: must be true or false",
        "environment: CONVERSATION_HISTORY_MAX_TOKENS: must be a whole number",
    ]
    with pytest.raises(ConfigError):
        resolve_agents(load(tmp_path, AGENT), environ)
