"""The HTTP service beside a bare FastAPI with PyJWT and SQLite: histories, questions, streams, memory."""

import asyncio
import json
from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median

import psutil
from pydantic import TypeAdapter

from massmem.config.models import JwtConfig
from massmem.core.events import TurnCompleted, TurnStarted, now
from massmem.core.messages import Usage
from massmem.core.records import Owner, SessionRecord
from massmem.server.auth import Tokens
from massmem.session.owners import to_stored_id
from massmem.store import open_store
from scripts.benches import bare_server
from scripts.benches.load import Load, MakeRequest, make_request, read_stream, run_load
from scripts.benches.process import BenchError, Server, find_free_port, start_server, workspace
from scripts.benches.rows import Row, at_most, exactly, ratio, reported

SECRET = "the-bench-signs-with-this-0123456789abcdef"
MESSAGES, CHARACTERS = 50, 400
CONNECTIONS = 16
SECONDS = 4.0
ROUNDS = 3
STREAMS = 200
MAX_GROWTH = 50

_TOKENS = Tokens(JwtConfig.model_validate({"secret": SECRET}))
_HISTORY = "/api/v1/chat/history/read"
_ANSWER = "x" * CHARACTERS


def run() -> list[Row]:
    with workspace() as home:
        asyncio.run(_fill_stores(home))
        port, database = find_free_port(), home / "bare.db"
        with (
            _start_massmem(home) as massmem,
            start_server(home, port, "scripts.benches.bare_server", database, port, SECRET) as bare,
        ):
            return asyncio.run(_measure(massmem, bare))


async def _measure(massmem: Server, bare: Server) -> list[Row]:
    statuses: Counter[int] = Counter()
    request = make_request("GET", _HISTORY, _make_token(0))

    def read(_connection: int, _number: int) -> bytes:
        return request

    for server in (massmem, bare):
        await _run_load(server, read, statuses, 1.0)
    is_same = await _read_json(massmem, request) == await _read_json(bare, request)
    await _run_load(massmem, _make_question, statuses, 1.0)
    before = _measure_memory(massmem)
    reads = [(await _run_load(massmem, read, statuses), await _run_load(bare, read, statuses)) for _ in range(ROUNDS)]
    questions = [
        (await _run_load(massmem, _make_question, statuses), await _run_load(bare, _make_append, statuses))
        for _ in range(ROUNDS)
    ]
    answered = await _count_answered_streams(massmem, statuses)
    after = _measure_memory(massmem)
    failures = sum(count for status, count in statuses.items() if status >= 500)
    return [
        exactly("both return the same history", float(is_same), "", 1),
        *_compare(f"history of {MESSAGES} messages", reads, "bare FastAPI"),
        *_compare("a question, of one scripted agent", questions, "a durable append"),
        exactly(f"of {STREAMS} event streams at the same time end with an answer", answered, "", STREAMS),
        exactly("answers with 5xx", failures, "", 0, f"of {statuses.total():,}"),
        at_most("resident memory grew over the run by", after - before, "MB", MAX_GROWTH, f"to {after:.0f} MB"),
    ]


def _measure_memory(server: Server) -> float:
    return psutil.Process(server.process.pid).memory_info().rss / 1e6


def _compare(what: str, pairs: list[tuple[Load, Load]], other: str) -> list[Row]:
    rates = ratio([load.rate for load, _ in pairs], [load.rate for _, load in pairs])
    slowest = ratio([load.percentile(0.99) for load, _ in pairs], [load.percentile(0.99) for _, load in pairs])
    rate, other_rate = (median(pair[which].rate for pair in pairs) for which in (0, 1))
    p99, other_p99 = (median(pair[which].percentile(0.99) * 1000 for pair in pairs) for which in (0, 1))
    return [
        reported(f"{what}: rate", rate, "/s", f"{rates.middle:.2f} x of {other}, {other_rate:,.0f}; {rates.spread}"),
        reported(f"{what}: p99", p99, "ms", f"{slowest.middle:.2f} x of {other}, {other_p99:,.0f}; {slowest.spread}"),
    ]


async def _run_load(server: Server, make: MakeRequest, statuses: Counter[int], seconds: float = SECONDS) -> Load:
    load = await run_load(server.port, make, connections=CONNECTIONS, seconds=seconds)
    statuses.update(load.statuses)
    if set(load.statuses) != {200}:
        raise BenchError(f"statuses were {dict(load.statuses)}: {load.sample[:200]!r}")
    return load


async def _read_json(server: Server, request: bytes) -> object:
    _, data = await read_stream(server.port, request)
    return json.loads(data.partition(b"\r\n\r\n")[2])


def _make_token(user: int) -> str:
    return _TOKENS.create(f"user{user}", 3600)


_ASKERS = [_make_token(number) for number in range(CONNECTIONS)]


def _make_question(connection: int, number: int) -> bytes:
    return make_request("POST", "/api/v1/chat", _ASKERS[connection], _make_body(number))


def _make_append(connection: int, number: int) -> bytes:
    return make_request("POST", "/append", _ASKERS[connection], _make_body(number))


def _make_body(number: int) -> bytes:
    return json.dumps({"message": f"Question {number}?", "session_id": f"chat-{number // 20}"}).encode()


async def _count_answered_streams(server: Server, statuses: Counter[int]) -> int:
    """Open all streams at the same time; return how many end with an answer."""

    async def stream(number: int) -> bytes:
        body = json.dumps({"message": "Why?", "session_id": f"stream-{number}", "team": "slow"}).encode()
        request = make_request("POST", "/api/v1/chat/stream", _make_token(1000 + number), body)
        status, data = await read_stream(server.port, request)
        statuses[status] += 1
        return data

    streams = await asyncio.gather(*(stream(number) for number in range(STREAMS)))
    return sum(b"event: turn_completed" in data for data in streams)


async def _fill_stores(home: Path) -> None:
    """Store the same conversation for both servers."""
    store = await open_store(f"sqlite:///{home / '.massmem' / 'massmem.db'}", home / ".massmem")
    created = now()
    session_id = to_stored_id(Owner("user0"), "read")
    await store.create_session(
        SessionRecord(session_id=session_id, user_id="user0", created_at=created, updated_at=created)
    )
    for turn in range(1, MESSAGES // 2 + 1):
        start = TurnStarted(session_id=session_id, turn=turn, question=_ANSWER, agents=("ann",), seed=turn)
        end = TurnCompleted(winner="ann", answer=_ANSWER, presented=True, usage=Usage())
        await store.append(session_id, turn, [start, end])
    iso = TypeAdapter(datetime)
    rows = [
        ("user0.read", m.role, m.content, m.agent_id, None, iso.dump_python(m.created_at, mode="json"))
        for m in reversed(await store.read_conversation(session_id, None, MESSAGES))
    ]
    await store.close()
    with closing(bare_server.open_database(str(home / "bare.db"))) as bare:
        bare.execute(bare_server.MESSAGES)
        bare.execute(bare_server.INDEX)
        columns = "session, role, content, agent, confidence, created_at"
        bare.executemany(f"INSERT INTO messages ({columns}) VALUES (?, ?, ?, ?, ?, ?)", rows)


@contextmanager
def _start_massmem(home: Path) -> Generator[Server]:
    port = find_free_port()
    script = {"latency": 0, "chunk_delay": 0, "answer": [_ANSWER]}
    limits = {"requests": 10_000_000, "turns": 1_000, "streams_per_user": 1_000}
    server = {"port": port, "jwt": {"secret": SECRET}, "limits": limits, "teams": {"slow": str(home / "slow.yaml")}}
    (home / "team.yaml").write_text(json.dumps({"agents": [_make_agent(script)], "server": server}))
    (home / "slow.yaml").write_text(json.dumps({"agents": [_make_agent(script | {"latency": 2.0})]}))
    with start_server(home, port, "massmem", "serve", "--config", home / "team.yaml") as massmem:
        yield massmem


def _make_agent(script: Mapping[str, object]) -> dict[str, object]:
    return {"id": "ann", "backend": {"type": "scripted", "script": script}}
