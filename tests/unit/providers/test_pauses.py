"""Pauses of endpoints: whom they concern, and what happens while the server that shares them is away."""

import asyncio
import logging

import pytest

from massmem.config.models import BackendConfig
from massmem.core.errors import StoreUnavailable
from massmem.providers import pauses as module
from massmem.providers.pauses import LocalPauses, Pause, SharedPauses
from massmem.providers.presets import resolve
from massmem.store import RedisPauses, open_pauses
from massmem.store.redis.server import Server

KEY = "sk-stub-0123456789abcdef"


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


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
    pauses = SharedPauses(RedisPauses(Server("redis://:secret@127.0.0.1:9")))
    with caplog.at_level(logging.WARNING):
        await pauses.begin("a", 50)
    assert 0 < await pauses.find("a") <= 50
    assert await pauses.find("b") == 0
    assert caplog.text.count("cannot be reached") == 1
    assert "secret" not in caplog.text
    await pauses.close()
