"""What every SessionStore shows of a session in which turns have several versions."""

import pytest

from massmem.core.events import Event, TurnUndone, VersionChosen
from massmem.core.records import EVERYBODY, SessionCopy, SessionFilter
from massmem.core.versions import TurnTree
from massmem.memory.persistent import Scope
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import answer, begin, compression

ID, OTHER = "session_a", "session_b"


def ask(word: str, parent: int | None = None, withdraws: tuple[int, ...] = ()) -> Event:
    return begin("ann", question=f"Where is the {word}?").model_copy(update={"parent": parent, "withdraws": withdraws})


def whole(started: Event, word: str) -> list[Event]:
    summary = compression(9, agent="ann").model_copy(update={"summary": f"of the {word}", "until": 1})
    return [started, answer(1, "ann", f"The {word} is near."), done(5, f"The {word} is there."), summary]


@pytest.fixture
async def four(store: SessionStore) -> SessionStore:
    """Turns 1, 2 and 3, and 4 in the place of 2."""
    await store.create_session(session(ID))
    for turn, word in ((1, "lighthouse"), (2, "windmill"), (3, "harbour")):
        await store.append(ID, turn, whole(ask(word), word))
    await store.append(ID, 4, whole(ask("castle", 1, (2, 3)), "castle"))
    return store


async def list_shown(store: SessionStore) -> list[str]:
    return [m.content for m in reversed(await store.read_conversation(ID, None, 50)) if m.final]


async def list_hidden(store: SessionStore) -> set[int]:
    return {turn for _, turn in await store.list_hidden(Scope(ID, "ann", 9))}


async def test_a_version_takes_the_place_of_what_it_withdraws(four: SessionStore) -> None:
    assert await list_shown(four) == ["The lighthouse is there.", "The castle is there."]
    assert {m.turn for m in await four.search_messages("windmill harbour castle", owner=EVERYBODY)} == {4}
    assert [(t.turn, t.parent, t.withdrawn) for t in await four.list_turns(ID)] == [
        (1, None, False), (2, None, True), (3, None, True), (4, 1, False),
    ]  # fmt: skip
    assert await list_hidden(four) == {2, 3}
    assert "The windmill is there." in [m.content for m in await four.read_messages(ID)]
    assert TurnTree(await four.list_places(ID)).list_versions() == {2: (2, 4), 4: (2, 4)}


async def test_a_chosen_version_comes_back_whole(four: SessionStore) -> None:
    choice = TurnTree(await four.list_places(ID)).plan_choice(2)
    assert (choice.turn, choice.withdrawn, choice.restored) == (3, (4,), (2, 3))
    await four.append(ID, 0, [choice])
    assert await list_shown(four) == ["The lighthouse is there.", "The windmill is there.", "The harbour is there."]
    last, newest = await four.get_last_turn(ID), await four.get_last_turn(ID, with_withdrawn=True)
    assert last is not None
    assert newest is not None
    assert (last.turn, newest.turn, newest.withdrawn) == (3, 4, True)
    assert await list_hidden(four) == {4}
    summary = await four.get_latest_summary(ID, "ann")
    assert summary is not None
    assert summary.content == "of the harbour"


async def test_turns_that_follow_a_version_go_with_it(four: SessionStore) -> None:
    await four.append(ID, 5, whole(ask("market", 4), "market"))
    await four.append(ID, 6, whole(ask("garden", 4, (5,)), "garden"))
    tree = TurnTree(await four.list_places(ID))
    assert tree.list_versions() == {2: (2, 4), 4: (2, 4), 5: (5, 6), 6: (5, 6)}
    await four.append(ID, 0, [tree.plan_choice(2)])
    assert await list_hidden(four) == {4, 5, 6}
    back = TurnTree(await four.list_places(ID)).plan_choice(5)
    assert back == VersionChosen(turn=5, withdrawn=(2, 3), restored=(4, 5), at=back.at)


async def test_an_undone_version_is_none(four: SessionStore) -> None:
    await four.append(ID, 4, [TurnUndone(session_id=ID, turn=4)])
    tree = TurnTree(await four.list_places(ID))
    assert tree.list_versions() == {}
    assert await list_shown(four) == ["The lighthouse is there."]
    await four.append(ID, 0, [tree.plan_choice(2)])
    assert (await list_shown(four))[1:] == ["The windmill is there.", "The harbour is there."]


async def test_hidden_turns_are_those_of_the_sessions_that_are_searched(four: SessionStore) -> None:
    await four.create_session(session(OTHER).model_copy(update={"memory_group": "work"}))
    await four.append(OTHER, 1, whole(ask("tower"), "tower"))
    await four.append(OTHER, 2, whole(ask("bridge", 0, (1,)), "bridge"))
    scopes = {
        "itself": Scope(ID, "ann", 5),
        "named": Scope("session_c", "ann", 1, others=(ID,)),
        "group": Scope("session_c", "ann", 1, group="work"),
        "all": Scope("session_c", "ann", 1, all_sessions=True),
    }
    assert {name: await four.list_hidden(scope) for name, scope in scopes.items()} == {
        "itself": {(ID, 2), (ID, 3)},
        "named": {(ID, 2), (ID, 3)},
        "group": {(OTHER, 1)},
        "all": {(ID, 2), (ID, 3), (OTHER, 1)},
    }


async def test_versions_come_along_when_a_session_is_copied(four: SessionStore) -> None:
    await four.append(ID, 0, [TurnTree(await four.list_places(ID)).plan_choice(2)])
    copy, log = await four.export_session(ID), await four.export_log(ID)
    assert copy is not None
    before = await four.list_places(ID)

    async def pages():
        for entry in log:
            yield [entry]

    await four.import_session(SessionCopy.model_validate(copy.model_dump()), pages())
    assert await four.list_places(ID) == before
    assert await list_hidden(four) == {4}


async def list_row(store: SessionStore) -> tuple[str, float | None]:
    """Return the last message and the confidence that lists show of the session."""
    (listed,) = await store.find_sessions(SessionFilter(owner=EVERYBODY, session_id=ID, text="is there"))
    return listed.session.last_message, listed.confidence


async def test_lists_show_the_last_message_of_the_version_that_is_shown(four: SessionStore) -> None:
    unsure = done(5, "The market is there.").model_copy(update={"confidence": 0.25})
    await four.append(ID, 5, [ask("market", 4), unsure])
    assert await list_row(four) == ("The market is there.", 0.25)
    await four.append(ID, 0, [TurnTree(await four.list_places(ID)).plan_choice(2)])
    assert await list_row(four) == ("The harbour is there.", None)
    await four.append(ID, 3, [TurnUndone(session_id=ID, turn=3)])
    assert await list_row(four) == ("The windmill is there.", None)
