"""Offers `run_llamacpp`: llama.cpp's own HTTP server, from the library that massmem's local models use."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.child_process import tie_to_parent

_SERVER = """
import os, sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.n_ctx, parameters.n_parallel = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parameters.port, parameters.fit_params, parameters.verbosity, parameters.sampling.temp = 0, False, -1, 0
# One core stays free: with all of them busy, a second program makes llama.cpp ten times slower.
threads = max(1, (os.cpu_count() or 2) - 1)
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(parameters)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
"""


@contextmanager
def run_llamacpp(model: Path, window: int, slots: int = 1) -> Generator[int]:
    """Serve a model at a free port of loopback, which is the value. It always writes what is most likely.

    window: tokens that a slot reads. slots: requests at the same time.
    """
    command = tie_to_parent([sys.executable, "-c", _SERVER, str(model), str(window * slots), str(slots)])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if line.startswith("listening"))
            port = urlsplit(line.split()[1]).port
            assert port is not None
            yield port
        finally:
            process.kill()
