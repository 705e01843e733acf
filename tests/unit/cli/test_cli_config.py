import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from massmem.cli.main import main
from massmem.config.calibrations import find_calibration
from massmem.config.load import load_config, resolve_agents
from tests.support.cli import call_massmem, script, write_team
from tests.support.json_server import serve_posts

KEY = "sk-proj-0123456789abcdefghij"


@pytest.fixture
def team(tmp_path: Path) -> str:
    return write_team(tmp_path, script("one"), script("two"), coordination={"max_rounds": 2})


def test_valid_file(team: str, capsys: pytest.CaptureFixture[str]):
    assert main(["config", "validate", team]) == 0
    assert capsys.readouterr() == (f"{team}: valid; agents: a (scripted), b (scripted)\n", "")
    assert main(["config", "validate", team, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result == {"valid": True, "file": team, "warnings": [], "agents": ["a", "b"]}


@pytest.mark.parametrize("command", [("config", "validate"), ("config", "show"), ("doctor", "--offline")])
def test_file_is_an_argument_or_an_option(command: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    team = write_team(tmp_path, script("one"), memory={"enabled": False})
    assert main([*command, "--config", team, "--json"]) == 0
    by_option = capsys.readouterr().out
    assert team in by_option
    assert main([*command, team, "--json"]) == 0
    by_argument = capsys.readouterr().out
    assert team in by_argument
    assert by_argument == by_option or command[0] == "doctor", "doctor says how much room there is"
    assert main([*command, team, "--config", team, "--json"]) == 0
    capsys.readouterr()
    assert main([*command, team, "--config", "other.yaml"]) == 2
    assert f"two configurations were given: {team} and other.yaml" in capsys.readouterr().err


def test_all_problems_are_reported_with_their_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "team.yaml"
    path.write_text("agents:\n  - {id: a, backend: {type: opnai}}\ncordination: {}\n")
    assert main(["config", "validate", str(path)]) == 2
    err = capsys.readouterr().err
    assert f"{path}:2: agents.0.backend.type: 'opnai' is not one of" in err
    assert f"{path}:3: cordination: unknown key (did you mean 'coordination'?)" in err


def test_warning_does_not_make_it_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "team.yaml"
    path.write_text("agent: {id: a, backend: {type: scripted}}\nui: {display_type: rich}\n")
    assert main(["config", "validate", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}: valid")
    assert "ui" in err


def test_default_is_the_configuration_of_a_question(home: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["config", "validate"]) == 0
    assert "local.yaml: valid; agents: red (local)" in capsys.readouterr().out
    (home / ".massmem").mkdir()
    (home / ".massmem" / "config.yaml").write_text("agent: {id: me, backend: {type: scripted}}")
    assert main(["config", "validate"]) == 0
    assert capsys.readouterr().out == f"{home}/.massmem/config.yaml: valid; agents: me (scripted)\n"


@pytest.mark.parametrize("name", ["@examples/scripted", "@examples/local", "@examples/order"])
def test_shown_configuration_can_be_loaded_again(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["config", "show", name]) == 0
    path = tmp_path / "shown.yaml"
    path.write_text(capsys.readouterr().out)
    shown, warnings = load_config(path, {})
    meant, _ = load_config(name, {})
    assert warnings == []
    assert shown.model_copy(update={"source": ""}) == meant.model_copy(update={"source": ""})
    assert resolve_agents(shown, {}) == resolve_agents(meant, {})


def test_show_has_origins_and_no_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("SOME_KEY", KEY)
    path = tmp_path / "team.yaml"
    path.write_text("agent:\n  id: a\n  backend: {type: openai, model: m, api_key: '${SOME_KEY}'}\n")
    assert main(["config", "show", str(path)]) == 0
    text = capsys.readouterr().out
    assert KEY not in text
    assert f"environment, {path}:3" in next(line for line in text.splitlines() if "api_key: " in line)
    assert main(["config", "show", str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["config"] == yaml.safe_load(text)
    assert result["origins"]["agents.0.backend.model"] == f"{path}:3"
    assert result["origins"]["coordination.max_rounds"] == "default"


def test_schema_is_json(capsys: pytest.CaptureFixture[str]):
    assert main(["config", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["title"] == "massmem configuration"


def test_schema_comment_of_an_editor_is_accepted(team: str, capsys: pytest.CaptureFixture[str]):
    path = Path(team)
    path.write_text(f"# yaml-language-server: $schema=massmem.schema.json\n{path.read_text()}")
    assert main(["config", "validate", team]) == 0


def test_paths_are_listed_and_not_created(
    team: str, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MASSMEM_MODELS", "/srv/models")
    assert main(["paths", "--config", team, "--json"]) == 0
    own = home / ".massmem"
    assert json.loads(capsys.readouterr().out) == {
        "home": str(own),
        "config": team,
        "store": str(own / "massmem.db"),
        "registry": str(own / "sessions.json"),
        "memory": str(own / "memory"),
        "models": "/srv/models",
        "logs": str(own / "logs"),
        "debug_logs": str(Path.cwd() / ".massmem" / "massmem_logs"),
    }
    assert main(["paths", "--config", team]) == 0
    assert f"store       {own}/massmem.db\n" in capsys.readouterr().out
    assert not own.exists()


def test_urls_are_listed_without_passwords(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    memory = {"persistent_memory": {"qdrant": {"mode": "server", "url": "http://me:hunter2@box:6333"}}}
    team = write_team(tmp_path, script("one"), store={"url": "postgresql://me:hunter2@box/db"}, memory=memory)
    assert main(["paths", "--config", team]) == 0
    text = capsys.readouterr().out
    assert "hunter2" not in text
    assert "postgresql://me@box/db" in text
    assert "http://me@box:6333" in text


MASSGEN_TEAM = """\
agents:
  - id: coder
    backend: {type: antigravity_cli}
  - id: solo
    backend:
      type: scripted
      enable_mcp_command_line: true
      upload_files: [{file_path: notes.txt}]
      script: {answer: Noted.}
memory: {enabled: false}
"""


def test_question_to_a_team_of_massgen_goes_on_without_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    Path("team.yaml").write_text(MASSGEN_TEAM)
    Path("notes.txt").write_text("Buoys float.")
    refused = call_massmem("--config", "team.yaml", "What?")
    assert (refused.returncode, b"team.yaml:7: " in refused.stderr) == (2, True)
    assert b"--allow-missing" in refused.stderr
    ran = call_massmem("--allow-missing", "--config", "team.yaml", "--output", "jsonl", "What?")
    assert (ran.returncode, b"left out, missing here: running commands" in ran.stderr) == (0, True)
    started = next(event for line in ran.stdout.splitlines() if (event := json.loads(line))["type"] == "turn_started")
    assert (started["agents"], started["question"]) == (["solo"], "What?\n\n--- notes.txt ---\nBuoys float.")


def write_config(folder: Path, memory: dict[str, Any], **sections: Any) -> str:
    config = {
        "agent": {"id": "a", "backend": {"type": "scripted"}},
        "memory": {"persistent_memory": memory},
        **sections,
    }
    path = folder / "team.yaml"
    path.write_text(json.dumps(config))
    return str(path)


def test_a_configuration_that_would_not_open_is_not_valid(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Each of these was called valid, and failed with the first question."""
    database = tmp_path / "notes.db"
    database.write_text("no database")
    memory = {"embedding": {"model": "no-such-model"}, "llm": {"provider": "nobody", "model": "m"}}
    agents = [
        {"id": "a", "backend": {"type": "openai", "model": "m"}},
        {"id": "b", "backend": {"type": "scripted"}, "mcp_servers": [{"name": "x", "command": "no-such-program"}]},
        {"id": "c", "backend": {"type": "scripted"}, "folders": [str(tmp_path / "no-such-folder")]},
    ]
    path = tmp_path / "team.yaml"
    config = {"agents": agents, "memory": {"persistent_memory": memory}, "store": {"url": f"sqlite:///{database}"}}
    path.write_text(json.dumps(config))
    for option in ((), ("--offline",)):
        assert main(["config", "validate", str(path), *option]) == 2
        err = capsys.readouterr().err
        for words in (
            "OPENAI_API_KEY is not set", "'no-such-program' of the tool server x is not there", "no-such-folder",
            "there is no 'nobody'", "there is no local embedder 'no-such-model'", f"{database}",
        ):  # fmt: skip
            assert words in err


def test_servers_are_tried_unless_it_is_offline(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    team = write_config(
        tmp_path, {"qdrant": {"mode": "server", "port": 9}}, store={"url": "postgresql://127.0.0.1:9/x"}
    )
    assert main(["config", "validate", team]) == 2
    err = capsys.readouterr().err
    assert "index: " in err
    assert "store: postgresql://127.0.0.1:9/x cannot be reached" in err
    assert main(["config", "validate", team, "--offline"]) == 0


def test_a_damaged_calibration_is_not_valid(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    path = find_calibration(home / ".massmem", load_config(team, {})[0])
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert main(["config", "validate", team]) == 2
    assert f"calibration: {path}" in capsys.readouterr().err


def test_nothing_is_asked_and_nothing_is_left(stub_url: str, home: Path, tmp_path: Path):
    llm = {"provider": "openai", "model": "m", "api_key": KEY, "base_url": stub_url}
    assert main(["config", "validate", write_config(tmp_path, {"llm": llm})]) == 0
    assert not (home / ".massmem" / "memory").exists()


@pytest.fixture
def stub_url() -> Iterator[str]:
    def refuse(_: bytes) -> tuple[int, str, bytes]:
        raise AssertionError("a model was asked")

    with serve_posts(refuse) as url:
        yield f"{url}/v1"


def test_a_memory_that_cannot_work_is_said_also_to_scripts(home: Path, tmp_path: Path):
    """With --quiet nothing said that nothing was remembered, and the exit code was 0."""
    team = write_config(tmp_path, {"embedding": {"model": "no-such-model"}})
    ran = call_massmem("--config", team, "--quiet", "Hello?")
    assert (ran.returncode, ran.stdout) == (0, b"Answer of a.\n")
    assert b"there is no local embedder 'no-such-model'; what is said now is remembered later" in ran.stderr
    assert call_massmem("--config", team, "--quiet", "--strict", "Hello?").returncode == 7
    ran = call_massmem("--config", write_config(tmp_path, {}), "--quiet", "--strict", "Hello?")
    assert (ran.returncode, ran.stderr) == (0, b"")
