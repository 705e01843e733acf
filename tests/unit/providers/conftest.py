"""A model server on loopback for the providers' tests."""

from collections.abc import AsyncIterator

import pytest

from tests.support.provider_stub import Stub, running_stub


@pytest.fixture
async def stub() -> AsyncIterator[Stub]:
    async with running_stub() as running:
        yield running
