from massmem.waiting import Waiting, waiting_of
from tests.support.sample_turn import begin, event, requested, waiting, waiting_turn


def after(*events: object) -> Waiting:
    return waiting_of([begin("ann", "bob"), *events])  # pyright: ignore[reportArgumentType]


def test_requests_are_open_in_the_order_in_which_they_were_made():
    state = after(requested(1, "ann", "zip"), requested(2, "bob", "order_id"))
    assert (state.params, state.agents) == (("zip", "order_id"), ("ann", "bob"))
    assert state.request is not None and state.request.param == "zip"


def test_a_value_settles_it_for_everyone_who_asked():
    state = after(requested(1, "ann", "zip"), requested(2, "bob", "zip"), event(3, "param_provided", param="zip"))
    assert (state.params, state.agents, state.request) == ((), (), None)


def test_replies_count_until_it_is_settled():
    reply = event(2, "user_replied", param="zip", text="hm")
    state = after(requested(1, "ann", "zip"), waiting(1, "zip", "ann"), reply, reply)
    assert state.asked("zip") == 3
    state.apply(event(3, "param_cleared", param="zip", why="gave_up"))
    assert (state.asked("zip"), state.given_up) == (1, {"zip"})


def test_who_left_the_team_needs_nothing():
    resumed = event(2, "turn_resumed", session_id="s", turn=1, question="?", agents=("bob",))
    assert after(requested(1, "ann", "zip"), resumed).params == ()


def test_a_turn_that_was_given_up_waits_for_nothing():
    assert waiting_of(waiting_turn()).request is None
