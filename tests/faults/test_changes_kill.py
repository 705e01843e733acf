"""SIGKILL while a user changes what is stored: nothing else is lost, and the same command again does it once."""

import asyncio
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest

from massmem.config.load import load_config
from massmem.session.session import Session
from massmem.store import open_store
from tests.contract.test_session_store import everything
from tests.support.cli import call_massmem
from tests.support.forked import ForkedMassmem, processes
from tests.support.recorded_sessions import TEAM, record_sessions
from tests.support.verdict import check

TURNS = 3
SESSION, OTHER = "session_20260101_100000", "session_20260101_110000"
LONGEST = 1.0
"""Seconds after its start in which a command is killed; adapted to how long it takes here."""
NEW = "The barn owl of the mill is called Quillon."
EXPORTED = [
    {"role": role, "content": f"{text} {number} of the letters"} for number in range(6) for role, text in
    (("user", "Question"), ("assistant", "Answer"))
]  # fmt: skip
COMMANDS = ("add", "edit", "pin", "unpin", "forget", "import", "fork", "export", "undo", "rename")
NAME = "Kites of the oak"


def kite(name: str, turn: int) -> str:
    return f"Kite {turn} of {name} nests in an oak."


@dataclass(frozen=True)
class User:
    folder: Path
    copy: Path
    memory: str
    """Id of the memory of the first turn."""
    pinned: str

    def restore(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.copy, self.folder)


@pytest.fixture
def user(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> User:
    """massmem's folder with two sessions, recorded; one of the memories is pinned."""
    monkeypatch.chdir(tmp_path)
    turns = {name: [(kite(name, turn), f"Answer {turn}.") for turn in range(1, TURNS + 1)] for name in (SESSION, OTHER)}
    folder = record_sessions(home, turns)
    Path("letters.jsonl").write_text("\n".join(map(json.dumps, EXPORTED)))
    text = Path("team.yaml").read_text().replace("embedding", "session_name: null, embedding")
    Path("team.yaml").write_text(text)
    ids = {memory["text"]: memory["id"] for memory in list_memories()}
    first, second = ids[kite(SESSION, 1)], ids[kite(SESSION, 2)]
    assert call_massmem("memory", "pin", second, *TEAM).returncode == 0
    shutil.copytree(folder, tmp_path / "copy")
    return User(folder, tmp_path / "copy", first, second)


def list_memories() -> list[dict[str, Any]]:
    return json.loads(call_massmem("memory", "list", "--limit", "1000", "--json", *TEAM).stdout)["memories"]


def write_command(kind: str, user: User) -> tuple[str, ...]:
    match kind:
        case "add":
            return "memory", "add", NEW, *TEAM
        case "edit":
            return "memory", "edit", user.memory, NEW, *TEAM
        case "pin":
            return "memory", "pin", user.memory, *TEAM
        case "unpin":
            return "memory", "unpin", user.pinned, *TEAM
        case "forget":
            return "memory", "forget", user.memory, "--yes", *TEAM
        case "import":
            return "import", "letters.jsonl", *TEAM
        case "fork":
            return "sessions", "fork", SESSION, *TEAM
        case "rename":
            return "sessions", "rename", SESSION, NAME, *TEAM
        case _:
            return "sessions", "export", SESSION, "--output", "session.json", *TEAM


class Undo:
    """A process that undoes the last turn, as /undo does."""

    def __init__(self) -> None:
        self._begins = processes.Event()
        arguments = (Path.cwd(), Path("~").expanduser(), self._begins)
        self._process = processes.Process(target=run_undo, args=arguments, daemon=True)
        self._process.start()
        self.exit_code: int | None = None

    def join(self, seconds: float) -> None:
        """Wait until it undoes, and then for so many seconds."""
        self._begins.wait(60)
        self._process.join(seconds)

    def kill(self) -> list[bytes]:
        self._process.kill()
        self._process.join()
        self.exit_code = self._process.exitcode
        return []


def run_undo(folder: Path, home: Path, begins: Event) -> None:
    os.environ["HOME"] = str(home)
    asyncio.run(undo(folder, home, begins))


async def undo(folder: Path, home: Path, begins: Event) -> None:
    config, _ = load_config(str(folder / "team.yaml"))
    async with await Session.open(config, home=home / ".massmem", session_id=SESSION) as session:
        begins.set()
        await session.undo()


def start(kind: str, user: User) -> ForkedMassmem | Undo:
    return Undo() if kind == "undo" else ForkedMassmem(*write_command(kind, user))


@pytest.mark.parametrize("kind", COMMANDS)
@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.full)])
def test_change_that_was_killed_is_made_once_or_not_at_all(user: User, kind: str, times: int):
    counts: Counter[str] = Counter()
    longest = LONGEST
    for round_ in range(times):
        user.restore()
        Path("session.json").unlink(missing_ok=True)
        child = start(kind, user)
        child.join(random.Random(round_).uniform(0, longest))
        lines = child.kill()
        is_whole = child.exit_code != -signal.SIGKILL
        longest *= 0.7 if is_whole else 1.3
        counts["whole"] += is_whole
        counts.update(find_wrong(kind, user, is_whole=is_whole, lines=lines))
    check(f"{kind}, {times} kills", counts, "twice")


def find_wrong(kind: str, user: User, *, is_whole: bool, lines: Sequence[bytes]) -> Counter[str]:
    """Count what is wrong after a kill, and after the same command again."""
    counts: Counter[str] = Counter()
    counts["lost"] += asyncio.run(count_lost(user.folder))
    if kind in ("edit", "pin", "unpin"):  # what is in the log is shown by the next command
        counts["lie"] += asyncio.run(has_note(user.folder, kind)) != is_changed(kind, list_memories(), user)
    if kind in ("edit", "pin", "unpin", "forget"):
        again = call_massmem(*write_command(kind, user))
        counts["lie"] += again.returncode not in (0, 2)  # 2: it has this text already, or is gone
    elif kind == "import":
        counts["lie"] += call_massmem(*write_command(kind, user)).returncode != 0
    if kind in ("add", "import"):
        assert call_massmem("memory", "record", *TEAM).returncode == 0
    listed = list_memories()
    texts = [memory["text"] for memory in listed]
    messages = asyncio.run(read_messages(user.folder))
    match kind:
        case "add":
            stored, recorded = count_messages(messages, NEW), count_texts(texts, NEW)
            counts["lie"] += is_whole and stored != 1
            counts["lost"] += max(0, stored - recorded)
            counts["twice"] += max(0, recorded - stored, stored - 1)
        case "edit" | "pin" | "unpin" | "forget":
            counts["lie"] += not is_changed(kind, listed, user)
            counts["twice"] += len(texts) - len(set(texts))
        case "import":
            for message in EXPORTED:
                copies = count_messages(messages, message["content"])
                is_answer = message["role"] == "assistant"  # it stands in the log as an answer, and as the final one
                counts["lost"] += copies == 0
                counts["twice"] += copies > 1 + is_answer
                counts["lie"] += count_texts(texts, message["content"]) != 1
        case "fork":
            forks = {name: of_session for name, of_session in messages.items() if name != OTHER}
            printed = [line.decode().strip() for line in lines]
            counts["lie"] += sum(name not in forks for name in printed)
            counts["ghost"] += sum(forks[name] != forks[SESSION] for name in forks)
            counts["twice"] += max(0, len(forks) - 3)
        case "export":
            if Path("session.json").exists():
                counts["lie"] += len(json.loads(Path("session.json").read_text())["turns"]) != TURNS
        case "rename":
            title = asyncio.run(read_title(user.folder))
            counts["lie"] += is_whole and title != NAME
            listed_names = json.loads(call_massmem("--list-sessions", "--json").stdout)
            counts["lie"] += [one["description"] for one in listed_names if one["session_id"] == SESSION] != [title]
        case _:
            undone = asyncio.run(count_undone(user.folder))
            counts["lie"] += is_whole and undone != 1
            counts["twice"] += max(0, undone - 1)
            counts["ghost"] += undone and count_texts(texts, kite(SESSION, TURNS))
            counts["lost"] += not undone and not count_texts(texts, kite(SESSION, TURNS))
    counts["lost"] += max(0, 2 * TURNS - count_texts(texts, "Kite") - (kind in ("edit", "forget", "undo")))
    return counts


def is_changed(kind: str, listed: Sequence[dict[str, Any]], user: User) -> bool:
    texts, pinned = [memory["text"] for memory in listed], {memory["id"] for memory in listed if memory["pinned"]}
    match kind:
        case "edit":
            return texts.count(NEW) == 1 and kite(SESSION, 1) not in texts
        case "forget":
            return kite(SESSION, 1) not in texts
        case "pin":
            return pinned == {user.memory, user.pinned}
        case _:
            return pinned == set()


def count_texts(texts: Sequence[str], part: str) -> int:
    return sum(part in text for text in texts)


def count_messages(messages: Mapping[str, Sequence[str]], text: str) -> int:
    return sum(message == text for of_session in messages.values() for message in of_session)


async def read_messages(folder: Path) -> dict[str, list[str]]:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    names = [session.session_id for session in await store.list_sessions()]
    texts = {name: [message.content for message in await everything(store, name)] for name in names}
    await store.close()
    return texts


async def count_lost(folder: Path) -> int:
    """Count turns of the two sessions that are gone from the log."""
    texts = await read_messages(folder)
    return sum(kite(name, n) not in texts.get(name, ()) for name in (SESSION, OTHER) for n in range(1, TURNS + 1))


async def has_note(folder: Path, action: str) -> bool:
    """Return whether the log says that the user did this last."""
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    messages = await store.read_turn_messages(SESSION, 0)
    await store.close()
    return messages[-1].metadata["memory_change"]["action"] == action and len(messages) == 2  # one is of the fixture


async def read_title(folder: Path) -> str:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    session = await store.get_session(SESSION)
    await store.close()
    assert session is not None
    return session.title


async def count_undone(folder: Path) -> int:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    turns = await store.list_turns(SESSION)
    await store.close()
    return sum(turn.status == "undone" for turn in turns)
