import pytest

from massmem.core.events import AgentFailed, AgentStarted, Event, TurnInterrupted, TurnResumed, TurnStarted
from massmem.core.outcome import Waiting, count_deaths, read_waiting, was_cut_off
from tests.support.sample_turn import USAGE, begin, event, param_request, waiting, waiting_turn


@pytest.mark.parametrize(
    ("end", "cut_off"),
    [
        (None, True),
        (event(3, "turn_interrupted", by="signal"), True),
        (event(3, "turn_interrupted", by="user"), False),
        (event(3, "turn_failed", message="no agent could answer", exit_code=1, usage=USAGE), False),
    ],
)
def test_turn_was_cut_off_unless_its_user_stopped_it_or_saw_it_fail(end: Event | None, cut_off: bool) -> None:
    late = event(4, "tool_returned", agent_id="ann", round=0, name="search", content="text")
    events = [begin("ann"), *([] if end is None else [end]), late]
    assert was_cut_off(events) is cut_off


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


STARTED = TurnStarted(session_id="s", turn=1, question="?", agents=("a",), seed=1)
RESUMED = TurnResumed(session_id="s", turn=1, question="?", agents=("a",))


@pytest.mark.parametrize(
    ("events", "deaths"),
    [
        ([], 0),
        ([STARTED], 1),
        ([STARTED, AgentStarted(agent_id="a", round=1, step="answer"), RESUMED, RESUMED], 3),
        ([STARTED, TurnInterrupted(by="signal"), RESUMED], 1),
        (
            [
                STARTED,
                RESUMED,
                AgentFailed(agent_id="a", round=1, step="answer", message="m", error="e", usage=USAGE),
                RESUMED,
            ],
            1,
        ),
    ],
)
def test_deaths_are_counted_until_the_turn_gets_further(events: list[Event], deaths: int):
    assert count_deaths(events) == deaths
