import pytest

from massmem.cli.commands import COMMANDS, refuse_mistyped_command, translate_everyday_word
from massmem.core.errors import InputError
from tests.support.cli import call_massmem


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["modles"], "massmem models"),
        (["sesions", "list"], "massmem sessions list"),
        (["sesions", "show", "a trip", "--all"], "massmem sessions show 'a trip' --all"),
    ],
)
def test_mistyped_command_is_not_asked(line: list[str], meant: str):
    with pytest.raises(InputError) as refused:
        refuse_mistyped_command(line)
    assert refused.value.message == f"{line[0]!r} is not a command"
    assert refused.value.hint == f'did you mean: {meant}? To ask it as a question: massmem ask "{line[0]}"'


@pytest.mark.parametrize("line", [["models of the atom"], ["why?"], ["models"], ["--config", "a.yaml", "why?"]])
def test_question_or_command_is_not_refused(line: list[str]):
    refuse_mistyped_command(line)


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["help"], ["--help"]),
        (["help", "sessions"], ["sessions", "--help"]),
        (["version"], ["--version"]),
        (["chat"], []),
        (["chat", "--config", "team.yaml"], ["--config", "team.yaml"]),
        (["help me"], ["help me"]),
        (["chat", "bots"], ["chat", "bots"]),
    ],
)
def test_everyday_word_is_the_option_that_it_means(line: list[str], meant: list[str]):
    assert translate_everyday_word(line) == meant


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("login", "massmem has no account, so there is no login"),
        ("update", "massmem cannot update itself"),
        ("upgrade", "massmem cannot upgrade itself"),
    ],
)
def test_word_without_a_command_is_answered_and_not_asked(word: str, message: str):
    ran = call_massmem(word)
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert ran.stderr.decode().startswith(f"massmem: {message}\n")
    assert f'massmem ask "{word}"' in ran.stderr.decode()


def test_help_and_version_are_answered():
    assert call_massmem("help").stdout == call_massmem("--help").stdout
    assert call_massmem("help", "memory").stdout == call_massmem("memory", "--help").stdout
    assert call_massmem("version").stdout == call_massmem("--version").stdout


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_is_not_cut_and_names_no_types_of_numbers(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = call_massmem(name, "--help").stdout.decode()
    assert not [line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage")]
    assert max(map(len, text.splitlines())) <= 80
    assert "<int" not in text
    is_group = "\nCommands:\n" in text and name != "ask"
    assert ("COMMAND [ARGS]" in text) == is_group
