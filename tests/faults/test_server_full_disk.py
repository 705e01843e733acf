"""The service on a full disk: not ready, nothing half stored, and as before once there is room."""

import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests

from tests.support.service import Service, StartService, make_config, wait_until
from tests.support.small_disk import mount_small_disk

pytestmark = pytest.mark.slow

DISK = 200 * 2**20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """massmem's folder of the services in this test."""
    with mount_small_disk(tmp_path / "home" / ".massmem", str(DISK), in_use=True) as place:
        yield place


def fill(disk: Path, room: int) -> Path:
    """Write a file that leaves so many bytes on the disk; return it."""
    path = disk / "filler"
    size = max(0, shutil.disk_usage(disk).free - room)
    with suppress(OSError), path.open("wb", buffering=0) as file:  # the service writes as well
        for _ in range(size // 2**20):
            file.write(bytes(2**20))
        file.write(bytes(size % 2**20))
    return path


def read_checks(service: Service) -> tuple[int, dict[str, str]]:
    response = requests.get(f"{service.url}/readyz", timeout=30)
    return response.status_code, response.json()["checks"]


def test_service_on_a_full_disk_is_not_ready_and_lists_no_empty_sessions(
    disk: Path, start_service: StartService
) -> None:
    service = start_service(make_config(memory={"enabled": False}))
    alice = service.client("alice")
    assert alice.chat("Why?", "before").status_code == 200
    filler = fill(disk, 0)
    statuses = {alice.chat("Why?" * 10_000, f"full{number}").status_code for number in range(6)}
    assert statuses == {503}
    status, checks = read_checks(service)
    assert (status, checks["disk"]) == (503, "the disk is full")
    assert alice.list_sessions() == ["before"]
    assert alice.get("/api/conversations").json()["total_sessions"] == 1
    assert alice.get("/api/ai-memory/stats").json()["data"]["activeConversations"] == 1
    filler.unlink()
    assert read_checks(service)[0] == 200
    assert alice.chat("Why?", "after").status_code == 200
    assert alice.list_sessions() == ["after", "before"]
    assert service.stop() == 0


def test_memory_is_opened_once_the_disk_has_room(disk: Path, start_service: StartService) -> None:
    filler = fill(disk, 20 * 2**20)
    service = start_service(make_config())
    alice = service.client("alice")
    assert alice.chat("My cat is called Tom.", "s").status_code == 200
    wait_until(lambda: read_checks(service)[1]["vectors"] != "ok")
    assert read_checks(service)[0] == 200
    filler.unlink()

    def is_open() -> bool:
        time.sleep(0.5)
        assert alice.chat("And my dog?").status_code == 200
        return read_checks(service)[1]["vectors"] == "ok"

    wait_until(is_open)
    assert service.stop() == 0
