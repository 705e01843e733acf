from massmem.core.messages import Usage
from massmem.core.records import MessageRecord
from massmem.core.transcript import TurnTranscript, build_transcript, parse_ballot
from tests.support.sessions_said import make_transcript, message, turn_record


def test_a_turn_is_read_from_its_messages():
    turn = make_transcript()
    assert turn.final is not None
    assert (turn.final.content, turn.rounds, turn.agents) == ("The final answer.", 3, ["ann", "bob"])
    assert [a.content for a in turn.answers] == ["First.", "Second.", "Better."]
    assert [(b.agent_id, b.choice, b.stands) for b in turn.ballots] == [
        ("bob", "bob", False),
        ("ann", "ann", True),
        ("bob", "ann", True),
    ]
    assert turn.votes == {"ann": 2}


def test_partial_answer_is_no_answer_and_voids_nothing():
    cut = message(3, "assistant", "Hal", agent="ann", round=2, metadata={"partial": True})
    ballot = message(2, "tool_call", '{"vote": {"reason": "good", "choice": "bob"}}', agent="bob", round=2)
    turn = build_transcript(turn_record(), [message(1, "user", "Why?"), ballot, cut])
    assert turn.answers == []
    assert turn.votes == {"bob": 1}


def test_a_tool_call_that_is_no_ballot():
    for content in ("", "{", "[]", '{"vote": 3}', '{"vote": {"choice": "a"}}', '{"search": {"q": "x"}}', "null"):
        assert parse_ballot(message(1, "tool_call", content, agent="ann")) is None
    assert parse_ballot(message(1, "assistant", '{"vote": {"choice": "a", "reason": "r"}}')) is None


def test_cost_and_duration_are_summed_up():
    turn = make_transcript()
    assert turn.usage == Usage(70, 30)
    assert turn.usage_by_agent == {"ann": Usage(30, 6), "bob": Usage(20, 4)}
    assert turn.seconds == 2.5
    older = build_transcript(turn.record, [_without_metadata(m) for m in turn.messages])
    assert older.usage == Usage()
    assert older.seconds == 5.0
    assert TurnTranscript(turn_record(ended=None), (), ()).seconds is None


def _without_metadata(m: MessageRecord) -> MessageRecord:
    return m.model_copy(update={"metadata": {}})


def test_question_to_the_user_is_no_answer():
    asked = message(2, "assistant", "Which order?", agent="ann", final=True, metadata={"waiting_for": "order_id"})
    reply = message(3, "user", "O-98765", metadata={"param": "order_id"})
    waiting = build_transcript(turn_record(), [message(1, "user", "Why?"), asked, reply])
    assert (waiting.final, waiting.answers) == (None, [])
    assert waiting.dialogue == [("ann", "Which order?"), ("", "O-98765")]
    answered = build_transcript(
        waiting.record, [*waiting.messages, message(4, "assistant", "So.", agent="ann", final=True)]
    )
    assert answered.final is not None and answered.final.content == "So."
