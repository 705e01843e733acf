"""A clock that jumps, ten years ahead and an hour back: what was said stays in the order in which it was said."""

from datetime import timedelta
from pathlib import Path

from massmem.core.events import now
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.sample_turn import begin
from tests.support.stores import NewPlace

JUMPS = (timedelta(0), timedelta(days=3653), timedelta(hours=-1), timedelta(seconds=1))


async def test_the_turn_counter_orders_and_not_the_clock(new_place: NewPlace, tmp_path: Path) -> None:
    url, start = new_place(), now()
    store = await open_store(url, tmp_path)
    await store.create_session(session())
    sent: list[str] = []
    for turn, jump in enumerate(JUMPS, start=1):
        for event, text in ((begin("ann", question=f"q{turn}"), f"q{turn}"), (done(text=f"a{turn}"), f"a{turn}")):
            moved = event.model_copy(update={"at": start + jump})
            await store.append("session_a", turn, [moved])
            sent.append(text)
    await store.close()
    store = await open_store(url, tmp_path)
    said = [m.content for m in reversed(await store.read_conversation("session_a", None, 100))]
    logged = [m.content for m in await store.read_messages("session_a")]
    turns = [t.turn for t in await store.list_turns("session_a")]
    last = await store.get_last_turn("session_a")
    await store.close()
    lost = len(set(sent) - set(said))
    ghosts = len(said) - len(set(said) & set(sent))
    lies = (said != sent) + (logged != sent) + (turns != [1, 2, 3, 4])
    print(f"turns {len(JUMPS)} lost {lost} ghost {ghosts} leak 0 lie {lies}")
    assert (lost, ghosts, lies) == (0, 0, 0)
    assert last is not None and (last.turn, last.status) == (4, "completed")
