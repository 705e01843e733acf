"""Damaged pages of an SQLite store: told clearly, the file is left as it is, and what can be read of it is saved."""

import asyncio
import json
import random
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import InputError, StoreDamagedError
from massmem.core.events import TurnCompleted
from massmem.core.messages import make_attachment
from massmem.session.session import Session
from massmem.store import open_store
from massmem.store.recover import RECOVERED_STORE, recover
from tests.contract.test_session_store import done, session
from tests.support.cli import massmem
from tests.support.pictures import PNG
from tests.support.sample_turn import answer, begin
from tests.support.sessions import collect
from tests.support.turns import only
from tests.support.verdict import check

SESSIONS, TURNS = 12, 20


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "massmem.db"
    asyncio.run(_fill(path))
    return path


async def _fill(path: Path) -> None:
    store = await open_store(f"sqlite:///{path}", path.parent)
    for number in range(SESSIONS):
        name = f"session_{number}"
        await store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            said = answer(1, "ann", f"answer {turn} of {name} " + "word " * 60)
            await store.append(name, turn, [begin("ann", question=f"question {turn} of {name}"), said, done()])
    await store.close()


@pytest.fixture
def database(whole: Path, tmp_path: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copyfile(whole, tmp_path / "massmem.db"))


def read_messages(path: Path) -> set[tuple[str, int, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return set(connection.execute("SELECT session_id, seq, content FROM chat_messages"))


def overwrite(path: Path, pages: list[int]) -> bytes:
    """Fill these pages, counted from 1, with nonsense. Returns what the file is now."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[16:18], "big")
    for page in pages:
        data[(page - 1) * size : page * size] = b"\xa5" * size
    path.write_bytes(data)
    return bytes(data)


def root(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", [table]).fetchone()[0]


@pytest.mark.parametrize("table", ["events", "chat_messages", "chat_sessions"])
async def test_a_table_that_is_gone_costs_no_message(database: Path, tmp_path: Path, table: str) -> None:
    before = read_messages(database)
    damaged = overwrite(database, [root(database, table)])
    result = await recover(database, tmp_path / "saved")
    assert read_messages(tmp_path / "saved" / RECOVERED_STORE) == before
    assert (result.sessions, result.messages, result.lost) == (SESSIONS, len(before), 0)
    assert database.read_bytes() == damaged
    (store,) = (tmp_path / "saved").iterdir()
    assert (store.name, store.stat().st_mode & 0o777) == (RECOVERED_STORE, 0o600)


@pytest.mark.parametrize("times", [4, pytest.param(100, marks=pytest.mark.full)])
async def test_random_pages(database: Path, tmp_path: Path, times: int) -> None:
    before, original = read_messages(database), database.read_bytes()
    pages = len(original) // int.from_bytes(original[16:18], "big")
    rng, lost, ghosts, lies, refused = random.Random(5), 0, 0, 0, 0
    for number in range(times):
        database.write_bytes(original)
        damaged = overwrite(database, rng.sample(range(2, pages + 1), 6))
        try:
            result = await recover(database, tmp_path / f"saved{number}")
        except StoreDamagedError:  # one of the few pages that name the tables: nothing can be read, which is told
            refused += 1
            lies += database.read_bytes() != damaged
            continue
        have = read_messages(Path(result.store))
        ghosts += len(have - before)
        missing = len(before - have)
        lost += missing
        lies += result.messages != len(have) or (missing > 0 and not result.incomplete)
        lies += database.read_bytes() != damaged
    # What stood on a damaged page alone cannot be read, and is said to be missing; lost would be what is not.
    counts = {"ghost": ghosts, "lie": lies, "refused": refused, "unreadable": lost}
    check(f"damaged {times} times, 6 of {pages} pages each", counts)
    assert refused < times / 2
    assert lost < 0.2 * times * len(before)


async def test_deleted_session_does_not_come_back(database: Path, tmp_path: Path) -> None:
    store = await open_store(f"sqlite:///{database}", tmp_path)
    await store.delete_session("session_3", 5)
    await store.close()
    await recover(database, tmp_path / "saved")
    assert "session_3" not in {message[0] for message in read_messages(tmp_path / "saved" / RECOVERED_STORE)}


def test_the_command(database: Path, tmp_path: Path) -> None:
    overwrite(database, [root(database, "events")])
    (tmp_path / "team.yaml").write_text(
        "agents: [{id: ann, backend: {type: scripted, script: {answer: hi}}}]\n"
        f"store: {{url: 'sqlite:///{database}'}}\nmemory: {{persistent_memory: {{enabled: false}}}}\n"
    )
    asked = massmem("--config", str(tmp_path / "team.yaml"), "--session-id", "session_1", "more?")
    assert asked.returncode == 2, asked.stderr
    assert b"is damaged" in asked.stderr
    assert b"massmem store recover" in asked.stderr
    assert b"Traceback" not in asked.stderr
    saving = massmem("store", "recover", str(database), "--to", str(tmp_path / "saved"), "--json")
    assert saving.returncode == 0, saving.stderr
    assert json.loads(saving.stdout)["sessions"] == SESSIONS


def cut_last_page(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: -int.from_bytes(data[16:18], "big") - 100])


def overwrite_header(path: Path) -> None:
    path.write_bytes(b"\xa5" * 100 + path.read_bytes()[100:])


@pytest.mark.parametrize("damage", [cut_last_page, overwrite_header])
@pytest.mark.parametrize("has_program", [True, False], ids=["with sqlite3", "without sqlite3"])
async def test_short_file_and_damaged_header_cost_no_message(
    database: Path, tmp_path: Path, damage: Callable[[Path], None], has_program: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_program:
        monkeypatch.setenv("PATH", "")
    before = read_messages(database)
    damage(database)
    result = await recover(database, tmp_path / "saved")
    assert read_messages(tmp_path / "saved" / RECOVERED_STORE) == before
    assert (result.messages, result.lost, result.incomplete) == (len(before), 0, ())


async def test_recovered_store_has_the_whole_conversations(database: Path, tmp_path: Path) -> None:
    overwrite(database, [root(database, "chat_messages")])
    result = await recover(database, tmp_path / "saved")
    store = await open_store(f"sqlite:///{result.store}", tmp_path)
    sessions = await store.list_sessions()
    turns = await store.list_turns("session_1")
    await store.close()
    assert len(sessions) == SESSIONS
    assert [turn.question for turn in turns] == [f"question {n} of session_1" for n in range(1, TURNS + 1)]


async def test_advice_after_recovery_brings_the_conversations_back(database: Path, tmp_path: Path, home: Path) -> None:
    (tmp_path / "team.yaml").write_text(
        "agents: [{id: ann, backend: {type: scripted, script: {answer: hi}}}]\n"
        f"store: {{url: 'sqlite:///{database}'}}\nmemory: {{persistent_memory: {{enabled: false}}}}\n"
    )
    overwrite_header(database)
    team = str(tmp_path / "team.yaml")
    refused = massmem("--config", team, "--session-id", "session_1", "more?", text=True)
    (command,) = re.findall(r"massmem (store recover .*)", refused.stderr)
    recovered = massmem(*shlex.split(command), text=True)
    assert recovered.returncode == 0, recovered.stderr
    move, command = re.findall(r"(mkdir .*)\n +massmem (store restore .*)", recovered.stderr)[0]
    subprocess.run(["bash", "-c", move], check=True)
    imported = massmem(*shlex.split(command), "--config", team, text=True)
    assert imported.returncode == 0, imported.stderr
    continued = massmem("--config", team, "--session-id", "session_1", "more?", text=True)
    assert (continued.returncode, continued.stdout.strip()) == (0, "hi"), continued.stderr


async def test_mistakes(database: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "a").touch()
    with pytest.raises(InputError, match="exists already"):
        await recover(database, tmp_path / "full")
    with pytest.raises(InputError, match="not a file"):
        await recover(tmp_path / "none.db", tmp_path / "saved")
    overwrite(database, [1])
    with pytest.raises(StoreDamagedError):
        await recover(database, tmp_path / "saved")


async def test_pictures_are_recovered_with_the_questions_that_show_them(tmp_path: Path, home: Path) -> None:
    backend = {"type": "scripted", "script": {"answer": "{seen}"}, "vision": True}
    memory = {"persistent_memory": {"enabled": False}}
    team = TeamConfig.model_validate({"agents": [{"id": "ann", "backend": backend}], "memory": memory})
    picture = make_attachment("plan.png", "image/png", PNG)
    folder = home / ".massmem"
    async with await Session.open(team, home=folder) as opened:
        await collect(opened.ask("What is it?", attachments=[picture]))
        name = opened.id
    database = folder / "massmem.db"
    overwrite(database, [root(database, "chat_messages")])
    result = await recover(database, tmp_path / "saved")
    shutil.copyfile(result.store, database)
    async with await Session.open(team, home=folder, session_id=name) as opened:
        assert await opened.load_question(1) == ("What is it?\n\n[attached: plan.png]", (picture,))
        end = only(await collect(opened.ask("And now?")), TurnCompleted)[0]
    assert picture.file.hash[:8] in end.answer
