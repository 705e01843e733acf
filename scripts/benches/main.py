"""The command line of scripts/bench: picks a bench, runs it and prints its rows."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from scripts.benches.process import BenchError, run_module
from scripts.benches.rows import Row, as_object, as_table, machine, missing

BENCHES: dict[str, str] = {
    "startup": "massmem --help, --list-sessions with 10,000 sessions, and a question",
    "turn": "what massmem adds to a turn's own requests: time, CPU, prompt tokens, stalls of the event loop",
    "chat_turns": "durable turns of scripted chats that one process runs in a second",
    "session": "appending to a session of 100,000 messages, and going on with it",
    "server": "the HTTP service beside a bare FastAPI with PyJWT and SQLite: histories, questions, streams",
    "page": "the page in chromium while eight agents write: frames, work of its thread, layout shift",
    "peers": "a question beside other councils of models, each installed in DIR: tokens, CPU, memory, size",
    "deaf": "whether hostile inputs of one user keep the service from answering others: --only KIND for some of them",
    "memory": "searching and recording memories, and with DIR how much is recalled",
    "silence": "how precise recall is on notes and chats, and silent where nothing matters; with DIR in five stores",
    "extraction": "what the embedded model makes of twelve conversations by massmem's prompts, and by mem0's",
    "chats": "what recall makes of plain words: updates, negations, jokes, quotations; DIR: another file of chats",
    "work": "a job with tools that overflows its window, done by a worker that knows only its prompt: files, findings",
    "massgen": "how many configurations of MassGen in DIR run here, and what is missing for the others",
    "verdict": "whether promised errors hold, and what adaptive depth saves, on recorded answers: no model is asked",
    "jobs": "what confirming and adding up make of lists and points of made-up reviewers: no model is asked",
    "store": "a store of 1,000,000 messages, histories in each store",
}
"""Name and summary; each is a module beside this one with a function `run`, which takes options and returns rows."""

ALL = "all"
NOT_IN_ALL = ("silence", "deaf", "peers", "massgen", "page")
"""They need conversations, an hour, other programs, files of one, or a browser."""


def main(argv: Sequence[str] | None = None) -> int:
    """0: measured, also when a bound is missed; 1: the bench could not run; 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description="Measures speed and size.")
    parser.add_argument("name", nargs="?", choices=[*BENCHES, ALL], help="the bench to run")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument(
        "data", nargs="?", metavar="DIR", type=Path,
        help="memory, silence: conversations with questions, as *.json; peers: virtual environments; "
        "massgen: configurations; verdict: recorded answers; chats: a file",
    )  # fmt: skip
    parser.add_argument("--scale", metavar="N", type=int, help="memory: cost of so many memories, such as 1000000")
    parser.add_argument("--sessions", metavar="N", type=int, help="store: of 100 messages each [default: 10000]")
    parser.add_argument("--only", metavar="TEXT", help="deaf: the cases with this in their names, such as pdf")
    options = vars(parser.parse_args(argv))
    name, as_json = options.pop("name"), options.pop("json")
    if name is None:
        print(overview())
        return 0
    try:
        chosen = {option: value for option, value in options.items() if value is not None}
        report = run_all() if name == ALL else as_object(name, run_one(name, **chosen))
    except BenchError as e:
        print(f"scripts/bench {name}: {e}", file=sys.stderr)
        return 1
    print(json.dumps(report, ensure_ascii=False) if as_json else as_text(report))
    return 0


def overview() -> str:
    return "\n".join(f"{name:<10}  {summary}" for name, summary in {**BENCHES, ALL: "all of them"}.items())


def run_one(name: str, **options: object) -> list[Row]:
    run: Callable[..., list[Row]] = import_module(f"scripts.benches.{name}").run
    try:
        signature(run).bind(**options)
    except TypeError as e:
        raise BenchError(f"{e}; see scripts/bench --help") from e
    return run(**options)


def run_all() -> dict[str, Any]:
    """Each bench in a process of its own: what one leaves in memory is no burden of the next."""
    rows: list[dict[str, Any]] = []
    for name in [name for name in BENCHES if name not in NOT_IN_ALL]:
        print(f"{name} ...", file=sys.stderr)
        rows += [{"bench": name, **row} for row in _apart(name)]
    return {"bench": ALL, "rows": rows, "machine": machine()}


def _apart(name: str) -> list[dict[str, Any]]:
    try:
        return run_module("main", name, "--json", env=os.environ)["rows"]
    except BenchError as e:
        return as_object(name, [missing(f"{name}: the bench stopped", str(e))])["rows"]


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
