"""Offers real `massmem ui` processes: `start_page` for tests, with requests as the page sends them."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from massmem.config.presets import PROVIDERS_BY_KEY
from massmem.providers.weights import DEFAULT
from tests.support.forked import ForkedServer
from tests.support.service import wait_until

StartPage = Callable[..., "Page"]
"""Starts a `Page` with this configuration; it is stopped at the end of the test."""

FROM_PAGE = {"X-Massmem-Page": "1"}
MODEL = f"/{DEFAULT.repository}/resolve/main/{DEFAULT.file}"
"""Path of the embedded model at a hub."""


def hide_models(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Leave a page nothing to answer with: no key, no model in this folder, no package index to fetch one from."""
    for variable, _, _ in PROVIDERS_BY_KEY:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("MASSMEM_MODELS", str(folder / "models"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")


class Page:
    """One `massmem ui`. Pages in one folder share a home, and with it a store."""

    def __init__(self, folder: Path, config: Mapping[str, Any] | None, *options: str) -> None:
        """config: None: nothing is set up."""
        self.home = folder / "home"
        self.home.mkdir(exist_ok=True)
        file = folder / "page.yaml"
        if config is not None:
            file.write_text(yaml.safe_dump(dict(config)))
            options = ("--config", str(file), *options)
        arguments = ("ui", "--no-browser", *options)
        out, self._log = folder / "page.out", folder / "page.log"
        out.write_bytes(b"")
        self.process = ForkedServer(arguments, os.environ | {"HOME": str(self.home)}, self._log, out)
        wait_until(lambda: out.read_bytes().endswith(b"\n") or self.process.poll() is not None)
        self.address = out.read_text().strip()
        """With the token; it works once."""
        self.url, _, self.token = self.address.partition("/#token=")
        self.key = ""
        """With which a browser comes back that was let in; "": none was."""

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def enter(self) -> requests.Session:
        """Use the token; return who may ask then."""
        visitor = requests.Session()
        visitor.headers.update(FROM_PAGE)
        entered = visitor.post(f"{self.url}/page/enter", json={"token": self.token}, timeout=60)
        assert entered.status_code == 204, entered.text
        self.key = entered.headers.get("X-Massmem-Key", "")
        return visitor

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        assert self.process.wait(120) == 0, self._log.read_text()


@pytest.fixture
def start_page(tmp_path: Path) -> Iterator[StartPage]:
    pages: list[Page] = []

    def start(config: Mapping[str, Any] | None, *options: str) -> Page:
        pages.append(Page(tmp_path, config, *options))
        return pages[-1]

    yield start
    for page in pages:
        if page.process.poll() is None:
            page.stop()
