import pytest

from massmem.render.board import Board
from massmem.render.figures import count, duration, failure, summary, verdict
from tests.support.sample_turn import START, event, whole_turn


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (3.24, "3.2s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"), (125, "2m05s"), (3720, "1h02m")],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0"), (999, "999"), (1_000, "1.0k"), (34_400, "34k"), (1_250_000, "1.2M")]
)
def test_count(number: int, text: str):
    assert count(number) == text


def test_verdict_without_votes():
    assert verdict(event(0, "winner_decided", agent_id="ann", votes={}, by="only_answer")) == (  # type: ignore[arg-type]
        "ann wins: the only answer"
    )


def test_summary_names_failures_and_estimates():
    board = Board()
    for e in whole_turn():
        board.feed(e)
    told = "3 rounds · 3 agents (1 failed) · 5.0s · 700 tokens in, 150 out"
    assert summary(board, START) == f"{told} · price not known"


def test_summary_says_how_sure_the_council_is():
    board = Board()
    for e in whole_turn():
        board.feed(e)
    for escalated, text in ((False, "confidence 67%"), (True, "confidence 67%, low: have a look at the answer")):
        board.feed(whole_turn()[-1].model_copy(update={"confidence": 2 / 3, "escalated": escalated}))
        assert summary(board, START).split(" · ")[-1] == text


def test_failure_says_what_to_do():
    failed = next(e for e in whole_turn() if e.type == "agent_failed")
    assert failure(failed) == "eve failed: the key was refused (check OPENAI_API_KEY)"
    assert failure(failed.model_copy(update={"out": False})).endswith("it may act again in the next round")
