import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import ConfigError, MissingKeyError
from massmem.providers import Providers
from massmem.providers.scripted import ScriptedProvider


async def test_a_missing_key_is_said_at_once() -> None:
    with pytest.raises(MissingKeyError, match="ANTHROPIC_API_KEY"):
        await Providers().open(BackendConfig(type="anthropic"))


async def test_scripted_opens_without_any_sdk() -> None:
    providers = Providers()
    provider = await providers.open(BackendConfig(type="scripted"))
    assert isinstance(provider, ScriptedProvider)
    assert provider.abilities.tools
    assert not (await providers.open(BackendConfig(type="scripted", tools=False))).abilities.tools
    await providers.close()


async def test_a_mistake_in_a_script_shows_when_it_is_opened() -> None:
    with pytest.raises(ConfigError, match=r"backend\.script\.anwser"):
        await Providers().open(BackendConfig(type="scripted", script={"anwser": "x"}))


async def test_closing_twice_or_without_opening_is_fine() -> None:
    providers = Providers()
    await providers.close()
    await providers.open(BackendConfig(type="scripted"))
    await providers.close()
    await providers.close()
