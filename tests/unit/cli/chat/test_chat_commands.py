import pytest

from massmem.cli.chat.commands import COMMANDS, find_command, format_help, translate_line
from massmem.core.errors import InputError

NAMES = (
    "help agents model memory remember forget context cost sessions resume rename export compact clear undo debug quit "
    "continue now solo retry edit copy fork"
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
        ("co", "did you mean /continue or /copy or /context or /cost or /compact?"),
        ("udno", "/undo"),
        ("", "list all with /help. To ask it, put a space before it"),
        ("x", "/help"),
    ],
)
def test_unknown_command_suggests_similar_ones(typed: str, hint: str):
    with pytest.raises(InputError, match="there is no command") as e:
        find_command(typed)
    assert hint in e.value.hint


@pytest.mark.parametrize(
    ("line", "meant"),
    [("exit", "/quit"), (" Bye ", "/quit"), ("help", "/help"), ("help me", "help me"), ("/help", "/help")],
)
def test_everyday_word_is_the_command_that_it_means(line: str, meant: str):
    assert translate_line(line) == meant
