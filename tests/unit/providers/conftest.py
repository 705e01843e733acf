"""A model server on loopback for the providers' tests."""

from collections.abc import AsyncIterator

import pytest

from massmem.providers.openai import OpenAIFactory


@pytest.fixture
async def clients() -> AsyncIterator[OpenAIFactory]:
    """Clients of the OpenAI protocol that have learnt nothing about models."""
    factory = OpenAIFactory()
    yield factory
    await factory.close()
