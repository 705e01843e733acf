import os
import subprocess
import sys
from pathlib import Path

import pytest

from massmem import __version__
from massmem.cli.commands import COMMANDS, Command
from massmem.cli.main import main
from tests.support.cli import call_massmem, script, write_team
from tests.support.forked import ForkedServer
from tests.test_architecture import HEAVY

LIGHT = [["--help"], ["--nope"], ["--list-sessions"], ["--list-sessions", "--json"]]


def test_start_up_loads_no_heavy_package():
    code = f"""
import sys
from massmem.cli.main import main
for line in {LIGHT}:
    main(line)
print(*(m for m in sys.modules if "." not in m), file=sys.stderr)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ran.stderr.splitlines()[-1].split())
    assert "massmem" in loaded
    assert loaded & (HEAVY | {"yaml", "asyncio", "rich"}) == set()


def test_version(capsys: pytest.CaptureFixture[str]):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"massmem {__version__}\n"


def test_usage_error_is_one_message_and_exit_2(capsys: pytest.CaptureFixture[str]):
    assert main(["--sesion-id", "x"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("massmem: No such option: --sesion-id")
    assert "massmem --help" in err


def test_reason_of_a_usage_error_is_in_plain_words(capsys: pytest.CaptureFixture[str]):
    assert main(["--show", "nope", "x"]) == 2
    assert "Value error" not in capsys.readouterr().err
    assert main(["-5 + 3?"]) == 2
    assert capsys.readouterr().err.endswith("a question that begins with '-' follows '--': massmem -- '-5 + 3?'\n")


def test_bug_is_exit_70_with_a_log_and_no_traceback(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(COMMANDS, "broken", Command("massmem.no_such_module", "A command whose module is missing."))
    assert main(["broken"]) == 70
    (log,) = (home / ".massmem" / "logs").glob("crash-*.log")
    assert capsys.readouterr().err == (
        "massmem: this is a bug in massmem: ModuleNotFoundError: No module named 'massmem.no_such_module'\n"
        f"  please report it with this file: {log}\n"
    )


@pytest.mark.parametrize(
    "line",
    [
        "import ~nobody-here/export.json",
        "store import ~nobody-here/x.db",
        "store recover ~nobody-here/x.db --to out",
        "store recover x.db --to ~nobody-here/out",
        "models fetch --from ~nobody-here/x.gguf",
        "ask hello --config @examples/scripted -f ~nobody-here/notes.txt",
        "ask hello -m local/~nobody-here/x.gguf",
    ],
)
def test_unknown_home_folder_is_the_users_mistake(line: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    assert "massmem: ~nobody-here/" in (err := capsys.readouterr().err)
    assert "this home folder is not known\n  write the whole path\n" in err


@pytest.mark.parametrize(
    "line",
    [
        "sessions list --limit {n}",
        "sessions list --offset {n}",
        "sessions show s --turn {n}",
        "sessions fork s --turn {n}",
        "memory forget --turn {n} --yes",
        "memory list --turn {n}",
        "replay s --turn {n}",
        *(f"eval data.jsonl --max-cost {cost}" for cost in ("0", "-1", "nan", "inf")),
        "memory search x --as-of 9999-12-31T23:00-12:00",
    ],
)
def test_value_that_nothing_takes_is_the_users_mistake(line: str, capsys: pytest.CaptureFixture[str]):
    reasons = {
        "{n}": "should be less than or equal to 1000000",
        "--max-cost": "is not an amount of dollars above 0",
        "--as-of": "is no date",
    }
    assert main(line.format(n=10**20).split()) == 2
    assert next(reason for part, reason in reasons.items() if part in line) in capsys.readouterr().err


def test_replay_takes_a_lost_database_for_no_new_home(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = write_team(tmp_path, script())
    assert main(["ask", "What is lost?", "--config", config]) == 0
    for path in (home / ".massmem").glob("massmem.db*"):
        path.unlink()
    capsys.readouterr()
    assert main(["replay", "session_", "--turn", "1", "--config", config]) == 3
    assert "is missing" in capsys.readouterr().err
    assert not (home / ".massmem" / "massmem.db").exists()


def test_continued_session_has_each_warning_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = write_team(tmp_path, script(), ui={"theme": "dark"})
    for options in ([], ["--continue"]):
        capsys.readouterr()
        assert main(["ask", "Once?", "--config", config, *options]) == 0
        assert capsys.readouterr().err.count("are ignored: ui") == 1


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_help(name: str):
    ran = call_massmem(name, "--help")
    assert (ran.returncode, ran.stderr) == (0, b"")
    assert b"Usage: massmem" in ran.stdout


def test_closed_pipe_is_quiet():
    ran = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m massmem --help | true"], capture_output=True, check=False
    )
    assert ran.stderr == b""
    assert ran.returncode in {0, 141}


def test_closed_streams_are_no_error():
    ran = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m massmem --version <&- >&- 2>&-"], capture_output=True, check=False
    )
    assert ran.returncode == 0


FULL = Path("/dev/full")


def run_in_files(out: Path, err: Path, *arguments: str) -> int | None:
    """Return the exit code of a process that writes into these files."""
    return ForkedServer(arguments, os.environ, err, out).wait(90)


@pytest.mark.parametrize("line", [["--list-sessions"], ["--config", "TEAM", "--output", "jsonl", "Why?"]])
def test_full_disk_under_stdout_is_an_error(tmp_path: Path, line: list[str]):
    team = write_team(tmp_path, script("the answer"))
    assert run_in_files(FULL, tmp_path / "err", *(team if word == "TEAM" else word for word in line)) == 1
    assert "massmem: standard output cannot be written: No space left on device" in (tmp_path / "err").read_text()


def test_full_disk_under_stderr_does_not_cost_the_answer(tmp_path: Path):
    team = write_team(tmp_path, script("the answer"))
    assert run_in_files(tmp_path / "out", FULL, "--config", team, "Why?") == 0
    assert (tmp_path / "out").read_text() == "the answer\n"


def test_question_is_answered_when_a_library_of_the_memory_cannot_be_loaded(tmp_path: Path):
    team = write_team(tmp_path, script("the answer"), memory={})
    program = "import sys; sys.modules['numpy'] = None; from massmem.cli.main import main; sys.exit(main())"
    ran = subprocess.run(
        [sys.executable, "-c", program, "--config", team, "Why?"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, b"the answer\n")


def test_command_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]):
    assert main(["models"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.startswith("Usage: massmem models")) == ("", True)


def test_mistake_in_a_command_points_to_its_help(capsys: pytest.CaptureFixture[str]):
    assert main(["models", "nope"]) == 2
    assert capsys.readouterr().err == (
        "massmem: No such command 'nope'.\n  see the options with: massmem models --help\n"
    )
    assert main(["sessions", "fork", "x", "--event", "0"]) == 2
    assert capsys.readouterr().err.endswith("see the options with: massmem sessions fork --help\n")
