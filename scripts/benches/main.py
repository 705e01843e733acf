"""The command line of scripts/bench: picks a bench, runs it and prints its rows."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from scripts.benches.process import BenchError
from scripts.benches.rows import ROOT, Row, as_object, as_table, machine, missing

BENCHES: dict[str, str] = {
    "startup": "massmem --help, --list-sessions with 10,000 sessions, a first day's small commands, and a question",
    "turn": "what massmem adds to a turn's own requests: time, CPU, prompt tokens, stalls of the event loop",
    "chat_turns": "durable turns of scripted chats that one process runs in a second",
    "session": "appending to a session of 100,000 messages, and going on with it",
    "server": "the HTTP service beside a bare FastAPI with PyJWT and SQLite: histories, questions, streams",
    "deaf": "whether hostile inputs of one user keep the service from answering others: --only KIND for some of them",
    "memory": "searching and recording memories, and with --data how much is recalled",
    "silence": "whether recall is silent when nothing stored matters, over stores of five sizes: needs DIR",
    "work": "a job with tools that overflows its window, done by a worker that knows only its prompt: files, findings",
    "store": "a store of 1,000,000 messages, histories in each store",
}
"""Name and summary; each is a module beside this one with a `run() -> list[Row]`."""

ALL = "all"


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, also when a bound is missed; 1: the bench could not run; 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures speed and size.")
    parser.add_argument("name", nargs="?", choices=[*BENCHES, ALL], help="the bench to run")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("folder", nargs="?", metavar="DIR", type=Path, help="the same as --data DIR")
    parser.add_argument(
        "--data", metavar="DIR", type=Path, help="memory, silence: conversations with questions, as *.json"
    )
    parser.add_argument("--scale", metavar="N", type=int, help="memory: cost of so many memories, such as 1000000")
    parser.add_argument("--sessions", metavar="N", type=int, help="store: of 100 messages each [default: 10000]")
    parser.add_argument("--url", metavar="URL", action="append", help="store: another one that a history is read from")
    parser.add_argument("--only", metavar="TEXT", help="deaf: the cases with this in their names, such as pdf")
    options = parser.parse_args(argv)
    if options.name is None:
        print(overview())
        return 0
    try:
        report = _report(options)
    except BenchError as e:
        print(f"scripts/bench {options.name}: {e}", file=sys.stderr)
        return 1
    print(json.dumps(report, ensure_ascii=False) if options.json else as_text(report))
    return 0


def _report(options: argparse.Namespace) -> dict[str, Any]:
    name: str = options.name
    data: Path | None = options.data or options.folder
    if name == "silence":
        if data is None:
            raise BenchError("name the folder with conversations: scripts/bench silence DIR")
        return as_object(name, import_module("scripts.benches.silence").run_on(data))
    if options.only is not None:
        if name != "deaf":
            raise BenchError("--only is for the bench deaf alone")
        return as_object(name, import_module("scripts.benches.deaf").run(options.only))
    if data is not None or options.scale is not None:
        if name != "memory":
            raise BenchError("a folder is for the benches memory and silence, --scale for memory alone")
        bench = import_module("scripts.benches.memory")
        if data is None:
            return as_object(name, bench.run_at(max(1, options.scale)))
        rows, sets = bench.run_on(data)
        return as_object(name, rows) | sets
    if options.sessions is not None or options.url:
        if name != "store":
            raise BenchError("--sessions and --url are for the bench store alone")
        bench = import_module("scripts.benches.store")
        return as_object(name, bench.run_with(options.sessions or bench.SESSIONS, options.url or ()))
    return run_all() if name == ALL else as_object(name, run_one(name))


def overview() -> str:
    return "\n".join(f"{name:<8}  {summary}" for name, summary in {**BENCHES, ALL: "all of them"}.items())


def run_one(name: str) -> list[Row]:
    rows: list[Row] = import_module(f"scripts.benches.{name}").run()
    return rows


def run_all() -> dict[str, Any]:
    """Each bench in a process of its own: what one leaves in memory is no burden of the next."""
    rows: list[dict[str, Any]] = []
    for name in [name for name in BENCHES if name not in ("silence", "deaf")]:  # one needs conversations, one an hour
        print(f"{name} ...", file=sys.stderr)
        rows += [{"bench": name, **row} for row in _apart(name)]
    return {"bench": ALL, "rows": rows, "machine": machine()}


def _apart(name: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "scripts.benches.main", name, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)["rows"]
    print(done.stderr, file=sys.stderr)
    return as_object(name, [missing(f"{name}: the bench stopped", done.stderr.strip()[-200:])])["rows"]


def as_text(report: dict[str, Any]) -> str:
    """The report as tables, one for each bench in it, and what it was measured on."""
    tables: dict[str, list[Row]] = {}
    for row in report["rows"]:
        name = row.get("bench", report["bench"])
        tables.setdefault(name, []).append(Row(**{k: v for k, v in row.items() if k != "bench"}))
    parts = [f"{name}: {BENCHES[name]}\n\n{as_table(rows)}" for name, rows in tables.items()]
    where = ", ".join(f"{k} {v}" for k, v in report["machine"].items() if v)
    return "\n\n".join([*parts, where])


if __name__ == "__main__":
    sys.exit(main())
