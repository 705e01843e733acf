"""Tests that say what runs on this machine need it to run nothing else."""

import socket
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from massmem.providers.discovery import list_usual_addresses


def skip_beside_model_servers() -> None:
    """Skip where something listens at the usual port of a model server, Ollama's aside, which tests move away."""
    for type_, url in list_usual_addresses({"OLLAMA_HOST": "127.0.0.1:9"}):
        parts = urlsplit(url)
        with suppress(OSError), socket.create_connection((parts.hostname, parts.port or 80), 0.5):
            pytest.skip(f"something listens where {type_} usually is: {url}")
