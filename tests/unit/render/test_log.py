import logging

import pytest

from massmem.events import Event
from massmem.render.board import Board
from massmem.render.log import LogRenderer
from tests.support.sample_turn import SECRET, begin, called, compressed, measured, returned, waiting_turn, whole_turn


def logged(events: list[Event], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    caplog.set_level(logging.DEBUG, "massmem")
    board = Board()
    renderer = LogRenderer(board)
    for event in events:
        board.feed(event)
        renderer.feed(event)
    renderer.close()
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_contexts_are_logged_and_what_matters_is_a_warning(caplog: pytest.LogCaptureFixture):
    events = [begin("ann"), measured(1, 45_000, source="api"), measured(2, 96_000), compressed(3)]
    told = [line for line in logged(events, caplog) if line[0] > logging.DEBUG]
    assert told == [
        (logging.INFO, "ann: Context Window (Turn 1): 45,000 / 128,000 tokens (35%) [API actual]"),
        (
            logging.WARNING,
            "ann: Context Buffer (Turn 1): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        ),
        (
            logging.WARNING,
            "ann: Context Buffer (Turn 1): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        ),
        (logging.WARNING, "ann: Attempting compression (96,000 → 51,200 tokens)"),
        (logging.WARNING, "ann: Context compressed: Removed 15 messages (44,800 tokens)."),
        (logging.WARNING, "ann: Kept 8 recent messages (51,200 tokens)."),
    ]


def test_of_what_was_said_only_the_length_is_logged(caplog: pytest.LogCaptureFixture):
    lines = logged([*whole_turn(), *waiting_turn(), called(1), returned(1)], caplog)
    assert {level for level, _ in lines} == {logging.DEBUG}
    text = "\n".join(line for _, line in lines)
    assert f"user_replied param='order_id' text={len(SECRET)} characters" in text
    phrases = (
        "sky",
        "scatter",
        "most complete",
        "names the cause",
        "What is the",
        "by the way",
        "of the file",
        "of the call",
    )
    for said in (SECRET, *phrases):
        assert said not in text
    assert not any("Ann counted" in text for _, text in logged([begin("ann"), compressed(1)], caplog))
