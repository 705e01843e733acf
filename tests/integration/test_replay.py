"""A turn asked again with something changed: what that decides, and that nothing of it is stored."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from massmem.config.models import BackendConfig, MemoryConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.core.turn_result import TurnResult
from massmem.memory.persistent import Selection
from massmem.session.fork import ask_again
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.cli import massmem, script, write_team
from tests.support.sessions import collect, team

NOTES = {
    "lighthouse": "The lighthouse of Alba stands on the north pier.",
    "windmill": "The windmill of Alba was built of red brick.",
    "harbour": "The harbour of Alba freezes in January.",
}
QUESTION = "What do we know of the lighthouse, the windmill and the harbour of Alba?"


def council(decisive: str) -> TeamConfig:
    """Red wins when it recalls this note, and blue otherwise."""
    judge = [{"vote_for": "Red knows"}, {"vote_for": "Blue guesses"}]
    voter = {"vote": [{**judge[0], "needs": "Red knows"}, judge[1]]}
    red_answer = [{"text": "Red knows it all.", "needs": decisive}, "Red has no idea."]
    config = team(
        {
            "red": {"answer": red_answer, "vote": {"vote_for": "Blue guesses"}},
            "blue": {"answer": "Blue guesses a lot.", **voter},
            "green": {"answer": "Green is silent.", **voter},
        },
        presentation="as_is",
        max_rounds=2,
        early_stop=False,
    )
    memory = {"persistent_memory": {"session_name": None}, "retrieval": {"limit": 20, "max_tokens": 4000}}
    return config.model_copy(update={"memory": MemoryConfig.model_validate(memory)})


async def record(config: TeamConfig, home: Path) -> str:
    """Note things in one session, and ask in another one. Return its id."""
    session = await Session.open(config, home=home)
    for note in NOTES.values():
        await session.remember(note)
    await session.close()
    session = await Session.open(config, home=home)
    await collect(session.ask(QUESTION))
    await session.close()
    return session.id


async def replay(
    config: TeamConfig, home: Path, session_id: str, without: Collection[str] = (), **backends: BackendConfig
) -> list[str | None]:
    """Return who won the first turn, and who wins it now."""
    opened = await Team.open(config, home=home, records=False)
    try:
        session = await opened.store.get_session(session_id)
        assert session is not None
        log = await opened.store.export_log(session_id)
        results = [TurnResult.of(e) for e in await ask_again(opened, session, 1, without, backends)]
        assert await opened.store.export_log(session_id) == log, "the session stays as it is"
        assert len(await opened.store.list_due_recordings("episode", 100)) == 0
        return [result.winner for result in results]
    finally:
        await opened.close()


async def list_memories(config: TeamConfig, home: Path) -> dict[str, str]:
    """Return the ids of all memories by text."""
    opened = await Team.open(config, home=home)
    try:
        async with opened.open_durable_memory() as memory:
            return {m.text: m.id for m in await memory.list(Selection())}
    finally:
        await opened.close()


async def test_memory_that_decided_changes_the_winner_and_others_do_not(tmp_path: Path):
    config = council(NOTES["windmill"])
    session_id = await record(config, tmp_path)
    memories = await list_memories(config, tmp_path)
    registry = (tmp_path / "sessions.json").read_bytes()
    assert await replay(config, tmp_path, session_id, [memories[NOTES["windmill"]]]) == ["red", "blue"]
    assert await replay(config, tmp_path, session_id, [memories[NOTES["harbour"]]]) == ["red", "red"]
    assert await list_memories(config, tmp_path) == memories
    assert (tmp_path / "sessions.json").read_bytes() == registry
    with pytest.raises(InputError, match="no memory '12'"):
        await replay(config, tmp_path, session_id, ["12"])


async def test_agent_gets_another_model(tmp_path: Path):
    config = council(NOTES["windmill"])
    session_id = await record(config, tmp_path)
    says = {"answer": "Red is mute.", "vote": {"vote_for": "Blue guesses"}}
    mute = BackendConfig(type="scripted", model="mute", script=says)
    assert await replay(config, tmp_path, session_id, red=mute) == ["red", "blue"]
    with pytest.raises(InputError, match="no agent 'grey'"):
        await replay(config, tmp_path, session_id, grey=mute)


async def test_later_notes_are_not_known_in_the_turn(tmp_path: Path):
    later = "The lighthouse of Alba is for sale."
    config = council(later)
    session_id = await record(config, tmp_path)
    for name in (session_id, None):
        session = await Session.open(config, home=tmp_path, session_id=name)
        await session.remember(later)
        await session.close()
    assert await replay(config, tmp_path, session_id) == ["blue", "blue"]


def test_command_shows_both_tries_and_their_winners(home: Path, tmp_path: Path):
    config = write_team(
        tmp_path, script("Yes, " + "really, " * 9 + "says a."), script("No, says b."), script("Maybe, says c.")
    )
    asked = json.loads(massmem("--config", config, "--output", "json", "Is it?", text=True).stdout)
    session_id = asked["session_id"]
    again = json.loads(massmem("replay", session_id, "--turn", "1", "--json", text=True).stdout)
    assert (again["winner_changed"], again["original"]["winner"]) == (False, again["replay"]["winner"])
    assert again["original"]["steps"] == again["replay"]["steps"]
    assert again["original"]["answer"] == again["replay"]["answer"]
    text = massmem("replay", session_id, "--turn", "1", text=True).stdout
    assert "with the same answer" in text
    path = Path(config)
    path.write_text(path.read_text().replace("says b", "says b, the second time"))
    assert "No, says b, the second time." in massmem("replay", session_id, "--turn", "1", text=True).stdout
    missing = massmem("replay", session_id, "--turn", "1", "--agent", "z=scripted", text=True)
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)
