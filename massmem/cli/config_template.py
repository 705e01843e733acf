"""The text of a new configuration: short, commented, and without secrets."""

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
# Written by `massmem init` on {day}. Change what you like, then:
#   massmem config validate{file}      is it valid?
#   massmem doctor{config}               does it work?
#   massmem config show{file}          every setting and the origin of its value
"""
_REST = """\

coordination:
  max_rounds: {rounds}               # 1: first answers; last: votes only; rounds between improve answers, and cost more
  presentation: synthesize    # the winner writes the final answer from all; as_is: its answer unchanged, cheaper
  timeout: {timeout}                # seconds for a whole turn

memory:
  enabled: true               # later turns recall earlier messages word for word, without any model
  # persistent_memory:
  #   session_name: null      # recall from all your sessions, not only from the current one
"""
_EXTRACTION = """\
  persistent_memory:
    # session_name: null      # recall from all your sessions, not only from the current one
    llm:                      # extracts facts after each turn
      provider: {provider}
      model: {model}
      api_key: {key}
"""
_STORE = """\

# store:
#   url: postgresql://user@host/massmem   # default: ~/.massmem/massmem.db; also redis://...
"""

EXTRACTORS = {"openai": "gpt-4.1-nano-2025-04-14", "anthropic": "claude-haiku-4-5", "deepseek": "deepseek-chat"}
"""Providers of fact extraction that need no package beyond massmem[memory], with a cheap model of each."""


def format_config(backends: Sequence[Draft], file: str = "", schema: str = "", extractor: Draft | None = None) -> str:
    """Return a complete configuration of three agents.

    Args:
        file: its path, when massmem does not find it by itself.
        schema: the schema file for editors, "" for none.
        extractor: the backend whose provider extracts facts.
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
    return "".join([*lines, head, "\nagents:\n", *_format_agents(backends), rest, _STORE])


def _format_agents(backends: Sequence[Draft]) -> Iterator[str]:
    """Yield the agents; a backend is written once, and later agents refer to its YAML anchor."""
    anchors: dict[Draft, str] = {}
    for i, (id_, message) in enumerate(_ROLES):
        draft = backends[i % len(backends)]
        yield f"  - id: {id_}\n"
        if draft in anchors:
            yield f"    backend: *{anchors[draft]}\n"
        else:
            anchors[draft] = f"model_{len(anchors) + 1}"
            yield f"    backend: &{anchors[draft]}\n"
            yield "".join(f"      {line}\n" for line in _format_backend(draft))
        yield f"    system_message: {message}\n\n" if i + 1 < len(_ROLES) else f"    system_message: {message}\n"


def _format_backend(draft: Draft) -> Iterator[str]:
    yield f"type: {draft.type}"
    if draft.model:
        escaped = json.dumps(draft.model, ensure_ascii=False).replace("${", "$${")  # not a reference to a variable
        yield f"model: {escaped}"
    if draft.base_url:
        yield f"base_url: {draft.base_url}"
    if draft.key:
        yield f"api_key: ${{{draft.key}}}    # from the environment or .env; do not write the key itself here"
    match draft.type:
        case "local":
            yield "# model: /path/to/any.gguf   # default: the embedded model"
            yield "temperature: 0.6             # makes the answers differ enough to choose from"
            yield "max_tokens: 300              # limits the time of a reply"
            yield "timeout: 300                 # seconds without progress"
        case "ollama" | "lmstudio" | "vllm" | "llamacpp":
            current = f"; now {draft.window:,}" if draft.window else ""
            yield f"# context_window: 16384   # tokens; default: asked from the server{current}"
            yield "timeout: 300              # seconds without a byte; a cold model takes long to load"
        case _:
            yield "# max_tokens: 2000        # of one reply"
