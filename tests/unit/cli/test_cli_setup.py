import os
from pathlib import Path

import pytest

from massmem.cli.setup import load_team, read_dotenv
from massmem.core.errors import ConfigError, InputError
from tests.support.cli import script, write_team


def test_limits_replace_the_configured_ones(tmp_path: Path, home: Path):
    path = write_team(tmp_path, script(), coordination={"timeout": 60, "max_rounds": 2})
    assert load_team(path, home).coordination.timeout == 60
    coordination = load_team(path, home, {"timeout": 2.5, "max_tokens": 9}).coordination
    assert (coordination.timeout, coordination.max_rounds) == (2.5, 2)


def test_warnings_are_written_once(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]):
    load_team(write_team(tmp_path, script(), ui={"display_type": "rich"}), home)
    assert capsys.readouterr().err.count("ui") == 1


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


@pytest.mark.parametrize("content", [b"KEY=\xff\xfe\n", b"KEY=a\x00b\n"])
def test_binary_dotenv_is_an_input_error(content: bytes, tmp_path: Path):
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        read_dotenv(tmp_path / ".env")
