"""Which store a URL opens."""

from pathlib import Path

import pytest

from massmem.core.errors import InputError
from massmem.store import open_store


async def test_unknown_kind_of_store_is_refused(home: Path) -> None:
    with pytest.raises(InputError, match="'mongodb'"):
        await open_store("mongodb://h", home)
    assert list(home.iterdir()) == []
