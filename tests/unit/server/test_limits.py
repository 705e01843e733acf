"""Limits per user and per process."""

import pytest

from massmem.config.models import LimitsConfig
from massmem.core.errors import InputError
from massmem.server.errors import RetryLater
from massmem.server.limits import Limits


def make_limits(**config: object) -> Limits:
    return Limits(LimitsConfig.model_validate(config))


async def test_requests_beyond_the_limit_of_a_minute_are_refused() -> None:
    limits = make_limits(requests=3)
    for _ in range(3):
        await limits.count_request("alice")
    with pytest.raises(RetryLater) as refusal:
        await limits.count_request("alice")
    assert refusal.value.status == 429
    assert 1 <= refusal.value.retry_after <= 61
    await limits.count_request("bob")


def test_questions_at_the_same_time_are_limited_per_user_and_in_total() -> None:
    limits = make_limits(turns_per_user=2, turns=3)
    with limits.hold_turn("alice"), limits.hold_turn("alice"):
        with pytest.raises(RetryLater) as of_user, limits.hold_turn("alice"):
            pass
        with limits.hold_turn("bob"), pytest.raises(RetryLater) as of_all, limits.hold_turn("carol"):
            pass
    assert (of_user.value.status, of_all.value.status) == (429, 503)
    with limits.hold_turn("alice"), limits.hold_turn("alice"):
        pass


def test_question_that_ends_makes_room_for_one_other_question() -> None:
    limits = make_limits(turns_per_user=2, turns=10)
    with limits.hold_turn("alice"):
        with limits.hold_turn("alice"):
            pass
        with limits.hold_turn("alice"), pytest.raises(RetryLater), limits.hold_turn("alice"):
            pass


def test_question_that_fails_is_no_longer_counted() -> None:
    limits = make_limits(turns_per_user=1)
    for _ in range(3):
        with pytest.raises(ValueError, match="x"), limits.hold_turn("alice"):
            raise ValueError("x")


def test_open_streams_are_limited_per_user() -> None:
    limits = make_limits(streams_per_user=1)
    limits.check_streams("alice")
    with limits.hold_stream("alice"):
        limits.check_streams("bob")
        with pytest.raises(RetryLater):
            limits.check_streams("alice")
    limits.check_streams("alice")


@pytest.mark.parametrize("address", ["nonsense://x", "redis", ""])
def test_wrong_address_of_redis_is_rejected(address: str) -> None:
    with pytest.raises(InputError, match="counted_in"):
        make_limits(counted_in=address)
