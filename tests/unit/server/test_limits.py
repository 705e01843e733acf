"""Limits per user and per process."""

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event as EventType
from pathlib import Path

import pytest
from fastapi import HTTPException
from starlette.types import Message, Receive, Scope, Send

from massmem.config.models import LimitsConfig
from massmem.core.errors import InputError, StoreUnavailable
from massmem.server.errors import RetryLater
from massmem.server.limits import BodyLimit, HostCounts, Limits
from massmem.server.metrics import SHARED_FOLDER
from tests.support.forked import processes


def make_limits(**config: object) -> Limits:
    return Limits(LimitsConfig.model_validate(config))


async def test_requests_beyond_the_limit_of_a_minute_are_refused() -> None:
    limits = make_limits(requests=3)
    for _ in range(3):
        await limits.count_request("alice")
    with pytest.raises(RetryLater, match=r"^too many requests$") as refusal:
        await limits.count_request("alice")
    assert refusal.value.status == 429
    assert 1 <= refusal.value.retry_after <= 61
    await limits.count_request("bob")


async def test_requests_that_redis_cannot_count_are_refused_without_its_address() -> None:
    limits = make_limits(counted_in="redis://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="requests cannot be counted: ConnectionError") as refusal:
        await limits.count_request("alice")
    assert refusal.value.hint == "see server.limits.counted_in"
    assert "127.0.0.1" not in str(refusal.value)


def test_questions_at_the_same_time_are_limited_per_user_and_in_total() -> None:
    limits = make_limits(turns_per_user=2, turns=3)
    with limits.hold_turn("alice"), limits.hold_turn("alice"):
        with pytest.raises(RetryLater) as of_user, limits.hold_turn("alice"):
            pass
        with limits.hold_turn("bob"), pytest.raises(RetryLater) as of_all, limits.hold_turn("carol"):
            pass
    assert (of_user.value.status, of_user.value.message) == (429, "too many questions at the same time")
    assert (of_all.value.status, of_all.value.message) == (503, "the service is busy")
    with limits.hold_turn("alice"), limits.hold_turn("alice"):
        pass


def test_question_that_ends_makes_room_for_one_other_question() -> None:
    limits = make_limits(turns_per_user=2, turns=10)
    with limits.hold_turn("alice"):
        with limits.hold_turn("alice"):
            pass
        with limits.hold_turn("alice"), pytest.raises(RetryLater), limits.hold_turn("alice"):
            pass


def test_question_that_fails_is_no_longer_counted() -> None:
    limits = make_limits(turns_per_user=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="x"), limits.hold_turn("alice"):
            raise ValueError("x")


def test_open_streams_are_limited_per_user() -> None:
    limits = make_limits(streams_per_user=1)
    limits.check_streams("alice")
    with limits.hold_stream("alice"):
        limits.check_streams("bob")
        with pytest.raises(RetryLater, match=r"^too many open streams$") as refusal:
            limits.check_streams("alice")
        assert refusal.value.status == 429
    limits.check_streams("alice")


async def test_wrong_keys_are_counted_by_address_and_those_of_a_network_together() -> None:
    limits = make_limits(wrong_keys=2)
    for address in ("2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.1", "", ""):
        await limits.count_wrong_key(address)
    for address in ("2001:db8::3", "192.0.2.1", ""):
        with pytest.raises(RetryLater, match="too many wrong keys") as refusal:
            await limits.count_wrong_key(address)
        assert refusal.value.status == 429
    await limits.count_wrong_key("2001:db8:0:1::1")
    await limits.count_wrong_key("192.0.2.2")


def count_in_process(folder: Path, start: EventType, done: EventType, results: "Queue[tuple[int, int]]") -> None:
    """Count 50 requests, hold as many of three questions as there are, and be killed."""

    async def count() -> tuple[int, int]:
        limits, counted, stack = make_limits(requests=100, turns_per_user=3), 0, ExitStack()
        held = 0
        for _ in range(25):
            with suppress(RetryLater):
                await limits.count_request("alice")
                counted += 1
        for _ in range(3):
            with suppress(RetryLater):
                stack.enter_context(limits.hold_turn("alice"))
                held += 1
        results.put((counted, held))
        done.wait()
        os._exit(9)

    os.environ[SHARED_FOLDER] = str(folder)
    start.wait()
    asyncio.run(count())


def test_processes_count_together_and_one_that_was_killed_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, done, results = processes.Event(), processes.Event(), processes.Queue()
    arguments = (tmp_path, start, done, results)
    workers = [processes.Process(target=count_in_process, args=arguments, daemon=True) for _ in range(4)]
    for worker in workers:
        worker.start()
    monkeypatch.setenv(SHARED_FOLDER, str(tmp_path))  # not before: what starts the processes would keep it
    start.set()
    counts = [results.get(timeout=60) for _ in workers]
    with pytest.raises(RetryLater), make_limits(turns_per_user=3).hold_turn("alice"):
        pass
    done.set()
    for worker in workers:
        worker.join()
    assert 100 <= sum(counted for counted, _ in counts) <= 200, "a minute may have passed meanwhile"
    assert sum(held for _, held in counts) == 3
    with make_limits(turns_per_user=1).hold_turn("alice"):
        pass


def test_processes_that_start_at_once_do_not_lock_each_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here threads: what each one opens is its own, as in a process of its own."""
    barrier = threading.Barrier(4)

    def start(_: int) -> None:
        barrier.wait(60)
        HostCounts()

    with ThreadPoolExecutor(4) as pool:
        for number in range(50):
            folder = tmp_path / str(number)
            folder.mkdir()
            monkeypatch.setenv(SHARED_FOLDER, str(folder))
            list(pool.map(start, range(4)))


@pytest.mark.parametrize("address", ["nonsense://x", "redis", ""])
def test_wrong_address_of_redis_is_rejected(address: str) -> None:
    with pytest.raises(InputError, match=r"^server\.limits\.counted_in is not an address of Redis") as error:
        make_limits(counted_in=address)
    assert error.value.hint == "use redis://HOST:PORT"


class Client:
    """Sends a body piece by piece, then disconnects; keeps what the application received."""

    def __init__(self, *pieces: bytes, declared: str | None = None, wait: float = 0.0) -> None:
        self.pieces, self.declared, self.wait = [*pieces], declared, wait
        self.received: list[Message] = []

    async def ask(self, type_: str = "http", reads: int = 1, **config: object) -> None:
        """Send the request to an application that reads so many messages, behind limits of these sizes."""
        self.headers = [] if self.declared is None else [(b"content-length", self.declared.encode())]
        app = BodyLimit(partial(self._read, reads), LimitsConfig.model_validate({"body": 1_000, **config}))
        await app({"type": type_, "headers": self.headers}, self._receive, self._send)

    async def _read(self, reads: int, scope: Scope, receive: Receive, send: Send) -> None:
        assert list(scope["headers"]) == self.headers
        assert send == self._send
        self.received = [await receive() for _ in range(reads)]

    async def _receive(self) -> Message:
        await asyncio.sleep(self.wait)
        if not self.pieces:
            return {"type": "http.disconnect"}
        piece = self.pieces.pop(0)
        more = {"more_body": True} if self.pieces else {}  # a server may leave it out at the end
        return {"type": "http.request", "body": piece, **more}

    async def _send(self, message: Message) -> None:
        raise AssertionError("nothing is sent here")


async def test_body_as_large_as_the_limit_arrives_and_then_the_disconnect() -> None:
    client = Client(b"x" * 600, b"y" * 400, declared="1000")
    await client.ask(reads=3)
    assert [message.get("body") for message in client.received] == [b"x" * 600, b"y" * 400, None]
    assert client.received[2] == {"type": "http.disconnect"}


@pytest.mark.parametrize(
    ("pieces", "declared"),
    [([b"x"], "1001"), ([b"x"], "9" * 5_000), ([b"x" * 600, b"y" * 401], None)],
    ids=["declared", "declared beyond all bounds", "sent"],
)
async def test_body_beyond_the_limit_is_refused(pieces: list[bytes], declared: str | None) -> None:
    with pytest.raises(HTTPException) as refusal:
        await Client(*pieces, declared=declared).ask(reads=2)
    assert (refusal.value.status_code, refusal.value.detail) == (413, "the body is too large")


async def test_length_that_is_no_number_is_left_to_what_arrives() -> None:
    client = Client(b"x", declared="many")
    await client.ask()
    assert len(client.received) == 1


async def test_body_that_does_not_arrive_in_time_is_refused_however_slowly_it_comes() -> None:
    client = Client(*[b"x"] * 50, wait=0.02)
    with pytest.raises(HTTPException) as refusal:
        await client.ask(reads=50, body_timeout=0.1)
    assert (refusal.value.status_code, refusal.value.detail) == (408, "the body did not arrive in time")


async def test_client_may_stay_after_its_body_has_arrived() -> None:
    client = Client(b"x", wait=0.4)
    await client.ask(reads=3, body_timeout=1.0)
    assert client.received[-1] == {"type": "http.disconnect"}


async def test_only_requests_have_a_limit() -> None:
    client = Client(b"x" * 2_000)
    await client.ask(type_="lifespan")
    assert len(client.received[0]["body"]) == 2_000
