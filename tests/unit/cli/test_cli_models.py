"""`massmem models` against real servers on loopback."""

import asyncio
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.config.home import massmem_home
from massmem.config.models import BackendConfig
from massmem.providers import Providers
from massmem.providers.learnt import LearntModels
from massmem.providers.weights import LARGER, require_weights, weights_from_url
from tests.support.cli import call_massmem
from tests.support.file_server import FileServer, serving
from tests.support.loopback import skip_beside_model_servers
from tests.support.provider_stub import Http, running_stub

CONTENT = b"GGUF" + bytes(300_000)


@pytest.fixture
def server() -> Iterator[FileServer]:
    with serving(FileServer({"/m.gguf": CONTENT})) as running:
        yield running


def reply(value: object) -> Http:
    return Http(headers={"content-type": "application/json"}, parts=[json.dumps(value).encode()])


def run_models(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    ran = call_massmem("models", *arguments, env=os.environ | {"MASSMEM_MODELS": str(folder)})
    return subprocess.CompletedProcess(ran.args, ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_fetch_from_a_url(server: FileServer, tmp_path: Path) -> None:
    url = server.base + "/m.gguf"
    path = tmp_path / "models" / weights_from_url(url).file
    ran = run_models(path.parent, "fetch", url, "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["path"], result["state"], result["size"], result["fetched"]) == (
        str(path),
        "verified",
        len(CONTENT),
        True,
    )
    assert path.read_bytes() == CONTENT
    assert f"massmem: {url}: 0 % of 0.3 MB" in ran.stderr
    assert f"massmem: {url}: 100 % of 0.3 MB" in ran.stderr
    again = run_models(path.parent, "fetch", url)
    assert (again.returncode, again.stdout) == (0, "")
    assert again.stderr == f"massmem: {url} is already there: {path}\n"
    assert len(server.requests) == 1


def test_mirror_is_tried_before_the_url(server: FileServer, tmp_path: Path) -> None:
    ran = run_models(tmp_path, "fetch", server.base + "/moved.gguf", "--from", server.base + "/m.gguf")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / weights_from_url(server.base + "/moved.gguf").file).read_bytes() == CONTENT


def test_fetch_of_a_missing_model(server: FileServer, tmp_path: Path) -> None:
    ran = run_models(tmp_path, "fetch", server.base + "/other.gguf?token=hunter2")
    assert ran.returncode == 3
    assert ran.stdout == ""
    assert "HTTP 404" in ran.stderr
    assert "hunter2" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_fetch_with_invalid_arguments(tmp_path: Path) -> None:
    for arguments in (
        ["fetch", "not-a-url"],
        ["fetch", "http://[::1"],
    ):
        ran = run_models(tmp_path, *arguments)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "Traceback" not in ran.stderr


def test_list_of_embedded_models(tmp_path: Path) -> None:
    rows = json.loads(run_models(tmp_path, "list", "--json", "--offline").stdout)
    assert [(row["size"], row["state"]) for row in rows[:2]] == [(1_117_320_768, "missing"), (491_400_064, "missing")]
    assert {(row["source"], row["context_window"]) for row in rows} == {("embedded", 4096)}
    (tmp_path / Path(rows[1]["path"]).name).write_bytes(b"GGUF")
    ran = run_models(tmp_path, "list", "--offline")
    lines = ran.stdout.splitlines()
    assert [line.split() for line in lines[:2]] == [
        ["Qwen2.5-Coder-1.5B-Instruct", "1,117", "MB", "2.0", "GB", "memory", "missing"],
        ["Qwen2.5-Coder-0.5B-Instruct", "0", "MB", "1.0", "GB", "memory", "unverified"],
    ]
    assert [line.split()[0] for line in lines[3:]] == [weights.name for weights in LARGER]
    assert max(map(len, lines[3:])) <= 80
    assert "massmem models fetch NAME" in ran.stderr


LARGE = LARGER[0]


def play_hub(server: FileServer, digest: str = "") -> dict[str, str]:
    """Serve a small file as the largest model; return the environment in which the server is the hub."""
    entry = {"path": LARGE.file, "size": len(CONTENT), "lfs": {"oid": digest or hashlib.sha256(CONTENT).hexdigest()}}
    server.files[f"/api/models/{LARGE.repository}/tree/main"] = json.dumps([{"path": "README.md"}, entry]).encode()
    server.files[f"/{LARGE.repository}/resolve/main/{LARGE.file}"] = CONTENT
    return {"HF_ENDPOINT": server.base}


def test_named_model_has_the_hash_that_the_hub_says(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", play_hub(server)["HF_ENDPOINT"])
    server.cuts, server.cut_after = 2, 120_000  # the list of files is shorter
    ran = run_models(tmp_path, "fetch", LARGE.name.lower(), "--json")
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)
    assert (result["state"], result["sha256"]) == ("verified", hashlib.sha256(CONTENT).hexdigest())
    assert "GB of memory" in ran.stderr
    assert any(byte_range.startswith("bytes=") for _, byte_range in server.requests), "what was cut off goes on"
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    again = run_models(tmp_path, "fetch", LARGE.name)
    assert again.stderr == f"massmem: {LARGE.name} is already there: {tmp_path / LARGE.file}\n", "no hub is needed"
    monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path))
    assert require_weights(LARGE.name) == tmp_path / LARGE.file


def test_named_model_with_other_bytes_is_removed(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", play_hub(server, "0" * 64)["HF_ENDPOINT"])
    ran = run_models(tmp_path, "fetch", LARGE.name)
    assert (ran.returncode, (tmp_path / LARGE.file).exists()) == (3, False)
    assert f"not {'0' * 64}: removed" in ran.stderr


@pytest.mark.parametrize(
    ("listing", "problem"),
    [
        (None, "HTTP 404"),
        (b"[]", "does not say the hash"),
        (b"<html>", "does not say the hash"),
        (b"gone", "127.0.0.1:9 cannot be reached from here (Connection refused)"),
    ],
)
def test_hub_without_a_hash_is_one_clear_error(
    server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: bytes | None, problem: str
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9" if listing == b"gone" else server.base)
    if listing is not None:
        server.files[f"/api/models/{LARGE.repository}/tree/main"] = listing
    ran = run_models(tmp_path, "fetch", LARGE.name)
    assert ran.returncode == 3
    assert problem in ran.stderr
    assert f"massmem models fetch {LARGE.name} --from FILE" in ran.stderr
    assert "Traceback" not in ran.stderr
    (tmp_path / "copy.gguf").write_bytes(CONTENT)
    copied = run_models(tmp_path, "fetch", LARGE.name, "--from", str(tmp_path / "copy.gguf"))
    assert copied.returncode == 0, copied.stderr
    assert "is taken without a comparison" in copied.stderr


def test_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    ran = run_models(tmp_path, "fetch", "gpt-5")
    assert ran.returncode == 2
    assert "'gpt-5' is neither a known model nor an http(s) URL of one" in ran.stderr
    assert LARGE.name in ran.stderr


async def test_list_has_models_of_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_beside_model_servers()
    async with running_stub() as ollama, running_stub() as remote:
        ollama.routes = {
            "/v1/models": reply({"data": [{"id": "m:1b", "owned_by": "library"}]}),
            "/api/ps": reply({"models": [{"name": "m:1b", "context_length": 8192}]}),
        }
        remote.routes = {"/v1/models": reply({"data": [{"id": "big", "context_length": 99_000}, {"id": "other"}]})}
        monkeypatch.setenv("OLLAMA_HOST", ollama.url)
        team = tmp_path / "team.yaml"
        backends = [
            {"type": "groq", "model": "big", "base_url": f"{remote.url}/v1", "api_key": "k"},
            {"type": "groq", "model": "big", "base_url": f"{remote.url}/v1", "api_key": "k"},
            {"type": "mistral"},
            {"type": "vllm", "model": "x", "base_url": "http://127.0.0.1:9/v1"},
        ]
        agents = [{"id": f"a{i}", "backend": backend} for i, backend in enumerate(backends)]
        team.write_text(json.dumps({"agents": agents}))
        text = await asyncio.to_thread(run_models, tmp_path, "list", "--config", str(team))
        rows = json.loads(
            (await asyncio.to_thread(run_models, tmp_path, "list", "--json", "--config", str(team))).stdout
        )
    assert f"\ngroq, {remote.url}/v1\n* big       99,000 tokens\n  other                 -\n" in text.stdout
    assert f"\nollama, {ollama.url}/v1\n  m:1b      8,192 tokens\n" in text.stdout
    assert "massmem: mistral: No API key for 'mistral': MISTRAL_API_KEY is not set." in text.stderr
    assert "massmem: vllm: vllm (list of models): " in text.stderr
    offered = [(r["name"], r["source"], r["context_window"], r["used"]) for r in rows if r["source"] != "embedded"]
    assert offered == [("big", "groq", 99_000, True), ("other", "groq", None, False), ("m:1b", "ollama", 8192, False)]


def test_list_with_an_invalid_own_configuration(tmp_path: Path, home: Path) -> None:
    (home / ".massmem").mkdir()
    (home / ".massmem" / "config.yaml").write_text("agents: 3")
    ran = run_models(tmp_path, "list", "--json")
    assert ran.returncode == 0
    assert len(json.loads(ran.stdout)) >= 2
    assert "config.yaml:1: agents: must be a list" in ran.stderr


async def test_refresh_keeps_prices_and_what_models_can_do(tmp_path: Path) -> None:
    async with running_stub() as stub:
        stub.routes["/v1/models"] = reply({"data": [{"id": "m", "supported_parameters": ["tool_choice"]}, {"id": "n"}]})
        stub.routes["/prices.json"] = reply([])
        team = tmp_path / "team.yaml"
        backend = f"{{type: openai, model: m, base_url: '{stub.url}/v1', api_key: k}}"
        team.write_text(f"agent: {{id: a, backend: {backend}}}")
        options = ("refresh", "--config", str(team), "--from")
        ran = await asyncio.to_thread(run_models, tmp_path, *options, f"{stub.url}/prices.json", "--json")
        assert ran.returncode == 0, ran.stderr
        assert json.loads(ran.stdout)["with_abilities"] == 1
        failed = await asyncio.to_thread(run_models, tmp_path, *options, f"{stub.url}/nothing.json")
        assert (failed.returncode, "cannot be fetched" in failed.stderr) == (3, True)
        providers = Providers(LearntModels(massmem_home()))
        fields = {"type": "openai", "model": "m", "base_url": f"{stub.url}/v1", "api_key": "k"}
        assert not (await providers.open(BackendConfig.model_validate(fields))).abilities.tools
        configured = BackendConfig.model_validate({**fields, "tools": True})
        assert (await providers.open(configured)).abilities.tools, "the configuration counts more"
        await providers.close()
