"""The shard's folder, beyond what the index's contract and its faults test."""

import json
from pathlib import Path

import pytest

from massmem.memory import edge_shard
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Selection
from tests.support.index_writer import make_crowded_point
from tests.support.memories import make_episode, open_disk_memory


def read_note(folder: Path) -> dict[str, int]:
    return json.loads((folder / "shard.json").read_bytes())


def count_parts(folder: Path) -> int:
    return len([*(folder / "shard" / "segments").iterdir()])


async def test_few_points_are_left_as_they_are(tmp_path: Path):
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(f"Kites {i}.", i) for i in range(100)])
    await memory.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 100, "tidied": 0}


async def test_fields_are_indexed_once_there_are_many_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edge_shard, "MANY", 100)
    index = EdgeIndex(tmp_path / "index", 0)
    counts: list[int] = []
    for first, last in ((0, 60), (60, 120)):
        index.upsert([make_crowded_point(number) for number in range(first, last)])
        index.flush()
        counts.append(len([*(tmp_path / "index" / "shard").rglob("*-map")]))
        assert index.count(Selection(session_id="s1")) == last // 5
    index.close()
    assert counts[0] < counts[1]


async def test_new_points_are_tidied_a_slice_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edge_shard, "SLICE", 200)
    index = EdgeIndex(tmp_path / "index", 0)
    for first, last, parts in ((0, 200, 2), (200, 350, 2), (350, 450, 3)):
        index.upsert([make_crowded_point(number) for number in range(first, last)])
        index.flush()
        assert count_parts(tmp_path / "index") == parts  # one of them for what is new
    index.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 450, "tidied": 450}


async def test_erasing_writes_the_rest_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(edge_shard, "SLICE", 100)
    monkeypatch.setattr(edge_shard, "PAGE", 100)
    index = EdgeIndex(tmp_path / "index", 0)
    index.upsert([make_crowded_point(number) for number in range(350)])
    index.delete(Selection(ids=("7",)))
    assert count_parts(tmp_path / "index") == 4
    assert index.count(Selection()) == 349
    index.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 349, "tidied": 300}
