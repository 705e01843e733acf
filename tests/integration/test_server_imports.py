"""An import over HTTP is a job: shown, stopped and refused a second time by any process, and repeated after a kill."""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service import Client, Service, make_config, wait_until

TURNS = 2_000


@pytest.fixture
def services(tmp_path: Path) -> Iterator[list[Service]]:
    """Two processes on one store."""
    services = [Service(tmp_path, make_config(server={"grace": 0.2})) for _ in range(2)]
    for service in services:
        service.start(wait=False)
    for service in services:
        service.wait_until_ready()
    yield services
    for service in services:
        service.stop()


def make_export(turns: int = TURNS) -> bytes:
    messages = [{"role": role, "content": f"{role} {n}"} for n in range(turns) for role in ("user", "assistant")]
    return json.dumps(messages).encode()


def begin(client: Client, export: bytes) -> str:
    """Send the export, wait until some of it is stored, and return the address of the job."""
    response = client.post_bytes("/api/v1/sessions/import", export)
    assert (response.status_code, response.json()["status"]) == (202, "running"), response.text
    wait_until(lambda: client.get(response.headers["Location"]).json()["turns"] > 0)
    return response.headers["Location"]


def check_stored(client: Client, session_id: str, turns: int) -> None:
    """Check that each of the first turns is there once, and nothing else."""
    path, before = f"/api/v1/sessions/{session_id}?limit=200", ""
    texts = Counter[str]()
    while True:
        part = client.get(path + before).json()
        texts.update(message["text"] for message in part["messages"])
        if not part["has_older"]:
            break
        before = f"&before={part['messages'][0]['seq']}"
    assert texts == Counter(f"{role} {n}" for n in range(turns) for role in ("user", "assistant"))


def test_job_is_stopped_by_another_process_and_goes_on_when_the_file_is_sent_again(services: list[Service]) -> None:
    first, second = (service.client("alice") for service in services)
    export = make_export()
    address = begin(first, export)
    refused = second.post_bytes("/api/v1/sessions/import", export)
    assert (refused.status_code, refused.headers["Location"]) == (409, address)
    assert "is being imported already" in refused.json()["error"]
    assert services[1].client("bob").get(address).status_code == 404, "a job is its user's"
    assert services[1].client("bob").delete(address).status_code == 404
    running = second.get(address).json()
    assert (running["status"], running["total"]) == ("running", TURNS)
    assert second.delete(address).status_code == 202
    stopped = second.wait_for_import(address)
    assert stopped["status"] == "stopped"
    assert 0 < stopped["turns"] < TURNS
    (session,) = stopped["sessions"]
    assert (session["added"], session["turns"]) == (stopped["turns"], TURNS)
    check_stored(first, session["session_id"], stopped["turns"])
    assert second.delete(address).json()["status"] == "stopped"
    done = second.import_export(export)
    assert (done["status"], done["turns"]) == ("done", TURNS)
    assert done["sessions"] == [{**session, "added": TURNS - stopped["turns"]}]
    assert session["title"] == "user 0"
    check_stored(first, session["session_id"], TURNS)


def test_job_of_a_killed_process_is_interrupted_and_nothing_is_lost_or_twice(services: list[Service]) -> None:
    export, second = make_export(), services[1].client("alice")
    address = begin(services[0].client("alice"), export)
    services[0].kill()
    broken_off = second.get(address).json()
    assert (broken_off["status"], broken_off["sessions"]) == ("interrupted", [])
    done = second.import_export(export)
    assert (done["status"], done["turns"]) == ("done", TURNS)
    (session,) = done["sessions"]
    assert TURNS - broken_off["turns"] >= session["added"] > 0
    check_stored(second, session["session_id"], TURNS)


def test_job_of_a_process_that_is_told_to_end_is_stopped(services: list[Service]) -> None:
    export, second = make_export(), services[1].client("alice")
    address = begin(services[0].client("alice"), export)
    services[0].terminate()
    job = second.wait_for_import(address)
    assert job["status"] == "stopped"
    check_stored(second, job["sessions"][0]["session_id"], job["turns"])
    assert services[0].stop() == 0


def test_the_file_of_a_job_has_no_texts_and_goes_after_a_week(services: list[Service]) -> None:
    client, home = services[0].client("alice"), services[0].home / ".massmem"
    old = home / "imports" / "old.json"
    old.parent.mkdir(exist_ok=True)
    old.write_text("{}")
    week_ago = time.time() - 8 * 86_400
    os.utime(old, (week_ago, week_ago))
    assert client.import_export(make_export(3))["sessions"][0]["title"] == "user 0"
    assert not old.exists()
    assert not any(b"user 0" in path.read_bytes() for path in old.parent.iterdir())
