from massmem.core.waiting import Waiting, read_waiting
from tests.support.sample_turn import begin, event, param_request, waiting, waiting_turn


def after(*events: object) -> Waiting:
    return read_waiting([begin("ann", "bob"), *events])  # pyright: ignore[reportArgumentType]


def test_requests_are_open_in_the_order_in_which_they_were_made():
    state = after(param_request(1, "ann", "zip"), param_request(2, "bob", "order_id"))
    assert (state.params, state.agents) == (("zip", "order_id"), ("ann", "bob"))
    assert state.next_request is not None and state.next_request.param == "zip"


def test_a_value_settles_it_for_everyone_who_asked():
    state = after(
        param_request(1, "ann", "zip"), param_request(2, "bob", "zip"), event(3, "param_provided", param="zip")
    )
    assert (state.params, state.agents, state.next_request) == ((), (), None)


def test_replies_count_until_it_is_settled():
    reply = event(2, "user_replied", param="zip", text="hm")
    state = after(param_request(1, "ann", "zip"), waiting(1, "zip", "ann"), reply, reply)
    assert state.ask_number("zip") == 3
    state.apply(event(3, "param_cleared", param="zip", why="gave_up"))
    assert (state.ask_number("zip"), state.given_up) == (1, {"zip"})


def test_who_left_the_team_needs_nothing():
    resumed = event(2, "turn_resumed", session_id="s", turn=1, question="?", agents=("bob",))
    assert after(param_request(1, "ann", "zip"), resumed).params == ()


def test_a_turn_that_was_given_up_waits_for_nothing():
    assert read_waiting(waiting_turn()).next_request is None
