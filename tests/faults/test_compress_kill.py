"""SIGKILL while old messages are compressed: the log keeps every word, a summary is there whole or not at all."""

import asyncio
import json
import random
import re
import shutil
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from massmem.core.events import ContextCompressed, Event, TurnCompleted, TurnStarted, decode_event
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.cli import massmem
from tests.support.forked import ForkedMassmem
from tests.support.refusing import Refusing
from tests.support.sample_turn import begin
from tests.support.verdict import check

WINDOW, TURNS, LINES = 4_200, 30, 8
"""Tokens that the model reads; turns that nearly fill it; events until the next turn is nearly over."""

FILLER = "We looked at it again and nothing came of it, so that it stays as it was for the time being. " * 6
OURS, OTHER = "session_a", "session_b"
QUESTION = "What is the code of room 3?"

Messages = set[tuple[str, int, str]]


@pytest.fixture
def user(home: Path, tmp_path: Path) -> Path:
    """massmem's folder with two long conversations; a copy of it, to begin from, is beside it."""
    folder = home / ".massmem"
    asyncio.run(_fill(folder))
    shutil.copytree(folder, tmp_path / "copy")
    return folder


async def _fill(folder: Path) -> None:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    for name, code in ((OURS, "R"), (OTHER, "X")):
        await store.create_session(session(name))
        for turn in range(1, TURNS + 1):
            asked = f"Turn {turn}: the code of room {turn} is {code}{turn}-77. {FILLER}"
            question = begin("ann", question=asked).model_copy(update={"session_id": name, "turn": turn})
            await store.append(name, turn, [question, done(5, f"Room {turn} is noted.")])
    await store.close()


def team(folder: Path, server: Refusing) -> str:
    backend = {"type": "openai", "model": "m", "base_url": server.base_url, "api_key": "none", "max_retries": 0}
    agent = {"id": "ann", "backend": backend | {"context_window": WINDOW}}
    path = folder / "team.yaml"
    path.write_text(json.dumps({"agents": [agent], "memory": {"persistent_memory": {"enabled": False}}}))
    return str(path)


def read_log(folder: Path) -> list[tuple[int, Event]]:
    """seq and event of our session, in order."""
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        rows = db.execute("SELECT seq, payload FROM events WHERE session_id = ? ORDER BY seq", [OURS]).fetchall()
    return [(seq, decode_event(payload)) for seq, payload in rows]


def read_messages(folder: Path) -> Messages:
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        return set(db.execute("SELECT session_id, seq, content FROM chat_messages"))


def summaries(folder: Path) -> list[int]:
    """Up to where each stored summary reaches."""
    with closing(sqlite3.connect(folder / "massmem.db")) as db:
        rows = db.execute("SELECT metadata FROM chat_messages WHERE kind = 'injection' ORDER BY seq").fetchall()
    return [json.loads(row[0])["until"] for row in rows]


def one_kill(folder: Path, config: str, server: Refusing, lines: int) -> Counter[str]:
    before, server.seen[:] = read_messages(folder), []
    child = ForkedMassmem("--config", config, "--session-id", OURS, "--output", "jsonl", QUESTION)
    shown = [line for _, line in zip(range(lines), child.stdout, strict=False)]
    time.sleep(random.uniform(0, 2 * server.delay))
    shown += child.kill()
    counts = Counter(kills=1, **judge(folder, before, shown))
    compressed = sum(isinstance(event, ContextCompressed) for _, event in read_log(folder))
    asked = sum(seen.summary for seen in server.seen)
    counts["in a summary"] = int(asked > compressed)
    counts["after one"] = int(0 < compressed == asked)
    middle, server.seen[:] = read_messages(folder), []
    begun = any(isinstance(event, TurnStarted) and event.question == QUESTION for _, event in read_log(folder))
    over = any(isinstance(event, TurnCompleted) and event.answer == "Noted." for _, event in read_log(folder))
    asks = [] if begun and not over else [QUESTION]
    again = massmem("--config", config, "--session-id", OURS, *asks, text=True, timeout=60)
    counts["unanswered"] = int((again.returncode, again.stdout) != (0, "Noted.\n"))
    counts.update(judge(folder, middle, []))
    answers = [seen for seen in server.seen if not seen.summary and not seen.refused]
    counts["lie"] += sum(QUESTION not in seen.text or "<notes>" not in seen.text for seen in answers)
    counts["leak"] += sum("X3-77" in seen.text for seen in server.seen)
    return counts


def judge(folder: Path, before: Messages, shown: list[bytes]) -> dict[str, int]:
    """What the log says after a run that began with `before` and printed `shown`."""
    after, events = read_messages(folder), read_log(folder)
    known = [event for _, event in events]
    reach = [event.until for _, event in events if isinstance(event, ContextCompressed) and event.until is not None]
    turns = Counter(event.turn for event in known if isinstance(event, TurnStarted))
    foreign = [row for row in after - before if row[0] != OURS or re.search(r"X\d+-77", row[2])]
    printed = [decode_event(line) for line in shown if line.endswith(b"\n")]
    ends = max((seq for _, seq, _ in before), default=0)
    return {
        "lost": len(before - after),
        "ghost": sum(n - 1 for n in turns.values()) + sum(n - 1 for n in Counter(reach).values()),
        "leak": len(foreign),
        # What was printed is in the log; a summary is stored exactly when its event is, and stands for what is there.
        "lie": sum(event not in known for event in printed)
        + (sorted(reach) != sorted(summaries(folder)))
        + sum(until > ends + 2 for until in reach),
    }


@pytest.mark.parametrize("times", [4, pytest.param(60, marks=pytest.mark.full)])
def test_a_killed_compression_loses_nothing(user: Path, tmp_path: Path, times: int) -> None:
    total: Counter[str] = Counter()
    with Refusing(WINDOW, delay=0.15) as server:
        config = team(tmp_path, server)
        for number in range(times):
            shutil.rmtree(user)
            shutil.copytree(tmp_path / "copy", user)
            # Spread over the whole turn, and over what is compressed in the background after it.
            total.update(one_kill(user, config, server, lines=1 + int((number + random.random()) * LINES / times)))
    check(f"compress, {times} kills", total, "unanswered")
    assert total["in a summary"] + total["after one"] > 0
