"""What every SessionStore promises when many users share it: whose sessions are found, and what was asked before."""

import pytest

from massmem.core.errors import UnknownSessionError
from massmem.core.events import TurnInterrupted, TurnResumed, UserReplied
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, Everybody, Owner, SessionFilter
from massmem.store.lookup import find_session, get_newest_session
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import begin


async def create_owned(store: SessionStore, name: str, owner: str | None, at: float = 0) -> None:
    await store.create_session(session(name, at).model_copy(update={"user_id": owner}))


async def ids(store: SessionStore, **wanted: object) -> list[str]:
    criteria = SessionFilter.model_validate({"owner": EVERYBODY, **wanted})
    return [session.session.session_id for session in await store.find_sessions(criteria)]


async def test_sessions_are_found_by_their_owner(store: SessionStore) -> None:
    for at, (name, owner) in enumerate([("a", "alice"), ("b", "bob"), ("c", "alice"), ("d", None), ("e", "Alice")]):
        await create_owned(store, name, owner, at)
    assert await ids(store, owner=Owner("alice")) == ["c", "a"]
    assert await ids(store, owner=Owner("bob")) == ["b"]
    for nobody in ("", "%", "*", "alic_", "carol", "' OR 1=1 --", "\x00", "\ud800"):
        assert await ids(store, owner=Owner(nobody)) == []
    assert (await store.count_sessions(SessionFilter(owner=Owner("alice")))).sessions == 2
    assert await ids(store, owner=COMMAND_LINE_USER) == ["d"]
    assert len(await ids(store)) == 5


async def test_search_looks_only_into_the_sessions_of_an_owner(store: SessionStore) -> None:
    for name, owner in (("a", "alice"), ("b", "bob"), ("c", None)):
        await create_owned(store, name, owner)
        await store.append(name, 1, [begin("ann").model_copy(update={"question": "Which penguin?"})])

    async def search(owner: Owner | Everybody, within: list[str] | None = None) -> list[str]:
        return sorted(m.session_id for m in await store.search_messages("penguin", within, owner=owner))

    assert await search(EVERYBODY) == ["a", "b", "c"]
    assert await search(COMMAND_LINE_USER) == ["c"]
    assert await search(Owner("alice")) == ["a"]
    assert await search(Owner("")) == []
    assert await search(COMMAND_LINE_USER, ["a", "b"]) == []


async def test_a_name_means_only_a_session_of_the_owner(store: SessionStore) -> None:
    await create_owned(store, "session_1", "alice", 1)
    await create_owned(store, "session_2", None)
    for name in ("session_1", "1"):
        assert (await find_session(store, name, EVERYBODY)).session_id == "session_1"
        assert (await find_session(store, name, Owner("alice"))).session_id == "session_1"
        with pytest.raises(UnknownSessionError) as refused:
            await find_session(store, name, COMMAND_LINE_USER)
        assert "session_1" not in refused.value.hint
    assert (await get_newest_session(store, EVERYBODY)).session_id == "session_1"
    assert (await get_newest_session(store, COMMAND_LINE_USER)).session_id == "session_2"


async def test_messages_of_a_conversation_are_counted(store: SessionStore) -> None:
    assert await store.count_messages(SessionFilter(owner=EVERYBODY)) == 0
    await create_owned(store, "a", "alice")
    await create_owned(store, "b", "bob")
    await store.append("a", 1, [begin("ann"), done(1)])
    await store.append("a", 2, [begin("ann", at=2)])
    await store.append("b", 1, [begin("ann"), done(1)])
    assert await store.count_messages(SessionFilter(owner=EVERYBODY)) == 5
    assert await store.count_messages(SessionFilter(owner=Owner("alice"))) == 3
    assert await store.count_messages(SessionFilter(owner=Owner("carol"))) == 0
    assert [
        listed.conversation_length for listed in await store.find_sessions(SessionFilter(owner=Owner("alice")))
    ] == [3]


async def test_turns_that_may_have_been_cut_off(store: SessionStore) -> None:
    for at, (name, owner) in enumerate([("run", "alice"), ("stop", "bob"), ("done", "alice"), ("mine", None)]):
        await create_owned(store, name, owner, at)
        await store.append(name, 1, [begin("ann", at=at)])
    await store.append("stop", 1, [TurnInterrupted(by="signal")])
    await store.append("done", 1, [done(9)])
    assert sorted(await ids(store, cut_off=True)) == ["run", "stop"]


async def test_request_is_found_by_its_name(store: SessionStore) -> None:
    await create_owned(store, "a", "alice")
    await create_owned(store, "b", "alice")
    assert await store.find_request("a", "r1") is None
    await store.append("a", 1, [begin("ann").model_copy(update={"request": "r1"})])
    await store.append("a", 1, [TurnResumed(session_id="a", turn=1, question="q", agents=("ann",), request="r2")])
    await store.append("a", 1, [UserReplied(param="p", text="x", request="r3"), done(1)])
    await store.append("a", 2, [begin("ann", at=2)])
    assert [await store.find_request("a", name) for name in ("r1", "r2", "r3", "", "r")] == [1, 2, 3, None, None]
    assert await store.find_request("b", "r1") is None
    assert await store.find_request("no such", "r1") is None
    while await store.delete_session("a", 100) is not None:
        pass
    await create_owned(store, "a", "alice")
    assert await store.find_request("a", "r1") is None


async def test_session_is_found_by_the_history_that_its_client_resends(store: SessionStore) -> None:
    for at, (name, owner) in enumerate([("a", "alice"), ("b", "alice"), ("c", "bob"), ("d", "alice")]):
        await create_owned(store, name, owner, at)
    for name, history_hash in (("a", "1" * 64), ("b", "2" * 64), ("c", "1" * 64)):
        await store.update_session(name, history_hash=history_hash)
    assert await ids(store, owner=Owner("alice"), history_hash="1" * 64) == ["a"]
    assert await ids(store, owner=Owner("alice"), history_hash="3" * 64) == []
    await store.update_session("a", history_hash="2" * 64)
    assert await ids(store, owner=Owner("alice"), history_hash="1" * 64) == []
    assert await ids(store, owner=Owner("alice"), history_hash="2" * 64) == ["b", "a"]
    await store.update_session("nobody", history_hash="1" * 64)
    assert await store.get_session("nobody") is None


async def test_session_goes_on_with_another_team(store: SessionStore) -> None:
    await create_owned(store, "a", "alice")
    await store.update_session("a", config_path="/teams/support.yaml")
    await store.update_session("nobody", config_path="/teams/support.yaml")
    session = await store.get_session("a")
    assert session is not None
    assert session.config_path == "/teams/support.yaml"
