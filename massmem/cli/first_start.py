"""The first start on the page, while nothing is set up: what `massmem init` offers in a terminal, over HTTP."""

import asyncio
import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from massmem.cli.init import RUNTIME, Prompter, choose_team, find_candidates, probe_models, replace_config
from massmem.cli.keys import store_key, to_variable
from massmem.cli.streams import notify
from massmem.config.load import default_config_path
from massmem.config.presets import PROVIDERS_BY_KEY
from massmem.core.errors import MassmemError
from massmem.providers.downloads import fetch_weights, list_sources
from massmem.providers.weights import DEFAULT, models_folder
from massmem.server.dependencies import Authorized, Caller, CheckedRoute
from massmem.server.errors import Rejected
from massmem.server.schemas import SmallBody

if TYPE_CHECKING:
    from fastapi import FastAPI


class Choice(SmallBody):
    team: str = ""
    """One of those that are offered; empty: the first one that the key, or the model that is fetched, allows."""
    key: str = ""
    """Empty: without a team, the model that runs inside massmem is fetched."""
    provider: str = ""


class _Answer(Prompter):
    """Answers as the user has chosen on the page."""

    def __init__(self, label: str) -> None:
        super().__init__(silent=True)
        self._label = label

    def choose(self, question: str, options: Sequence[str]) -> int:
        return options.index(self._label) if self._label in options else 0


class FirstStart:
    def __init__(self, home: Path) -> None:
        self._home = home
        self._is_busy = False
        self._fetched: int | None = None
        """Bytes of the model that are there; None: it is not being fetched."""

    def add_to(self, app: "FastAPI") -> None:
        """Add the routes. Once a team is set up, the application ends, and is started anew with it."""
        from fastapi import APIRouter

        self._app = app
        router = APIRouter(route_class=CheckedRoute, prefix="/api/v1/setup", include_in_schema=False)
        router.get("")(self.show_offers)
        router.post("", status_code=204)(self.choose)
        app.include_router(router)

    async def show_offers(self, caller: Authorized) -> dict[str, Any]:
        self._require_owner(caller)
        choices = [] if self._is_busy else (await find_candidates(os.environ)).list_choices()
        providers = dict.fromkeys(provider for _, provider, _ in PROVIDERS_BY_KEY)
        size = DEFAULT.size if find_spec(RUNTIME) else None
        labels = [choice.label for choice in choices]
        return {"choices": labels, "providers": [*providers], "download": size, "fetched": self._fetched}

    async def choose(self, body: Choice, caller: Authorized) -> None:
        self._require_owner(caller)
        self._is_busy = True
        try:
            await asyncio.to_thread(self._set_up, body)
        except MassmemError as e:
            raise Rejected(400, f"{e.message.rstrip('.')}. {e.hint}") from e
        finally:
            self._is_busy = False
        self._app.state.is_done = True

    def _require_owner(self, caller: Caller) -> None:
        if not (caller.is_local and caller.service.settings.first_start) or self._app.state.is_done:
            raise Rejected(404, "there is nothing to set up")

    def _set_up(self, body: Choice) -> None:
        """Configure a team, and try its models. Raise MassmemError, with nothing configured: one does not answer."""
        path, key = default_config_path(self._home), body.key.strip()
        variable = to_variable(body.provider) if key else ""
        try:
            if key:
                os.environ[variable] = key
            elif not body.team:
                self._fetched = 0
                fetch_weights(DEFAULT, list_sources(DEFAULT), models_folder(), self._show, notify)
            candidates = asyncio.run(find_candidates(os.environ))
            team = replace_config(path, choose_team(path, self._home, candidates, _Answer(body.team)))
            for _, result in asyncio.run(probe_models(team)):
                if isinstance(result, MassmemError):
                    raise result
            if key:
                store_key(self._home, variable, key)
        except MassmemError:
            path.unlink(missing_ok=True)
            os.environ.pop(variable, None)
            self._fetched = None
            raise

    def _show(self, done: int, _total: int | None) -> None:
        self._fetched = done
