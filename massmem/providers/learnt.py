"""Windows and abilities of models, learnt from the lists of servers and from requests that they refused."""

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from massmem.config.home import lock_file, replace_file
from massmem.core.calls import parse_object
from massmem.core.errors import MassmemError
from massmem.core.events import now
from massmem.core.redact import redact
from massmem.providers.endpoints import Endpoint
from massmem.providers.failures import REFUSALS, Refusal, describe_refusal

log = logging.getLogger(__name__)

FILE = "models.json"
DAYS = 30
"""How long a refusal counts: servers are given other settings, and models other abilities."""

EndpointFacts = dict[str, dict[str, Any]]


class LearntModels:
    """Windows and refusals by endpoint and model, each with its day.

    They are kept in a file, so that the next process is not refused again.
    """

    def __init__(self, home: Path | None = None) -> None:
        """home: massmem's own folder; None: what is learnt is forgotten with this process."""
        self._path = home / FILE if home else None
        self._entries: dict[str, EndpointFacts] | None = None

    def find_window(self, endpoint: Endpoint) -> int | None:
        """Return the tokens of the window, None when no server has named them in the last 30 days."""
        match self._find(endpoint).get("window"):
            case {"tokens": int(tokens), "date": str(day)} if tokens > 0 and _is_recent(day):
                return tokens
            case _:
                return None

    def find_refusals(self, endpoint: Endpoint) -> Mapping[Refusal, str]:
        """Return what the model did not take in the last 30 days, with the day (ISO) of the refusal."""
        days = self._find(endpoint).get("refuses", {})
        return {name: day for name in REFUSALS if isinstance(day := days.get(name), str) and _is_recent(day)}

    def describe_refusals(self, endpoint: Endpoint) -> list[str]:
        """Return what the model does not take, a line each, with the day on which it was refused."""
        refusals = self.find_refusals(endpoint).items()
        return [f"takes no {describe_refusal(refusal)} (refused {day})" for refusal, day in refusals]

    def remember_window(self, endpoint: Endpoint, tokens: int) -> None:
        self._store({_key_of(endpoint): {"window": {"tokens": tokens, "date": _today()}}})

    def remember_refusal(self, endpoint: Endpoint, refusal: Refusal) -> None:
        key = _key_of(endpoint)
        stored = self._read().get(key, {}).get("refuses", {})
        self._store({key: {"refuses": {**stored, **self.find_refusals(endpoint), refusal: _today()}}})

    def find_abilities(self, endpoint: Endpoint) -> Mapping[str, bool]:
        """Return what the server's list says the model can do, as far as it says: tools, forced_tools, schema,
        vision, effort, caching."""
        listed = self._find(endpoint).get("abilities", {})
        return {name: value for name, value in listed.items() if isinstance(value, bool)}

    def remember_abilities(self, endpoint: Endpoint, models: Mapping[str, Mapping[str, bool]]) -> None:
        """Store what the models of a server can do, by their names. endpoint.model is not used."""
        keys = {model: _key_of(replace(endpoint, model=model)) for model in models}
        self._store({keys[model]: {"abilities": {**named, "date": _today()}} for model, named in models.items()})

    def _find(self, endpoint: Endpoint) -> EndpointFacts:
        if self._entries is None:
            self._entries = self._read()
        return self._entries.get(_key_of(endpoint), {})

    def _store(self, added: Mapping[str, EndpointFacts]) -> None:
        """Add to what this and other processes know. A file that cannot be written costs another refusal, no more."""
        self._entries = _merge((self._entries or {}) | self._read(), added)
        try:
            if self._path is not None:
                with lock_file(self._path):
                    replace_file(self._path, json.dumps(_merge(self._read(), added), indent=1) + "\n")
        except MassmemError as e:
            log.info("what was learnt of models cannot be stored: %s", e)

    def _read(self) -> dict[str, EndpointFacts]:
        """Return what the file holds; a damaged one, or part of one, counts as empty."""
        entries: Mapping[str, Any] = {}
        with suppress(OSError, ValueError):
            entries = parse_object(self._path.read_text("utf-8") if self._path else "") or {}
        return {key: _read_entry(cast("dict[str, object]", e)) for key, e in entries.items() if isinstance(e, dict)}


def _merge(entries: Mapping[str, EndpointFacts], added: Mapping[str, EndpointFacts]) -> dict[str, EndpointFacts]:
    return {**entries, **{key: {**entries.get(key, {}), **entry} for key, entry in added.items()}}


def _read_entry(fields: Mapping[str, object]) -> EndpointFacts:
    return {name: cast("dict[str, Any]", value) for name, value in fields.items() if isinstance(value, dict)}


def _key_of(endpoint: Endpoint) -> str:
    return _redact(f"{endpoint.base_url} {endpoint.model}")


@lru_cache(1000)
def _redact(address: str) -> str:
    """Return the key of an address and model, which each request looks up several times."""
    return redact(address)


def _today() -> str:
    return now().date().isoformat()


def _is_recent(day: str) -> bool:
    try:
        return date.fromisoformat(day) > now().date() - timedelta(days=DAYS)
    except ValueError:
        return False
