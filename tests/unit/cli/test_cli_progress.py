import io
import os
import pty
import subprocess
import sys
from contextlib import redirect_stderr

from massmem.cli.progress import display

CODE = """
import time
from massmem.cli.progress import display
with display("deleting") as progress:
    for done in range(5):
        progress(done + 1, 5)
        time.sleep(0.12)
print("done")
"""


def test_without_a_terminal_every_tenth_is_a_line():
    told = io.StringIO()
    with redirect_stderr(told), display("recording") as progress:
        for done in range(1, 1001):
            progress(done, 1000)
    lines = told.getvalue().splitlines()
    assert lines[0] == "massmem: recording: 10 % of 1,000"
    assert lines[-1] == "massmem: recording: 100 % of 1,000"
    assert len(lines) == 10


def test_on_a_terminal_it_is_a_bar_on_stderr_that_goes_away():
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm-256color"}
    ran = subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65_536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out, _ = ran.communicate(timeout=30)
    assert out == b"done\n"
    assert b"deleting" in shown
    assert b"5/5" in shown or b"4/5" in shown
    assert shown.rstrip().endswith((b"\x1b[2K", b"\x1b[?25h"))
