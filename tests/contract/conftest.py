"""The store that the contract tests of stores are about, of each kind."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.support.stores import NewPlace, Opener


@pytest.fixture
def opener(new_place: NewPlace, tmp_path: Path) -> Opener:
    """Opens the same store each time."""
    url = new_place()
    return lambda: open_store(url, tmp_path / "home" / ".massmem")


@pytest.fixture
async def store(opener: Opener) -> AsyncIterator[SessionStore]:
    opened = await opener()
    yield opened
    await opened.close()
