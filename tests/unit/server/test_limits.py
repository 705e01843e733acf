"""How much one user, and all of them, may ask for."""

import pytest

from massmem.config.service import LimitsConfig
from massmem.errors import InputError
from massmem.server.limits import Limits, TooMuch


def limits(**config: object) -> Limits:
    return Limits(LimitsConfig.model_validate(config))


async def test_requests_of_a_user_in_a_minute() -> None:
    few = limits(requests=3)
    for _ in range(3):
        await few.request("alice")
    with pytest.raises(TooMuch) as refused:
        await few.request("alice")
    assert refused.value.status == 429
    assert 1 <= refused.value.retry_after <= 61
    await few.request("bob")


def test_questions_at_the_same_time() -> None:
    few = limits(turns_per_user=2, turns=3)
    with few.turn("alice"), few.turn("alice"):
        with pytest.raises(TooMuch) as own, few.turn("alice"):
            pass
        with few.turn("bob"), pytest.raises(TooMuch) as all_, few.turn("carol"):
            pass
    assert (own.value.status, all_.value.status) == (429, 503)
    with few.turn("alice"), few.turn("alice"):
        pass


def test_a_question_that_fails_gives_its_place_back() -> None:
    few = limits(turns_per_user=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="x"), few.turn("alice"):
            raise ValueError("x")


def test_streams() -> None:
    few = limits(streams_per_user=1)
    few.check_streams("alice")
    with few.stream("alice"):
        few.check_streams("bob")
        with pytest.raises(TooMuch):
            few.check_streams("alice")
    few.check_streams("alice")


def test_a_place_to_count_in_that_is_none() -> None:
    for place in ("nonsense://x", "redis", ""):
        with pytest.raises(InputError, match="counted_in"):
            limits(counted_in=place)
