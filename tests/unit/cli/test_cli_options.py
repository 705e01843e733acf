import os
import re
from datetime import datetime, timedelta

import pytest
import typer
from typer.main import get_command

from massmem.cli.commands import COMMANDS
from massmem.cli.options import RunOptions, app, format_time, parse_duration, parse_since
from massmem.core.errors import InputError
from tests.support.cli import call_massmem

NOW = datetime(2026, 11, 21, 12).astimezone()


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("30m", timedelta(minutes=30)),
        ("24h", timedelta(hours=24)),
        (" 7D ", timedelta(days=7)),
        ("4 w", timedelta(weeks=4)),
        ("0h", timedelta()),
        ("90s", timedelta(seconds=90)),
    ],
)
def test_durations(text: str, length: timedelta):
    assert parse_duration(text) == length
    assert parse_since(text, NOW) == NOW - length


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1.5h", "1y", "24h or so", "9999999d", "999999999w"])
def test_invalid_durations(text: str):
    with pytest.raises(InputError, match="is not a duration"):
        parse_duration(text)


def test_dates_and_times_are_local():
    assert parse_since("2026-11-20", NOW) == datetime(2026, 11, 20).astimezone()
    assert parse_since("2026-11-20T14:30", NOW) == datetime(2026, 11, 20, 14, 30).astimezone()
    assert parse_since("2026-11-20T14:30+00:00", NOW).timestamp() == 1795185000
    assert format_time(datetime(2026, 11, 20, 14, 30).astimezone()) == "2026-11-20 14:30"


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "0001-01-01T00:00", "2026-11-20T99:00"])
def test_invalid_times(text: str):
    try:
        parse_since(text, NOW)
    except InputError as e:
        assert "is not a time" in e.message
    else:
        assert text == "0001-01-01T00:00"  # valid where the time zone allows it


def parse(*arguments: str) -> object:
    command = get_command(app)
    with command.make_context("massmem", list(arguments)) as context:
        return command.invoke(context)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        ([], RunOptions()),
        (["why?"], RunOptions("why?")),
        (["-"], RunOptions("-")),
        (["why?", "--quiet", "--config", "t.yaml"], RunOptions("why?", config="t.yaml", quiet=True)),
        (["--config=t.yaml", "why?", "-q"], RunOptions("why?", config="t.yaml", quiet=True)),
        (["--", "--help"], RunOptions("--help")),
        (["--quiet", "--", "-5 + 3?"], RunOptions("-5 + 3?", quiet=True)),
        (["--session-id", "s", "--timeout", "2.5"], RunOptions(session_id="s", limits={"timeout": 2.5})),
        (
            ["--max-cost", "0.5", "--max-tokens", "900", "--no-store", "x"],
            RunOptions("x", limits={"max_cost": 0.5, "max_tokens": 900}, no_store=True),
        ),
        (["--output", "jsonl", "--strict", "x"], RunOptions("x", output="jsonl", strict=True)),
        (["--continue", "and then?"], RunOptions("and then?", newest=True)),
        (["-c"], RunOptions(newest=True)),
        (["-f", "a.txt", "why?", "--file", "b.txt"], RunOptions("why?", ("a.txt", "b.txt"))),
        (["--list-sessions", "--json"], RunOptions(list_sessions=True, as_json=True)),
        (["--json", "x"], RunOptions("x", output="json", as_json=True)),
        (
            ["-m", "gpt-5", "-s", "Be brief.", "-p", "x"],
            RunOptions("x", model="gpt-5", system="Be brief.", is_single=True),
        ),
        (["-r"], RunOptions(choose_session=True)),
        (["--debug", ""], RunOptions("", debug=True)),
    ],
)
def test_parsed_options(line: list[str], options: RunOptions):
    assert parse(*line) == options


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (["what", "is", "up"], "must be one argument, but 3"),
        (
            ["--session-id", "--config", "team.yaml", "hi"],
            "--config cannot be a session id: has --session-id no value?",
        ),
        (["--timeout", "0", "x"], "above 0"),
        (["--timeout", "nan", "x"], "above 0"),
        (["--timeout", "inf", "x"], "above 0"),
        (["--max-cost", "0", "x"], "--max-cost 0 is not an amount of dollars above 0"),
        (["--max-tokens", "-1", "x"], "--max-tokens -1 is not a number of tokens above 0"),
        (["-r", "-c", "x"], "--continue and --resume exclude each other"),
        (["--no-store", "-r", "x"], "--no-store and --resume exclude each other"),
        (["--no-store", "-c", "x"], "--no-store and --continue exclude each other"),
        (["--no-store", "--debug", "x"], "--no-store and --debug"),
        (["--no-store", "--session-id", "s", "x"], "--no-store and --session-id"),
    ],
)
def test_refused_options(line: list[str], message: str):
    with pytest.raises(InputError, match=message):
        parse(*line)


@pytest.mark.parametrize("line", [["--nope"], ["--config"], ["--output", "xml"], ["--timeout", "soon"]])
def test_unknown_options_and_values(line: list[str]):
    with pytest.raises(typer.TyperException):
        parse(*line)


def test_help_lists_options_and_commands():
    text = call_massmem("--help").stdout.decode()
    for name in ("config", "session-id", "list-sessions", "json", "output", "quiet", "strict", "timeout", "debug",
                 "max-cost", "max-tokens", "no-store"):  # fmt: skip
        assert re.search(rf"^.*--{name}\b", text, re.MULTILINE), name
    for name, command in COMMANDS.items():
        assert re.search(rf"^\s+{name}\s+{re.escape(command.summary)}$", text, re.MULTILINE)


@pytest.mark.parametrize(
    ("line", "cword", "offers"),
    [("mo", 1, ["models"]), ("--li", 1, ["--list-sessions"]), ("ask --q", 2, ["--quiet"]), ("models f", 2, ["fetch"])],
)
def test_shell_completion_of_commands_and_options(line: str, cword: int, offers: list[str]):
    environ = os.environ | {
        "_MASSMEM_COMPLETE": "complete_bash",
        "COMP_WORDS": f"massmem {line}",
        "COMP_CWORD": str(cword),
    }
    assert call_massmem(env=environ).stdout.decode().split() == offers
