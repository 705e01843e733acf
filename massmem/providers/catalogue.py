"""The list of prices and context windows: that of the installed `genai-prices`, or a newer one that was fetched since.

`massmem models refresh` fetches it into massmem's folder; nothing else fetches it. An update of the package is newer
than what was fetched before.
"""

import json
import logging
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from massmem.config.home import massmem_home, replace_file
from massmem.core.errors import HomeError, MalformedResponse, ProviderConnectionError
from massmem.core.events import now

if TYPE_CHECKING:
    from genai_prices.data_snapshot import DataSnapshot

log = logging.getLogger(__name__)

FILE = "prices.json"
_PACKAGE = "genai-prices"
_PATIENCE = 30.0
"""Seconds for the list, which has about a megabyte."""


def fetch_prices(home: Path, url: str = "") -> int:
    """Fetch the newest list into `home`; return how many models it has. Blocks. url: "" for the usual address.

    Raises:
        ProviderConnectionError: it cannot be fetched.
        MalformedResponse: it is no list of prices.
        StoreError, HomeError: it cannot be written.
    """
    import httpx2
    from genai_prices.update_prices import DEFAULT_UPDATE_URL

    from massmem.providers.clients import open_blocking_client

    address = url or DEFAULT_UPDATE_URL
    try:
        with open_blocking_client(address, timeout=_PATIENCE) as client:
            reply = client.get(address).raise_for_status()
    except httpx2.HTTPError as e:
        raise ProviderConnectionError(f"the list of prices at {address} cannot be fetched: {e}") from e
    try:
        prices: Any = reply.json()
        snapshot = _to_snapshot(prices)
    except (ValueError, TypeError, LookupError) as e:
        raise MalformedResponse(f"what {address} sent is no list of prices: {type(e).__name__}") from e
    stored = {"date": now().date().isoformat(), "release": version(_PACKAGE), "prices": prices}
    replace_file(home / FILE, json.dumps(stored))
    get_snapshot.cache_clear()
    return sum(len(provider.models) for provider in snapshot.providers)


@cache
def get_snapshot() -> "DataSnapshot":
    """Return the list that counts. The first call takes 0.3 s: make it in a thread."""
    from genai_prices.data_snapshot import get_snapshot as get_installed

    stored = _read_stored()
    try:
        return _to_snapshot(stored["prices"]) if stored else get_installed()
    except (ValueError, TypeError, LookupError) as e:
        log.warning("the fetched list of prices is damaged, so the installed one counts: %s", type(e).__name__)
        return get_installed()


def read_date() -> str | None:
    """Return the day (ISO) on which the list that counts was fetched, None when it is the installed one."""
    stored = _read_stored()
    return str(stored["date"]) if stored else None


def _read_stored() -> dict[str, Any] | None:
    """Return what was fetched since the package was installed, None when there is nothing."""
    try:
        stored: object = json.loads((massmem_home() / FILE).read_text("utf-8"))
    except (OSError, ValueError, HomeError):
        return None
    match stored:
        case {"date": str(), "release": str(release), "prices": list()} if release == version(_PACKAGE):
            return cast("dict[str, Any]", stored)
        case _:
            return None


def _to_snapshot(prices: list[Any]) -> "DataSnapshot":
    """Return a list as it was fetched. Raises ValueError, TypeError or LookupError for anything else."""
    from genai_prices import types
    from genai_prices.data_snapshot import DataSnapshot

    # The package has no public way to read a list that somebody else fetched.
    read = cast("Any", types)._providers_from_raw
    return DataSnapshot(read(prices), from_auto_update=True)
