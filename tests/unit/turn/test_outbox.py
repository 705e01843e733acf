"""The events of a turn in batches, and what waits until they are stored."""

import asyncio

import pytest

from massmem.core.events import AgentDelta, Event, Notice
from massmem.turn.outbox import Outbox, join_deltas, run_until


async def emit_notices(outbox: Outbox, *pauses: float) -> None:
    """Emit one event after each pause in seconds."""
    for number, pause in enumerate(pauses):
        await asyncio.sleep(pause)
        outbox.emit(Notice(message=str(number)))


async def gather(*pauses: float, stop: asyncio.Event | None = None) -> list[str]:
    """Return the events of each batch, by their numbers."""
    outbox, batches = Outbox(), list[str]()
    work = run_until(stop or asyncio.Event(), emit_notices(outbox, *pauses))
    async for batch in outbox.run(work):
        batches.append("".join(event.message for event in batch.events if isinstance(event, Notice)))
    return batches


async def test_batch_holds_what_comes_at_once():
    assert await gather(0, 0, 0, 0.2, 0, 0.2) == ["012", "34", "5"]


async def test_events_before_the_end_or_a_stop_are_in_a_batch():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    assert await gather(0, 0, 60, stop=stop) == ["01"]
    assert await gather(0) == ["0"]


async def test_source_that_never_pauses_is_split_into_batches():
    batches = await gather(*[0.0] * 60)
    assert len(batches) > 3
    assert "".join(batches) == "".join(map(str, range(60)))


async def test_error_of_the_source_follows_its_events():
    outbox = Outbox()

    async def break_down() -> None:
        outbox.emit(Notice(message="0"))
        raise ValueError

    batches: list[Event] = []
    with pytest.raises(ValueError):
        async for batch in outbox.run(break_down()):
            batches += batch.events
    assert len(batches) == 1


async def test_waiter_for_the_log_goes_on_once_its_batch_is_confirmed():
    outbox, passed = Outbox(), list[str]()

    async def wait() -> None:
        outbox.emit(Notice(message="0"))
        await outbox.wait_until_stored()
        passed.append("stored")
        outbox.emit(Notice(message="1"))

    sizes: list[int] = []
    async for batch in outbox.run(wait()):
        sizes.append(len(batch.events))
        if len(sizes) == 1:
            await asyncio.sleep(0.05)
            assert passed == []
        batch.confirm()
    assert sizes == [1, 1]
    assert passed == ["stored"]


async def test_closing_the_batches_ends_the_work():
    outbox, ended = Outbox(), list[str]()

    async def work() -> None:
        try:
            outbox.emit(Notice(message="0"))
            await asyncio.sleep(30)
        finally:
            ended.append("work")

    batches = outbox.run(work())
    await anext(batches)
    await batches.aclose()
    assert ended == ["work"]


def test_deltas_of_one_agent_and_channel_are_joined():
    def delta(agent: str, text: str) -> AgentDelta:
        return AgentDelta(agent_id=agent, round=1, channel="text", text=text)

    notice = Notice(message="x")
    events = [delta("a", "1"), delta("b", "2"), delta("a", "3"), notice, delta("a", "4"), delta("a", "5")]
    joined = join_deltas(events)
    assert [event.text if isinstance(event, AgentDelta) else "|" for event in joined] == ["13", "2", "|", "45"]
