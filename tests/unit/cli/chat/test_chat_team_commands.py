import pytest

from massmem.cli.chat.team_commands import backend
from massmem.config.models import BackendConfig
from massmem.errors import InputError

NOW = BackendConfig.model_validate(
    {"type": "openrouter", "model": "a/b", "api_key": "k", "base_url": "http://x", "temperature": 0.5}
)


@pytest.mark.parametrize("wanted", ["c/d", "openrouter/c/d"])
def test_another_model_of_the_same_provider_keeps_the_rest(wanted: str):
    new = backend(NOW, wanted)
    assert (new.type, new.model, new.base_url, new.temperature) == ("openrouter", "c/d", "http://x", 0.5)


def test_another_provider_has_a_key_and_an_address_of_its_own():
    new = backend(NOW, "anthropic/claude-sonnet-4-5")
    assert (new.type, new.model, new.base_url, new.api_key) == ("anthropic", "claude-sonnet-4-5", None, None)
    assert new.temperature == 0.5


def test_a_script_cannot_be_typed():
    with pytest.raises(InputError, match="scripted"):
        backend(NOW, "scripted/x")
