import errno
import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from massmem.cli.errors import find_json_format, report_bug, report_error, to_machine_error
from massmem.core.errors import ConfigError, RateLimited, UnknownSessionError


@pytest.mark.parametrize(
    ("line", "output"),
    [
        ("", None),
        ("--output json q", "json"),
        ("q --output=jsonl", "jsonl"),
        ("--output live", None),
        ("--output xml", None),
        ("models list --json", "json"),
        ("replay s --turn 1 -o json", "json"),
        ("-- --output json", None),
        ("--output", None),
    ],
)
def test_json_format_is_read_from_raw_arguments(line: str, output: str | None):
    assert find_json_format(line.split()) == output


def test_error_is_a_message_and_a_hint(capsys: pytest.CaptureFixture[str]):
    assert report_error(UnknownSessionError("there is no session 'x'", "did you mean y?"), []) == 5
    assert capsys.readouterr() == ("", "massmem: there is no session 'x'\n  did you mean y?\n")


def test_config_problems_are_a_line_each(capsys: pytest.CaptureFixture[str]):
    assert report_error(ConfigError(["t.yaml:1: a: wrong", "t.yaml:2: b: wrong"]), []) == 2
    assert capsys.readouterr().err == "massmem: t.yaml:1: a: wrong\nt.yaml:2: b: wrong\n"


@pytest.mark.parametrize(("mode", "first"), [("json", {"schema_version": 1}), ("jsonl", {"type": "error"})])
def test_programs_get_one_json_object(mode: str, first: dict[str, object], capsys: pytest.CaptureFixture[str]):
    report_error(RateLimited("slow down", "wait"), ["--output", mode])
    out, err = capsys.readouterr()
    assert json.loads(out) == {**first, "status": "error", "error": "slow down", "fix": "wait", "exit_code": 3}
    assert err == "massmem: slow down\n  wait\n"


def test_secrets_and_control_sequences_are_removed(capsys: pytest.CaptureFixture[str]):
    report_error(RateLimited("\x1b[2Jkey sk-abcdefghijklmnopqrstuvwxyz0123 refused"), ["--json"])
    out, err = capsys.readouterr()
    assert err == "massmem: key [redacted] refused\n"
    assert "sk-abc" not in out


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "there is not enough memory"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/x"), "No space left on device: /data/x"),
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
    ],
)
def test_machine_at_its_limit_is_no_bug(error: Exception, message: str):
    fault = to_machine_error(error)
    assert fault is not None
    assert (fault.message, fault.exit_code) == (message, 3)
    assert fault.hint


def test_other_system_errors_are_bugs():
    assert to_machine_error(OSError(errno.EBADF, "Bad file descriptor")) is None


def test_bug_is_written_to_a_private_redacted_log(home: Path, capsys: pytest.CaptureFixture[str]):
    try:
        raise ValueError("sk-abcdefghijklmnopqrstuvwxyz0123")
    except ValueError as e:
        assert report_bug(e, ["--json"]) == 70
    (log,) = (home / ".massmem" / "logs").glob("crash-*.log")
    out, err = capsys.readouterr()
    assert str(log) in err
    assert json.loads(out)["exit_code"] == 70
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    assert "Traceback" in text
    assert "test_cli_errors.py" in text
    assert "sk-abc" not in text + err + out


def test_bug_without_a_home_is_written_to_stderr(home: Path, capsys: pytest.CaptureFixture[str]):
    (home / ".massmem").write_text("in the way")
    assert report_bug(ValueError("odd"), []) == 70
    assert "please report it with these lines" in capsys.readouterr().err


def test_log_file_is_private_and_redacted(tmp_path: Path):
    path = tmp_path / "logs" / "massmem.log"
    code = f"""
import logging, pathlib
from massmem.cli.errors import start_logging
start_logging(pathlib.Path({str(tmp_path)!r}), None, lambda: {{"order_id": "O-98765"}})
try:
    1 / 0
except ZeroDivisionError as e:
    logging.getLogger("massmem.turn.coordinator").error("key %s", "sk-abcdefghijklmnopqrstuvwxyz0123", exc_info=e)
logging.getLogger("some.library").error("400 bad prompt: O-98765")
logging.getLogger("massmem.turn.coordinator").debug("too fine")
logging.getLogger("some.library").info("too fine")
logging.getLogger("some.library").warning("lone \\ud800")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert (ran.stdout, ran.stderr) == (b"", b"")
    text = path.read_text()
    assert "key [redacted]" in text
    assert "ZeroDivisionError" in text
    assert "bad prompt: [order_id]" in text
    assert "lone" in text
    assert "too fine" not in text
    assert path.stat().st_mode & 0o077 == 0


def test_log_on_stderr_is_redacted():
    code = """
import logging
from massmem.cli.errors import log_to_stderr
log_to_stderr(logging.WARNING)
logging.getLogger("some.library").warning("key %s", "sk-abcdefghijklmnopqrstuvwxyz0123")
logging.getLogger("some.library").info("too fine")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout == ""
    assert ran.stderr.endswith("WARNING some.library: key [redacted]\n")
    assert len(ran.stderr.splitlines()) == 1
