"""How services start and end: turns that are handed over, several workers, errors at the start."""

import asyncio
import json
import os
import socket
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

from massmem.memory.index_edge import EdgeIndex
from tests.integration.test_mcp_server import open_http
from tests.support.cli import massmem
from tests.support.service import (
    Client,
    Service,
    StartService,
    make_agent,
    make_config,
    read_events,
    wait_until,
)


def test_terminated_process_hands_its_turns_over(start_service: StartService) -> None:
    """What cannot end in time is handed over; its stream says so and goes on at the next process."""
    slow = make_agent("ann", "Done.", latency=0.5, chunk_delay=1.0, chunk_size=1)
    first = start_service(make_config(slow, server={"grace": 0.3}))
    events: list[tuple[str, int, dict[str, Any]]] = []

    def stream() -> None:
        body = {"message": "Why?", "session_id": "s"}
        events.extend(read_events(first.client("gwen").post("/api/v1/chat/stream", body, "k", stream=True)))

    thread = threading.Thread(target=stream)
    thread.start()
    wait_until(lambda: len(first.client("gwen").read_history("s")) == 1)
    first.terminate()
    thread.join(30)
    assert first.stop() == 0
    assert events[-1][0] == "turn_interrupted"
    second = start_service(make_config(make_agent("ann", "Done.")))
    gwen = second.client("gwen")
    rest = read_events(gwen.get("/api/v1/chat/stream/s", stream=True, headers={"Last-Event-ID": str(events[-1][1])}))
    assert (rest[0][0], rest[-1][0]) == ("turn_resumed", "turn_completed")
    assert gwen.read_history("s") == [("user", "Why?"), ("assistant", "Done.")]
    assert gwen.chat("Why?", "s", "k").json()["response"] == "Done."
    assert second.stop() == 0


async def ask_over_mcp(service: Service, user: str, mode: Literal["auto", "legacy"]) -> str:
    async with open_http(service, user, mode) as client:
        await client.list_tools()  # else the client does it after the call, when nobody listens any more
        return str((await client.call_tool("ask_council", {"question": "Why?"})).structured_content)


def ask_over_http(service: Service, user: str, path: str, body: dict[str, Any]) -> str:
    return service.client(user).post(path, body, stream=True).text


def wait_for_streams(service: Service, count: int) -> None:
    scraper = service.client("scraper", "metrics")
    wait_until(lambda: f"massmem_streams {count}.0" in scraper.get("/metrics").text)


def follow(service: Service, user: str) -> str:
    return service.client(user).get("/api/v1/chat/stream/s", stream=True).text


def test_turns_under_way_at_sigterm_are_answered_on_every_path(
    start_service: StartService,
) -> None:
    agent = make_agent("ann", "It is blue.", latency=2, chunk_delay=0.2, chunk_size=4)
    service = start_service(make_config(agent, memory={"enabled": False}))
    chat = {"model": "massmem", "stream": True, "messages": [{"role": "user", "content": "Why?"}]}
    with ThreadPoolExecutor() as pool:
        answers = {
            "completions": pool.submit(ask_over_http, service, "ann", "/v1/chat/completions", chat),
            "stream": pool.submit(
                ask_over_http, service, "bob", "/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}
            ),
            "mcp": pool.submit(asyncio.run, ask_over_mcp(service, "cid", "auto")),
            "mcp of 2025": pool.submit(asyncio.run, ask_over_mcp(service, "dee", "legacy")),
        }
        wait_until(lambda: all(service.client(user).list_sessions() for user in ("ann", "bob", "cid", "dee")))
        answers["followed"] = pool.submit(follow, service, "bob")
        wait_for_streams(service, 3)
        service.terminate()
        texts = {path: answer.result(60) for path, answer in answers.items()}
    assert service.stop() == 0
    assert '"finish_reason": "stop"' in texts["completions"]
    assert texts["completions"].endswith("data: [DONE]\n\n")
    for path in ("stream", "followed"):
        assert "event: turn_completed" in texts[path], path
    for path in ("mcp", "mcp of 2025"):
        assert "'answer': 'It is blue.'" in texts[path], path


def test_followed_turn_that_is_handed_over_does_not_hold_the_service(start_service: StartService) -> None:
    service = start_service(make_config(make_agent("ann", "Done.", latency=20), server={"grace": 0.1}))
    with ThreadPoolExecutor() as pool:
        asked = pool.submit(
            ask_over_http, service, "gwen", "/api/v1/chat/stream", {"message": "Why?", "session_id": "s"}
        )
        wait_until(lambda: len(service.client("gwen").read_history("s")) == 1)
        followed = pool.submit(follow, service, "gwen")
        wait_for_streams(service, 2)
        told_at = time.monotonic()
        service.terminate()
        assert "event: turn_interrupted" in followed.result(60)
        assert "event: turn_interrupted" in asked.result(60)
    assert service.stop() == 0
    assert time.monotonic() - told_at < 8, "connections may stay open for ten seconds"


@pytest.mark.slow
def test_workers_share_the_store_and_the_metrics_and_a_killed_one_is_replaced(start_service: StartService) -> None:
    service = start_service(make_config(), "--workers", "2")
    for number in range(4):
        assert service.client("wes").chat(f"Question {number}?", f"s{number}").status_code == 200
    assert len(service.client("wes").list_sessions()) == 4
    scraper = service.client("scraper", "metrics")
    assert 'massmem_turns_total{outcome="completed"} 4.0' in scraper.get("/metrics").text
    workers = {
        child.pid for child in psutil.Process(service.pid).children() if "spawn_main" in " ".join(child.cmdline())
    }
    assert len(workers) == 2
    victim = workers.pop()
    psutil.Process(victim).kill()
    wait_until(lambda: any("was replaced" in line["message"] for line in service.read_log()))
    service.wait_until_ready()
    assert service.client("wes").chat("Once more?", "s0").json()["turn"] == 2
    assert service.stop() == 0


def test_address_in_use_is_an_error(start_service: StartService) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        service = start_service(make_config(), "--port", str(other.getsockname()[1]), wait=False)
        assert service.wait_for_exit() == 2
    assert "cannot be listened on" in service.log.read_text()


def test_folder_for_metrics_that_is_none_is_an_error(tmp_path: Path, home: Path) -> None:
    config = tmp_path / "team.yaml"
    config.write_text(json.dumps(make_config()))
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(config)}
    for line in (["serve", "--port", "0"], ["ui", "--no-browser"]):
        ran = massmem(*line, "--config", str(config), env=environment, text=True)
        assert (ran.returncode, "PROMETHEUS_MULTIPROC_DIR names no folder" in ran.stderr) == (2, True), line


def test_secret_is_made_once_and_also_signs_tokens(start_service: StartService) -> None:
    config: dict[str, Any] = {"agents": [make_agent("ann", "x")], "server": {"jwt": {}}}
    service = start_service(config)
    secret = service.home / ".massmem" / "jwt-secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    command = ["token", "create", "--sub", "alice", "--config", str(service.config_file)]
    run = massmem(*command, text=True, env=os.environ | {"HOME": str(service.home)})
    assert (run.returncode, run.stderr) == (0, "")
    assert Client(service.url, run.stdout.strip()).chat("Why?", "s").status_code == 200
    service.stop()
    second = start_service(config)
    assert Client(second.url, run.stdout.strip()).list_sessions() == ["s"]
    assert sum(str(secret) in line["message"] for line in service.read_log()) == 1
    assert not any(str(secret) in line["message"] for line in second.read_log())
    assert secret.read_text().strip() not in service.log.read_text()


@pytest.mark.slow
def test_error_that_keeps_workers_from_starting_ends_the_service(start_service: StartService) -> None:
    config = make_config(store={"url": "sqlite:////dev/null/massmem.db"})
    service = start_service(config, "--workers", "2", wait=False)
    assert service.wait_for_exit() == 2
    text = service.log.read_text()
    assert "/dev/null cannot be written" in text
    assert "the service cannot start" in text


@pytest.mark.slow
def test_deleted_conversation_leaves_no_memories(start_service: StartService, tmp_path: Path) -> None:
    memory = {"persistent_memory": {"embedding": {"model": "none"}}}
    service = start_service(make_config(memory=memory))
    for name in ("lost", "other"):
        service.client("ann").chat("Which penguin is blue?", name)
    service.stop()  # what was said is recorded by then
    index = service.home / ".massmem" / "memory" / "words"
    before = _count_sessions(index)
    service.start()
    assert service.client("ann").delete("/api/ai-memory/conversations/lost").status_code == 200
    service.stop()
    assert (before, _count_sessions(index)) == (2, 1)


def _count_sessions(folder: Path) -> int:
    index = EdgeIndex(folder, 0)
    try:
        return len(index.count_values("run_id"))
    finally:
        index.close()
