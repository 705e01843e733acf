import pytest

from massmem.cli.chat.program_commands import help_text
from massmem.cli.chat.table import COMMANDS, find
from massmem.errors import InputError

WANTED = (
    "help agents model memory remember forget context cost sessions resume rename export compact clear undo debug quit "
    "continue"
)


def test_every_command_is_there_and_is_explained():
    assert set(COMMANDS) == set(WANTED.split())
    text = help_text(list(COMMANDS.values()))
    for command in COMMANDS.values():
        assert f"/{command.name}" in text
        assert command.summary.endswith(".")
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("typed", "meant"), [("help", "help"), ("res", "resume"), ("u", "undo")])
def test_a_beginning_is_enough_where_it_is_clear(typed: str, meant: str):
    assert find(typed).name == meant


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("co", "did you mean /continue or /context or /cost or /compact?"),
        ("udno", "/undo"),
        ("", "/help"),
        ("x", "/help"),
    ],
)
def test_what_is_no_command_is_told_with_what_may_be_meant(typed: str, hint: str):
    with pytest.raises(InputError, match="there is no command") as e:
        find(typed)
    assert hint in e.value.hint
