"""open_memory: what is configured is what is opened."""

import subprocess
import sys
from pathlib import Path

import pytest

from massmem.config.models import EmbeddingConfig, MemoryConfig, PersistentMemoryConfig, QdrantConfig
from massmem.core.errors import InputError, MemoryUnavailable, MissingKeyError
from massmem.memory import open_memory
from massmem.memory.persistent import RecallOptions
from tests.support.memories import asks, make_episode


def make_memory_config(embedding: EmbeddingConfig | None = None, qdrant: QdrantConfig | None = None) -> MemoryConfig:
    return MemoryConfig(
        persistent_memory=PersistentMemoryConfig(
            embedding=embedding or EmbeddingConfig(), qdrant=qdrant or QdrantConfig()
        )
    )


WORDS = EmbeddingConfig(provider="none")


async def test_by_default_it_is_below_home_and_only_its_owner_may_read_it(tmp_path: Path):
    memory = await open_memory(MemoryConfig(), tmp_path, {})
    await memory.record([make_episode("Red kites nest in Cobham.")])
    assert "Cobham" in (await memory.recall("kites", asks(), RecallOptions(1000))).text
    assert (await memory.stats()).location == str(tmp_path / "memory")
    assert (tmp_path / "memory").stat().st_mode & 0o077 == 0
    await memory.close()


async def test_it_can_be_put_elsewhere(tmp_path: Path):
    memory = await open_memory(
        make_memory_config(WORDS, QdrantConfig(mode="local", path=str(tmp_path / "there"))), tmp_path, {}
    )
    assert (tmp_path / "there" / "words").is_dir()
    assert not (tmp_path / "memory").exists()
    await memory.close()


async def test_not_on_disk_it_lasts_as_long_as_it_is_open(tmp_path: Path):
    config = MemoryConfig(persistent_memory=PersistentMemoryConfig(on_disk=False, embedding=WORDS))
    memory = await open_memory(config, tmp_path, {})
    folder = Path((await memory.stats()).location)
    await memory.record([make_episode("Red kites nest in Cobham.")])
    assert folder.is_dir()
    await memory.close()
    assert not folder.exists()
    assert not (tmp_path / "memory").exists()


async def test_another_embedder_starts_anew_and_says_so(tmp_path: Path):
    first = await open_memory(MemoryConfig(), tmp_path, {})
    assert first.note == ""
    await first.record([make_episode("Red kites nest in Cobham.")])
    await first.close()
    second = await open_memory(make_memory_config(WORDS), tmp_path, {})
    assert "memory rebuild" in second.note
    assert (await second.recall("kites", asks(), RecallOptions(1000))).text == ""
    await second.close()
    again = await open_memory(MemoryConfig(), tmp_path, {})
    assert again.note == ""
    assert "Cobham" in (await again.recall("kites", asks(), RecallOptions(1000))).text
    await again.close()


async def test_a_second_one_has_the_same_index(tmp_path: Path):
    first, second = [await open_memory(make_memory_config(WORDS), tmp_path, {}) for _ in range(2)]
    await second.record([make_episode("Red kites nest in Cobham.")])
    assert "Cobham" in (await first.recall("kites", asks(), RecallOptions(1000))).text
    await first.close()
    assert "Cobham" in (await second.recall("kites", asks(), RecallOptions(1000))).text
    await second.close()


async def test_an_embedder_that_was_asked_for_must_be_there(tmp_path: Path):
    with pytest.raises(InputError, match="no local embedder"):
        await open_memory(make_memory_config(EmbeddingConfig(model="unknown")), tmp_path, {})
    with pytest.raises(MissingKeyError):
        await open_memory(make_memory_config(EmbeddingConfig(provider="openai")), tmp_path, {})


async def test_without_the_embedders_package_words_are_searched(tmp_path: Path):
    """In a process of its own in which the package cannot be found, as after a plain install."""
    program = (
        "import asyncio, importlib.util, sys\n"
        "from importlib.abc import MetaPathFinder\n"
        "class Gone(MetaPathFinder):\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('wordllama', 'safetensors'): raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Gone())\n"
        "from pathlib import Path\n"
        "from massmem.config.models import MemoryConfig\n"
        "from massmem.memory import open_memory\n"
        "async def main():\n"
        "    memory = await open_memory(MemoryConfig(), Path(sys.argv[1]), {})\n"
        "    print((await memory.stats()).embedder)\n"
        "    await memory.close()\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("none", 0), done.stderr


async def test_a_server_that_is_not_there_is_unavailable(tmp_path: Path):
    with pytest.raises(MemoryUnavailable):
        await open_memory(
            make_memory_config(WORDS, QdrantConfig(mode="server", url="http://127.0.0.1:9")), tmp_path, {}
        )
