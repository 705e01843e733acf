"""Whether an agent ends a job with tools whose results overflow its window, and what that costs.

Real are massmem's command line, its store and memory, the MCP server (`work_files`) and the protocol. The model is a
worker that knows only its prompt (`worker`): what massmem does not show it, it has forgotten.
"""

import contextlib
import json
import random
import sqlite3
import subprocess
import time
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scripts.benches.model_server import start_model
from scripts.benches.process import MASSMEM, PYTHON, BenchError, environment, workspace
from scripts.benches.rows import ROOT, Row, at_least, at_most, exactly, reported
from scripts.benches.work_files import DOCS, read_calls, write_files
from scripts.benches.worker import find_limits, read_log

QUESTION = f"Read every file in the folder {DOCS} and tell me the retry limit of each module."

FILES = "project"
"""The folder that the agents see."""
_LIMIT = 300.0
"""Seconds for one run."""
_KILLS = 20
_AFTER = 0.15
"""Seconds from the end of a reply until what came of it is surely stored."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be done, by whom, with the tools of an MCP server or, with `own`, those of massmem itself.

    window: tokens that the models read. agents: how each works, see `worker`. size: least and most characters of a
    file. delay: seconds of a model's reply. coordination: other settings than the defaults.
    """

    window: int
    agents: Sequence[str] = ("notes",)
    files: int = 60
    size: tuple[int, int] = (2_000, 6_000)
    kills: int = 0
    delay: float = 0.0
    coordination: Mapping[str, Any] = field(default_factory=dict[str, Any])
    own: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job.

    files: different ones that were read, by the agent that read least. repeats: reads beyond the first, without those
    of calls that a kill cut off. findings: right ones in the final answer; wrong: others. prompt: tokens of all
    requests. cut: see `turn_completed.work_cut`. summaries_again: summaries asked for although the prompt before a
    kill left room for what came next.
    """

    files: int
    repeats: int
    findings: int
    wrong: int
    prompt: int
    compressions: int
    refused: int
    cut: str
    code: int
    seconds: float
    summaries_again: int = 0
    kills: int = 0

    @property
    def note(self) -> str:
        cut = f", cut: {self.cut}" if self.cut else ""
        return (
            f"{self.files} files, {self.repeats} repeats, {self.findings} findings, {self.prompt:,} prompt tokens, "
            f"{self.compressions} compressions, {self.refused} refused, exit {self.code}{cut}, {self.seconds:.0f} s"
        )


def run() -> list[Row]:
    rows: list[Row] = []
    for window, tokens in ((8_192, None), (16_384, 550_000), (32_768, None)):
        for manner in ("notes", "silent", "notes-poor", "silent-poor") if window == 16_384 else ("notes",):
            rows += _judge(f"{window // 1024}k {manner}", do(Job(window, (manner,))), tokens)
    rows += _judge("16k two vote", do(Job(16_384, ("notes", "notes-last"))), 1_200_000, agents=2)
    rows += _judge("16k three vote", do(Job(16_384, ("notes", "notes-last", "silent"))), None, agents=3)
    rows += _judge("16k eight at once", do(Job(16_384, ("notes-eight",))), None)
    rows += _judge("16k eight at once, silent", do(Job(16_384, ("silent-eight",))), None)
    large = do(Job(16_384, ("notes-back",), files=8, size=(100_000, 100_000)))
    rows += _judge("8 x 100 KB", large, None, files=8, findings=7)
    rows += _compare_tools()
    killed = do(Job(16_384, ("notes",), kills=_KILLS, delay=0.04))
    return [*rows, *_judge(f"killed {killed.kills} times", killed, None), *_judge_kills(killed)]


def _judge(
    name: str, outcome: Outcome, tokens: int | None, *, files: int = 60, findings: int = 57, agents: int = 1
) -> list[Row]:
    """tokens: most of all prompts together; None: that has no bound."""
    rows = [
        exactly(f"{name}: files read", outcome.files, "", files, outcome.note),
        exactly(f"{name}: read again", outcome.repeats, "", 0),
        at_least(
            f"{name}: findings", outcome.findings, "", findings, f"{outcome.wrong} wrong" if outcome.wrong else ""
        ),
    ]
    if tokens is not None:
        rows.append(at_most(f"{name}: prompt tokens", outcome.prompt, "", tokens))
    else:
        rows.append(reported(f"{name}: prompt tokens", outcome.prompt, "", f"of {agents} agents" if agents > 1 else ""))
    return rows


def _compare_tools() -> list[Row]:
    """Do jobs with massmem's own tools, and compare their tokens with those of the same job with a server's."""
    rows: list[Row] = []
    for name, job in {
        "8k notes": Job(8_192),
        "16k notes": Job(16_384),
        "16k silent": Job(16_384, ("silent",)),
        "16k eight at once": Job(16_384, ("notes-eight",)),
    }.items():
        own, server = do(replace(job, own=True)), do(job)
        rows += _judge(f"--dir, {name}", own, None)
        rows.append(reported(f"--dir, {name}: tokens, times those with an MCP server", own.prompt / server.prompt, "x"))
    return rows


def _judge_kills(killed: Outcome) -> list[Row]:
    return [
        at_least("kills that hit the turn", killed.kills, "", _KILLS),
        exactly("calls run twice", killed.repeats, "", 0),
        exactly("summaries paid twice", killed.summaries_again, "", 0),
    ]


def do(job: Job) -> Outcome:
    """Do the job in an empty home, and return what became of it.

    Raises:
        BenchError: massmem did not end, or ended without a turn.
    """
    with workspace() as folder:
        limits = write_files(folder / FILES, job.files, job.size)
        with start_model("worker", job.window, folder / "model.jsonl", job.delay) as port:
            team = folder / "team.yaml"
            team.write_text(json.dumps(_team(job, f"http://127.0.0.1:{port}/v1", folder)))
            begin, kills, code = time.monotonic(), list[float](), None
            while code is None:
                code = _play(job, folder, team, kills)
            seconds = time.monotonic() - begin
        return _weigh(job, folder, limits, code, seconds, kills)


def _team(job: Job, base_url: str, folder: Path) -> dict[str, Any]:
    backend = {"type": "openai", "base_url": base_url, "api_key": "none", "context_window": job.window}
    agents = [
        {
            "id": f"agent_{number}",
            "backend": backend | {"model": manner},
            "mcp_servers": [] if job.own else [_server(folder, number)],
        }
        for number, manner in enumerate(job.agents, start=1)
    ]
    files = {"folders": [str(folder / FILES)]} if job.own else {}
    return {"agents": agents, "files": files, "coordination": dict(job.coordination), "memory": {"enabled": True}}


def _server(folder: Path, number: int) -> dict[str, Any]:
    log = folder / f"calls_{number}.jsonl"
    args = ["-m", "scripts.benches.work_files", str(folder / FILES), str(log)]
    return {"name": "files", "command": PYTHON, "args": args, "env": {"PYTHONPATH": str(ROOT)}}


def _play(job: Job, folder: Path, team: Path, kills: list[float]) -> int | None:
    """Ask the question, or go on with the turn that a kill left. Return the exit code, None after a kill in the turn.

    kills: when runs were killed so far, in seconds since 1970.
    """
    session, log = next((e["session_id"] for e in _read_events(folder)), None), folder / "model.jsonl"
    process = subprocess.Popen(
        [MASSMEM, "--config", str(team), "--output", "jsonl", *(["--session-id", session] if session else [QUESTION])],
        cwd=folder,
        env=environment(folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if len(kills) < job.kills and _wait_for_kill(job, process, log, random.Random(len(kills))):
        process.kill()
        process.communicate()
        if _find_end(folder):
            return 0  # it was killed while it recorded memories
        kills.append(time.time())
        return None
    try:
        _, err = process.communicate(timeout=_LIMIT)
    except subprocess.TimeoutExpired as e:
        process.kill()
        raise BenchError(f"the job took longer than {_LIMIT:g} s") from e
    if not _find_end(folder):
        raise BenchError(f"massmem ended with {process.returncode}: {err.strip()[-500:]}")
    return process.returncode


def _wait_for_kill(job: Job, process: "subprocess.Popen[str]", log: Path, dice: random.Random) -> bool:
    """Wait for a random moment of the work, so that all runs together do a job; return whether it still runs.

    dice: chooses the moment, which counts from the first request of the run.
    """
    before = log.stat().st_size if log.exists() else 0
    while process.poll() is None and not (log.exists() and log.stat().st_size > before):
        time.sleep(0.005)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(dice.uniform(0, 1.5 * job.files / job.kills * (job.delay + 0.03)))
    return process.poll() is None


def _weigh(
    job: Job,
    folder: Path,
    limits: Mapping[str, int],
    code: int,
    seconds: float,
    kills: Sequence[float],
) -> Outcome:
    stored, end = _read_events(folder), _find_end(folder)
    answer = find_limits(end.get("answer") or "")
    requests = list(read_log(folder / "model.jsonl"))
    cut_off = Counter(_paths_cut_off(stored))
    numbers = range(1, len(job.agents) + 1)
    calls = [_own_calls(stored, n) if job.own else read_calls(folder / f"calls_{n}.jsonl") for n in numbers]
    reads = [Counter(call["path"] for call in of_agent if call["tool"] == "read_file") for of_agent in calls]
    repeats = sum(max(0, n - 1 - cut_off[path]) for paths in reads for path, n in paths.items())
    return Outcome(
        files=min(map(len, reads)),
        repeats=repeats,
        findings=sum(answer.get(name) == limit for name, limit in limits.items()),
        wrong=sum(name not in limits or limits[name] != limit for name, limit in answer.items()),
        prompt=sum(request["prompt"] for request in requests if not request["refused"]),
        compressions=sum(event["type"] == "context_compressed" for event in stored),
        refused=sum(request["refused"] for request in requests),
        cut=str(end.get("work_cut") or end.get("limit") or ""),
        code=code,
        seconds=seconds,
        summaries_again=_count_summaries_again(requests, kills, job.window),
        kills=len(kills),
    )


def _read_events(folder: Path) -> list[Mapping[str, Any]]:
    """Return the events that massmem has stored, [] before its first."""
    database = folder / ".massmem" / "massmem.db"
    if not database.exists():
        return []
    with contextlib.closing(sqlite3.connect(database)) as db, contextlib.suppress(sqlite3.OperationalError):
        return [json.loads(payload) for (payload,) in db.execute("SELECT payload FROM events ORDER BY seq")]
    return []


def _own_calls(events: Sequence[Mapping[str, Any]], number: int) -> list[Mapping[str, str]]:
    """Return the calls of an agent to massmem's own tools, as `read_calls` has those to a server."""
    called = (e for e in events if e["type"] == "tool_called" and e["agent_id"] == f"agent_{number}")
    return [{"tool": event["name"], "path": json.loads(event["arguments"]).get("path", "")} for event in called]


def _find_end(folder: Path) -> Mapping[str, Any]:
    """Return the event that ended the turn, {} while there is none."""
    ends = [event for event in _read_events(folder) if event["type"] in ("turn_completed", "turn_failed")]
    return ends[-1] if ends else {}


def _paths_cut_off(events: Sequence[Mapping[str, Any]]) -> Generator[str]:
    """Yield the paths of calls of which nobody knows whether they were run, since a kill cut them off."""
    calls = {event["call_id"]: event for event in events if event["type"] == "tool_called"}
    for event in events:
        if event["type"] == "tool_returned" and event["failed"] and event["call_id"] in calls:
            yield json.loads(calls[event["call_id"]]["arguments"]).get("path", "")


def _count_summaries_again(requests: Sequence[Mapping[str, Any]], kills: Sequence[float], window: int) -> int:
    """Return how many processes began with a summary although the one that was killed had just had room, or one.

    A request in flight at the kill is paid for twice, and so is one whose reply was not stored yet.
    """
    count = 0
    for kill in kills:
        before = [r for r in requests if not r["refused"] and r.get("end", r["at"]) < kill - _AFTER]
        in_flight = [r for r in requests if r["at"] < kill and r.get("end", r["at"]) >= kill - _AFTER]
        after = next((r for r in requests if r["at"] > kill and not r["refused"]), None)
        if not before or after is None or not after["summary"] or any(r["summary"] for r in in_flight):
            continue
        last = (in_flight or before)[-1]
        count += bool(last["summary"] or last["prompt"] + last["reply"] + 0.15 * window < 0.75 * window)
    return count
