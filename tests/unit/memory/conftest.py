"""An index on disk, words only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from massmem.memory.index_edge import EdgeIndex


@pytest.fixture
def index(tmp_path: Path) -> Iterator[EdgeIndex]:
    index = EdgeIndex(tmp_path / "index", 0)
    yield index
    index.close()
