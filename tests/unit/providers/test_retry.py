"""Retries with a clock, a sleep and a jitter of the test's own; pauses of endpoints, and whom they concern."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import BackendConfig
from massmem.core.errors import AuthenticationError, ProviderError, ProviderUnavailable, RateLimited, StoreUnavailable
from massmem.core.messages import (
    Chunk,
    FinishChunk,
    RetryChunk,
    TextChunk,
    Usage,
)
from massmem.providers import retry as module
from massmem.providers.endpoints import resolve
from massmem.providers.retry import LocalPauses, Pause, Retrier, RetryBudget, RetryPolicy, SharedPauses
from massmem.store import RedisPauses, open_pauses
from massmem.store.redis.server import RedisConnection

KEY = "sk-stub-0123456789abcdef"
DONE = FinishChunk("stop", Usage(3, 2, requests=1))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Sleeps:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def attempts(*outcomes: Sequence[Chunk | ProviderError]) -> Callable[[], AsyncGenerator[Chunk, None]]:
    """Each call streams the next outcome; an error in it is raised."""
    left = list(outcomes)

    async def attempt() -> AsyncGenerator[Chunk, None]:
        for item in left.pop(0):
            if isinstance(item, ProviderError):
                raise item
            yield item

    return attempt


async def run(retrier: Retrier, attempt: Callable[[], AsyncGenerator[Chunk, None]]) -> list[Chunk]:
    return [chunk async for chunk in retrier.stream(attempt)]


@given(retry=st.integers(1, 1000), jitter=st.floats(0, 1, exclude_max=True))
def test_backoff_is_full_jitter_under_a_doubling_cap(retry: int, jitter: float) -> None:
    delay = RetryPolicy().delay(retry, None, jitter)
    assert 0 <= delay <= min(30.0, 0.5 * 2 ** (retry - 1))
    assert RetryPolicy().delay(retry, None, 0.0) == 0.0


@given(asked=st.floats(0, 60), jitter=st.floats(0, 1, exclude_max=True))
def test_the_servers_wish_is_a_lower_bound(asked: float, jitter: float) -> None:
    assert asked <= RetryPolicy().delay(1, asked, jitter) <= asked * 1.1


async def test_delays_double_and_every_request_is_counted() -> None:
    sleeps = Sleeps()
    fail = [ProviderUnavailable("503")]
    retrier = Retrier(RetryPolicy(3), RetryBudget(), jitter=lambda: 1.0, sleep=sleeps)
    chunks = await run(retrier, attempts(fail, fail, fail, [TextChunk("ok"), DONE]))
    assert sleeps.seconds == [0.5, 1.0, 2.0]
    assert [c.attempt for c in chunks if isinstance(c, RetryChunk)] == [2, 3, 4]
    assert chunks[-1] == FinishChunk("stop", Usage(3, 2, requests=4))


async def test_the_last_error_is_raised_with_its_own_partial_text() -> None:
    retrier = Retrier(RetryPolicy(1), RetryBudget(), sleep=Sleeps())
    first = [TextChunk("first"), ProviderUnavailable("503")]
    last = [TextChunk("la"), TextChunk("st"), RateLimited("429", "wait", retry_after=1)]
    with pytest.raises(RateLimited, match=r"429\. Tried 2 times") as caught:
        await run(retrier, attempts(first, last))
    assert caught.value.partial == "last"
    assert caught.value.hint == "wait"


async def test_an_error_that_cannot_pass_is_raised_at_once() -> None:
    sleeps = Sleeps()
    with pytest.raises(AuthenticationError):
        await run(Retrier(RetryPolicy(3), RetryBudget(), sleep=sleeps), attempts([AuthenticationError("401")]))
    assert sleeps.seconds == []


async def test_a_wait_that_is_too_long_is_named_and_not_waited_for() -> None:
    sleeps = Sleeps()
    fail = [RateLimited("429", retry_after=3600)]
    with pytest.raises(RateLimited, match="asks to wait 3600 s"):
        await run(Retrier(RetryPolicy(3), RetryBudget(), sleep=sleeps), attempts(fail))
    assert sleeps.seconds == []


async def test_a_request_that_the_attempt_adds_is_counted_and_numbered() -> None:
    added = [RetryChunk("no such option", 0.0, 0), DONE]
    retrier = Retrier(RetryPolicy(3), RetryBudget(), sleep=Sleeps())
    chunks = await run(retrier, attempts([ProviderUnavailable("503")], added))
    assert [c.attempt for c in chunks if isinstance(c, RetryChunk)] == [2, 3]
    assert chunks[-1] == FinishChunk("stop", Usage(3, 2, requests=3))


async def test_an_outage_is_not_amplified() -> None:
    """1000 requests against a dead endpoint in one minute: 10 + 10 % retries, whatever max_retries allows."""
    clock = Clock()
    budget = RetryBudget(clock)
    retrier = Retrier(RetryPolicy(20), budget, sleep=Sleeps())
    sent = 0

    async def dead() -> AsyncGenerator[Chunk, None]:
        nonlocal sent
        sent += 1
        raise ProviderUnavailable("503")
        yield DONE

    for _ in range(1000):
        with pytest.raises(ProviderUnavailable):
            await run(retrier, dead)
    assert sent == 1000 + 10 + 100


async def test_a_spent_budget_says_so_and_fills_again() -> None:
    clock = Clock()
    budget = RetryBudget(clock)
    retrier = Retrier(RetryPolicy(20), budget, sleep=Sleeps())
    fail = [ProviderUnavailable("503")]
    with pytest.raises(ProviderUnavailable, match="too many requests to this endpoint failed"):
        await run(retrier, attempts(*[fail] * 30))
    clock.now += 61
    assert (await run(retrier, attempts(fail, [DONE])))[-1] == FinishChunk("stop", Usage(3, 2, requests=2))


@given(st.lists(st.tuples(st.floats(0, 30), st.booleans()), max_size=200))
def test_never_more_retries_in_a_minute_than_the_budget(steps: list[tuple[float, bool]]) -> None:
    clock = Clock()
    budget = RetryBudget(clock)
    requests: list[float] = []
    retries: list[float] = []
    for wait, is_retry in steps:
        clock.now += wait
        if not is_retry:
            budget.count_request()
            requests.append(clock.now)
        elif budget.take():
            retries.append(clock.now)
            recent = [t for t in requests if t > clock.now - 60]
            assert len([t for t in retries if t > clock.now - 60]) <= 10 + len(recent) * 0.1


class Pacing:
    """Retriers on one endpoint whose sleeps move the clock."""

    def __init__(self) -> None:
        self.clock, self.sleeps = Clock(), Sleeps()
        self.pause = Pause(LocalPauses(self.clock), "endpoint")

    def retrier(self, policy: RetryPolicy = RetryPolicy(3)) -> Retrier:  # noqa: B008 - frozen
        return Retrier(policy, RetryBudget(self.clock), pause=self.pause, jitter=lambda: 0.0, sleep=self._sleep)

    async def _sleep(self, seconds: float) -> None:
        await self.sleeps(seconds)
        self.clock.now += seconds


async def test_refusal_of_one_request_holds_back_the_others_until_its_time() -> None:
    pacing = Pacing()
    refused = [RateLimited("429", retry_after=40)]
    with pytest.raises(RateLimited):
        await run(pacing.retrier(RetryPolicy(0)), attempts(refused))
    pacing.clock.now += 10
    chunks = await run(pacing.retrier(), attempts([DONE]))
    assert pacing.sleeps.seconds == [30]
    assert chunks[0] == RetryChunk("the model: the server asks all to wait 30.0 s", 30, 0)
    assert chunks[-1] == FinishChunk("stop", Usage(3, 2, requests=1)), "nothing was sent in vain"


async def test_request_that_was_refused_itself_waits_once() -> None:
    pacing = Pacing()
    chunks = await run(pacing.retrier(), attempts([ProviderUnavailable("529", retry_after=7)], [DONE]))
    assert pacing.sleeps.seconds == [7]
    assert [c.attempt for c in chunks if isinstance(c, RetryChunk)] == [2]


async def test_pause_that_grows_while_somebody_waits_is_waited_for_as_well() -> None:
    pacing = Pacing()
    await pacing.pause.begin(10)
    retrier = pacing.retrier()
    waiting = retrier.stream(attempts([DONE]))
    assert isinstance(await anext(waiting), RetryChunk)
    await pacing.pause.begin(25)
    assert [type(chunk) async for chunk in waiting] == [RetryChunk, FinishChunk]
    assert pacing.sleeps.seconds == [10, 15]


@pytest.mark.parametrize("seconds", [61, 100_000])
async def test_pause_that_is_too_long_is_named_and_nothing_is_sent(seconds: float) -> None:
    pacing = Pacing()
    await pacing.pause.begin(seconds)
    with pytest.raises(RateLimited, match=r"asks all to wait .* nothing was sent"):
        await run(pacing.retrier(), attempts())
    assert pacing.sleeps.seconds == []


async def test_pause_beyond_the_deadline_is_not_waited_for() -> None:
    pacing = Pacing()
    await pacing.pause.begin(50)
    with pytest.raises(RateLimited):
        await run(pacing.retrier(RetryPolicy(3, deadline=20)), attempts())


@pytest.mark.parametrize("error", [ProviderUnavailable("503"), AuthenticationError("401", retry_after=30)])
async def test_failure_that_names_no_time_or_cannot_pass_stops_nobody_else(error: ProviderError) -> None:
    pacing = Pacing()
    with pytest.raises(ProviderError):
        await run(pacing.retrier(RetryPolicy(0)), attempts([error]))
    assert await pacing.pause.find() == 0


class Flaky(LocalPauses):
    """Fails, or does not answer, while `trouble` says so, and counts who asks."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.trouble = ""
        self.asked = 0

    async def find(self, name: str) -> float:
        self.asked += 1
        if self.trouble == "silent":
            await asyncio.Event().wait()
        if self.trouble:
            raise StoreUnavailable("redis://cache cannot be reached")
        return await super().find(name)


def name_pause(**backend: str) -> str:
    fields = {"type": "openai", "model": "m", "api_key": KEY, "base_url": "http://127.0.0.1:9/v1"} | backend
    return Pause.of(resolve(BackendConfig.model_validate(fields), {}), LocalPauses()).name


def test_pause_belongs_to_one_model_key_and_endpoint_and_hides_the_key() -> None:
    others = [{"model": "n"}, {"api_key": "sk-other"}, {"base_url": "http://127.0.0.1:10/v1"}]
    names = {name_pause(), *(name_pause(**other) for other in others)}
    assert len(names) == 4
    assert name_pause() == name_pause(), "every process gives it the same name"
    assert not any(KEY in name or "sk-" in name for name in names)


async def test_pause_lasts_five_minutes_at_most() -> None:
    clock = Clock()
    pause = Pause(LocalPauses(clock), "a")
    await pause.begin(86_400)
    assert await pause.find() == 300
    clock.now += 300
    assert await pause.find() == 0


@pytest.mark.parametrize("trouble", ["failing", "silent"])
async def test_process_goes_on_alone_while_the_shared_server_is_away_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)
    clock = Clock()
    server = Flaky(clock)
    pauses = SharedPauses(server, clock)
    server.trouble = trouble
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            assert await pauses.find("a") == 0
            assert server.asked == 1, "it is not asked again at once"
        clock.now += 11
        assert await pauses.find("a") == 0
        assert server.asked == 2
    assert len(caplog.records) == 1
    assert "not shared for now" in caplog.text
    await pauses.begin("a", 50)
    assert await pauses.find("a") == 50, "its own pauses count all the same"
    server.trouble = ""
    await server.begin("b", 60)
    clock.now += 11
    assert await pauses.find("b") == 49


@pytest.mark.parametrize("address", ["redis+cluster://127.0.0.1:7000", "nonsense", "redis://h/x"])
def test_address_that_cannot_be_shared_is_named_in_the_log(caplog: pytest.LogCaptureFixture, address: str) -> None:
    with caplog.at_level(logging.WARNING):
        assert isinstance(open_pauses(address), LocalPauses)
    assert "server.limits.counted_in" in caplog.text


async def test_redis_that_is_away_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    pauses = SharedPauses(RedisPauses(RedisConnection("redis://:secret@127.0.0.1:9")))
    with caplog.at_level(logging.WARNING):
        await pauses.begin("a", 50)
    assert 0 < await pauses.find("a") <= 50
    assert await pauses.find("b") == 0
    assert caplog.text.count("cannot be reached") == 1
    assert "secret" not in caplog.text
    await pauses.close()
