"""What may stand in `backend.web_search`: each mistake has its line, and words to write instead."""

from pathlib import Path

import pytest

from massmem.config.load import load_config
from massmem.config.models import BackendConfig
from massmem.config.web_search import SEARCHES, WebSearchConfig
from tests.support.configs import problems

HEAD = "agents:\n  - id: a\n    backend:\n      "
INSTEAD = "mcp_servers: [{name: web, command: uvx, args: [duckduckgo-mcp-server]}]"
NO_SEARCH = ["groq", "together", "deepseek", "mistral", "fireworks", "cerebras", "ollama", "lmstudio", "vllm", "local"]


@pytest.mark.parametrize("kind", NO_SEARCH)
def test_provider_without_a_search_names_what_to_do(tmp_path: Path, kind: str) -> None:
    (problem,) = problems(tmp_path, f"{HEAD}type: {kind}\n      model: m\n      web_search: true\n")
    assert problem.startswith(f"team.yaml:6: agents.0.backend.web_search: type {kind} has no search of its own")
    assert INSTEAD in problem


def test_tool_server_that_it_names_can_be_pasted(tmp_path: Path) -> None:
    path = tmp_path / "team.yaml"
    path.write_text(f"{HEAD}{{type: groq, model: m}}\n    {INSTEAD}\n")
    assert load_config(path, {})[0].agents[0].mcp_servers[0].command == "uvx"


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ("https://example.com/a", "is an address and not a domain: write example.com"),
        ("example.com/a", "is an address and not a domain: write example.com"),
        ("example.com:443", "is an address and not a domain: write example.com"),
        ("*.example.com", "has a wildcard: write example.com, which stands for all names below it too"),
        ("example.*", "has a wildcard: write a name such as example.com, which stands for all names below it too"),
        (" ", "is blank: write a name such as example.com"),
        (" example.com", "is no domain: write example.com"),
        (".example.com", "is no domain: write example.com"),
        ("example", "is no domain: write a name such as example.com"),
        ("exa mple.com", "is no domain: write a name such as example.com"),
        ("10.0.0.1", "is no domain: write a name such as example.com"),
    ],
)
def test_text_that_is_no_domain_has_its_line(tmp_path: Path, domain: str, message: str) -> None:
    text = (
        f"{HEAD}type: openai\n      web_search:\n        allowed_domains:\n        - ok.example\n        - '{domain}'\n"
    )
    assert problems(tmp_path, text) == [f"team.yaml:8: agents.0.backend.web_search.allowed_domains.1: {message}"]


@pytest.mark.parametrize(
    ("kind", "search", "where", "message"),
    [
        ("gemini", "{max_uses: 3}", ".max_uses", "the search of gemini has no max_uses; write web_search: true"),
        ("gemini", "{location: {country: PT}}", ".location", "the search of gemini has no location"),
        ("grok", "{max_uses: 3}", ".max_uses", "the search of grok has no max_uses; it has allowed_domains, blocked"),
        ("perplexity", "{location: {timezone: Europe/Lisbon}}", ".location.timezone", "takes country, region, city"),
        ("anthropic", "{allowed_domains: [a.com], blocked_domains: [b.com]}", ".blocked_domains", "not both"),
        ("grok", "{blocked_domains: [a.com, b.com, c.com, d.com, e.com, f.com]}", ".blocked_domains", "5 at most"),
        ("openai", "{max_uses: 0}", ".max_uses", "must be greater than or equal to 1, not 0"),
        ("openai", "{max_use: 1}", ".max_use", "unknown key (did you mean 'max_uses'?)"),
        ("openai", "{location: {country: Portugal}}", ".location.country", "two capital letters"),
        ("openai", "sometimes", "", "must be true, false, or a mapping with max_uses"),
    ],
)
def test_option_that_a_provider_does_not_take_is_never_dropped(
    tmp_path: Path, kind: str, search: str, where: str, message: str
) -> None:
    (problem,) = problems(tmp_path, f"{HEAD}type: {kind}\n      model: m\n      web_search: {search}\n")
    assert problem.startswith(f"team.yaml:6: agents.0.backend.web_search{where}: ")
    assert message in problem


def test_chat_completions_cannot_search_where_the_responses_api_does(tmp_path: Path) -> None:
    (problem,) = problems(tmp_path, f"{HEAD}type: openai\n      web_search: true\n      api: chat\n")
    assert problem.startswith(
        "team.yaml:6: agents.0.backend.api: with web_search, openai is asked by the Responses API"
    )


@pytest.mark.parametrize("kind", SEARCHES)
def test_switch_stands_for_a_search_without_options(kind: str) -> None:
    assert BackendConfig.model_validate({"type": kind, "web_search": True}).web_search == WebSearchConfig()
    assert BackendConfig.model_validate({"type": kind, "web_search": False}).web_search is None
