"""Councils over each API of a real llama.cpp server: of the embedded model where it is on this machine, else of a tiny
one, whose ballots are seldom any."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from massmem.providers.weights import DEFAULT, models_folder, read_state
from tests.support.cli import massmem
from tests.support.llamacpp_server import run_llamacpp
from tests.support.small_model import find_small_model

WORDS = {"ann": "red", "ben": "blue"}
BACKENDS: dict[str, dict[str, Any]] = {
    "chat": {"type": "openai", "api": "chat"},
    "responses": {"type": "openai", "api": "responses"},
    "anthropic": {"type": "anthropic"},
}

pytestmark = [pytest.mark.slow, pytest.mark.model]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    pytest.importorskip("xllamacpp")
    embedded = models_folder() / DEFAULT.file
    model = embedded if read_state(embedded, DEFAULT.sha256) == "verified" else find_small_model()
    if model is None:
        pytest.skip("no model is on this machine: python -m tests.support.small_model")
    with run_llamacpp(model, window=2_048, slots=len(WORDS)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("name", BACKENDS)
def test_council_answers_and_votes_or_says_that_nobody_could(name: str, address: str, tmp_path: Path):
    backend = {"model": "any", "api_key": "none", "max_tokens": 64, "timeout": 120, **BACKENDS[name]}
    backend["base_url"] = address if name == "anthropic" else f"{address}/v1"
    agents = [
        {"id": agent, "system_message": f"Your favourite colour is {word}.", "backend": backend}
        for agent, word in WORDS.items()
    ]
    team = tmp_path / "team.yaml"
    team.write_text(json.dumps({"agents": agents, "memory": {"persistent_memory": {"enabled": False}}}))

    ran = massmem("--config", str(team), "--json", "What is your favourite colour? One word.", timeout=500)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(ran.stdout)

    assert result["answer"].strip()
    assert [bool(agent["answers"]) for agent in result["agents"]] == [True] * len(WORDS)
    assert result["usage"]["reported"]
    assert 0 < result["usage"]["completion"] <= 64 * result["usage"]["requests"]
    if result["decided_by"] == "no_vote":
        assert result["confidence"] is None
        assert "nobody could vote" in " ".join(result["notices"])
        assert all(agent["error"] for agent in result["agents"])
    elif result["decided_by"] != "unanimous":
        ballots = [ballot for agent in result["agents"] for ballot in agent["ballots"]]
        assert {ballot["choice"] for ballot in ballots} <= WORDS.keys()
        assert sum(result["votes"].values()) in range(1, len(WORDS) + 1)
