"""A refusal arrives at a client that goes on sending, and reads late; one that sends for ever is cut off."""

import contextlib
import socket
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.support.service import Service, StartService, make_config, make_token, wait_until

BODY = 4_000_000
SERVER = {"limits": {"body": BODY, "requests": 5, "body_timeout": 2, "header_timeout": 2}}
CHAT = "POST /api/v1/chat HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
LENGTH = f"content-length: {BODY}\r\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"), make_config(server=SERVER)).start()
    yield service
    service.stop()


@contextlib.contextmanager
def connect(service: Service) -> Generator[socket.socket]:
    with socket.create_connection(("127.0.0.1", service.port), 20) as connection:
        yield connection


def key(user: str) -> str:
    return f"authorization: Bearer {make_token(user)}\r\n"


def read_all(connection: socket.socket) -> str:
    return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()


REFUSED = {
    "no key": (f"{CHAT}{LENGTH}\r\n", 401),
    "no such path": (f"{CHAT.replace('chat', 'chatter')}{LENGTH}\r\n", 404),
    "no such method": (f"{CHAT.replace('POST', 'DELETE')}{LENGTH}\r\n", 405),
    "MCP without a key": (f"{CHAT.replace('/api/v1/chat', '/mcp')}{LENGTH}\r\n", 401),
    "a length beyond the limit": (f"{CHAT}{key('ann')}content-length: {BODY * 2}\r\n\r\n", 413),
    "a length beyond the limit, over /v1": (
        f"{CHAT.replace('/api/v1/chat', '/v1/chat/completions')}{key('bob')}content-length: {BODY * 2}\r\n\r\n", 413,
    ),
    "a form of 2 GB": (f"{CHAT}{key('bob')}content-length: 2000000000\r\n\r\n", 413),
    "a header without end": (f"{CHAT}x: ", 431),
    "no HTTP": ("\r\n".join(["HELO there"] * 3), 400),
}  # fmt: skip


@pytest.mark.parametrize("pause", [0.0, 0.5], ids=["", "late"])
@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_arrives_at_a_client_that_goes_on_sending(service: Service, case: str, pause: float) -> None:
    head, status = REFUSED[case]
    with connect(service) as connection:
        connection.sendall(head.encode())
        time.sleep(0.2)
        for _ in range(30):
            connection.sendall(b"a" * (BODY // 40))
            time.sleep(pause / 30)
        connection.shutdown(socket.SHUT_WR)
        time.sleep(pause)
        reply = read_all(connection).lower()
    assert reply.startswith(f"http/1.1 {status} ")
    assert "connection: close" in reply
    assert reply.endswith("}")


def test_too_many_requests_are_refused_before_their_body_is_read(service: Service) -> None:
    user = service.client("carl")
    while user.get("/api/v1/sessions").status_code != 429:
        pass
    with connect(service) as connection:
        connection.sendall(f"{CHAT}{key('carl')}{LENGTH}\r\n".encode() + b"a" * BODY)
        time.sleep(0.5)
        assert read_all(connection).startswith("HTTP/1.1 429 ")


def test_a_chunked_body_without_end_is_refused_and_read_to_the_limit(service: Service) -> None:
    with connect(service) as connection:
        connection.sendall(f"{CHAT}{key('dora')}transfer-encoding: chunked\r\n\r\n".encode())
        sent, began = 0, time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < began + 20:
                connection.sendall(b"10000\r\n" + b"a" * 65_536 + b"\r\n")
                sent += 65_536
    assert sent < 4 * BODY, "what the refusal, the discarding and the buffers of two sockets may take"


def test_a_client_that_trickles_is_cut_off(service: Service) -> None:
    with connect(service) as connection:
        connection.sendall(f"{CHAT}{LENGTH}\r\n".encode())
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < began + 20:
                connection.sendall(b"a")
                time.sleep(0.1)
        assert time.monotonic() - began < 12


def test_a_connection_is_used_again_when_all_of_a_request_was_read(service: Service) -> None:
    with connect(service) as connection:
        for _ in range(2):
            connection.sendall(f"{CHAT}content-length: 2\r\n\r\n{{}}".encode())
            reply = b""
            while not reply.endswith(b"}"):
                piece = connection.recv(65_536)
                assert piece
                reply += piece
            assert reply.startswith(b"HTTP/1.1 401 ")
            assert b"connection: close" not in reply.lower()


def test_who_is_refused_does_not_keep_the_service_from_ending(start_service: StartService, tmp_path: Path) -> None:
    service = start_service(make_config())
    with connect(service) as connection:
        connection.sendall(f"{CHAT}{LENGTH}\r\n".encode())
        wait_until(lambda: connection.recv(65_536).startswith(b"HTTP/1.1 401 "))
        began = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - began < 5
