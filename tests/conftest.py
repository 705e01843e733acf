"""What every test gets: its own HOME, no keys in the environment, no network but loopback, logging as it was."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.browser import browser  # noqa: F401  a fixture for whoever names it
from tests.support.collector import collector  # noqa: F401  a fixture for whoever names it
from tests.support.page import start_page  # noqa: F401  a fixture for whoever names it
from tests.support.postgres_server import (  # noqa: F401  fixtures for whoever names them
    _postgres_programs,
    postgres,
    start_postgres,
)
from tests.support.provider_stub import stub  # noqa: F401  a fixture for whoever names it
from tests.support.redis_server import (  # noqa: F401  fixtures for whoever names them
    _redis_program,
    redis_server,
    start_redis,
)
from tests.support.service import start_service  # noqa: F401  a fixture for whoever names it
from tests.support.stores import (  # noqa: F401  fixtures for whoever names them
    _databases,
    kind,
    new_place,
)

# How long an example takes says more about the machine than about it.
settings.register_profile(
    "massmem", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("massmem")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples where the long loops are left out too."""
    if "not full" in config.option.markexpr:
        settings.register_profile("short", settings.get_profile("massmem"), max_examples=25)
        settings.load_profile("short")


# A shell lets programs in its background ignore these, and every program that a test starts would ignore them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup

# Modules and tests live to the end: looking at them again and again takes a third of the time of a collection.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)  # what tests leave is little, and looking for it takes a twentieth of their time
    gc.enable()


_KEY_SUFFIXES = ("_API_KEY", "_API_TOKEN", "REDIS_PASSWORD")
_LOOPBACK = {"127.0.0.1", "::1", "localhost", ""}

# Model files are large and belong to the machine, not to a test.
os.environ.setdefault("MASSMEM_MODELS", str(Path.home() / ".massmem" / "models"))


def _refuse_foreign_hosts(event: str, args: tuple[object, ...]) -> None:
    if event == "socket.connect":
        address = args[1]
        host = address[0] if isinstance(address, tuple) else ""
    elif event == "socket.getaddrinfo":
        host = args[0]
    else:
        return
    name = host.decode() if isinstance(host, bytes) else host
    if name is not None and name not in _LOOPBACK:
        raise ConnectionRefusedError(f"tests may only reach loopback, not {name!r}")


sys.addaudithook(_refuse_foreign_hosts)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh HOME; returns it."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    for name in list(os.environ):
        if name.endswith(_KEY_SUFFIXES) or name.startswith("CONVERSATION_HISTORY_"):
            monkeypatch.delenv(name)
    return folder


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The program logs to its file until it ends. When a test runs it in this process, that is here."""
    root, ours = logging.getLogger(), logging.getLogger("massmem")
    handlers, levels, raises = set(root.handlers), (root.level, ours.level), logging.raiseExceptions
    yield
    for handler in set(root.handlers) - handlers:
        root.removeHandler(handler)
        handler.close()
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.raiseExceptions = raises
