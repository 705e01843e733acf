"""The shard's folder, beyond what the index's contract and its faults test."""

import json
from pathlib import Path

import pytest
from qdrant_edge import UpdateOperation

from massmem.memory.edge_shard import Shard
from massmem.memory.index import Point
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Selection
from tests.support.memories import make_episode, open_disk_memory


def read_note(folder: Path) -> dict[str, int]:
    return json.loads((folder / "shard.json").read_bytes())


async def test_few_points_are_left_as_they_are(tmp_path: Path):
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(f"Kites {i}.", i) for i in range(100)])
    await memory.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 100, "tidied": 0}


async def test_an_index_of_an_older_version_gets_the_fields_that_it_lacks(tmp_path: Path):
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode("I live in Porto."), make_episode("I live in Ghent.", 1)])
    await memory.close()
    shard = Shard(tmp_path / "index", 0, 1)
    with shard.writing() as edge:
        edge.update(UpdateOperation.delete_field_index("topics"))
        edge.flush()
        assert "topics" not in edge.info().payload_schema
    shard.close()
    shard = Shard(tmp_path / "index", 0, 1)
    with shard.reading() as edge:
        assert edge.info().payload_schema["topics"].points == 2
    shard.close()


@pytest.mark.full
async def test_many_new_points_are_tidied_once_when_it_is_closed(tmp_path: Path):
    index = EdgeIndex(tmp_path / "index", 0)
    payload = {"run_id": "s", "agent_id": "a", "turn": 1, "won": False, "kind": "episode", "data": "Kites."}
    payload |= {"created_at": "2026-05-08T09:00:00+00:00", "f": [0, 0, 0, 1, 1, 739_000], "message_ids": ["m"]}
    index.upsert([Point(i, None, {i % 1000: 1.0}, payload) for i in range(20_500)])
    index.close()
    assert read_note(tmp_path / "index")["tidied"] == 20_500
    index = EdgeIndex(tmp_path / "index", 0)
    assert index.count(Selection()) == 20_500
    index.upsert([Point(30_000, None, {1: 1.0}, payload)])
    index.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 20_501, "tidied": 20_500}
