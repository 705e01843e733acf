import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import BackendConfig, PriceConfig
from massmem.core.errors import MalformedResponse, ProviderConnectionError
from massmem.core.messages import Usage
from massmem.providers import pricing
from massmem.providers.pricing import find_list_price, find_listed_window, price_of
from tests.support.file_server import FileServer, serving

MILLION = 1_000_000


def backend(type_: str, model: str = "", url: str | None = None) -> BackendConfig:
    return BackendConfig(type=type_, model=model, base_url=url)


def cost(usage: Usage, of: BackendConfig, environ: dict[str, str]) -> Decimal | None:
    return price_of(of, environ).cost(usage)


@pytest.mark.parametrize(
    ("type_", "model"),
    [
        ("openai", ""), ("openai", "gpt-4o"), ("anthropic", ""), ("gemini", ""), ("grok", "grok-4"),
        ("groq", "llama-3.3-70b-versatile"), ("together", "meta-llama/Llama-3.3-70B-Instruct-Turbo"),
        ("openrouter", "openai/gpt-4o"), ("deepseek", ""), ("mistral", ""), ("cerebras", "llama3.1-8b"),
    ],
)  # fmt: skip
def test_every_provider_with_a_list_has_prices(type_, model):
    found = cost(Usage(MILLION, MILLION, requests=1_000), backend(type_, model), {})
    assert found is not None
    assert Decimal("0.05") < found < 1_000


def test_input_cached_input_and_output_have_prices_of_their_own():
    # https://openai.com/api/pricing: gpt-4o, per million: 2.50, cached 1.25, output 10.
    gpt = backend("openai", "gpt-4o")
    assert cost(Usage(MILLION, requests=1), gpt, {}) == Decimal("2.5")
    assert cost(Usage(MILLION, cached=MILLION, requests=1), gpt, {}) == Decimal("1.25")
    assert cost(Usage(0, 1_000, requests=1), gpt, {}) == Decimal("0.01")
    assert cost(Usage(), backend("openai", "nobody-knows"), {}) == 0


def test_saving_of_a_cache_is_known_without_the_cost_of_filling_it():
    # https://openai.com/api/pricing, https://claude.com/pricing: a million read from the cache saves 1.25 and 2.70;
    # Anthropic takes a quarter more for what it writes into the cache.
    def compute_saving(usage: Usage, of: BackendConfig) -> float:
        return price_of(of, {}).add_cost(usage).saved

    gpt, claude = backend("openai", "gpt-4o"), backend("anthropic", "claude-sonnet-4-5")
    assert compute_saving(Usage(MILLION, requests=1), gpt) == 0
    assert compute_saving(Usage(MILLION, cached=MILLION, requests=1), gpt) == 1.25
    read = Usage(MILLION, cached=MILLION, requests=100)
    assert compute_saving(read, claude) == 2.7
    assert compute_saving(Usage(MILLION, cache_written=MILLION, requests=100), claude) == -0.75
    assert compute_saving(read, backend("openai", "nobody-knows")) == 0
    assert compute_saving(read, backend("ollama", "x")) == 0
    assert (price_of(claude, {}).add_cost(read) + Usage(1, 1, saved=0.3)).saved == 3.0


def test_long_prompts_are_those_of_a_request():
    """A tier for prompts over 200,000 tokens is not reached by many short ones."""
    gemini = backend("gemini", "gemini-2.5-pro")
    one, many = cost(Usage(MILLION, requests=1), gemini, {}), cost(Usage(MILLION, requests=10), gemini, {})
    assert one == 2 * many == Decimal("2.5")


@pytest.mark.parametrize(
    "free",
    [
        backend("local"), backend("scripted"), backend("ollama", "gpt-4o"), backend("llamacpp"),
        backend("openai", "gpt-4o", "http://127.0.0.1:8080/v1"), backend("vllm", "x", "http://localhost:9"),
    ],
)  # fmt: skip
def test_model_on_this_machine_is_free(free):
    assert cost(Usage(MILLION, MILLION), free, {}) == 0
    assert price_of(free, {}).add_cost(Usage(1, 1)).cost == 0.0


@pytest.mark.parametrize(
    "unknown",
    [
        backend("openai", "no-such-model"), backend("openai", "gpt-4o", "https://proxy.example/v1"),
        backend("openai", "gpt-4o", "https://api.openai.com.evil.example/v1"),
        backend("ollama", "gpt-4o", "http://192.168.1.5:11434/v1"), backend("groq"), backend("azure_openai", "gpt-4o"),
    ],
)  # fmt: skip
def test_unknown_model_is_never_free(unknown):
    price = price_of(unknown, {})
    assert (price.is_known, price.cost(Usage(10, 10))) == (False, None)
    assert price.add_cost(Usage(10, 10)).cost is None


def test_a_price_of_ones_own_counts_before_any_other():
    given = PriceConfig(input=2, output=8, cached=0.5)
    usage = Usage(MILLION, MILLION, cached=500_000)
    proxy = backend("openai", "mine", "https://proxy.example/v1").model_copy(update={"price": given})
    assert cost(usage, proxy, {}) == Decimal("9.25")
    here = backend("scripted").model_copy(update={"price": PriceConfig(input=2, output=8)})
    assert cost(usage, here, {}) == Decimal(10)


def searching(type_: str, model: str, **fields: Any) -> BackendConfig:
    return BackendConfig.model_validate({"type": type_, "model": model, "web_search": True, **fields})


@pytest.mark.parametrize(
    ("type_", "model", "dollars"),
    [
        ("openai", "gpt-5-mini", "0.03"), ("anthropic", "claude-sonnet-5", "0.03"), ("grok", "grok-4", "0.015"),
        ("gemini", "gemini-flash-latest", "0.042"), ("gemini", "gemini-2.5-flash", "0.035"),
        ("perplexity", "sonar", "0"),
    ],
)  # fmt: skip
def test_searches_are_paid_beside_their_tokens(type_: str, model: str, dollars: str) -> None:
    price = price_of(searching(type_, model), {})
    tokens, both = price.cost(Usage(100, 10, requests=1)), price.cost(Usage(100, 10, requests=1, searches=3))
    assert tokens is not None
    assert both is not None
    assert both - tokens == Decimal(dollars)


def test_search_without_a_price_makes_the_cost_unknown() -> None:
    unknown = searching("openai", "m", base_url="https://gateway.example/v1", price={"input": 1, "output": 1})
    assert not price_of(unknown, {}).is_known
    assert price_of(unknown, {}).cost(Usage(1, 1, searches=1)) is None
    known = searching(
        "openai", "m", base_url="https://gateway.example/v1", price={"input": 1, "output": 1, "search": 5}
    )
    assert price_of(known, {}).is_known
    assert price_of(known, {}).cost(Usage(1, 1, searches=2)) == Decimal("0.010002")


def test_charge_that_the_provider_names_counts_more_than_a_list() -> None:
    charged = Usage(100, 10, requests=1, searches=3, cost=0.0123)
    assert price_of(searching("openrouter", "openai/gpt-4o"), {}).add_cost(charged).cost == 0.0123
    own = price_of(searching("openrouter", "x", price={"input": 0, "output": 0, "search": 1000}), {})
    assert own.add_cost(charged).cost == 3.0


def test_the_address_counts_wherever_it_comes_from():
    gpt = backend("openai", "gpt-4o")
    assert cost(Usage(9), gpt, {"OPENAI_BASE_URL": "https://proxy.example/v1"}) is None
    assert cost(Usage(9), backend("openai", "openai/gpt-4o", "https://openrouter.ai/api/v1"), {}) is not None
    assert cost(Usage(9), backend("azure_openai", "gpt-4o", "https://me.openai.azure.com"), {}) is not None


def test_costs_add_up_and_one_unknown_makes_the_sum_unknown():
    known, unknown = Usage(1, 1, cost=0.1), Usage(1, 1)
    assert sum([known, Usage(2, cost=0.2), known], Usage()).cost == 0.4
    assert (known + unknown).cost is None
    assert (unknown + known).cost is None
    assert (Usage() + known + Usage()).cost == 0.1


def test_free_models_load_no_list_of_prices():
    code = (
        "import sys; from massmem.providers.pricing import price_of; from massmem.config.models import BackendConfig;"
        "price_of(BackendConfig(type='scripted'), {}); sys.exit('genai_prices' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


OPENAI, PROXY = "https://api.openai.com/v1", "https://proxy.example/v1"


@pytest.mark.parametrize(
    ("model", "url", "tokens"),
    [
        ("gpt-4o-2024-08-06", OPENAI, 128_000),
        ("gpt-4", OPENAI, 8_192),
        ("o3-mini", OPENAI, 200_000),
        ("claude-sonnet-5", "https://api.anthropic.com", 1_000_000),
        ("grok-4-fast-reasoning", "https://api.x.ai/v1", 2_000_000),
        ("deepseek-chat", "https://api.deepseek.com/v1", 64_000),
    ],
)
def test_the_window_is_that_of_the_provider_at_the_address(model: str, url: str, tokens: int):
    assert find_listed_window(model, url) == tokens


@pytest.mark.parametrize("model", ["gpt-5", "gpt-5-mini", "gpt-5.1"])
def test_windows_of_openai_leave_room_for_the_reply(model: str):
    assert find_listed_window(model, OPENAI) == 272_000


@pytest.mark.parametrize(
    ("model", "tokens"),
    [
        ("openai/gpt-oss-120b", 131_072),
        ("anthropic/Claude-3-5-Sonnet", 200_000),
        ("models/gemini-2.5-flash", 1_048_576),
        ("gemini-2.5-pro", 1_048_576),
        ("meta-llama/Llama-3.3-70B-Instruct-Turbo", 131_072),
        ("Meta-Llama-3-8B-Instruct", 8_192),
        ("Qwen/Qwen2.5-7B-Instruct", 32_768),
        ("mistral-large-latest", 128_000),
    ],
)
def test_elsewhere_the_window_is_what_most_providers_give_the_model(model: str, tokens: int):
    assert find_listed_window(model, PROXY) == tokens


@pytest.mark.parametrize("model", ["somebody-s-model", "gpt", ""])
def test_an_unlisted_model_has_no_window(model: str):
    assert find_listed_window(model, OPENAI) is None


NEWEST: list[dict[str, Any]] = [
    {
        "id": "openai",
        "name": "OpenAI",
        "api_pattern": "https://api.openai.com",
        "models": [
            {
                "id": "gpt-99",
                "match": {"equals": "gpt-99"},
                "context_window": 9_000_000,
                "prices": {"input_mtok": 3, "output_mtok": 9},
            }
        ],
    }
]


@pytest.fixture
def folder(home: Path) -> Iterator[Path]:
    """massmem's folder in the test's own HOME."""
    folder = home / ".massmem"
    folder.mkdir(exist_ok=True)
    pricing.get_snapshot.cache_clear()
    yield folder
    pricing.get_snapshot.cache_clear()


def new_price() -> object:
    return find_list_price("openai", "gpt-99", Usage(1_000_000, requests=1))


def store_list(folder: Path, **fields: object) -> None:
    stored = {"date": "2026-11-01", "release": pricing.version("genai-prices"), "prices": NEWEST, **fields}
    (folder / pricing.FILE).write_text(json.dumps(stored))


def test_fetched_list_counts_from_then_on_with_its_date(folder: Path) -> None:
    assert new_price() is None
    with serving(FileServer({"/prices.json": json.dumps(NEWEST).encode()})) as server:
        assert pricing.fetch_prices(folder, f"{server.base}/prices.json") == 1
    assert new_price() == 3
    assert find_listed_window("gpt-99", "https://api.openai.com/v1") == 9_000_000
    assert pricing.read_date() is not None


def test_list_of_an_older_release_does_not_count(folder: Path) -> None:
    store_list(folder, release="0.0.1")
    assert new_price() is None
    assert pricing.read_date() is None


@pytest.mark.parametrize("prices", [[{"id": 7}], [3]])
def test_damaged_list_falls_back_to_the_installed_one(folder: Path, prices: list[Any]) -> None:
    store_list(folder, prices=prices)
    assert find_list_price("openai", "gpt-4o", Usage(1_000_000, requests=1)) == 2.5


def test_failed_fetch_leaves_the_list_as_it_is(folder: Path) -> None:
    store_list(folder)
    with serving(FileServer({"/page.json": b"<html>"})) as server:
        with pytest.raises(MalformedResponse):
            pricing.fetch_prices(folder, f"{server.base}/page.json")
        with pytest.raises(ProviderConnectionError):
            pricing.fetch_prices(folder, f"{server.base}/nothing.json")
    assert new_price() == 3
