"""Versions under kill -9: of the versions at each place one is shown, and no turn and no memory is lost."""

import asyncio
import json
import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from massmem.cli.setup import Setup
from massmem.config.load import load_config
from massmem.core.records import COMMAND_LINE_USER, TurnRecord
from massmem.core.versions import TurnTree
from massmem.session.session import Session
from massmem.store import open_store
from tests.support.cli import call_massmem
from tests.support.forked import processes
from tests.support.recorded_sessions import TEAM, record_sessions
from tests.support.sessions import collect
from tests.support.verdict import check

SESSION = "session_20260101_100000"
QUESTIONS = [f"Kite {turn} of the mill nests in an oak." for turn in (1, 2, 3)]
AGAIN = "The barn owl of the mill is called Quillon."
LONGEST = 0.6
"""Seconds after its start in which a process is killed; adapted to how long it takes here."""


def run_change(folder: Path, home: Path, kind: str, turn: int) -> None:
    os.environ["HOME"] = str(home)
    os.chdir(folder)
    asyncio.run(change(folder, home / ".massmem", kind, turn))


async def change(folder: Path, home: Path, kind: str, turn: int) -> None:
    config, _ = load_config(str(folder / "team.yaml"))
    if kind == "choose":
        async with Setup(config, home, COMMAND_LINE_USER).open_sessions() as sessions:
            await sessions.choose_version(await sessions.find(SESSION), turn)
        return
    async with await Session.open(config, home=home, session_id=SESSION) as session:
        await collect(session.ask(f"{AGAIN} {kind}", replaces=turn))


async def read_turns(folder: Path) -> Sequence[TurnRecord]:
    store = await open_store(f"sqlite:///{folder / 'massmem.db'}", folder)
    turns = await store.list_turns(SESSION)
    await store.close()
    return turns


def find_wrong(turns: Sequence[TurnRecord], before: Sequence[TurnRecord]) -> Counter[str]:
    """Count what is wrong with the turns after a kill. before: those before the change."""
    counts: Counter[str] = Counter()
    tree, shown = TurnTree(turns), {turn.turn for turn in turns if turn.stands}
    counts["lost"] += sum(
        (old.question, old.answer) != (new.question, new.answer) for old, new in zip(before, turns, strict=False)
    )
    counts["lost"] += max(0, len(before) - len(turns))
    counts["twice"] += max(0, len(turns) - len(before) - 1)
    for versions in {*tree.list_versions().values()}:
        # Below a version that is not shown none is.
        parent = turns[versions[0] - 1].parent
        is_reached = parent in (None, 0) or parent in shown
        counts["lie"] += len(shown.intersection(versions)) != is_reached
    end = max(shown)
    counts["lie"] += tree.plan_choice(end).withdrawn != () or tree.plan_choice(end).restored != ()
    return counts


@pytest.mark.parametrize("kind", ["choose", "start"])
@pytest.mark.parametrize("times", [3, pytest.param(100, marks=pytest.mark.full)])
def test_version_that_was_killed_is_shown_whole_or_not_at_all(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, times: int
):
    monkeypatch.chdir(tmp_path)
    folder = record_sessions(home, {SESSION: [(question, "Yes.") for question in QUESTIONS]})
    run_change(tmp_path, home, "first", 2)  # turn 4 in the place of turn 2
    shutil.copytree(folder, tmp_path / "copy")
    before = asyncio.run(read_turns(folder))
    counts: Counter[str] = Counter()
    longest = LONGEST
    for round_ in range(times):
        shutil.rmtree(folder)
        shutil.copytree(tmp_path / "copy", folder)
        turn = 2 if kind == "choose" else 4
        child = processes.Process(target=run_change, args=(tmp_path, home, kind, turn), daemon=True)
        child.start()
        child.join(random.Random(round_).uniform(0, longest))
        child.kill()
        child.join()
        is_whole = child.exitcode != -signal.SIGKILL
        longest *= 0.7 if is_whole else 1.3
        counts["whole"] += is_whole
        turns = asyncio.run(read_turns(folder))
        counts.update(find_wrong(turns, before))
        counts["lie"] += is_whole and [t.turn for t in turns if t.stands] == [t.turn for t in before if t.stands]
    assert call_massmem("memory", "record", *TEAM).returncode == 0
    texts = [m["text"] for m in json.loads(call_massmem("memory", "list", "--json", *TEAM).stdout)["memories"]]
    counts["lost"] += sum(question not in texts for question in QUESTIONS)
    check(f"{kind} a version, {times} kills", counts, "twice")
