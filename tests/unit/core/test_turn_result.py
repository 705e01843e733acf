"""A result is folded from the events of a turn, whole or not."""

import json
from datetime import timedelta

import pytest

from massmem.core.events import AnswerSubmitted, Event, TurnCompleted
from massmem.core.messages import Usage
from massmem.core.turn_result import TurnResult
from tests.support.sample_turn import (
    START,
    USAGE,
    answer,
    ballot,
    begin,
    event,
    give_names,
    other_ends,
    param_request,
    waiting_turn,
    whole_turn,
)

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
    assert TurnResult.of([begin("ann"), *([] if end is None else [end])]).status == status


def test_whole_turn():
    result = TurnResult.of(whole_turn())
    dumped = result.model_dump(mode="json")
    assert json.loads(json.dumps(dumped)) == dumped
    assert (result.session_id, result.turn, result.status, result.is_whole) == ("session_a", 1, "completed", True)
    assert (result.winner, result.votes, result.rounds, result.seconds) == ("ann", {"ann": 2}, 3, 5.0)
    assert (result.authors, result.notices) == (["ann", "bob"], ["the store is slow"])
    assert [(error.agent, error.type) for error in result.errors] == [("eve", "AuthenticationError")]
    ann, bob, eve = result.agents
    assert [a.number for a in ann.answers] == [1, 3]
    assert [(b.choice, b.stands) for b in bob.ballots] == [("bob", False), ("ann", True)]
    assert eve.error == result.errors[0]
    assert bob.seconds == 3.4


def test_usage_of_agents_sums_to_usage_of_turn():
    result = TurnResult.of(whole_turn())
    assert sum((a.usage for a in result.agents), Usage()) == result.usage == Usage(700, 150, 60, 8)


def test_voided_ballots_are_not_counted():
    events = [begin("ann", "bob"), ballot(1, "ann", "bob"), ballot(1, "bob", "bob")]
    assert TurnResult.of(events).votes == {"bob": 2}
    assert TurnResult.of([*events, event(2, "ballots_voided", round=2, agents=("ann",))]).votes == {"bob": 1}


def test_next_turn_replaces_the_one_before():
    late = event(8, "notice", message="for the next one")
    following = begin("zoe", at=9).model_copy(update={"turn": 2})
    result = TurnResult.of([*whole_turn(), late, following])
    assert (result.turn, [a.id for a in result.agents], result.status) == (2, ["zoe"], "running")
    assert (result.answer, result.winner, result.notices) == (None, None, ["for the next one"])


def test_agents_have_their_id_and_their_name():
    result = TurnResult.of(give_names(whole_turn(), {"ann": "Technical Specialist"}))
    assert [(agent.id, agent.name) for agent in result.agents][:2] == [("ann", "Technical Specialist"), ("bob", "bob")]


def test_work_that_was_cut_short_is_named_for_the_turn_and_for_the_answer():
    cut = {"work_cut": "standstill"}
    events = [e.model_copy(update=cut) if isinstance(e, AnswerSubmitted | TurnCompleted) else e for e in whole_turn()]
    result = TurnResult.of(events)
    assert (result.status, result.limit, result.work_cut) == ("limit", None, "standstill")
    assert {answer.work_cut for agent in result.agents for answer in agent.answers} == {"standstill"}


def test_failed_turn_names_its_error():
    result = TurnResult.of([begin("ann"), other_ends()[1]])
    (error,) = result.errors
    assert (result.status, error.agent, error.error, error.fix) == (
        "failed", None, "no agent could answer", "try later"
    )  # fmt: skip


def test_waiting_turn_says_who_waits_for_what():
    result = TurnResult.of([begin("ann", "bob"), param_request(1, "bob", "order_id"), WAITING])
    assert result.waiting_for is not None
    assert (result.text, result.waiting_for.param, result.speaker) == ("Which order?", "order_id", "bob")
    assert [agent.waiting_for for agent in result.agents] == [None, "order_id"]
    assert result.plan[:2] == ["waiting for order_id", "bob needs order_id"]


def test_replies_are_shown_by_name_only():
    result = TurnResult.of(waiting_turn())
    dialogue = [(e.agent, e.content) for e in result.asked]
    assert dialogue == [("ann", "What is the order_id?"), (None, "[order_id]"), ("bob", "What is the zip?")]
    assert (result.status, result.waiting_for, result.stopped_by) == ("undone", None, "change")


def test_stopped_turn_has_what_was_written():
    partials = [{"agent_id": "ann", "text": "Rayleigh sc"}]
    result = TurnResult.of([begin("ann"), event(3, "turn_interrupted", by="user", partials=partials)])
    assert (result.status, result.stopped_by, result.agents[0].partial) == ("interrupted", "user", "Rayleigh sc")


def test_a_turn_that_goes_on_is_one_with_its_beginning():
    stopped = event(3, "turn_interrupted", by="user")
    resumed = event(9, "turn_resumed", session_id="session_a", turn=1, question="Why?", agents=("ann", "bob"))
    result = TurnResult.of([begin("ann", "bob"), answer(1, "ann", "41"), stopped, resumed, COMPLETED])
    assert (result.authors, result.status, result.started_at) == (["ann"], "completed", START)
    assert (result.ended_at, result.stopped_by) == (START + timedelta(seconds=3), None)


def test_a_log_without_the_beginning_says_so():
    assert not TurnResult.of(whole_turn()[1:]).is_whole
    assert TurnResult.of([ABANDONED]).model_dump(mode="json")["is_whole"] is False


def test_a_run_of_which_the_beginning_was_not_seen_is_folded_as_far_as_it_goes():
    events = whole_turn()
    for start in range(1, len(events)):
        resumed = event(
            0, "turn_resumed", session_id="session_a", turn=1, question="Why?", agents=("ann", "bob", "eve")
        )
        early_stop = {"early_stop": True}
        rest = [e.model_copy(update=early_stop) if e.type == "round_started" else e for e in events[start:]]
        result = TurnResult.of([resumed, *rest])
        assert (result.is_whole, result.status, result.winner, result.dissent) == (False, "completed", "ann", None)
        assert result.usage == TurnResult.of(events).usage
        assert TurnResult.of([resumed, *rest[:-1]]).plan == []
