"""What every SessionStore promises about API keys and browsers: all who open it know the same ones."""

from datetime import UTC, datetime, timedelta

from massmem.core.records import ApiKey, PageSession, make_api_key
from massmem.store.ports import MAX_BROWSERS, SessionStore
from tests.contract.test_session_store import session
from tests.support.sample_turn import START
from tests.support.stores import Opener


def make_key(sub: str, at_second: float = 0) -> ApiKey:
    moment = START + timedelta(seconds=at_second)
    return make_api_key(sub, moment, name="my laptop", scope="metrics", expires_at=moment + timedelta(days=1))[1]


async def test_key_comes_back_as_it_was_stored(store: SessionStore) -> None:
    key = make_key("alice").model_copy(update={"sub": "ä 'x' -- \"; DROP"})
    await store.add_key(key)
    assert await store.find_key(key.key_hash) == key
    assert await store.list_keys() == [key]
    forever = key.model_copy(update={"key_hash": "f" * 64, "id": "key_2", "expires_at": None})
    await store.add_key(forever)
    assert await store.find_key("f" * 64) == forever


async def test_unknown_key_is_nobody(store: SessionStore) -> None:
    key = make_key("alice")
    await store.add_key(key)
    for unknown in ("", "%", "*", key.key_hash[:-1], key.key_hash.upper()):
        assert await store.find_key(unknown) is None


async def test_deleted_key_is_gone_for_everybody(store: SessionStore, opener: Opener) -> None:
    alice, bob = make_key("alice", 1), make_key("bob", 0)
    for key in (alice, bob):
        await store.add_key(key)
    assert await store.list_keys() == [bob, alice]
    if store.info.kind != "memory":
        other = await opener()
        assert await other.delete_key(alice.id)
        await other.close()
    else:
        assert await store.delete_key(alice.id)
    assert await store.find_key(alice.key_hash) is None
    assert await store.list_keys() == [bob]
    assert not await store.delete_key(alice.id)
    assert not await store.delete_key("")


async def test_keys_are_no_sessions(store: SessionStore) -> None:
    await store.add_key(make_key("alice"))
    await store.create_session(session())
    assert len(await store.list_sessions()) == 1
    assert await store.delete_session("session_a", 10) is None
    assert len(await store.list_keys()) == 1


def make_browser(name: str, at_second: float = 0, seconds: float = 600) -> PageSession:
    moment = datetime.now(UTC) + timedelta(seconds=at_second)
    return PageSession(
        cookie_hash=name * 64,
        sub="alice ä'",
        scope="admin metrics",
        key_hash="k" * 64,
        token_id="t",
        signed_with="s",
        used_at=moment,
        expires_at=moment + timedelta(seconds=seconds),
    )


async def test_browser_stays_until_it_leaves(store: SessionStore, opener: Opener) -> None:
    first, second = make_browser("a"), make_browser("b")
    for browser in (first, second):
        await store.add_page_session(browser)
    assert await store.find_page_session(first.cookie_hash) == first
    later = first.model_copy(update={"used_at": first.used_at + timedelta(seconds=300)})
    await store.renew_page_session(later)
    assert await store.find_page_session(first.cookie_hash) == later
    if store.info.kind != "memory":
        other = await opener()
        assert await other.find_page_session(first.cookie_hash) == later
        await other.delete_page_session(first.cookie_hash)
        await other.close()
    else:
        await store.delete_page_session(first.cookie_hash)
    assert await store.find_page_session(first.cookie_hash) is None
    await store.renew_page_session(later)
    assert await store.find_page_session(first.cookie_hash) is None
    assert await store.find_page_session(second.cookie_hash) == second
    assert await store.find_page_session("") is None


async def test_browsers_that_have_expired_take_no_room(store: SessionStore) -> None:
    await store.add_page_session(make_browser("a", seconds=1))
    await store.add_page_session(make_browser("b", at_second=2))
    if store.info.kind != "redis":  # which forgets by its own clock
        assert await store.find_page_session("a" * 64) is None
    assert await store.find_page_session("b" * 64) is not None


async def test_user_has_so_many_browsers_and_takes_none_of_others(store: SessionStore) -> None:
    other = make_browser("z").model_copy(update={"sub": "bob"})
    await store.add_page_session(other)
    numbers = range(MAX_BROWSERS + 2)
    browsers = [make_browser("a", n).model_copy(update={"cookie_hash": f"{n:064}"}) for n in numbers]
    for browser in browsers:
        await store.add_page_session(browser)
    known = [await store.find_page_session(browser.cookie_hash) is not None for browser in browsers]
    assert known == [False] * 2 + [True] * MAX_BROWSERS
    assert await store.find_page_session(other.cookie_hash) == other
