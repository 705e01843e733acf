"""The HTTP service against a bare FastAPI with PyJWT and SQLite: histories, questions, streams, memory."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import yaml

from massmem.config.service import JwtConfig
from massmem.events import TurnCompleted, TurnStarted
from massmem.messages import Usage
from massmem.records import SessionRecord
from massmem.server.auth import Tokens
from massmem.session.new_session import owner_hash
from massmem.store import open_store
from scripts.benches import bare_server
from scripts.benches.load import Load, loaded, request, streamed
from scripts.benches.process import BenchError, environment, workspace
from scripts.benches.rows import ROOT, Row, at_least, at_most, exactly, ratio, reported

SECRET = "the-bench-signs-with-this-0123456789abcdef"
MESSAGES, CHARACTERS = 50, 400
CONNECTIONS = 16
SECONDS = 4.0
ROUNDS = 3
STREAMS = 200

LEAST_HISTORY, MOST_P99, LEAST_CHAT = 0.6, 2.0, 0.4
MOST_GROWTH = 50

_TOKENS = Tokens(JwtConfig.model_validate({"secret": SECRET}))
_HISTORY = "/api/v1/chat/history/read"
_ANSWER = "x" * CHARACTERS


def run() -> list[Row]:
    with workspace() as home:
        asyncio.run(_fill(home))
        with _ours(home) as ours, _bare(home) as bare:
            return asyncio.run(_measured(ours, bare))


@dataclass(frozen=True, slots=True)
class _Server:
    port: int
    process: subprocess.Popen[bytes]

    @property
    def megabytes(self) -> float:
        return psutil.Process(self.process.pid).memory_info().rss / 1e6


async def _measured(ours: _Server, bare: _Server) -> list[Row]:
    statuses: Counter[int] = Counter()
    read = request("GET", _HISTORY, _token(0))
    for server in (ours, bare):
        await _load(server, lambda _c, _n: read, statuses, 1.0)
    same = await _same_bytes(ours, bare, read)
    await _load(ours, _chat, statuses, 1.0)
    before = ours.megabytes
    read_pairs: list[tuple[Load, Load]] = []
    for _ in range(ROUNDS):
        pair = [await _load(s, lambda _c, _n: read, statuses) for s in (ours, bare)]
        read_pairs.append((pair[0], pair[1]))
    chats = [(await _load(ours, _chat, statuses), await _load(bare, _append, statuses)) for _ in range(ROUNDS)]
    ended = await _streams(ours, statuses)
    growth = ours.megabytes - before
    failed = sum(count for status, count in statuses.items() if status >= 500)
    return [
        exactly("both return the same history", float(same), "", 1),
        *_rows(f"history of {MESSAGES} messages", read_pairs, LEAST_HISTORY),
        *_rows("a question, of one scripted agent", chats, LEAST_CHAT, against="a durable append"),
        exactly(f"of {STREAMS} event streams at the same time end with an answer", ended, "", STREAMS),
        exactly("answers with 5xx", failed, "", 0, f"of {statuses.total():,}"),
        at_most("resident memory grew over the run by", growth, "MB", MOST_GROWTH, f"to {ours.megabytes:.0f} MB"),
    ]


def _rows(what: str, pairs: list[tuple[Load, Load]], least: float, against: str = "bare") -> list[Row]:
    rates = ratio([a.rate for a, _ in pairs], [b.rate for _, b in pairs])
    slowest = ratio([a.percentile(0.99) for a, _ in pairs], [b.percentile(0.99) for _, b in pairs])
    note = f"{_middle([a.rate for a, _ in pairs])} against {_middle([b.rate for _, b in pairs])} requests/s"
    rows = [at_least(f"{what}: rate against {against}", rates.middle, "x", least, f"{note}; {rates.spread}")]
    note = f"{_ms(pairs, 0)} against {_ms(pairs, 1)} ms; {slowest.spread}"
    if against == "bare":
        return [*rows, at_most(f"{what}: p99 against {against}", slowest.middle, "x", MOST_P99, note)]
    return [*rows, reported(f"{what}: p99 against {against}", slowest.middle, "x", note)]


def _middle(values: list[float]) -> str:
    return f"{sorted(values)[len(values) // 2]:,.0f}"


def _ms(pairs: list[tuple[Load, Load]], which: int) -> str:
    return _middle([pair[which].percentile(0.99) * 1000 for pair in pairs])


async def _load(server: _Server, make: object, statuses: Counter[int], seconds: float = SECONDS) -> Load:
    found = await loaded(server.port, make, connections=CONNECTIONS, seconds=seconds)  # type: ignore[arg-type]
    statuses.update(found.statuses)
    if set(found.statuses) != {200}:
        raise BenchError(f"answers were {dict(found.statuses)}: {found.sample[:200]!r}")
    return found


async def _same_bytes(ours: _Server, bare: _Server, read: bytes) -> bool:
    found = [await streamed(server.port, read) for server in (ours, bare)]
    bodies = [json.loads(data.partition(b"\r\n\r\n")[2]) for _, data in found]
    return bodies[0] == bodies[1]


def _token(user: int) -> str:
    return _TOKENS.make(f"user{user}", 3600)


_ASKING = [_token(number) for number in range(CONNECTIONS)]


def _chat(connection: int, number: int) -> bytes:
    body = json.dumps({"message": f"Question {number}?", "session_id": f"chat-{number // 20}"}).encode()
    return request("POST", "/api/v1/chat", _ASKING[connection], body)


def _append(connection: int, number: int) -> bytes:
    body = json.dumps({"message": f"Question {number}?", "session_id": f"chat-{number // 20}"}).encode()
    return request("POST", "/append", _ASKING[connection], body)


async def _streams(server: _Server, statuses: Counter[int]) -> int:
    """How many of the streams that were open at the same time have ended as they should."""

    async def one(number: int) -> bytes:
        body = json.dumps({"message": "Why?", "session_id": f"stream-{number}", "team": "slow"}).encode()
        sent = request("POST", "/api/v1/chat/stream", _token(1000 + number), body)
        status, data = await streamed(server.port, sent)
        statuses[status] += 1
        return data

    found = await asyncio.gather(*(one(number) for number in range(STREAMS)))
    return sum(b"event: turn_completed" in data for data in found)


async def _fill(home: Path) -> None:
    """The same conversation for both."""
    store = await open_store(f"sqlite:///{home / '.massmem' / 'massmem.db'}", home / ".massmem")
    moment = TurnStarted(session_id="", turn=1, question="", agents=("ann",), seed=1).at
    name = f"{owner_hash('user0')}.read"
    await store.create_session(SessionRecord(session_id=name, user_id="user0", created_at=moment, updated_at=moment))
    for turn in range(1, MESSAGES // 2 + 1):
        begun = TurnStarted(session_id=name, turn=turn, question=_ANSWER, agents=("ann",), seed=turn)
        ended = TurnCompleted(winner="ann", answer=_ANSWER, presented=True, usage=Usage())
        await store.append(name, turn, [begun, ended])
    rows = [
        ("user0.read", m.role, m.content, m.agent_id, None, _iso(m.created_at))
        for m in reversed(await store.conversation(name, None, MESSAGES))
    ]
    await store.close()
    with closing(bare_server.opened(str(home / "bare.db"))) as bare:
        bare.execute(bare_server.MESSAGES)
        bare.execute(bare_server.INDEX)
        bare.executemany(
            "INSERT INTO messages (session, role, content, agent, confidence, at) VALUES (?, ?, ?, ?, ?, ?)", rows
        )


def _iso(moment: object) -> str:
    from massmem.server.schemas import HistoryMessage

    return json.loads(HistoryMessage(role="user", content="", timestamp=moment).model_dump_json())["timestamp"]  # type: ignore[arg-type]


@contextmanager
def _ours(home: Path) -> Generator[_Server]:
    port = _free_port()
    says = {"latency": 0, "chunk_delay": 0, "answer": [_ANSWER]}
    limits = {"requests": 10_000_000, "turns": 1_000, "streams_per_user": 1_000}
    server = {"port": port, "jwt": {"secret": SECRET}, "limits": limits, "teams": {"slow": str(home / "slow.yaml")}}
    (home / "team.yaml").write_text(yaml.safe_dump({"agents": [_agent(says)], "server": server}))
    (home / "slow.yaml").write_text(yaml.safe_dump({"agents": [_agent(says | {"latency": 2.0})]}))
    command = [sys.executable, "-m", "massmem", "serve", "--config", str(home / "team.yaml")]
    with _running(command, port, home) as server_:
        yield server_


def _agent(script: dict[str, object]) -> dict[str, object]:
    return {"id": "ann", "backend": {"type": "scripted", "script": script}}


@contextmanager
def _bare(home: Path) -> Generator[_Server]:
    port = _free_port()
    command = [sys.executable, "-m", "scripts.benches.bare_server", str(home / "bare.db"), str(port), SECRET]
    with _running(command, port, home) as server:
        yield server


@contextmanager
def _running(command: list[str], port: int, home: Path) -> Generator[_Server]:
    log = home / f"server-{port}.log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, env=environment(home), cwd=ROOT, stderr=stderr)
    try:
        _wait(process, port, log)
        yield _Server(port, process)
    finally:
        process.terminate()
        process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(600):
        if process.poll() is not None:
            break
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise BenchError(f"a server did not start: {log.read_text()[-500:]}")


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]
