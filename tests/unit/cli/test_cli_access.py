"""The secret that signs tokens of the HTTP service: where it comes from, and that one is made when there is none."""

import stat
from pathlib import Path

import pytest

from massmem.cli.access import SECRET, SECRET_FILE, add_secret, ensure_secret
from massmem.config.models import TeamConfig
from massmem.core.errors import HomeError
from tests.support.service import make_agent


def make_team(**jwt: object) -> TeamConfig:
    return TeamConfig.model_validate({"agents": [make_agent("ann", "x")], "server": {"jwt": jwt}})


def read_secret(team: TeamConfig) -> str | None:
    secret = team.server.jwt.secret
    return None if secret is None else secret.get_secret_value()


def test_secret_is_made_once_and_kept_private(tmp_path: Path):
    home = tmp_path / "new"
    team, notice = ensure_secret(make_team(), {}, home)
    file = home / SECRET_FILE
    assert read_secret(team) == file.read_text()
    assert len(file.read_text()) == 64
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert str(file) in notice
    assert file.read_text() not in notice
    assert [path.name for path in home.iterdir()] == [SECRET_FILE]
    again, second_notice = ensure_secret(make_team(), {}, home)
    assert (read_secret(again), second_notice) == (read_secret(team), "")


@pytest.mark.parametrize(
    ("jwt", "environ", "secret"),
    [
        ({"secret": "of the configuration 0123456789"}, {SECRET: "x"}, "of the configuration 0123456789"),
        ({}, {SECRET: "of the environment"}, "of the environment"),
        ({"keys": {"one": "0123456789"}}, {}, None),
        ({"algorithm": "RS256"}, {}, None),
    ],
)
def test_secret_that_is_configured_comes_first(
    tmp_path: Path, jwt: dict[str, object], environ: dict[str, str], secret: str | None
):
    team, notice = ensure_secret(make_team(**jwt), environ, tmp_path)
    assert (read_secret(team), notice) == (secret, "")
    assert not (tmp_path / SECRET_FILE).exists()


def test_empty_file_of_the_secret_is_an_error(tmp_path: Path):
    (tmp_path / SECRET_FILE).touch()
    with pytest.raises(HomeError, match="is empty") as e:
        ensure_secret(make_team(), {}, tmp_path)
    assert "delete it" in e.value.hint


def test_secret_that_cannot_be_read_is_an_error(tmp_path: Path):
    (tmp_path / SECRET_FILE).mkdir()
    with pytest.raises(HomeError, match="cannot be read"):
        add_secret(make_team(), {}, tmp_path)
