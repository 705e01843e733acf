"""`massmem init`, `doctor` and `models list` against a real llama.cpp server on this machine."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.providers.weights import DEFAULT, models_folder, read_state
from tests.support.cli import massmem
from tests.support.llamacpp_server import run_llamacpp
from tests.support.loopback import skip_beside_model_servers

pytestmark = [pytest.mark.slow, pytest.mark.model]

WINDOW = 1024


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The embedded model behind llama.cpp's own HTTP server, at a free port; massmem has no model of its own here."""
    pytest.importorskip("xllamacpp")
    path = models_folder() / DEFAULT.file
    if read_state(path, DEFAULT.sha256) != "verified":
        pytest.skip(f"{path} is not there")
    skip_beside_model_servers()
    with run_llamacpp(path, WINDOW) as port:
        monkeypatch.setenv("MASSMEM_MODELS", str(tmp_path / "none"))
        monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
        monkeypatch.setenv("LLAMA_ARG_PORT", str(port))
        yield f"http://localhost:{port}/v1"


def test_it_is_found_written_down_tried_and_answers(server: str):
    made = massmem("init", "--yes", "--json", timeout=400)
    said = json.loads(made.stdout)
    assert made.returncode == 0, made.stderr
    assert [(s["type"], s["base_url"]) for s in said["found"]["servers"]] == [("llamacpp", server)]
    assert [trial["ok"] for trial in said["tried"]] == [True]
    doctor = json.loads(massmem("doctor", "--json", timeout=400).stdout)
    (models,) = (row for row in doctor["checks"] if row["check"] == "models")
    assert models["status"] == "ok", models
    address, cost, *_ = models["details"]
    assert (models["status"], address) == ("ok", f"{server}, no key needed, window 1,024 tokens (server)")
    assert cost.startswith("two requests: ")
    rows = json.loads(massmem("models", "list", "--json").stdout)
    assert [(r["source"], r["context_window"], r["used"]) for r in rows if r["source"] != "embedded"] == [
        ("llamacpp", WINDOW, True)
    ]
    assert Path(os.environ["HOME"], ".massmem", "config.yaml").read_text().count("type: llamacpp") == 1
