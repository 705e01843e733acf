import subprocess
import sys
from pathlib import Path


def test_log_file_is_private_and_redacted(tmp_path: Path):
    path = tmp_path / "logs" / "massmem.log"
    code = f"""
import logging, pathlib
from massmem.cli.logs import log_to_file
log_to_file(pathlib.Path({str(path)!r}), logging.WARNING, lambda: {{"order_id": "O-98765"}})
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
from massmem.cli.logs import log_to_stderr
log_to_stderr(logging.WARNING)
logging.getLogger("some.library").warning("key %s", "sk-abcdefghijklmnopqrstuvwxyz0123")
logging.getLogger("some.library").info("too fine")
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout == ""
    assert ran.stderr.endswith("WARNING some.library: key [redacted]\n")
    assert len(ran.stderr.splitlines()) == 1
