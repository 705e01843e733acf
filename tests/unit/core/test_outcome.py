import pytest

from massmem.core.events import AgentFailed, AgentStarted, Event, TurnInterrupted, TurnResumed, TurnStarted
from massmem.core.messages import Usage
from massmem.core.outcome import TurnOutcome, Waiting, count_deaths, read_waiting, was_cut_off
from tests.support.sample_turn import USAGE, answer, begin, event, param_request, waiting, waiting_turn, whole_turn

WAITING = event(
    3, "turn_waiting", param="order_id", prompt="Which order?", agents=("bob", "ann"), asked=1, usage=USAGE
)  # fmt: skip
ABANDONED = event(3, "turn_abandoned", session_id="session_b", turn=4, why="cancel", usage=USAGE)
INTERRUPTED = event(3, "turn_interrupted", by="user")
COMPLETED = event(3, "turn_completed", winner="ann", answer="42", presented=False, usage=USAGE, confidence=0.5)
CUT = COMPLETED.model_copy(update={"limit": "timeout"})
WORK_CUT = COMPLETED.model_copy(update={"work_cut": "standstill"})


def failure(exit_code: int) -> Event:
    return event(3, "turn_failed", message="no agent could answer", exit_code=exit_code, usage=USAGE)


def test_whole_turn_names_winner_answerers_and_failures() -> None:
    outcome = TurnOutcome.of(whole_turn())
    assert (outcome.session_id, outcome.turn, outcome.status) == ("session_a", 1, "completed")
    assert outcome.answered == ["ann", "bob"]
    assert [failure.agent_id for failure in outcome.failures] == ["eve"]
    assert outcome.winner is not None
    assert outcome.winner.agent_id == outcome.agent_id == "ann"


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (None, "running"),
        (COMPLETED, "completed"),
        (CUT, "limit"),
        (WORK_CUT, "limit"),
        (failure(4), "limit"),
        (failure(3), "failed"),
        (INTERRUPTED, "interrupted"),
        (WAITING, "waiting"),
        (ABANDONED, "abandoned"),
    ],
)
def test_status_follows_from_the_last_event(end: Event | None, status: str) -> None:
    assert TurnOutcome.of([begin("ann"), *([] if end is None else [end])]).status == status


def test_completed_turn_has_answer_and_confidence() -> None:
    outcome = TurnOutcome.of([begin("ann", "bob"), CUT])
    assert (outcome.answer, outcome.confidence, outcome.escalated, outcome.limit) == ("42", 0.5, False, "timeout")
    assert (outcome.prompt, outcome.waiting_for, outcome.usage) == (None, None, USAGE)


def test_waiting_turn_has_prompt_and_param_of_the_first_agent() -> None:
    outcome = TurnOutcome.of([begin("ann", "bob"), WAITING])
    assert (outcome.prompt, outcome.waiting_for, outcome.agent_id) == ("Which order?", "order_id", "bob")
    assert (outcome.answer, outcome.confidence) == (None, None)


def test_abandoned_turn_names_itself_without_a_start() -> None:
    outcome = TurnOutcome.of([ABANDONED])
    assert (outcome.session_id, outcome.turn, outcome.usage) == ("session_b", 4, USAGE)


def test_next_turn_replaces_the_one_before() -> None:
    outcome = TurnOutcome.of([begin("ann"), answer(1, "ann", "42"), COMPLETED, begin("bob", question="And now?")])
    assert (outcome.status, outcome.question, outcome.answered, outcome.answer) == ("running", "And now?", [], None)


def test_usage_is_unknown_while_running_and_after_an_interruption() -> None:
    assert TurnOutcome.of([begin("ann")]).usage is None
    assert TurnOutcome.of([begin("ann"), INTERRUPTED]).usage is None
    assert TurnOutcome.of([begin("ann"), COMPLETED]).usage == Usage(100, 20, 10, 1)


@pytest.mark.parametrize(
    ("end", "cut_off"),
    [
        (None, True),
        (event(3, "turn_interrupted", by="signal"), True),
        (INTERRUPTED, False),
        (failure(1), False),
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
