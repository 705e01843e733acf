"""The shard's folder, beyond what the index's contract and its faults test."""

import json
from pathlib import Path

import pytest

from massmem.memory.index import Point
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Selection
from tests.support.memories import indexed, said


def noted(folder: Path) -> dict[str, int]:
    return json.loads((folder / "shard.json").read_bytes())


async def test_few_points_are_left_as_they_are(tmp_path: Path):
    memory = indexed(tmp_path / "index")
    await memory.record([said(f"Kites {i}.", i) for i in range(100)])
    await memory.close()
    assert noted(tmp_path / "index") == {"dims": 0, "points": 100, "tidied": 0}


@pytest.mark.full
async def test_many_new_points_are_tidied_once_when_it_is_closed(tmp_path: Path):
    index = EdgeIndex(tmp_path / "index", 0)
    payload = {"run_id": "s", "agent_id": "a", "turn": 1, "won": False, "kind": "episode", "data": "Kites."}
    payload |= {"created_at": "2026-05-08T09:00:00+00:00", "f": [0, 0, 0, 1, 1, 739_000], "message_ids": ["m"]}
    index.upsert([Point(i, None, {i % 1000: 1.0}, payload) for i in range(20_500)])
    index.close()
    assert noted(tmp_path / "index")["tidied"] == 20_500
    index = EdgeIndex(tmp_path / "index", 0)
    assert index.count(Selection()) == 20_500
    index.upsert([Point(30_000, None, {1: 1.0}, payload)])
    index.close()
    assert noted(tmp_path / "index") == {"dims": 0, "points": 20_501, "tidied": 20_500}
