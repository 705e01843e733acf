"""Offers `tie_to_parent`: a server that a test starts dies with the test process, however that ends."""

import sys
from collections.abc import Sequence

_TIE = (
    "import ctypes, os, signal, sys; "
    "ctypes.CDLL(None).prctl(1, signal.SIGKILL); "  # 1: PR_SET_PDEATHSIG
    "os.execvp(sys.argv[1], sys.argv[1:])"
)


def tie_to_parent(command: Sequence[str]) -> list[str]:
    """Return a command that runs `command` under the same pid and is killed when the calling thread ends.

    A wrapper instead of `preexec_fn`, which is not safe in a process with threads. Linux only; elsewhere the command
    is returned as it is.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TIE, *command]
