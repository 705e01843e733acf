"""One session, asked by two processes of the same home: each sees what the other has done."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from massmem.core.errors import DuplicateRequestError, SessionBusyError, UnknownSessionError
from massmem.core.events import ContextMeasured, Event, TurnCompleted, TurnInterrupted, TurnResumed, TurnStarted
from massmem.core.records import Owner, SessionState, TurnRecord
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.sessions import collect, team
from tests.support.turns import only

ID = "talk"
SCRIPTS: dict[str, dict[str, Any]] = {"ann": {"answer": ["It is blue."]}}

Opened = Callable[[], Awaitable[Team]]


@pytest.fixture
async def two_processes(home: Path) -> AsyncIterator[Opened]:
    """Each call is as one more process of the same home: nothing is shared but the store and the locks."""
    teams: list[Team] = []

    async def open_team() -> Team:
        teams.append(await Team.open(team(SCRIPTS), home=home / ".massmem"))
        await teams[-1].start()
        return teams[-1]

    yield open_team
    for each in teams:
        await each.close()


async def ask(team: Team, question: str, owner: str = "alice", session_id: str = ID) -> list[Event]:
    session = await Session.get_or_create(team, session_id, Owner(owner))
    try:
        events = await collect(session.ask(question))
        await session.wait_for_preparation()
        return events
    finally:
        await session.close()


def number(events: list[Event]) -> int:
    (begun,) = only(events, TurnStarted)
    assert len(only(events, TurnCompleted)) == 1
    return begun.turn


def count_shown(events: list[Event]) -> int:
    """How many earlier answers the agent was sent."""
    unit = -(-len("It is blue.") // 4) + 4
    return only(events, ContextMeasured)[-1].entries.get("assistant", 0) // unit


async def turns(team: Team) -> list[TurnRecord]:
    return await team.store.list_turns(ID)


async def test_two_processes_take_turns_in_one_session(two_processes: Opened):
    one, two = await two_processes(), await two_processes()
    for turn in range(1, 9):
        events = await ask((one, one, two)[turn % 3], f"Question {turn}?")
        assert (number(events), count_shown(events)) == (turn, turn - 1)
    assert [turn.status for turn in await turns(one)] == ["completed"] * 8
    assert await one.store.get_lease_owner(ID) is None


async def test_many_questions_at_once_from_two_processes_are_answered_one_after_the_other(two_processes: Opened):
    services = [await two_processes(), await two_processes()]
    for service in services:
        await ask(service, "Warm?")

    async def insist(at: int) -> None:
        while True:
            try:
                await ask(services[at % 2], f"Question {at}?")
                return
            except SessionBusyError:
                await asyncio.sleep(0.01)

    await asyncio.gather(*(insist(at) for at in range(12)))
    found = await turns(services[0])
    assert [turn.turn for turn in found] == list(range(1, 15))
    assert {turn.status for turn in found} == {"completed"}
    assert len({turn.question for turn in found}) == 13
    log = await services[0].store.export_log(ID)
    begun = [entry.turn for entry in log if '"turn_started"' in entry.payload]
    assert begun == list(range(1, 15))
    assert [entry.turn for entry in log] == sorted(entry.turn for entry in log), "nothing interleaves"


async def test_session_deleted_and_created_elsewhere_begins_anew(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    for turn in (1, 2):
        assert number(await ask(here, f"Question {turn}?")) == turn
    while await there.store.delete_session(ID, 1_000) is not None:
        pass
    events = await ask(here, "Who was I?")
    assert (number(events), count_shown(events)) == (1, 0)
    while await there.store.delete_session(ID, 1_000) is not None:
        pass
    for question in ("One?",):
        await ask(there, question)  # as many events as the other one had
    events = await ask(here, "And now?")
    assert (number(events), count_shown(events)) == (2, 1)


async def test_a_session_that_another_user_has_made_anew_is_not_shown(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "My secret?")
    while await there.store.delete_session(ID, 1_000) is not None:
        pass
    await ask(there, "Mine now?", "bob")
    with pytest.raises(UnknownSessionError):
        await ask(here, "What did I say?", "alice")
    with pytest.raises(UnknownSessionError):
        await ask(there, "And here?", "alice")
    events = await ask(here, "Still mine?", "bob")
    assert (number(events), count_shown(events)) == (2, 1)


async def test_a_session_that_is_being_deleted_is_not_asked(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "One?")
    await there.store.delete_session(ID, 0)
    with pytest.raises(SessionBusyError, match="being deleted"):
        await ask(here, "Two?")


async def test_a_session_is_for_its_owner(two_processes: Opened):
    service = await two_processes()
    await ask(service, "One?")
    with pytest.raises(UnknownSessionError):
        await ask(service, "Mine?", "bob")
    assert number(await ask(service, "Two?")) == 2


async def test_turn_undone_or_cleared_elsewhere_is_not_shown(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    for turn in (1, 2):
        await ask(here, f"Question {turn}?")
    other = await Session.get_or_create(there, ID, Owner("alice"))
    await other.undo()
    await other.close()
    events = await ask(here, "Three?")
    assert (number(events), count_shown(events)) == (3, 1)
    other = await Session.get_or_create(there, ID, Owner("alice"))
    await other.clear_history()
    await other.close()
    events = await ask(here, "Four?")
    assert (number(events), count_shown(events)) == (4, 0)


async def test_message_that_a_program_saves_is_known_to_the_next_turn(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "One?")
    await there.store.save_state(ID, SessionState(params={"city": "Lisbon"}))
    session = await Session.get_or_create(here, ID, Owner("alice"))
    await collect(session.ask("Two?"))
    assert session.secret_values == {"city": "Lisbon"}
    await session.close()


async def test_a_turn_that_another_process_began_and_left_is_finished_first(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "One?")
    await left(there)
    assert only(await collect_log(there), TurnInterrupted)
    events = await ask(here, "Next?")
    assert [e.turn for e in only(events, TurnResumed)] == [2]
    assert [e.turn for e in only(events, TurnStarted)] == [3]
    assert count_shown(events) == 2


async def left(service: Team) -> None:
    """A turn is begun there, and stopped."""
    other = await Session.get_or_create(service, ID, Owner("alice"))
    async with aclosing(other.ask("Left?")) as events:
        async for event in events:
            if isinstance(event, TurnStarted):
                other.stop("signal")
    await other.close()


async def collect_log(service: Team) -> list[Event]:
    return [event for turn in await turns(service) for event in await service.store.read_turn_events(ID, turn.turn)]


async def test_who_asks_while_another_process_runs_a_turn_is_told_so(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "One?")
    other = await Session.get_or_create(there, ID, Owner("alice"))
    async with aclosing(other.ask("Two?")) as events:
        await anext(events)
        with pytest.raises(SessionBusyError, match="another process"):
            await ask(here, "Two as well?")
    await other.close()


async def test_turn_that_another_process_left_unfinished_is_finished_here(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "One?")
    await left(there)
    session = await Session.get_or_create(here, ID, Owner("alice"))
    events = [event async for event in session.finish_turn()]
    assert isinstance(events[-1], TurnCompleted)
    assert not any(turn.is_unfinished for turn in await turns(here))
    await session.close()


async def test_turn_that_lost_its_lease_stores_nothing_more(two_processes: Opened):
    here, there = await two_processes(), await two_processes()
    await ask(here, "First?")
    session = await Session.get_or_create(here, ID, Owner("alice"))
    stored: list[Any] = []
    with pytest.raises(SessionBusyError, match="taken over"):
        async with aclosing(session.ask("Second?")) as events:
            async for event in events:
                if not stored:
                    assert isinstance(event, TurnStarted)
                    holder = await there.store.get_lease_owner(ID)
                    assert holder is not None
                    await there.store.release_lease(ID, holder)
                    assert await there.store.acquire_lease(ID, "somebody else", 60)
                    stored = await there.store.export_log(ID)
    await session.close()
    assert await there.store.export_log(ID) == stored
    assert await there.store.get_lease_owner(ID) == "somebody else"


async def test_question_under_a_repeated_request_name_is_not_paid_for_again(two_processes: Opened):
    here = await two_processes()
    session = await Session.get_or_create(here, ID, Owner("alice"))
    await collect(session.ask("Why?", "request-1"))
    stored = await here.store.export_log(ID)
    again = await Session.get_or_create(here, ID, Owner("alice"))
    with pytest.raises(DuplicateRequestError) as error:
        await collect(again.ask("Why?", "request-1"))
    assert await here.store.export_log(ID) == stored
    assert error.value.seq == 1
    await again.close()
    await session.close()
