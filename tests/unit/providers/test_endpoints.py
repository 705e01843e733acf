import subprocess
import sys
from typing import Any
from urllib.parse import urlsplit

import pytest

from massmem.config.models import BackendConfig
from massmem.config.presets import PRESETS, BackendType
from massmem.core.errors import ConfigError, MissingKeyError
from massmem.providers.endpoints import NO_KEY, check_key, resolve


def backend(**fields: Any) -> BackendConfig:
    return BackendConfig.model_validate({"model": "m", **fields})


REMOTE: list[BackendType] = [
    name for name, preset in PRESETS.items() if preset.kind in ("openai", "anthropic") and not preset.signer
]


@pytest.mark.parametrize("name", [n for n in REMOTE if n != "azure_openai"])
def test_a_preset_resolves_with_nothing_but_its_key(name: BackendType) -> None:
    preset = PRESETS[name]
    endpoint = resolve(backend(type=name), {preset.key_variables[-1]: "secret-key"})
    assert endpoint.key == "secret-key"
    parts = urlsplit(endpoint.base_url)
    assert (parts.scheme == "https") == preset.needs_key
    assert endpoint.loopback == (not preset.needs_key)


@pytest.mark.parametrize("name", [n for n in REMOTE if PRESETS[n].needs_key])
def test_a_missing_key_names_the_variable_and_the_command(name: BackendType) -> None:
    fields = {"base_url": "https://x.openai.azure.com"} if name == "azure_openai" else {}
    with pytest.raises(MissingKeyError) as caught:
        check_key(backend(type=name, **fields), {PRESETS[name].key_variables[0]: "  "})
    variable = PRESETS[name].key_variables[0]
    assert variable in caught.value.message
    assert f"export {variable}=" in caught.value.hint
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("url", ["http://gpu:11434", "http://gpu:11434/", "http://gpu:11434/v1"])
def test_ollama_is_reached_at_its_address_with_or_without_the_path(url: str) -> None:
    assert resolve(backend(type="ollama", base_url=url), {}).base_url == "http://gpu:11434/v1"


@pytest.mark.parametrize("name", ["ollama", "lmstudio", "vllm", "llamacpp", "local", "scripted"])
def test_server_on_this_machine_needs_no_key(name: str) -> None:
    check_key(backend(type=name), {})


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:9/v1", "http://localhost:9/v1/", "http://[::1]:9/v1", "https://x.localhost/v1"]
)
def test_openai_on_loopback_needs_no_key(url: str) -> None:
    endpoint = resolve(backend(type="openai", base_url=url), {})
    assert endpoint.key == NO_KEY
    assert endpoint.base_url == url.rstrip("/")


@pytest.mark.parametrize(
    "url", ["http://10.0.0.1/v1", "https://localhost.evil.example/v1", "http://127.0.0.1.evil.example"]
)
def test_openai_elsewhere_needs_one(url: str) -> None:
    with pytest.raises(MissingKeyError):
        check_key(backend(type="openai", base_url=url), {})


def test_the_configured_key_and_address_win_over_the_environment() -> None:
    environ = {"OPENAI_API_KEY": "from-env", "OPENAI_BASE_URL": "https://env.example/v1"}
    own = resolve(backend(type="openai", api_key="from-file", base_url="https://file.example/v1"), environ)
    assert (own.key, own.base_url) == ("from-file", "https://file.example/v1")
    env = resolve(backend(type="openai"), environ)
    assert (env.key, env.base_url) == ("from-env", "https://env.example/v1")


@pytest.mark.parametrize(
    "url",
    ["https://me.openai.azure.com", "https://me.openai.azure.com/openai/", "https://me.openai.azure.com/openai/v1/"],
)
def test_azure_uses_the_v1_path(url: str) -> None:
    environ = {"AZURE_OPENAI_API_KEY": "k", "AZURE_OPENAI_ENDPOINT": url}
    endpoint = resolve(backend(type="azure_openai"), environ)
    assert endpoint.base_url == "https://me.openai.azure.com/openai/v1"
    assert endpoint.completion_limit == "max_completion_tokens"


def test_azure_without_an_endpoint_says_what_to_set() -> None:
    with pytest.raises(ConfigError) as caught:
        check_key(backend(type="azure_openai"), {"AZURE_OPENAI_API_KEY": "k"})
    assert "AZURE_OPENAI_ENDPOINT" in caught.value.hint


@pytest.mark.parametrize(
    "url", ["ftp://x", "models.lan:11434", "http://", "https://u:p4ssword@ho st/", "http://x:99999999/"]
)
def test_an_address_that_is_none_is_a_config_error_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_key(backend(type="vllm", base_url=url), {})
    assert "p4ssword" not in caught.value.message


@pytest.mark.parametrize(
    ("type_", "address", "url"),
    [
        ("openai", "https://gw.example/v1/chat/completions", "https://gw.example/v1"),
        ("openai", "https://gw.example/v1/responses/", "https://gw.example/v1"),
        ("openai", "https://gw.example/v1/models", "https://gw.example/v1"),
        ("openai", "https://gw.example/models", "https://gw.example/models"),
        ("openai", "https://gw.example/api/paas/v4/chat/completions", "https://gw.example/api/paas/v4"),
        ("openai", " 'https://gw.example/v1/' ", "https://gw.example/v1"),
        ("openai", "https://gw.example/v1#section", "https://gw.example/v1"),
        ("openai", "https://api.openai.com", "https://api.openai.com/v1"),
        ("mistral", "https://api.mistral.ai/", "https://api.mistral.ai/v1"),
        ("anthropic", "https://gw.example/anthropic/v1", "https://gw.example/anthropic"),
        ("anthropic", "https://gw.example/v1/messages", "https://gw.example"),
        ("openai", "localhost:11434/v1", "http://localhost:11434/v1"),
        ("ollama", "192.168.1.5:11434", "http://192.168.1.5:11434/v1"),
        ("openai", "[::1]:8080/v1", "http://[::1]:8080/v1"),
        ("openai", "HTTP://GPU:8000/v1", "HTTP://GPU:8000/v1"),
        ("openai", "https://user:pass@gw.example/v1", "https://user:pass@gw.example/v1"),
        (
            "azure_openai",
            "https://me.openai.azure.com/openai/deployments/gpt/chat/completions?api-version=2024-10-21",
            "https://me.openai.azure.com/openai/v1",
        ),
    ],
)
def test_addresses_as_people_write_them(type_: str, address: str, url: str) -> None:
    endpoint = resolve(backend(type=type_, base_url=address, api_key="k"), {})
    assert (endpoint.base_url, endpoint.query) == (url, "")


def test_the_query_of_an_address_goes_with_every_request() -> None:
    endpoint = resolve(
        backend(type="openai", base_url="https://gw.example/v1/chat/completions?v=1&w=", api_key="k"), {}
    )
    assert (endpoint.base_url, endpoint.query) == ("https://gw.example/v1", "v=1&w=")


@pytest.mark.parametrize(
    ("type_", "url", "is_own", "takes_environment"),
    [
        ("openai", "", True, True),
        ("openai", "https://eu.api.openai.com/v1", True, True),
        ("openai", "https://api.openai.com.evil.example/v1", False, False),
        ("openai", "https://gw.example/v1", False, False),
        ("anthropic", "", False, True),
        ("anthropic", "https://gw.example", False, False),
        ("groq", "", False, False),
        ("azure_openai", "https://me.openai.azure.com", True, False),
    ],
)
def test_the_environment_is_for_the_hosts_of_openai_and_anthropic(
    type_: str, url: str, is_own: bool, takes_environment: bool
) -> None:
    endpoint = resolve(backend(type=type_, base_url=url or None, api_key="k"), {})
    assert (endpoint.own, endpoint.takes_environment) == (is_own, takes_environment)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        *[(k, "the name of a variable") for k in ("$OPENAI_API_KEY", "${A_KEY}", "${{ a.KEY }}", "$(pass x)", "%KEY%")],
        *[
            (k, "a placeholder")
            for k in (
                "<your key>", "your-api-key-here", "YOUR_API_KEY", "sk-your-key-here", "sk-...", "sk-xxxxxxxx", "xxx",
                "sk-proj-xxxx-xxxx", "sk-ant-****", "AIza...", "{api_key}", "[KEY]", "insert your key here",
                "REPLACE_WITH_YOUR_KEY", "changeme", "OPENAI_API_KEY", "api-key", "put-key-here",
            )
        ],
        *[(k, "no key has") for k in ("sk-a b", "sk-a\nb", "sk-schlüssel", '"sk-a', "sk-…")],
        *[(k, "'Bearer'") for k in ("Bearer sk-abc", "bearer sk-abc")],
    ],
)  # fmt: skip
def test_a_key_that_is_none_is_named_with_its_place_and_not_shown(key: str, problem: str) -> None:
    far = "https://gw.example/v1"
    for fields, environ, place in (
        ({"api_key": key}, {}, "backend.api_key"),
        ({}, {"OPENAI_API_KEY": key}, "OPENAI_API_KEY"),
    ):
        with pytest.raises(MissingKeyError, match=problem) as caught:
            check_key(backend(type="openai", base_url=far, **fields), environ)
        assert f"in {place} " in caught.value.message
        assert key == place or key not in caught.value.message
        assert "OPENAI_API_KEY" in caught.value.hint


@pytest.mark.parametrize(
    "key",
    ["sk-1234", "EMPTY", "none", "not-needed", "my-own-secret", "k", "sk-proj-Ab3dEf-xx_Y", "a" * 5_000, "_" * 5_000],
)
def test_keys_that_people_choose_themselves(key: str) -> None:
    assert resolve(backend(type="openai", base_url="https://gw.example/v1", api_key=key), {}).key == key


def test_a_server_on_this_machine_takes_any_word_for_a_key() -> None:
    for key in ("xxx", "sk-...", "your-api-key"):
        check_key(backend(type="ollama", api_key=key), {})
        check_key(backend(type="openai", base_url="http://127.0.0.1:9/v1", api_key=key), {})


def test_a_model_must_be_named_where_none_is_usual() -> None:
    with pytest.raises(ConfigError, match=r"backend\.model"):
        check_key(BackendConfig(type="groq"), {"GROQ_API_KEY": "k"})
    assert resolve(BackendConfig(type="openai"), {"OPENAI_API_KEY": "k"}).model


@pytest.mark.parametrize("key", ["sk-ключ", "sk-a b", "sk-“quoted”", "sk-a\nb"])
def test_a_key_that_cannot_be_one_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(MissingKeyError) as caught:
        check_key(backend(type="openai"), {"OPENAI_API_KEY": key})
    assert key not in caught.value.message + caught.value.hint


def test_blanks_around_a_key_are_a_copying_slip() -> None:
    assert resolve(backend(type="openai"), {"OPENAI_API_KEY": " sk-abc\n"}).key == "sk-abc"


def test_the_key_is_not_in_the_repr() -> None:
    assert "sk-abc" not in repr(resolve(backend(type="openai"), {"OPENAI_API_KEY": "sk-abc"}))


def test_only_openais_own_endpoint_gets_its_new_limit_name() -> None:
    environ = {"OPENAI_API_KEY": "k"}
    assert resolve(backend(type="openai"), environ).completion_limit == "max_completion_tokens"
    compatible = backend(type="openai", base_url="https://other.example/v1")
    assert resolve(compatible, environ).completion_limit == "max_tokens"


def test_the_check_loads_no_provider_library() -> None:
    code = (
        "import sys\n"
        "from massmem.config.models import BackendConfig\n"
        "from massmem.core.errors import MissingKeyError\n"
        "from massmem.providers import Providers, check_key\n"
        "try:\n    check_key(BackendConfig(type='openai'), {})\n"
        "except MissingKeyError:\n    print('missing')\n"
        "print([m for m in ('openai', 'anthropic', 'httpx2', 'anyio', 'xllamacpp') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout.split("\n")[:2] == ["missing", "[]"]


@pytest.mark.parametrize(
    ("type_", "key", "other"),
    [("openai", "sk-ant-api03-x", "anthropic"), ("anthropic", "sk-proj-x", "openai"), ("deepseek", "gsk_x", "groq")],
)
def test_key_of_another_provider_is_refused_before_it_is_sent(type_: BackendType, key: str, other: str) -> None:
    with pytest.raises(MissingKeyError, match=f"one of '{other}'") as caught:
        check_key(backend(type=type_, api_key=key), {})
    assert key not in caught.value.message + caught.value.hint
    assert f"type: {other}" in caught.value.hint


def test_key_of_another_provider_may_be_what_a_gateway_wants() -> None:
    elsewhere = backend(type="openai", api_key="sk-ant-x", base_url="https://gateway.example/v1")
    assert resolve(elsewhere, {}).key == "sk-ant-x"
    assert resolve(backend(type="openai", api_key="sk-proj-x"), {}).key == "sk-proj-x"


@pytest.mark.parametrize(
    ("type_", "environ", "address"),
    [
        ("bedrock", {"AWS_REGION": "eu-west-1"}, "https://bedrock-runtime.eu-west-1.amazonaws.com"),
        ("bedrock", {"AWS_DEFAULT_REGION": " us-east-1 "}, "https://bedrock-runtime.us-east-1.amazonaws.com"),
        ("bedrock", {"AWS_REGION": "x", "ANTHROPIC_BEDROCK_BASE_URL": "http://gate:8/a"}, "http://gate:8/a"),
        ("vertex", {"CLOUD_ML_REGION": "us-east5"}, "https://us-east5-aiplatform.googleapis.com/v1"),
        ("vertex", {"CLOUD_ML_REGION": "global"}, "https://aiplatform.googleapis.com/v1"),
        ("vertex", {"CLOUD_ML_REGION": "eu"}, "https://aiplatform.eu.rep.googleapis.com/v1"),
    ],
)
def test_the_region_makes_the_address_of_what_is_signed(
    type_: BackendType, environ: dict[str, str], address: str
) -> None:
    endpoint = resolve(backend(type=type_), environ)
    assert (endpoint.base_url, endpoint.signer, endpoint.key) == (address, type_, NO_KEY)


def test_a_missing_region_names_the_variable() -> None:
    with pytest.raises(ConfigError, match="'bedrock' needs a region: AWS_REGION is not set") as caught:
        check_key(backend(type="bedrock"), {})
    assert "export AWS_REGION=" in caught.value.hint


def test_entra_leaves_the_key_of_azure_out() -> None:
    fields = {"type": "azure_openai", "base_url": "https://me.openai.azure.com", "auth": "entra"}
    endpoint = resolve(backend(**fields), {"AZURE_OPENAI_API_KEY": "secret-key"})
    assert (endpoint.signer, endpoint.key) == ("entra", NO_KEY)
