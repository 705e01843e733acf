"""Replays of turns with something changed: whom it reaches, what follows from it, and what is named as the cause."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from massmem.config.models import BackendConfig, MemoryConfig, TeamConfig
from massmem.core.errors import InputError
from massmem.core.events import AnswerSubmitted, TurnCompleted
from massmem.memory.persistent import Selection
from massmem.session.replay import Change, Comparison, TurnReplayer, load_recorded_turn
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
    """Red wins when it recalls the decisive word, and blue otherwise."""
    judge = [{"vote_for": "Red knows"}, {"vote_for": "Blue guesses"}]
    voter = {"vote": [{**judge[0], "needs": "Red knows"}, judge[1]]}
    red_answer = [{"text": "Red knows it all.", "needs": NOTES[decisive]}, "Red has no idea."]
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


class Replays:
    """A recorded turn that can be replayed; to be closed."""

    def __init__(self, team: Team, session_id: str) -> None:
        self.team = team
        self.session_id = session_id

    async def compare(self, changes: Sequence[Change]) -> Comparison:
        turn, events = await load_recorded_turn(self.team.store, self.session_id, 1)
        session = await self.team.store.get_session(self.session_id)
        assert session is not None
        return await TurnReplayer(self.team, session, turn, events).compare(changes)

    async def find_note(self, word: str) -> str:
        """Return the id of the memory of a note."""
        async with self.team.open_durable_memory() as memory:
            notes = [m for m in await memory.list(Selection(kind="episode")) if NOTES[word] == m.text]
        return notes[0].id


async def open_replays(config: TeamConfig, home: Path) -> Replays:
    session_id = await record(config, home)
    team = await Team.open(config, home=home)
    await team.start()
    return Replays(team, session_id)


async def test_memory_that_decided_is_named_and_others_are_not(tmp_path: Path):
    replays = await open_replays(council("windmill"), tmp_path)
    try:
        log = await replays.team.store.export_log(replays.session_id)
        decisive = Change(memory_id=await replays.find_note("windmill"))
        other = Change(memory_id=await replays.find_note("harbour"))
        comparison = await replays.compare([decisive])
        assert (comparison.winner, comparison.replay.winner, comparison.winner_changed) == ("red", "blue", True)
        assert comparison.causes == (decisive,)
        asked = {(step.agent_id, step.round) for step in comparison.replay.asked}
        assert {("red", 1), ("blue", 1), ("green", 1)} <= asked, "all three recalled it"
        assert not (await replays.compare([other])).winner_changed
        both = await replays.compare([other, decisive])
        assert (both.causes, both.together) == ((decisive,), False)
        assert await replays.team.store.export_log(replays.session_id) == log, "the session stays as it is"
    finally:
        await replays.team.close()


async def test_other_model_is_the_cause_and_only_what_rests_on_it_is_asked_again(tmp_path: Path):
    replays = await open_replays(council("windmill"), tmp_path)
    try:
        script = {"answer": "Red is mute.", "vote": {"vote_for": "Blue guesses"}}
        mute = Change(agent_id="red", backend=BackendConfig(type="scripted", model="mute", script=script))
        comparison = await replays.compare([mute])
        assert (comparison.replay.winner, comparison.causes) == ("blue", (mute,))
        reasons = {(step.agent_id, step.round): step.reason for step in comparison.replay.asked}
        assert reasons[("red", 1)] == "red with mute"
        assert ("blue", 1) not in reasons
        assert "answers" in reasons[("blue", 2)]
        with pytest.raises(InputError, match="no agent 'grey'"):
            await replays.compare([Change(agent_id="grey", backend=mute.backend)])
        with pytest.raises(InputError, match="no memory '12'"):
            await replays.compare([Change(memory_id="12")])
    finally:
        await replays.team.close()


async def test_memory_that_nobody_was_sent_since_it_is_newer_asks_no_model(tmp_path: Path):
    config = council("windmill")
    replays = await open_replays(config, tmp_path)
    try:
        note = "Nothing but zebras in the zoo."
        session = await Session.on(replays.team)
        await session.remember(note)
        await replays.team.memory.catch_up(session.id)
        async with replays.team.open_durable_memory() as memory:
            zebras = next(m for m in await memory.list(Selection()) if m.text == note)
        await session.close()
        comparison = await replays.compare([Change(memory_id=zebras.id)])
        assert comparison.replay.asked == []
        original = [e for e in comparison.original if isinstance(e, AnswerSubmitted | TurnCompleted)]
        replayed = [e for e in comparison.replay.events if isinstance(e, AnswerSubmitted | TurnCompleted)]
        assert [e.usage for e in replayed] == [e.usage for e in original]
    finally:
        await replays.team.close()


@pytest.mark.slow
async def test_planted_causes_are_named(tmp_path: Path):
    named, chance = 0, random.Random(7)
    for number in range(20):
        word = chance.choice([*NOTES])
        replays = await open_replays(council(word), tmp_path / str(number))
        try:
            planted = Change(memory_id=await replays.find_note(word))
            changes = [Change(memory_id=await replays.find_note(w)) for w in NOTES]
            chance.shuffle(changes)
            named += (await replays.compare(changes)).causes == (planted,)
        finally:
            await replays.team.close()
    assert named >= 18, f"{named} of 20"


def test_command_compares_and_verifies(home: Path, tmp_path: Path):
    config = write_team(
        tmp_path, script("Yes, " + "really, " * 9 + "says a."), script("No, says b."), script("Maybe, says c.")
    )
    asked = json.loads(massmem("--config", config, "--output", "json", "Is it?", text=True).stdout)
    session_id = asked["session_id"]
    verified = massmem("replay", session_id, "--turn", "1", "--as-recorded", "-o", "json", text=True)
    assert verified.returncode == 0, verified.stderr
    assert json.loads(verified.stdout)["identical"] is True
    again = json.loads(massmem("replay", session_id, "--turn", "1", "--json", text=True).stdout)
    assert (again["winner_changed"], again["original"]["winner"]) == (False, again["replay"]["winner"])
    text = massmem("replay", session_id, "--turn", "1", text=True).stdout
    assert "with the same answer" in text
    assert "begins the same" not in text
    path = Path(config)
    path.write_text(path.read_text().replace("says a", "says a, the second time"))
    assert "begins the same" in massmem("replay", session_id, "--turn", "1", text=True).stdout
    path.write_text(json.dumps({**json.loads(path.read_text()), "coordination": {"max_rounds": 1}}))
    changed = massmem("replay", session_id, "--turn", "1", "--as-recorded", text=True)
    assert (changed.returncode, "one is not" in changed.stdout) == (1, True)
    refused = massmem("replay", session_id, "--turn", "1", "--as-recorded", "--agent", "a=x", text=True)
    assert (refused.returncode, "Traceback" in refused.stderr) == (2, False)
