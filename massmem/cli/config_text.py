"""The text of a new configuration: short, commented, and without a secret."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from massmem.cli.candidates import Draft

_ROLES = (
    ("researcher", "You know the subject. Give the facts that decide the question, and say how sure each one is."),
    ("skeptic", "You look for what is wrong, missing or out of date, and you correct it."),
    ("editor", "You answer exactly what was asked, shortly, with one example where it helps."),
)

_HEAD = """\
# Made by `massmem init` on {day}. Change what you like, then:
#   massmem config validate{file}      is it right?
#   massmem doctor{config}               does it work?
#   massmem config show{file}          every setting there is, and where its value comes from
"""
_REST = """\

coordination:
  max_rounds: {rounds}               # the first answers, the last only votes; more improve answers, and cost more
  presentation: synthesize    # the winner writes the final answer from all; as_is: its answer unchanged, a request less
  timeout: {timeout}                # seconds for a whole turn

memory:
  enabled: true               # what was said is found again in later turns, word for word, without any model
  # persistent_memory:
  #   session_name: null      # recall from all your sessions, not only from the one under way
"""
_EXTRACTION = """\
  persistent_memory:
    # session_name: null      # recall from all your sessions, not only from the one under way
    llm:                      # extracts facts after each turn
      provider: {provider}
      model: {model}
      api_key: {key}
"""
_STORE = """\

# store:
#   url: postgresql://user@host/massmem   # left out: ~/.massmem/massmem.db; also redis://...
"""

EXTRACTORS = {"openai": "gpt-4.1-nano-2025-04-14", "anthropic": "claude-haiku-4-5", "deepseek": "deepseek-chat"}
"""Providers whose facts need no package beyond massmem[memory], and a cheap model of each."""


def config_text(backends: Sequence[Draft], file: str = "", schema: str = "", extractor: Draft | None = None) -> str:
    """A whole configuration of three agents.

    file: its path where massmem does not find it by itself. schema: the file that editors check it with, "" for none.
    extractor: whose provider turns what was said into facts.
    """
    slow = any(draft.type == "local" for draft in backends)
    head = _HEAD.format(
        day=datetime.now().astimezone().date(),
        file=f" {file}" if file else "",
        config=f" --config {file}" if file else "",
    )
    rest = _REST.format(rounds=2 if slow else 3, timeout=900 if slow else 600)
    if extractor is not None:
        llm = _EXTRACTION.format(provider=extractor.type, model=EXTRACTORS[extractor.type], key=f"${{{extractor.key}}}")
        rest = rest[: rest.index("  # persistent_memory:")] + llm
    lines = [f"# yaml-language-server: $schema={schema}\n"] if schema else []
    return "".join([*lines, head, "\nagents:\n", *_agents(backends), rest, _STORE])


def _agents(backends: Sequence[Draft]) -> Iterator[str]:
    """The same backend is written once and named after that."""
    names: dict[Draft, str] = {}
    for i, (id_, message) in enumerate(_ROLES):
        draft = backends[i % len(backends)]
        known = names.get(draft)
        yield f"  - id: {id_}\n"
        if known is None:
            names[draft] = known = f"model_{len(names) + 1}"
            yield f"    backend: &{known}\n"
            yield "".join(f"      {line}\n" for line in _backend(draft))
        else:
            yield f"    backend: *{known}\n"
        yield f"    system_message: {message}\n\n" if i + 1 < len(_ROLES) else f"    system_message: {message}\n"


def _backend(draft: Draft) -> Iterator[str]:
    yield f"type: {draft.type}"
    if draft.model:
        yield f"model: {json.dumps(draft.model, ensure_ascii=False).replace('${', '$${')}"  # as it is: no reference
    if draft.base_url:
        yield f"base_url: {draft.base_url}"
    if draft.key:
        yield f"api_key: ${{{draft.key}}}    # from the environment or .env; a key itself is not for this file"
    match draft.type:
        case "local":
            yield "# model: /path/to/any.gguf   # left out: the embedded model"
            yield "temperature: 0.6             # different enough answers to choose from"
            yield "max_tokens: 300              # bounds the time of a reply"
            yield "timeout: 300                 # seconds without progress"
        case "ollama" | "lmstudio" | "vllm" | "llamacpp":
            now = f"; it says {draft.window:,} now" if draft.window else ""
            yield f"# context_window: 16384   # tokens; left out: asked from the server{now}"
            yield "timeout: 300              # seconds without a byte; a cold model takes long to load"
        case _:
            yield "# max_tokens: 2000        # of one reply"
