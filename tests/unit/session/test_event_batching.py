"""Which events go into the store in one transaction, and when a turn may go on."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from massmem.core.events import AgentDelta, Event, Notice
from massmem.session.event_batching import batch_events, join_deltas
from massmem.turn.stream import Checkpoint


async def notices(*pauses: float) -> AsyncGenerator[Event, None]:
    """Yield one event after each pause in seconds."""
    for number, pause in enumerate(pauses):
        await asyncio.sleep(pause)
        yield Notice(message=str(number))


async def gather(source: AsyncGenerator[Event, None], stop: asyncio.Event | None = None) -> list[str]:
    """Return the events of each batch, by their numbers."""
    batches: list[str] = []
    async for batch in batch_events(source, stop or asyncio.Event()):
        batches.append("".join(event.message for event in batch.events if isinstance(event, Notice)))
    return batches


async def test_batch_holds_what_comes_at_once():
    assert await gather(notices(0, 0, 0, 0.2, 0, 0.2)) == ["012", "34", "5"]


async def test_events_before_the_end_or_a_stop_are_in_a_batch():
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    assert await gather(notices(0, 0, 60), stop) == ["01"]
    assert await gather(notices(0)) == ["0"]


async def test_source_that_never_pauses_is_split_into_batches():
    batches = await gather(notices(*[0.0] * 60))
    assert len(batches) > 3
    assert "".join(batches) == "".join(map(str, range(60)))


async def test_error_of_the_source_follows_its_events():
    async def broken() -> AsyncGenerator[Event, None]:
        yield Notice(message="0")
        raise ValueError

    batches: list[Event] = []
    with pytest.raises(ValueError):
        async for batch in batch_events(broken(), asyncio.Event()):
            batches += batch.events
    assert len(batches) == 1


async def test_source_passes_a_checkpoint_once_its_batch_is_confirmed():
    passed: list[str] = []

    async def source() -> AsyncGenerator[Event | Checkpoint, None]:
        yield Notice(message="0")
        checkpoint = Checkpoint()
        yield checkpoint
        await checkpoint.wait()
        passed.append("checkpoint")
        yield Notice(message="1")

    sizes: list[int] = []
    async for batch in batch_events(source(), asyncio.Event()):
        sizes.append(len(batch.events))
        if len(sizes) == 1:
            await asyncio.sleep(0.05)
            assert passed == []
        batch.confirm()
    assert sizes == [1, 1]
    assert passed == ["checkpoint"]


def test_deltas_of_one_agent_and_channel_are_joined():
    def delta(agent: str, text: str) -> AgentDelta:
        return AgentDelta(agent_id=agent, round=1, channel="text", text=text)

    notice = Notice(message="x")
    events = [delta("a", "1"), delta("b", "2"), delta("a", "3"), notice, delta("a", "4"), delta("a", "5")]
    joined = join_deltas(events)
    assert [event.text if isinstance(event, AgentDelta) else "|" for event in joined] == ["13", "2", "|", "45"]
