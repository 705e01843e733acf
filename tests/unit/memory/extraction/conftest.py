"""A model server on loopback, and extractors that ask it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.extraction_stub import Open, extractors
from tests.support.provider_stub import Stub


@pytest.fixture
async def open_extractor(stub: Stub, home: Path) -> AsyncIterator[Open]:
    async with extractors(stub, home) as open_:
        yield open_
