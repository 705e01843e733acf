"""A session as a retention test drives it: texts go in one after the other, the model behind it sees the prompts."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any, ClassVar

from massmem.config.models import TeamConfig
from massmem.core.events import TurnCompleted, TurnFailed
from massmem.session.session import Session

AGENT = "agent"
RECALLED = 250
"""Tokens that may be recalled; the default is 1,000."""


class Massmem:
    """One agent in one session on a server at `base_url`. What is sent to it is massmem's own doing.

    The window is not in the configuration: it is learnt from the server, as with most servers.
    """

    settings: ClassVar[dict[str, Any]] = {}

    def __init__(self, base_url: str, workdir: str) -> None:
        backend = {"type": "openai", "model": "stub", "base_url": base_url, "api_key": "none", **self.settings}
        memory = {"retrieval": {"max_tokens": RECALLED}}
        team = {
            "agents": [{"id": AGENT, "backend": backend}],
            "memory": memory,
            "store": {"url": f"sqlite:///{workdir}/log.db"},
        }
        self._runner = asyncio.Runner()
        self._session = self._runner.run(Session.open(TeamConfig.model_validate(team), home=Path(workdir) / "home"))

    def say(self, text: str) -> str:
        """One user turn; returns the answer."""
        return self._runner.run(self._ask(text))

    def tool(self, name: str, text: str) -> None:
        """A tool's result arrives between two turns."""
        self._runner.run(self._session.add_tool_result(AGENT, name, text))

    def close(self) -> None:
        self._runner.run(self._session.close())
        self._runner.close()

    async def _ask(self, text: str) -> str:
        async with aclosing(self._session.ask(text)) as events:
            async for event in events:
                match event:
                    case TurnCompleted():
                        return event.answer
                    case TurnFailed():
                        raise RuntimeError(event.message)
                    case _:
                        pass
        raise RuntimeError("the turn did not end")


class Configured(Massmem):
    """The same, with the window in the configuration."""

    settings: ClassVar[dict[str, Any]] = {"context_window": 8_000}
