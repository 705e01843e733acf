"""The provider's own search of the web: its settings, and what each provider takes of them.

Each row of `SEARCHES` follows the provider's documentation, as read on 2026-11-26. docs/models.md has the table for
people.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

from pydantic import BeforeValidator, Field, field_validator

from massmem.config.section import Section

FIELDS = ("max_uses", "allowed_domains", "blocked_domains", "location")

_HOST = re.compile(r"(?=.{4,253}$)(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.)+[^\W\d_][\w-]{0,61}[^\W_]", re.IGNORECASE)

INSTEAD = (
    "Give the agent a tool server that searches, beside `backend`: "
    "`mcp_servers: [{name: web, command: uvx, args: [duckduckgo-mcp-server]}]`"
)
"""What an agent without a search of its own can have; this server needs no key."""


class SearchLocation(Section):
    country: str | None = None
    """Two letters, such as DE."""
    region: str | None = Field(default=None, min_length=1, max_length=100)
    """Region or state."""
    city: str | None = Field(default=None, min_length=1, max_length=100)
    """City."""
    timezone: str | None = None
    """Such as Europe/Berlin."""

    @field_validator("country")
    @classmethod
    def _check_country(cls, country: str | None) -> str | None:
        if country is not None and not re.fullmatch("[A-Z]{2}", country):
            raise ValueError("must be the two capital letters of a country, such as DE")
        return country

    @field_validator("timezone")
    @classmethod
    def _check_timezone(cls, timezone: str | None) -> str | None:
        if timezone is not None and not re.fullmatch(r"[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*", timezone):
            raise ValueError("must be the name of a time zone, such as Europe/Berlin")
        return timezone


class WebSearchConfig(Section):
    max_uses: int | None = Field(default=None, ge=1, le=100)
    """Most searches for one reply; left out: the provider decides."""
    allowed_domains: tuple[str, ...] = ()
    """Only pages of these domains and of those below them."""
    blocked_domains: tuple[str, ...] = ()
    """No pages of these domains and of those below them."""
    location: SearchLocation | None = None
    """About where the user is: country, region, city, timezone."""


def _read_switch(value: object) -> object:
    if isinstance(value, bool):
        return {} if value else None
    if not (value is None or isinstance(value, Mapping | WebSearchConfig)):
        raise ValueError(f"must be true, false, or a mapping with {', '.join(FIELDS)}")
    return cast("object", value)


WebSearch = Annotated[
    WebSearchConfig | None,
    BeforeValidator(_read_switch, json_schema_input_type=bool | WebSearchConfig | None),
]
"""true stands for a search without options."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a provider's search takes."""

    options: frozenset[str]
    """The fields of `WebSearchConfig` that it has."""
    most_domains: int = 0
    """0: nothing is said of a limit."""
    location: tuple[str, ...] = ("country", "region", "city", "timezone")
    """The fields of a location that it has."""


_ALL = frozenset(FIELDS)
SEARCHES: Mapping[str, Search] = {
    # filters.blocked_domains: https://developers.openai.com/api/docs/guides/tools-web-search
    "openai": Search(_ALL, 100),
    "azure_openai": Search(_ALL, 100),
    # https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool
    "anthropic": Search(_ALL),
    # https://ai.google.dev/gemini-api/docs/google-search; exclude_domains is for Vertex AI alone
    "gemini": Search(frozenset()),
    # https://docs.x.ai/developers/tools/web-search
    "grok": Search(_ALL - {"max_uses"}, 5),
    # https://openrouter.ai/docs/guides/features/server-tools/web-search
    "openrouter": Search(_ALL),
    # https://docs.perplexity.ai/guides/search-domain-filters
    "perplexity": Search(_ALL - {"max_uses"}, 20, ("country", "region", "city")),
    "scripted": Search(_ALL),
}


def find_problems(kind: str, backend: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield what is wrong with `web_search` of a backend of this type: the path below the backend, and the words.

    backend: as the file has it, valid or not. What is of a wrong type is left to the validation of types.
    """
    value: object = backend.get("web_search")
    if value is None or value is False or not (value is True or isinstance(value, Mapping)):
        return
    search, path = SEARCHES.get(kind), ("web_search",)
    if search is None:
        able = ", ".join(sorted(set(SEARCHES) - {"scripted"}))
        yield path, f"type {kind} has no search of its own (these have: {able}). {INSTEAD}"
        return
    if backend.get("api") == "chat" and kind in ("openai", "azure_openai", "grok"):
        yield ("api",), f"with web_search, {kind} is asked by the Responses API: leave out api, or write api: responses"
    options: Mapping[str, Any] = cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
    for name in FIELDS:
        if options.get(name) and name not in search.options:
            has = "it has " + ", ".join(sorted(search.options)) if search.options else "write web_search: true"
            yield (*path, name), f"the search of {kind} has no {name}; {has}"
    yield from _check_location(kind, search, options.get("location"))
    lists = {name: options.get(name) for name in ("allowed_domains", "blocked_domains")}
    if all(lists.values()):
        message = f"{kind} takes either allowed_domains or blocked_domains, not both: leave out one"
        yield (*path, "blocked_domains"), message
    for name, domains in lists.items():
        if isinstance(domains, list) and name in search.options:
            yield from _check_domains(kind, search, name, cast("list[object]", domains))


def _check_location(kind: str, search: Search, location: object) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(location, Mapping) and "location" in search.options:
        for name in cast("Mapping[str, Any]", location):
            if name in SearchLocation.model_fields and name not in search.location:
                message = f"the search of {kind} takes {', '.join(search.location)} of a location, not {name}"
                yield ("web_search", "location", name), message


def _check_domains(
    kind: str, search: Search, name: str, domains: list[object]
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if 0 < search.most_domains < len(domains):
        yield ("web_search", name), f"has {len(domains)} domains; {kind} takes {search.most_domains} at most"
    for place, domain in enumerate(domains):
        if isinstance(domain, str) and (reason := _explain_domain(domain)):
            yield ("web_search", name, place), reason


def _explain_domain(domain: str) -> str:
    """Return why a text is no domain, and what to write instead; "" for a domain."""
    if _HOST.fullmatch(domain):
        return ""
    host = re.sub(r"^\w+://", "", domain.strip()).partition("/")[0].partition(":")[0].rpartition("@")[2]
    host = host.removeprefix("*").strip(".").lower()
    write = f": write {host}" if _HOST.fullmatch(host) else ": write a name such as example.com"
    if not domain.strip():
        return f"is blank{write}"
    if "*" in domain:
        return f"has a wildcard{write}, which stands for all names below it too"
    if "/" in domain or ":" in domain:
        return f"is an address and not a domain{write}"
    return f"is no domain{write}"
