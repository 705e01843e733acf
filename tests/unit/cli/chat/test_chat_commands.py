import pytest

from massmem.cli.chat.commands import COMMANDS, find_command, format_help, replace_model
from massmem.config.models import BackendConfig
from massmem.core.errors import InputError

NAMES = (
    "help agents model memory remember forget context cost sessions resume rename export compact clear undo debug quit "
    "continue"
)
BACKEND = BackendConfig.model_validate(
    {"type": "openrouter", "model": "a/b", "api_key": "k", "base_url": "http://x", "temperature": 0.5}
)


def test_help_explains_every_command():
    assert set(COMMANDS) == set(NAMES.split())
    text = format_help()
    for command in COMMANDS.values():
        assert f"/{command.name}" in text
        assert command.summary.endswith(".")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("typed", "name"), [("help", "help"), ("res", "resume"), ("u", "undo")])
def test_unique_start_of_a_name_is_enough(typed: str, name: str):
    assert find_command(typed).name == name


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("co", "did you mean /continue or /context or /cost or /compact?"),
        ("udno", "/undo"),
        ("", "/help"),
        ("x", "/help"),
    ],
)
def test_unknown_command_suggests_similar_ones(typed: str, hint: str):
    with pytest.raises(InputError, match="there is no command") as e:
        find_command(typed)
    assert hint in e.value.hint


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
