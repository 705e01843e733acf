import json
import os
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.errors import MemoryUnavailable
from massmem.memory import index_edge
from massmem.memory.index_edge import EdgeIndex, set_aside
from massmem.memory.opening import folder_name
from massmem.memory.persistent import Selection
from tests.support.index_writer import make_crowded_point
from tests.support.memories import make_episode, open_disk_memory
from tests.support.points import EVERYWHERE, point


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "memory" / "index"


def test_it_is_there_when_it_is_opened_again(folder: Path) -> None:
    first = EdgeIndex(folder, 3)
    first.upsert([point(n) for n in range(1, 600)])
    first.close()
    again = EdgeIndex(folder, 3)
    assert again.count(Selection()) == 599
    assert len(again.search_words({7: 1.0}, EVERYWHERE, 1000)) == 599
    again.close()


def test_the_folder_is_for_its_owner_only(folder: Path) -> None:
    EdgeIndex(folder, 3).close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "lock").stat().st_mode) == 0o600


def test_a_second_one_is_told_who_has_it(folder: Path) -> None:
    first = EdgeIndex(folder, 3)
    start = time.monotonic()
    with pytest.raises(MemoryUnavailable, match=rf"in use by another process \(pid {os.getpid()}\)") as caught:
        EdgeIndex(folder, 3, wait=0.2)
    assert time.monotonic() - start < 10
    assert "it is free when that one ends" in caught.value.hint
    first.upsert([point(1)])
    first.flush()  # the attempt has not broken it
    first.close()
    EdgeIndex(folder, 3, wait=0.2).close()


def test_a_second_one_waits_until_the_first_is_done(folder: Path) -> None:
    first = EdgeIndex(folder, 3)
    first.upsert([point(1)])
    threading.Timer(0.3, first.close).start()
    second = EdgeIndex(folder, 3, wait=10)
    assert second.count(Selection()) == 1
    second.close()


def test_opened_in_one_thread_and_closed_in_another(folder: Path) -> None:
    opened: list[EdgeIndex] = []
    thread = threading.Thread(target=lambda: opened.append(EdgeIndex(folder, 3)))
    thread.start()
    thread.join()
    opened[0].close()
    EdgeIndex(folder, 3, wait=0).close()


def test_deleted_point_is_gone_from_the_disk(folder: Path) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(n, f"harmless {n}") for n in range(1, 300)])
    index.upsert([point(1000, "the sesame phrase is wintergreen")])
    index.flush()
    assert b"wintergreen" in bytes_in(folder)
    assert index.delete(Selection(ids=("1000",))) == 1
    assert b"wintergreen" not in bytes_in(folder)
    assert b"harmless 299" in bytes_in(folder)
    assert (299, pytest.approx(1.0, abs=1e-3)) in index.search_meaning([1.0, 0, 0], EVERYWHERE, 1000)
    index.close()
    again = EdgeIndex(folder, 3)
    assert again.count(Selection()) == 299
    again.close()
    assert {p.name for p in folder.iterdir()} == {"lock", "shard", "shard.json"}


def test_vectors_of_another_size_are_refused(folder: Path) -> None:
    EdgeIndex(folder, 3).close()
    with pytest.raises(MemoryUnavailable, match="vectors of 3 numbers, not 4"):
        EdgeIndex(folder, 4)
    EdgeIndex(folder, 3).close()


def test_memories_that_vanish_are_noticed(folder: Path) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(n) for n in range(600)])
    index.close()
    next(folder.rglob("mutable_id_tracker.mappings")).write_bytes(b"")  # qdrant-edge opens this without a word
    with pytest.raises(MemoryUnavailable, match=r"damaged: \d+ memories are missing") as caught:
        EdgeIndex(folder, 3)
    assert "massmem memory rebuild" in caught.value.hint


def test_a_damaged_one_is_kept_aside(folder: Path) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(1, "remember me")])
    index.close()
    next(folder.rglob("segment.json")).write_text("nonsense")
    for _ in range(2):
        with pytest.raises(MemoryUnavailable, match="it is damaged") as caught:
            EdgeIndex(folder, 3)
        assert "kept aside" in caught.value.hint
    kept = set_aside(folder, 1.0)
    assert kept
    assert b"remember me" in bytes_in(kept)
    fresh = EdgeIndex(folder, 3)
    assert fresh.count(Selection()) == 0
    fresh.close()


def test_nothing_to_set_aside(folder: Path) -> None:
    assert set_aside(folder, 0) is None
    index = EdgeIndex(folder, 3)
    with pytest.raises(MemoryUnavailable, match="in use"):
        set_aside(folder, 0)
    index.close()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MemoryUnavailable, match="file"):
        EdgeIndex(tmp_path / "file", 3)


@pytest.mark.parametrize(
    ("left", "points"),
    [
        (("shard.new",), 0),  # killed while the first shard was made
        (("shard.old", "shard.new"), 1),  # killed between the two renames: the new one is whole
        (("shard", "shard.new"), 1),  # killed while the new one was written
        (("shard", "shard.old"), 1),  # killed while the old one was removed
    ],
)
def test_a_death_while_it_is_written_anew(folder: Path, left: tuple[str, ...], points: int) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(1)])
    index.close()
    whole = "shard.new" if "shard" not in left else "shard"
    (folder / "shard").rename(folder / "whole")
    for name in left:
        (folder / name).mkdir()
    if points:
        (folder / whole).rmdir()
        (folder / "whole").rename(folder / whole)
    again = EdgeIndex(folder, 3)
    assert again.count(Selection()) == points
    again.close()
    assert not (folder / "shard.new").exists()
    assert not (folder / "shard.old").exists()


def test_nothing_else_is_loaded_with_it() -> None:
    code = "import massmem.memory.index_edge, sys; print({'mem0', 'qdrant_client', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@given(st.text(min_size=1), st.integers(1, 4096))
def test_folder_names_are_safe(model: str, dims: int) -> None:
    name = folder_name(model, dims)
    assert len(name) < 90
    assert all(c.isascii() and (c.isalnum() or c in ".-") for c in name)
    assert not name.startswith(".")


def test_folder_names_differ() -> None:
    names = {folder_name(m, d) for m in ("openai/a", "openai-a", "openai/A", "wordllama") for d in (256, 384)}
    assert len(names) == 8
    assert folder_name("wordllama", 256) == "wordllama-256"
    assert folder_name("anything", 0) == "words"


def delete_in_thread(index: EdgeIndex, folder: Path) -> threading.Thread:
    """Delete some points; return once the index is being written anew."""

    def delete() -> None:
        with suppress(MemoryUnavailable):
            index.delete(Selection(ids=("7", "8")))

    thread = threading.Thread(target=delete)
    thread.start()
    while not (folder / "shard.new").exists():
        assert thread.is_alive()
    return thread


def test_others_read_while_the_index_is_written_anew_and_then_write(folder: Path) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(n) for n in range(1, 3_000)])
    thread = delete_in_thread(index, folder)
    rounds = 0
    while thread.is_alive():
        rounds += index.count(Selection(ids=("9",)))
        if rounds == 2:
            index.upsert([point(8)])  # waits
    assert rounds >= 2
    assert index.count(Selection()) == 2_998
    index.close()
    assert sorted(path.name for path in folder.glob("shard*")) == ["shard", "shard.json"]


def test_index_that_is_closed_while_it_is_written_anew_is_whole(folder: Path) -> None:
    index = EdgeIndex(folder, 3)
    index.upsert([point(n) for n in range(1, 3_000)])
    thread = delete_in_thread(index, folder)
    index.close()
    thread.join()
    again = EdgeIndex(folder, 3)
    assert again.count(Selection()) == 2_997
    again.close()
    assert sorted(path.name for path in folder.glob("shard*")) == ["shard", "shard.json"]


def read_note(folder: Path) -> dict[str, int]:
    return json.loads((folder / "shard.json").read_bytes())


def count_parts(folder: Path) -> int:
    return len([*(folder / "shard" / "segments").iterdir()])


async def test_few_points_are_left_as_they_are(tmp_path: Path):
    memory = open_disk_memory(tmp_path / "index")
    await memory.record([make_episode(f"Kites {i}.", i) for i in range(100)])
    await memory.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 100, "tidied": 0, "form": 1}


async def test_fields_are_indexed_once_there_are_many_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_edge, "MANY", 100)
    index = EdgeIndex(tmp_path / "index", 0)
    counts: list[int] = []
    for first, last in ((0, 60), (60, 120)):
        index.upsert([make_crowded_point(number) for number in range(first, last)])
        index.flush()
        counts.append(len([*(tmp_path / "index" / "shard").rglob("*-map")]))
        assert index.count(Selection(session_id="s1")) == last // 5
    index.close()
    assert counts[0] < counts[1]


async def test_who_sees_a_point_is_indexed_while_a_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_edge, "SOME", 10)
    index = EdgeIndex(tmp_path / "index", 0)
    fields: list[bool] = []
    for first, last in ((0, 5), (5, 15)):
        index.upsert([make_crowded_point(number) for number in range(first, last)])
        fields.append("seen" in str([*(tmp_path / "index" / "shard").rglob("*-map")]))
    index.close()
    assert fields == [False, True], "all searches would read the payload of every point until the service ends"


async def test_new_points_are_tidied_a_slice_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_edge, "SLICE", 200)
    index = EdgeIndex(tmp_path / "index", 0)
    for first, last, parts in ((0, 200, 2), (200, 350, 2), (350, 450, 3)):
        index.upsert([make_crowded_point(number) for number in range(first, last)])
        index.flush()
        assert count_parts(tmp_path / "index") == parts  # one of them for what is new
    index.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 450, "tidied": 450, "form": 1}


async def test_erasing_writes_the_rest_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(index_edge, "SLICE", 100)
    monkeypatch.setattr(index_edge, "READ_BATCH", 100)
    index = EdgeIndex(tmp_path / "index", 0)
    index.upsert([make_crowded_point(number) for number in range(350)])
    index.delete(Selection(ids=("7",)))
    assert count_parts(tmp_path / "index") == 4
    assert index.count(Selection()) == 349
    index.close()
    assert read_note(tmp_path / "index") == {"dims": 0, "points": 349, "tidied": 300, "form": 1}
