"""Which events go into the store in one transaction."""

import asyncio
from collections.abc import AsyncGenerator

from massmem.events import Event, Notice
from massmem.session.batches import batches


async def told(*pauses: float) -> AsyncGenerator[Event, None]:
    """One event after each pause in seconds."""
    for number, pause in enumerate(pauses):
        await asyncio.sleep(pause)
        yield Notice(message=str(number))


async def gathered(source: AsyncGenerator[Event, None], stop: asyncio.Event | None = None) -> list[str]:
    """The events of each batch, by their numbers."""
    return [
        "".join(event.message for event in batch if isinstance(event, Notice))
        async for batch in batches(source, stop or asyncio.Event())
    ]


async def test_what_follows_at_once_is_stored_with_it_and_nothing_waits_for_what_takes_time() -> None:
    assert await gathered(told(0, 0, 0, 0.2, 0, 0.2)) == ["012", "34", "5"]


async def test_what_was_produced_before_the_end_or_a_stop_is_in_a_batch() -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(0.1, stop.set)
    assert await gathered(told(0, 0, 60), stop) == ["01"]
    assert await gathered(told(0)) == ["0"]


async def test_a_source_that_never_pauses_is_stored_on_the_way() -> None:
    found = await gathered(told(*[0.0] * 60))
    assert len(found) > 3
    assert "".join(found) == "".join(map(str, range(60)))
