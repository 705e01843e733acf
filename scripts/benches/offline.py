"""Start-up and turns while outbound HTTPS hangs: as fast as usual, and only configured hosts are contacted."""

import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from scripts.benches import teams
from scripts.benches.blackhole import Blackhole, blackhole
from scripts.benches.played import QUESTION
from scripts.benches.process import MASSMEM, PYTHON, BenchError, Command, environment, in_turn, walls, workspace
from scripts.benches.rows import Row, at_most, exactly, ratio
from scripts.benches.startup import SESSIONS, fill_registry
from scripts.benches.stub import Stub, stub

LATENCY = 0.2
AGENTS = 3
RUNS = 5

MAX_RATIO = 1.1

# An audit hook sees every connection and every name look-up before it happens.
_HOOK = """
import sys
def report(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        address = args[0 if event != "socket.connect" else 1]
        print("contacted", address[0] if isinstance(address, tuple) else address, file=sys.stderr)
sys.addaudithook(report)
from massmem.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def run() -> list[Row]:
    with ExitStack() as stack:
        home = stack.enter_context(workspace())
        hole = stack.enter_context(blackhole())
        server = stack.enter_context(stub(LATENCY))
        fill_registry(home, SESSIONS)
        commands = _commands(home, server)
        rows = [row for name, argv in commands.items() for row in _compare(name, argv, home, hole)]
        contacted = [_find_hosts(argv, home, hole) for argv in commands.values()]
    if "127.0.0.1" not in contacted[-1]:
        raise BenchError("the hook did not see the configured endpoint either, so it proves nothing")
    foreign = sorted({host for hosts in contacted for host in hosts if host != "127.0.0.1"})
    return [
        *rows,
        exactly("connections that the hanging proxy saw", hole.seen, "", 0),
        exactly("hosts contacted that are not configured", len(foreign), "", 0, ", ".join(foreign)),
    ]


def _commands(home: Path, server: Stub) -> dict[str, tuple[str, ...]]:
    scripted = teams.write(teams.scripted(AGENTS, home, LATENCY), home)
    openai = teams.write(teams.over_http(AGENTS, home, server), home)
    return {
        "massmem --help": ("--help",),
        "massmem --list-sessions": ("--list-sessions",),
        "a turn, scripted": ("--config", str(scripted), "--quiet", QUESTION),
        "a turn, openai on loopback": ("--config", str(openai), "--quiet", QUESTION),
    }


def _compare(name: str, argv: Sequence[str], home: Path, hole: Blackhole) -> list[Row]:
    """Measure without, with and again without the hanging proxy; the two without it show the noise."""
    env = environment(home)
    usual, hung = (Command((MASSMEM, *argv), variables, home) for variables in (env, env | hole.environment))
    first, hanging, second = (walls(samples) for samples in in_turn([usual, hung, usual], RUNS))
    around = [(before + after) / 2 for before, after in zip(first, second, strict=True)]
    slower, noise = ratio(hanging, around), ratio(second, first)
    note = f"{slower.spread}; noise: without / without {noise.middle:.2f}, {noise.spread}"
    return [at_most(f"{name}: with a hanging proxy / without", slower.middle, "x", MAX_RATIO, note)]


def _find_hosts(argv: Sequence[str], home: Path, hole: Blackhole) -> list[str]:
    """Return every host that the command connects to or looks up."""
    command = [PYTHON, "-c", _HOOK, *argv]
    env = environment(home, **hole.environment)
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode != 0:
        raise BenchError(f"massmem {' '.join(argv)} ended with {done.returncode}: {done.stderr[-500:]}")
    return [line.removeprefix("contacted ") for line in done.stderr.splitlines() if line.startswith("contacted ")]
