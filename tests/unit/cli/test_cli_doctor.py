"""`massmem doctor`, whole, on homes that are right and on homes that are not."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from massmem.cli.checks import CHECKS
from massmem.cli.main import main
from tests.support.cli import massmem, script, write_team
from tests.support.provider_stub import KEY, Http, OpenAIWire, Say, Stub, running_stub

QUIET = {"persistent_memory": {"embedding": {"model": "none"}}}
OFF = {"enabled": False}
TITLES = list(CHECKS)


@pytest.fixture
def team(tmp_path: Path) -> str:
    return write_team(tmp_path, script("one"), script("two"), memory=QUIET)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A team without memory: its checks take the longest."""
    return write_team(tmp_path, script("one"), memory=OFF)


def says(value: object, status: int = 200) -> Http:
    return Http(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """The exit code, and the findings by their check."""
    code = main(["doctor", "--json", *arguments])
    said = json.loads(capsys.readouterr().out)
    assert (said["status"], said["schema_version"]) == ("failed" if code else "ok", 1)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in said["checks"]:
        found.setdefault(row["check"], []).append(row)
    return code, found


def test_a_fresh_home_passes_and_nothing_is_left_there(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    code, found = report(capsys, "--config", team)
    assert code == 0
    assert list(found) == TITLES
    assert [row["text"] for row in found["memory"]] == [
        "PersistentMemory created!", "Messages recorded!", "Messages recalled!"
    ]  # fmt: skip
    assert found["store"][0]["text"].endswith("massmem.db: made with the first question")
    assert [path.name for path in home.rglob("*") if path.is_file()] == []


def test_a_home_in_use_passes(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert massmem("--config", team, "Why?").returncode == 0
    code, found = report(capsys, "--config", team)
    assert code == 0, found
    assert ", schema " in found["store"][0]["text"]
    assert ", sound: 1 session, " in found["store"][0]["text"]
    assert found["registry"][0]["text"].endswith("sessions.json: 1 session")
    assert found["index"][0]["details"][0] == str(home / ".massmem" / "memory")
    again = report(capsys, "--config", team)[1]
    assert again["index"] == found["index"], "the check leaves nothing behind"


def test_for_people(plain: str, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--config", plain]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("ok       python       massmem ")
    assert out.splitlines()[-1].endswith(" checks, none failed")


def test_a_configuration_that_is_wrong_is_told_and_the_rest_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "team.yaml"
    path.write_text("agents:\n  - {id: a, backend: {type: opnai}}\n")
    code, found = report(capsys, "--config", str(path))
    assert code == 1
    (config,) = found["config"]
    assert config["details"][0].startswith(f"{path}:2: agents.0.backend.type: 'opnai' is not one of")
    assert config["fix"]
    assert {row["status"] for check in ("models", "embedding", "store") for row in found[check]} == {"skipped"}
    assert found["registry"][0]["status"] == "ok"


def test_no_such_file(capsys: pytest.CaptureFixture[str]):
    code, found = report(capsys, "--config", "nowhere.yaml")
    assert (code, found["config"][0]["status"]) == (1, "failed")


def test_files_that_others_may_read(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    own = home / ".massmem"
    own.mkdir(mode=0o755)
    code, found = report(capsys, "--config", plain)
    (row,) = found["permissions"]
    assert (code, row["status"]) == (1, "failed")
    subprocess.run(["bash", "-c", row["fix"]], check=False, capture_output=True)
    assert own.stat().st_mode & 0o077 == 0


def test_a_configuration_that_others_may_read_holds_no_secret(home: Path, capsys: pytest.CaptureFixture[str]):
    own = home / ".massmem"
    own.mkdir(mode=0o700)
    (own / "config.yaml").write_text("agent: {id: a, backend: {type: scripted}}\nmemory: {enabled: false}\n")
    (own / "config.yaml").chmod(0o644)
    code, found = report(capsys)
    assert (code, found["permissions"][0]["status"]) == (0, "ok")
    assert {row["text"] for check in ("embedding", "index", "memory") for row in found[check]} == {
        "memory is switched off"
    }


def test_a_damaged_database(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert massmem("--config", plain, "Why?").returncode == 0
    database = home / ".massmem" / "massmem.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(os.urandom(4096 * 12))
    code, found = report(capsys, "--config", plain)
    assert code == 1
    assert found["store"][0]["status"] == "failed"
    assert "massmem store recover" in found["store"][0]["fix"]


def test_a_database_of_a_newer_massmem(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert massmem("--config", plain, "Why?").returncode == 0
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    code, found = report(capsys, "--config", plain)
    assert (code, found["store"][0]["fix"]) == (1, "update massmem")


def test_a_damaged_list(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    (home / ".massmem").mkdir(mode=0o700)
    (home / ".massmem" / "sessions.json").write_text("{")
    code, found = report(capsys, "--config", plain)
    assert code == 1
    assert found["registry"][0]["fix"] == "massmem --list-sessions makes it again from the store"


def test_who_holds_a_lock(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    locks = home / ".massmem" / "locks"
    locks.mkdir(parents=True, mode=0o700)
    (home / ".massmem").chmod(0o700)
    program = (
        "import sys, time; from filelock import FileLock; lock = FileLock(sys.argv[1]); lock.acquire(); "
        "print(1, flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(locks / "s.lock")], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        holder.stdout.readline()
        code, found = report(capsys, "--config", plain)
    finally:
        holder.kill()
        holder.communicate()
    assert code == 0
    assert found["locks"][0]["details"][0].startswith(f"locks/s.lock: process {holder.pid} (python")
    assert report(capsys, "--config", plain)[1]["locks"][0]["text"] == "1 lock, all of them free"


async def checked(*arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    ran = await asyncio.to_thread(massmem, "doctor", "--json", *arguments, timeout=60)
    found: dict[str, list[dict[str, Any]]] = {}
    for row in json.loads(ran.stdout)["checks"]:
        found.setdefault(row["check"], []).append(row)
    return ran.returncode, found


def backed_by(tmp_path: Path, *backends: dict[str, Any]) -> str:
    path = tmp_path / "team.yaml"
    agents = [{"id": f"a{i}", "backend": backend} for i, backend in enumerate(backends)]
    path.write_text(json.dumps({"agents": agents, "memory": OFF}))
    return str(path)


@pytest.fixture
async def server() -> Any:
    async with running_stub() as stub:
        yield stub


async def test_a_key_that_is_accepted_is_tried_once_for_all_agents(server: Stub, tmp_path: Path):
    server.routes = {"/v1/models": says({"data": [{"id": "m", "context_length": 99_000}]})}
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, found = await checked("--config", backed_by(tmp_path, backend, backend))
    (row,) = found["models"]
    assert (code, row["text"]) == (0, "a0, a1: openai m: the key is accepted, the model is there")
    assert row["details"] == [f"{server.url}/v1, key sk-stu..., window 99,000 tokens (server)"]
    assert KEY not in json.dumps(found)


async def test_a_key_that_is_refused(server: Stub, tmp_path: Path):
    server.routes = {"/v1/models": says({"error": {"message": f"Incorrect API key: {KEY}"}}, 401)}
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, found = await checked("--config", backed_by(tmp_path, backend))
    (row,) = found["models"]
    assert (code, row["status"], row["fix"]) == (1, "failed", "Check the API key, and that it may use this model.")
    assert "HTTP 401" in row["text"]
    assert KEY not in json.dumps(found)


async def test_without_a_list_a_tiny_request_is_made(server: Stub, tmp_path: Path):
    wire = OpenAIWire()
    server.routes = {"/v1/models": Http(404), "/v1/chat/completions": wire.stream(Say(["ready"]))}
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, found = await checked("--config", backed_by(tmp_path, backend))
    assert code == 0
    assert found["models"][0]["text"].startswith("a0: openai m: answered in ")
    (asked,) = (request for request in server.requests if request.path == "/v1/chat/completions")
    assert asked.body["max_tokens"] <= 64


async def test_a_model_that_a_local_server_does_not_have(server: Stub, tmp_path: Path):
    server.routes = {"/v1/models": says({"data": [{"id": "llama3.1:8b"}, {"id": "other"}]}), "/api/ps": says({})}
    backend = {"type": "ollama", "model": "llama3.2:8b", "base_url": f"{server.url}/v1"}
    code, found = await checked("--config", backed_by(tmp_path, backend))
    assert code == 1
    assert "has no model 'llama3.2:8b'" in found["models"][0]["text"]
    assert found["models"][0]["fix"] == "ollama pull llama3.2:8b, or set backend.model to one of: llama3.1:8b"


async def test_nothing_is_asked_offline(server: Stub, tmp_path: Path):
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, found = await checked("--offline", "--config", backed_by(tmp_path, backend, {"type": "groq", "model": "m"}))
    assert server.connections == 0
    assert [row["status"] for row in found["models"]] == ["skipped", "failed"]
    assert "GROQ_API_KEY is not set" in found["models"][1]["text"]
    assert code == 1


async def test_an_index_that_another_process_has_open_is_no_failure(tmp_path: Path):
    slow = write_team(tmp_path, script("one", latency=20), memory=QUIET)
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "massmem", "--config", slow, "Why?",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        lock = Path(os.environ["HOME"], ".massmem", "memory", "words", "lock.pid")
        async with asyncio.timeout(15):
            while not lock.exists():
                await asyncio.sleep(0.05)
        code, found = await checked("--config", slow)
    finally:
        running.kill()
        await running.wait()
    assert (code, found["index"][0]["status"]) == (0, "skipped")
    assert f"in use by process {running.pid}" in found["index"][0]["text"]
    assert any("locks/" in line and str(running.pid) in line for line in found["locks"][0]["details"])


def test_weights_that_have_changed_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    from massmem.weights import DEFAULT

    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    file = tmp_path / DEFAULT.file
    file.write_bytes(b"GGUF" + bytes(100))
    known = {"size": 104, "mtime_ns": file.stat().st_mtime_ns, "sha256": DEFAULT.sha256}
    (tmp_path / f"{DEFAULT.file}.verified").write_text(json.dumps(known))
    code, found = report(capsys, "--config", backed_by(tmp_path, {"type": "local"}))
    (row,) = found["models"]
    assert (code, row["status"]) == (1, "failed")
    assert "is damaged: its SHA-256 is " in row["text"]
    assert row["fix"] == f"rm '{file}', then: massmem models fetch"
