"""Opens providers of the OpenAI protocol that ask a stub."""

from typing import Any

from massmem.config.models import BackendConfig
from massmem.providers.openai import OpenAIFactory, OpenAIProvider
from tests.support.provider_stub import KEY, Stub


def open_openai(clients: OpenAIFactory, stub: Stub, **fields: Any) -> OpenAIProvider:
    """Return a provider that asks the stub and never repeats a request, unless fields of the backend say otherwise."""
    base = {"type": "openai", "model": "m", "api_key": KEY, "base_url": f"{stub.url}/v1", "max_retries": 0}
    provider = clients.open(BackendConfig.model_validate({**base, **fields}))
    assert isinstance(provider, OpenAIProvider)
    return provider
