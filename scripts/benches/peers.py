"""massmem beside other councils of models: whole programs, three models of one stub, the same short question.

Each program stands in a virtual environment of its own below one folder, named as in PEERS. What massmem's own figure
is in the other benches is measured here as a user has it: start-up, memory and all.
"""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from scripts.benches.played import QUESTION
from scripts.benches.process import Command, Sample, environment, measure, workspace
from scripts.benches.rows import Row, missing, reported
from scripts.benches.stub import Seen, Stub, stub

LATENCY = 1.0
MODELS = 3
RUNS = 5

COUNCIL = "import asyncio, sys, llm_council; print(asyncio.run(llm_council.run_full_council(sys.argv[1]))[2])"
"""llm-council-core has no command that asks."""


@dataclass(frozen=True, slots=True)
class Peer:
    """program: in bin/. config: the file for a URL of the models. ask: arguments, FILE and QUESTION among them."""

    program: str
    config: Callable[[str], Any]
    ask: tuple[str, ...]
    help: tuple[str, ...]


def _massmem(url: str) -> Any:
    backend = {"type": "openai", "model": "stub", "base_url": url, "api_key": "none"}
    return {"agents": [{"id": f"a{number}", "backend": backend} for number in range(MODELS)]}


def _conclave(url: str) -> Any:
    names = [f"a{number}" for number in range(MODELS)]
    endpoint = {"completions_url": f"{url}/chat/completions", "env_var": "OPENAI_API_KEY"}
    return {
        "models": {name: f"stub/{name}" for name in names},
        "councils": {"default": names},
        "synthesizer": names[0],
        "endpoints": {"stub": endpoint},
    }


def _llm_council(url: str) -> Any:
    names = [f"stub/a{number}" for number in range(MODELS)]
    gateways = {"default": "openrouter", "providers": {"openrouter": {"base_url": f"{url}/chat/completions"}}}
    return {"council": {"models": names, "chairman": names[0]}, "gateways": gateways}


def _massgen(url: str) -> Any:
    backend = {"type": "chatcompletion", "model": "stub", "base_url": url}
    agents = [{"id": f"a{number}", "backend": backend} for number in range(MODELS)]
    return {"agents": agents, "ui": {"display_type": "simple", "logging_enabled": False}}


PEERS = {
    "massmem": Peer("massmem", _massmem, ("massmem", "--config", "FILE", "QUESTION"), ("massmem", "--help")),
    "conclave-cli": Peer(
        "conclave", _conclave, ("conclave", "ask", "--mode", "debate", "QUESTION"), ("conclave", "--help")
    ),
    "llm-council-core": Peer(
        "llm-council", _llm_council, ("python", "-c", COUNCIL, "QUESTION"), ("llm-council", "--help")
    ),
    "massgen": Peer(
        "massgen", _massgen, ("massgen", "--config", "FILE", "--automation", "QUESTION"), ("massgen", "--help")
    ),
}


def run(data: Path) -> list[Row]:
    """data: the folder with the virtual environments."""
    rows: list[Row] = []
    for name, peer in PEERS.items():
        installed = data.resolve() / name
        if (installed / "bin" / peer.program).exists():
            rows += _measure(name, peer, installed)
        else:
            rows.append(missing(name, f"there is no {installed / 'bin' / peer.program}"))
    return rows


def _measure(name: str, peer: Peer, installed: Path) -> list[Row]:
    packages = next(installed.glob("lib/python*/site-packages"))
    used = subprocess.run(["du", "-sm", packages], capture_output=True, text=True, check=True).stdout
    with stub(LATENCY) as server:
        asked = [_ask(peer, installed, server) for _ in range(RUNS)]
        with workspace() as home:
            helps = [measure(_command(peer.help, peer, installed, home, server.base_url)) for _ in range(RUNS)]
            failing = _command(peer.ask, peer, installed, home, f"http://127.0.0.1:{server.port}/down/v1")
            failed = subprocess.run(failing.argv, env=failing.env, cwd=home, capture_output=True, check=False)
    samples, seen = [sample for sample, _ in asked], [one for _, one in asked]
    requests = sorted({one.requests for one in seen})
    tokens = sorted(one.characters / 4 for one in seen)
    path = min(one.seconds / (one.waves * LATENCY) for one in seen)
    waves = ", ".join(map(str, sorted({one.waves for one in seen})))
    return [
        reported(f"{name}: requests", requests[0], "", f"to {requests[-1]}"),
        reported(f"{name}: prompt tokens", tokens[0], "", f"to {tokens[-1]:,.0f}; characters / 4"),
        reported(f"{name}: wall / critical path", path, "x", f"least of {RUNS}; {waves} requests one after another"),
        reported(f"{name}: CPU of a question", median(sample.cpu for sample in samples), "s", "the whole process"),
        reported(f"{name}: peak memory", max(sample.peak_mb for sample in samples), "MB"),
        reported(f"{name}: CPU of --help", median(sample.cpu for sample in helps), "s"),
        reported(f"{name}: packages", len([*packages.glob("*.dist-info")]), "", "pip among them"),
        reported(f"{name}: installed", int(used.split()[0]), "MB"),
        reported(f"{name}: exit code when all requests fail", failed.returncode, ""),
    ]


def _ask(peer: Peer, installed: Path, server: Stub) -> tuple[Sample, Seen]:
    """Ask once in an empty home."""
    with workspace() as home:
        server.seen()
        sample = measure(_command(peer.ask, peer, installed, home, server.base_url))
        time.sleep(0.1)
        return sample, server.seen()


def _command(arguments: tuple[str, ...], peer: Peer, installed: Path, home: Path, url: str) -> Command:
    file = home / "peer.yaml"
    file.write_text(json.dumps(peer.config(url)))
    program, *rest = [{"FILE": str(file), "QUESTION": QUESTION}.get(part, part) for part in arguments]
    keys = {"OPENAI_API_KEY": "sk-none", "OPENROUTER_API_KEY": "none"}
    env = environment(home, **keys, CONCLAVE_CONFIG=str(file), LLM_COUNCIL_CONFIG=str(file))
    return Command((str(installed / "bin" / program), *rest), env, home)
