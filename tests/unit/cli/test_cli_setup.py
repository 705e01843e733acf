import os
from pathlib import Path

import pytest

from massmem.cli.setup import load_team, read_dotenv
from massmem.config.models import BackendConfig
from massmem.config.variation import Variation, make_agent, replace_model
from massmem.core.errors import ConfigError, InputError
from tests.support.cli import script, write_team

BACKEND = BackendConfig.model_validate(
    {"type": "openrouter", "model": "a/b", "api_key": "k", "base_url": "http://x", "temperature": 0.5}
)


def test_limits_replace_the_configured_ones(tmp_path: Path, home: Path):
    path = write_team(tmp_path, script(), coordination={"timeout": 60, "max_rounds": 2})
    assert load_team(path, home).coordination.timeout == 60
    coordination = load_team(path, home, {"timeout": 2.5, "max_tokens": 9}).coordination
    assert (coordination.timeout, coordination.max_rounds) == (2.5, 2)


def test_warnings_are_written_once(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]):
    load_team(write_team(tmp_path, script(), ui={"display_type": "rich"}), home)
    assert capsys.readouterr().err.count("ignored: ui") == 1


def test_own_configuration_is_the_default(tmp_path: Path, home: Path):
    folder = home / ".massmem"
    folder.mkdir()
    (folder / "config.yaml").write_text(Path(write_team(tmp_path, script(), script())).read_text())
    assert [a.id for a in load_team(None, folder).agents] == ["a", "b"]


def test_missing_configuration_suggests_a_similar_name(tmp_path: Path, home: Path):
    write_team(tmp_path, script())
    with pytest.raises(ConfigError) as missing:
        load_team(str(tmp_path / "taem.yaml"), home)
    assert "team.yaml" in missing.value.hint


def test_dotenv_does_not_override_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MASSMEM_TEST_SET", "kept")
    monkeypatch.setenv("MASSMEM_TEST_NEW", "")
    monkeypatch.delenv("MASSMEM_TEST_NEW")
    (tmp_path / ".env").write_text("MASSMEM_TEST_SET=lost\nMASSMEM_TEST_NEW='from file'\n")
    read_dotenv(tmp_path / ".env")
    assert (os.environ["MASSMEM_TEST_SET"], os.environ["MASSMEM_TEST_NEW"]) == ("kept", "from file")
    read_dotenv(tmp_path / "missing.env")


def test_read_dotenv_reports_a_line_without_a_variable(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / ".env").write_text("MASSMEM_TEST_GOOD=1\nnot a variable\n")
    read_dotenv(tmp_path / ".env")
    assert capsys.readouterr().err == (
        f"massmem: {tmp_path / '.env'}:2: this line does not count: it is not NAME=value\n"
    )
    del os.environ["MASSMEM_TEST_GOOD"]


@pytest.mark.parametrize("content", [b"KEY=\xff\xfe\n", b"KEY=a\x00b\n"])
def test_binary_dotenv_is_an_input_error(content: bytes, tmp_path: Path):
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        read_dotenv(tmp_path / ".env")


@pytest.mark.parametrize("model", ["c/d", "openrouter/c/d"])
def test_model_of_the_same_provider_keeps_the_settings(model: str):
    new = replace_model(BACKEND, model)
    assert (new.type, new.model, new.base_url, new.temperature) == ("openrouter", "c/d", "http://x", 0.5)


def test_model_of_another_provider_drops_key_and_address():
    new = replace_model(BACKEND, "anthropic/claude-sonnet-4-5")
    assert (new.type, new.model, new.base_url, new.api_key) == ("anthropic", "claude-sonnet-4-5", None, None)
    assert new.temperature == 0.5


def test_scripted_model_cannot_be_chosen():
    with pytest.raises(InputError, match="scripted"):
        replace_model(BACKEND, "scripted/x")


@pytest.mark.parametrize(
    ("model", "type_", "name"),
    [
        ("gpt-5", "openai", "gpt-5"),
        ("claude-sonnet-5", "anthropic", "claude-sonnet-5"),
        ("qwen3:8b", "ollama", "qwen3:8b"),
        ("gpt-oss:20b", "ollama", "gpt-oss:20b"),
        ("/models/x.gguf", "local", "/models/x.gguf"),
        ("groq/openai/gpt-oss-120b", "groq", "openai/gpt-oss-120b"),
        ("local", "local", ""),
    ],
)
def test_model_option_is_a_team_of_one_agent(model: str, type_: str, name: str, tmp_path: Path, home: Path):
    team = Variation(model=model).apply(load_team(write_team(tmp_path, script(), script()), home))
    assert [(a.id, a.backend.type, a.backend.model) for a in team.agents] == [("assistant", type_, name)]


def test_model_of_the_team_keeps_its_settings(tmp_path: Path, home: Path):
    path = tmp_path / "team.yaml"
    path.write_text("agent: {id: a, backend: {type: vllm, model: own-model, base_url: 'http://127.0.0.1:9/v1'}}")
    team = Variation(model="own-model").apply(load_team(str(path), home))
    assert team.agents[0].backend.base_url == "http://127.0.0.1:9/v1"


def test_model_of_an_unknown_provider_is_refused(tmp_path: Path, home: Path):
    with pytest.raises(InputError, match="the provider of the model 'phi' is not known") as refused:
        Variation(model="phi").apply(load_team(write_team(tmp_path, script()), home))
    assert "TYPE/MODEL" in refused.value.hint


@pytest.mark.parametrize("model", ["", " "])
def test_make_agent_refuses_an_empty_model(model: str):
    with pytest.raises(InputError, match="no model was named"):
        make_agent(load_team("@examples/local", Path()), model)


def test_system_option_stands_before_the_role_of_every_agent(tmp_path: Path, home: Path):
    path = tmp_path / "team.yaml"
    path.write_text(
        "agents:\n- {id: a, backend: {type: scripted}, system_message: You doubt.}\n"
        "- {id: b, backend: {type: scripted}}\n"
    )
    team = Variation(system="Be brief.").apply(load_team(str(path), home))
    assert [agent.system_message for agent in team.agents] == ["Be brief.\n\nYou doubt.", "Be brief."]
