"""What a user has forgotten or corrected comes back nowhere while another process has the index.

`massmem ui` has it; commands, a conversation in a terminal, `massmem mcp` and prompts look at the same time.
"""

import asyncio
import json
import os
import random
import re
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
from mcp import Client, StdioServerParameters, stdio_client

from massmem.config.load import load_config
from massmem.session.session import Session
from tests.support.cli import massmem
from tests.support.page import StartPage
from tests.support.service import make_agent
from tests.support.stores import KINDS, NewPlace

CASES = [
    ("sqlite", 6, 3),
    *(pytest.param(kind, 6, 3, marks=pytest.mark.slow) for kind in KINDS[1:]),
    *(pytest.param(kind, 18, 19, marks=pytest.mark.full) for kind in KINDS),
]
"""Kinds of stores, how many texts are taken back, and how often somebody looks after each: 1,026 times in all."""
OLD = re.compile(r"zq\d{5}x")
"""What a text that is not to come back has, and its question has not; "zq" alone can stand in a memory's id."""


def write_canary(number: int) -> str:
    return f"The locker of Canary{number} at the harbour opens with zq{number:05}x."


def write_new(number: int) -> str:
    return f"The locker of Canary{number} at the harbour opens with new{number:05}x."


class User:
    """Uses one memory through several processes."""

    def __init__(self, config: Path, page: str, visitor: requests.Session, client: Client) -> None:
        self._config, self._page, self._visitor, self._client = config, page, visitor, client

    async def run(self, *line: str, code: int = 0) -> str:
        done = await asyncio.to_thread(massmem, *line, "--config", str(self._config), text=True)
        assert done.returncode == code, done.stderr
        return done.stdout

    async def ask_page(self, method: str, path: str, **options: Any) -> Any:
        url = f"{self._page}/api/v1/{path}"
        answer = await asyncio.to_thread(self._visitor.request, method, url, timeout=60, **options)
        assert answer.ok, answer.text
        return answer.json() if answer.content else None

    @asynccontextmanager
    async def open_session(self, session_id: str | None = None) -> AsyncGenerator[Session]:
        """In this process."""
        config, _ = load_config(self._config)
        session = await Session.open(config, home=Path(os.environ["HOME"], ".massmem"), session_id=session_id)
        try:
            yield session
        finally:
            await session.close()

    async def tell(self, text: str) -> str:
        """Ask the council on the page; return the conversation."""
        return (await self.ask_page("POST", "chat", json={"message": text}))["session_id"]

    async def find(self, text: str) -> str:
        """Return the id of the newest memory that has the text."""
        async with asyncio.timeout(30):
            while True:
                listed = (await self.ask_page("GET", "memories", params={"limit": 200}))["memories"]
                if ids := [memory["id"] for memory in listed if text in memory["text"]]:
                    return ids[0]
                await asyncio.sleep(0.1)

    # Ways to look

    async def search(self, words: str) -> str:
        return await self.run("memory", "search", words, "--all", "--json")

    async def list(self, _: str) -> str:
        return await self.run("memory", "list", "--limit", "1000", "--json")

    async def search_page(self, words: str) -> str:
        return str(await self.ask_page("GET", "memories/search", params={"query": words, "all": True}))

    async def list_page(self, _: str) -> str:
        return str(await self.ask_page("GET", "memories", params={"limit": 200}))

    async def search_mcp(self, words: str) -> str:
        result = await self._client.call_tool("recall", {"query": words})
        assert not result.is_error, result.content
        return str(result.structured_content)

    async def read_prompts(self, words: str) -> str:
        """What the agents are sent when they are asked in a new conversation of this process."""
        async with self.open_session() as session:
            return str([context.prompt.messages() for context in (await session.preview(words)).values()])

    @property
    def looks(self) -> Sequence[Callable[[str], Any]]:
        return (self.read_prompts, self.search_page, self.search_mcp, self.read_prompts, self.list_page,
                self.read_prompts, self.search_mcp, self.search, self.search_page, self.list)  # fmt: skip


@asynccontextmanager
async def open_user(config: dict[str, Any], start_page: StartPage, folder: Path) -> AsyncGenerator[User]:
    page = start_page(config)
    path = folder / "team.yaml"
    path.write_text(json.dumps(config))
    environment = dict(os.environ)
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "massmem", "mcp", "--config", str(path)], env=environment
    )
    with (folder / "mcp.log").open("w") as errors:
        async with Client(stdio_client(parameters, errlog=errors)) as client:
            yield User(path, page.url, page.enter(), client)


async def change_one(user: User, number: int, source: Path) -> None:
    """Say a canary, and take it back in one of the ways there are, by one of the processes."""
    session_id = await user.tell(write_canary(number))
    memory = await user.find(f"zq{number:05}x")
    match number % 6:
        case 0:
            await user.run("memory", "forget", memory, "--yes")
            await user.run("sessions", "fork", session_id)
        case 1:
            await user.run("memory", "edit", memory, write_new(number))
            await user.run("sessions", "fork", session_id)
        case 2:
            await user.ask_page("PUT", f"memories/{memory}/pin")
            await user.run("memory", "unpin", memory)
            await user.ask_page("DELETE", f"memories/{memory}")
        case 3:
            await user.run("memory", "pin", memory)
            await user.ask_page("PATCH", f"memories/{memory}", json={"text": write_new(number)})
        case 4:
            async with user.open_session(session_id) as session:
                assert (await session.undo()).question == write_canary(number)
        case _:
            exported = [{"role": "user", "content": write_canary(number)}, {"role": "assistant", "content": "I see."}]
            source.write_text(json.dumps(exported))
            await user.run("import", str(source))
            await user.run("memory", "record")
            for _ in range(2):  # as it was said, and as it was imported
                await user.ask_page("DELETE", f"memories/{await user.find(f'zq{number:05}x')}")
            await user.run("import", str(source))
            await user.run("memory", "record")


@pytest.mark.parametrize(("kind", "texts", "looks"), CASES)
async def test_nothing_comes_back_while_another_process_has_the_index(
    new_place: NewPlace,
    kind: str,
    texts: int,
    looks: int,
    start_page: StartPage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    memory = {"persistent_memory": {"session_name": None, "embedding": {"model": "none"}}}
    config = {"agents": [make_agent("ann", "Noted.")], "memory": memory, "store": {"url": new_place()}}
    rng, returned = random.Random(5), list[tuple[int, int]]()
    async with open_user(config, start_page, tmp_path) as user:
        for last in range(texts):
            await change_one(user, last, tmp_path / "said.json")
            for number in range(last * looks, (last + 1) * looks):
                canary = rng.choice([last, rng.randint(0, last)])
                seen = await user.looks[number % len(user.looks)](f"How does the locker of Canary{canary} open?")
                returned += [(number, canary)] if OLD.search(seen) else []
                assert canary % 6 != 1 or f"new{canary:05}x" in seen, "what replaced it is shown"
    print(f"{kind}: {texts * looks} looks at {texts} texts that were taken back: {len(returned)} came back")
    assert not returned
