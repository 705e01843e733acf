"""What every SessionStore promises when many users share it: whose sessions are found, and what was asked before."""

from massmem.core.events import TurnInterrupted, TurnResumed, UserReplied
from massmem.core.records import SessionFilter
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import done, opener, session, store
from tests.support.sample_turn import begin

__all__ = ["opener", "store"]


async def owned(store: SessionStore, name: str, owner: str | None, at: float = 0) -> None:
    await store.create_session(session(name, at).model_copy(update={"user_id": owner}))


async def ids(store: SessionStore, **wanted: object) -> list[str]:
    return [each.session.session_id for each in await store.find_sessions(SessionFilter.model_validate(wanted))]


async def test_sessions_are_found_by_their_owner(store: SessionStore) -> None:
    for at, (name, owner) in enumerate([("a", "alice"), ("b", "bob"), ("c", "alice"), ("d", None), ("e", "Alice")]):
        await owned(store, name, owner, at)
    assert await ids(store, owner="alice") == ["c", "a"]
    assert await ids(store, owner="bob") == ["b"]
    for nobody in ("", "%", "*", "alic_", "carol", "' OR 1=1 --", "\x00", "\ud800"):
        assert await ids(store, owner=nobody) == []
    assert (await store.count_sessions(SessionFilter(owner="alice"))).sessions == 2
    assert len(await ids(store)) == 5


async def test_messages_of_a_conversation_are_counted(store: SessionStore) -> None:
    assert await store.count_messages(SessionFilter()) == 0
    await owned(store, "a", "alice")
    await owned(store, "b", "bob")
    await store.append("a", 1, [begin("ann"), done(1)])
    await store.append("a", 2, [begin("ann", at=2)])
    await store.append("b", 1, [begin("ann"), done(1)])
    assert await store.count_messages(SessionFilter()) == 5
    assert await store.count_messages(SessionFilter(owner="alice")) == 3
    assert await store.count_messages(SessionFilter(owner="carol")) == 0
    assert [listed.conversation_length for listed in await store.find_sessions(SessionFilter(owner="alice"))] == [3]


async def test_turns_that_may_have_been_cut_off(store: SessionStore) -> None:
    for at, (name, owner) in enumerate([("run", "alice"), ("stop", "bob"), ("done", "alice"), ("mine", None)]):
        await owned(store, name, owner, at)
        await store.append(name, 1, [begin("ann", at=at)])
    await store.append("stop", 1, [TurnInterrupted(by="signal")])
    await store.append("done", 1, [done(9)])
    assert sorted(await ids(store, cut_off=True)) == ["run", "stop"]


async def test_what_was_asked_under_a_name(store: SessionStore) -> None:
    await owned(store, "a", "alice")
    await owned(store, "b", "alice")
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
    await owned(store, "a", "alice")
    assert await store.find_request("a", "r1") is None
