"""A collection on a Qdrant server is shared with programs that use mem0: each finds what the other wrote."""

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import MemoryConfig
from massmem.memory import open_memory
from massmem.memory.mem0 import import_mem0
from massmem.memory.opening import folder_name
from massmem.memory.persistent import RecallOptions, Selection
from tests.support.memories import asks, fact, make_episode
from tests.support.qdrant_stub import QdrantStub
from tests.unit.memory.test_embedders import KEY, Api, api  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow

OURS = "The kites fly over Cobham."
THEIRS = "The lighthouse of Skerryvore stands 48 metres tall."


def open_program(api: Api, stub: QdrantStub, home: Path) -> Any:  # noqa: F811
    """mem0's own client, as its documentation has it."""
    model = {"model": "m", "api_key": KEY, "openai_base_url": api.url}
    vectors = {"collection_name": f"massmem_{folder_name('openai/m', 2)}", "embedding_model_dims": 2, "url": stub.url}
    return import_mem0("memory.main", home).Memory.from_config({
        "llm": {"provider": "openai", "config": model},
        "embedder": {"provider": "openai", "config": model},
        "vector_store": {"provider": "qdrant", "config": vectors},
        "history_db_path": str(home / "history.db"),
    })  # fmt: skip


def memory_config(api: Api, stub: QdrantStub) -> MemoryConfig:  # noqa: F811
    embedding = {"provider": "openai", "model": "m", "base_url": api.url, "api_key": KEY}
    qdrant = {"mode": "server", "url": stub.url}
    return MemoryConfig.model_validate({"persistent_memory": {"embedding": embedding, "qdrant": qdrant}})


@pytest.mark.parametrize("first", ["massmem", "mem0"])
async def test_each_finds_what_the_other_wrote(api: Api, home: Path, first: str):  # noqa: F811
    with QdrantStub() as stub:
        program = open_program(api, stub, home) if first == "mem0" else None
        memory = await open_memory(memory_config(api, stub), home, {})
        try:
            await memory.record([make_episode(OURS, 1, by="b", won=True)])
            await memory.add_facts([fact("Kites are red.", by="b")])
            program = program or open_program(api, stub, home)
            listed = program.get_all(filters={"user_id": "massmem", "agent_id": "b", "run_id": "s"})["results"]
            assert {entry["memory"] for entry in listed} == {OURS, "Kites are red."}
            assert all(datetime.fromisoformat(entry["created_at"]) and entry["hash"] for entry in listed)
            hits = program.search("kites", filters={"run_id": "s"}, threshold=0.0)["results"]
            assert {entry["memory"] for entry in hits} == {OURS, "Kites are red."}

            program.add(THEIRS, user_id="alice", infer=False)
            everywhere = asks(session="another", all_sessions=True)
            for _ in range(2):
                result = await memory.recall("Skerryvore lighthouse", everywhere, RecallOptions(400))
                assert f"[From mem0 Turn 0, from outside] {THEIRS}" in result.text
            (copy,) = await memory.list(Selection(origin="outside"))
            assert (copy.text, copy.origin, copy.session_id) == (THEIRS, "outside", "outside")
            assert (await memory.stats()).facts == 2
            assert await memory.forget(Selection(ids=(copy.id,))) == 1
            assert THEIRS not in (await memory.recall("Skerryvore", everywhere, RecallOptions(400))).text
            assert [m["memory"] for m in program.get_all(filters={"user_id": "alice"})["results"]] == [THEIRS]
        finally:
            await memory.close()
