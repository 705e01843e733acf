"""`massmem doctor` on sound and on broken homes."""

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
from tests.support.cli import call_massmem, script, write_team
from tests.support.provider_stub import KEY, Http, OpenAIWire, Say, Stub, running_stub

QUIET = {"persistent_memory": {"embedding": {"model": "none"}}}
OFF = {"enabled": False}


@pytest.fixture
def team(tmp_path: Path) -> str:
    return write_team(tmp_path, script("one"), script("two"), memory=QUIET)


@pytest.fixture
def plain(tmp_path: Path) -> str:
    """A team without memory, whose checks take the longest."""
    return write_team(tmp_path, script("one"), memory=OFF)


def reply(value: object, status: int = 200) -> Http:
    return Http(status, {"content-type": "application/json"}, [json.dumps(value).encode()])


def report(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """Return the exit code, and the results by check."""
    code = main(["doctor", "--json", *arguments])
    output = json.loads(capsys.readouterr().out)
    assert (output["status"], output["schema_version"]) == ("failed" if code else "ok", 1)
    return code, group_by_check(output["checks"])


def group_by_check(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(row["check"], []).append(row)
    return groups


def test_new_home_passes_and_stays_empty(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    code, results = report(capsys, "--config", team)
    assert code == 0
    assert list(results) == list(CHECKS)
    assert [row["text"] for row in results["memory"]] == [
        "PersistentMemory created!", "Messages recorded!", "Messages recalled!"
    ]  # fmt: skip
    assert results["store"][0]["text"].endswith("massmem.db: is created with the first question")
    assert [path.name for path in home.rglob("*") if path.is_file()] == []


def test_used_home_passes(team: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert call_massmem("--config", team, "Why?").returncode == 0
    code, results = report(capsys, "--config", team)
    assert code == 0, results
    assert ", schema " in results["store"][0]["text"]
    assert ", sound: 1 session, " in results["store"][0]["text"]
    assert results["registry"][0]["text"].endswith("sessions.json: 1 session")
    assert results["index"][0]["details"][0] == str(home / ".massmem" / "memory")
    again = report(capsys, "--config", team)[1]
    assert again["index"] == results["index"], "the check leaves nothing behind"


def test_text_output(plain: str, capsys: pytest.CaptureFixture[str]):
    assert main(["doctor", "--config", plain]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].startswith("ok       python       massmem ")
    assert out.splitlines()[-1].endswith(" checks, none failed")


def test_invalid_configuration_fails_and_other_checks_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "team.yaml"
    path.write_text("agents:\n  - {id: a, backend: {type: opnai}}\n")
    code, results = report(capsys, "--config", str(path))
    assert code == 1
    (config,) = results["config"]
    assert config["details"][0].startswith(f"{path}:2: agents.0.backend.type: 'opnai' is not one of")
    assert config["fix"]
    assert {row["status"] for check in ("models", "embedding", "store") for row in results[check]} == {"skipped"}
    assert results["registry"][0]["status"] == "ok"


def test_missing_configuration_fails(capsys: pytest.CaptureFixture[str]):
    code, results = report(capsys, "--config", "nowhere.yaml")
    assert (code, results["config"][0]["status"]) == (1, "failed")


def test_home_open_to_others_fails_with_a_fix(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    own = home / ".massmem"
    own.mkdir(mode=0o755)
    code, results = report(capsys, "--config", plain)
    (row,) = results["permissions"]
    assert (code, row["status"]) == (1, "failed")
    subprocess.run(["bash", "-c", row["fix"]], check=False, capture_output=True)
    assert own.stat().st_mode & 0o077 == 0


def test_configuration_may_be_open_to_others(home: Path, capsys: pytest.CaptureFixture[str]):
    own = home / ".massmem"
    own.mkdir(mode=0o700)
    (own / "config.yaml").write_text("agent: {id: a, backend: {type: scripted}}\nmemory: {enabled: false}\n")
    (own / "config.yaml").chmod(0o644)
    code, results = report(capsys)
    assert (code, results["permissions"][0]["status"]) == (0, "ok")
    assert {row["text"] for check in ("embedding", "index", "memory") for row in results[check]} == {
        "memory is disabled"
    }


def test_damaged_database_fails(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert call_massmem("--config", plain, "Why?").returncode == 0
    database = home / ".massmem" / "massmem.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with database.open("r+b") as file:
        file.seek(4096 * 8)
        file.write(os.urandom(4096 * 12))
    code, results = report(capsys, "--config", plain)
    assert code == 1
    assert results["store"][0]["status"] == "failed"
    assert "massmem store recover" in results["store"][0]["fix"]


def test_file_that_is_no_database_fails_once(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert call_massmem("--config", plain, "Why?").returncode == 0
    (home / ".massmem" / "massmem.db").write_bytes(b"no database" * 1000)
    _, results = report(capsys, "--config", plain)
    assert results["store"][0]["status"] == "failed"
    assert [name for name, rows in results.items() if rows[0]["status"] == "failed"] == ["store"]


def test_database_of_a_newer_version_fails(plain: str, home: Path, capsys: pytest.CaptureFixture[str]):
    assert call_massmem("--config", plain, "Why?").returncode == 0
    with closing(sqlite3.connect(home / ".massmem" / "massmem.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.commit()
    code, results = report(capsys, "--config", plain)
    assert (code, results["store"][0]["fix"]) == (1, "update massmem")


async def report_in_thread(*arguments: str) -> tuple[int, dict[str, list[dict[str, Any]]]]:
    """As `report`, beside a server that runs in the event loop of the test."""
    ran = await asyncio.to_thread(call_massmem, "doctor", "--json", *arguments)
    return ran.returncode, group_by_check(json.loads(ran.stdout)["checks"])


def write_backends(tmp_path: Path, *backends: dict[str, Any]) -> str:
    path = tmp_path / "team.yaml"
    agents = [{"id": f"a{i}", "backend": backend} for i, backend in enumerate(backends)]
    path.write_text(json.dumps({"agents": agents, "memory": OFF}))
    return str(path)


@pytest.fixture
async def server() -> Any:
    async with running_stub() as stub:
        yield stub


def write_remote(folder: Path, server: Stub, agents: int = 1) -> str:
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    return write_backends(folder, *[backend] * agents)


async def test_accepted_key_is_tried_once_for_all_agents(server: Stub, tmp_path: Path):
    models = reply({"data": [{"id": "m", "context_length": 99_000}]})
    server.routes = {"/v1/models": models, "/v1/chat/completions": OpenAIWire().stream(Say(["no", "numbers"]))}
    code, results = await report_in_thread("--config", write_remote(tmp_path, server, 2))
    (row,) = results["models"]
    assert (code, row["text"]) == (0, "a0, a1: openai m: answers, streams, reports its tokens")
    assert row["details"][0] == f"{server.url}/v1, key sk-stu..., window 99,000 tokens (server)"
    assert KEY not in json.dumps(results)


NUMBERS = json.dumps({"numbers": [1, 2, 3]})


@pytest.mark.parametrize(
    ("called", "written", "text", "lacks"),
    [
        (
            Say(calls=[("count", NUMBERS)]),
            Say([NUMBERS[:6], NUMBERS[6:]]),
            "streams, calls a tool, follows a schema",
            "",
        ),
        (Say(["1, 2, 3"]), Say([NUMBERS]), "follows a schema", "streams, calls a tool"),
        (Say(calls=[("count", "{}")]), Say(["1, ", "2"]), "streams", "calls a tool, follows a schema"),
    ],
)
async def test_an_exchange_says_what_a_server_can_do(
    server: Stub, tmp_path: Path, called: Say, written: Say, text: str, lacks: str
):
    server.routes = dict.fromkeys(("/v1/models", "/props", "/api/ps", "/api/v0/models"), Http(404))
    server.replies = [OpenAIWire().stream(say) for say in (called, written)]
    code, results = await report_in_thread("--config", write_remote(tmp_path, server))
    (row,) = results["models"]
    assert (code, row["text"]) == (0, f"a0: openai m: answers, {text}, reports its tokens")
    assert row["details"][2:] == ([f"not in this exchange: {lacks}"] if lacks else [])
    assert " tokens, $0, " in row["details"][1]
    assert [bool(request.body.get("tools")) for request in server.requests if request.body] == [True, False]


async def test_refused_key_fails(server: Stub, tmp_path: Path):
    server.replies = [reply({"error": {"message": f"Incorrect API key: {KEY}"}}, 401)]
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, results = await report_in_thread("--config", write_backends(tmp_path, backend))
    (row,) = results["models"]
    assert (code, row["status"]) == (1, "failed")
    assert row["fix"].startswith("Check the API key")
    assert "HTTP 401" in row["text"]
    assert KEY not in json.dumps(results)


async def test_missing_model_of_a_local_server_fails(server: Stub, tmp_path: Path):
    server.routes = {"/v1/models": reply({"data": [{"id": "llama3.1:8b"}, {"id": "other"}]})}
    server.replies = [reply({"error": {"message": "model 'llama3.2:8b' not found", "type": "not_found_error"}}, 404)]
    backend = {"type": "ollama", "model": "llama3.2:8b", "base_url": f"{server.url}/v1"}
    code, results = await report_in_thread("--config", write_backends(tmp_path, backend))
    assert code == 1
    assert "model 'llama3.2:8b' not found" in results["models"][0]["text"]
    assert results["models"][0]["fix"].startswith("Did you mean llama3.1:8b? ")


async def test_offline_contacts_no_server(server: Stub, tmp_path: Path):
    backend = {"type": "openai", "model": "m", "base_url": f"{server.url}/v1", "api_key": KEY}
    code, results = await report_in_thread(
        "--offline", "--config", write_backends(tmp_path, backend, {"type": "groq", "model": "m"})
    )
    assert server.connections == 0
    assert [row["status"] for row in results["models"]] == ["skipped", "failed"]
    assert "GROQ_API_KEY is not set" in results["models"][1]["text"]
    assert code == 1


async def test_index_in_use_is_checked_where_it_is(tmp_path: Path):
    slow = write_team(tmp_path, script("one", latency=20), memory=QUIET)
    running = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "massmem", "--config", slow, "Why?",
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        socket = Path(os.environ["HOME"], ".massmem", "memory", "words", "socket")
        async with asyncio.timeout(15):
            while not socket.exists():
                await asyncio.sleep(0.05)
        code, results = await report_in_thread("--config", slow)
    finally:
        running.kill()
        await running.wait()
    assert (code, results["index"][0]["status"]) == (0, "ok")


def test_changed_weights_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any):
    from massmem.providers.weights import DEFAULT

    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    file = tmp_path / DEFAULT.file
    file.write_bytes(b"GGUF" + bytes(100))
    known = {"size": 104, "mtime_ns": file.stat().st_mtime_ns, "sha256": DEFAULT.sha256}
    (tmp_path / f"{DEFAULT.file}.verified").write_text(json.dumps(known))
    code, results = report(capsys, "--config", write_backends(tmp_path, {"type": "local"}))
    (row,) = results["models"]
    assert (code, row["status"]) == (1, "failed")
    assert "is damaged: its SHA-256 is " in row["text"]
    assert row["fix"] == f"rm '{file}', then: massmem models fetch"
