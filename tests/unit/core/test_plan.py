import json

from massmem.core.plan import read_plan
from tests.support.sample_turn import SECRET, answer, begin, event, requested, waiting, waiting_turn, whole_turn


def test_who_has_acted_who_asked_and_what_remains():
    events = [
        begin("ann", "bob", "eve"),
        event(0, "round_started", round=1, agents=("ann", "bob", "eve")),
        requested(1, "ann", "zip"),
        answer(1, "bob", "B"),
    ]
    plan = read_plan(events)
    assert (plan.acted, plan.asked, plan.params, plan.remaining) == (("bob",), {"ann": "zip"}, ("zip",), ("eve",))
    assert plan.waiting_for is None, "eve can still act"
    plan = read_plan([*events, answer(2, "eve", "E", number=2), waiting(2, "zip", "ann")])
    assert (plan.waiting_for, plan.asks) == ("zip", 1)
    assert plan.describe() == ["waiting for zip", "ann needs zip", "round 1, done: bob, eve"]


def test_the_second_time_is_named():
    events = [*waiting_turn()[:7], event(6, "user_replied", param="order_id", text="hm")]
    assert read_plan(events).describe()[:2] == ["waiting for order_id (asked 2 times)", "then for zip"]


def test_a_turn_that_was_cut_off_shows_what_is_to_do():
    assert read_plan(waiting_turn()[:2]).describe() == ["round 1, to do: ann, bob"]


def test_a_finished_turn_has_nothing_left():
    plan = read_plan(whole_turn())
    assert (plan.describe(), plan.remaining, plan.winner) == ([], (), "ann")


def test_its_data_are_json_without_values():
    for count in range(1, len(waiting_turn())):
        assert SECRET not in json.dumps(read_plan(waiting_turn()[:count]).to_json())
