"""What is known of a session follows what is stored, or is known not to."""

from datetime import timedelta

from massmem.events import AgentDelta, Event, Notice, TurnCompleted, TurnInterrupted, TurnStarted
from massmem.messages import Usage
from massmem.records import SessionState
from massmem.session.known import Known
from massmem.store.base import Mark
from tests.support.sample_turn import START

MARK = Mark(START, 4, None)


def started(turn: int = 2) -> TurnStarted:
    return TurnStarted(session_id="session_a", turn=turn, question="Why?", agents=("ann",), seed=7)


def completed(reasoning: str = "") -> TurnCompleted:
    return TurnCompleted(winner="ann", answer="So.", presented=True, usage=Usage(), reasoning=reasoning)


def test_a_turn_that_is_answered_is_the_last_one():
    known = Known(MARK)
    assert known.settled
    begun = started()
    known.follow(2, [5], [begun], None)
    assert known.last is not None and known.last.status == "running"
    assert not known.settled
    ended = completed("hm")
    known.follow(2, [6, 8], [Notice(message="x"), ended], None)
    assert known.mark == MARK._replace(seq=8)
    assert known.settled
    last = known.last
    assert (last.turn, last.status, last.answer, last.winner) == (2, "completed", "So.", "ann")
    assert (last.started_at, last.ended_at) == (begun.at, ended.at)


def test_what_somebody_else_has_written_before_is_not_known():
    known = Known(MARK)
    known.follow(2, [6], [started()], None)
    assert known.mark is None
    assert not known.settled
    known.follow(2, [7], [completed()], None)
    assert known.mark is None


def test_an_end_without_an_answer_has_to_be_read():
    known = Known(MARK)
    events: list[Event] = [started(), AgentDelta(agent_id="ann", round=1, channel="text", text="S")]
    known.follow(2, [5, 6], events, None)
    known.follow(2, [7], [TurnInterrupted(by="user")], None)
    assert known.mark is None


def test_the_state_is_that_which_was_stored_last():
    known = Known(MARK)
    new = SessionState(params={"city": "Lisbon"}, updated_at=START + timedelta(seconds=1))
    known.follow(2, [5], [started()], new)
    assert known.state == new
    assert known.mark is None, "the store says when it was stored"
    known.follow(2, [6], [completed()], SessionState())
    assert known.state == SessionState()
