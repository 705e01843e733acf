"""The list of prices and windows that counts: the installed one, or one that was fetched since."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import MalformedResponse, ProviderConnectionError
from massmem.core.messages import Usage
from massmem.providers import catalogue
from massmem.providers.pricing import find_list_price, find_listed_window
from tests.support.file_server import FileServer, serving

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
    catalogue.get_snapshot.cache_clear()
    yield folder
    catalogue.get_snapshot.cache_clear()


def price() -> object:
    return find_list_price("openai", "gpt-99", Usage(1_000_000, requests=1))


def store(folder: Path, **fields: object) -> None:
    stored = {"date": "2026-11-01", "release": catalogue.version("genai-prices"), "prices": NEWEST, **fields}
    (folder / catalogue.FILE).write_text(json.dumps(stored))


def test_fetched_list_counts_from_then_on_with_its_date(folder: Path) -> None:
    assert price() is None
    with serving(FileServer({"/prices.json": json.dumps(NEWEST).encode()})) as server:
        assert catalogue.fetch_prices(folder, f"{server.base}/prices.json") == 1
    assert price() == 3
    assert find_listed_window("gpt-99", "https://api.openai.com/v1") == 9_000_000
    assert catalogue.read_date() is not None


def test_list_of_an_older_release_does_not_count(folder: Path) -> None:
    store(folder, release="0.0.1")
    assert price() is None
    assert catalogue.read_date() is None


@pytest.mark.parametrize("prices", [[{"id": 7}], [3]])
def test_damaged_list_falls_back_to_the_installed_one(folder: Path, prices: list[Any]) -> None:
    store(folder, prices=prices)
    assert find_list_price("openai", "gpt-4o", Usage(1_000_000, requests=1)) == 2.5


def test_failed_fetch_leaves_the_list_as_it_is(folder: Path) -> None:
    store(folder)
    with serving(FileServer({"/page.json": b"<html>"})) as server:
        with pytest.raises(MalformedResponse):
            catalogue.fetch_prices(folder, f"{server.base}/page.json")
        with pytest.raises(ProviderConnectionError):
            catalogue.fetch_prices(folder, f"{server.base}/nothing.json")
    assert price() == 3
