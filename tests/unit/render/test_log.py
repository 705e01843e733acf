import logging

import pytest

from massmem.core.events import Event
from massmem.render.log import LogRenderer
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import (
    SECRET,
    begin,
    compression,
    measurement,
    tool_call,
    tool_result,
    waiting_turn,
    whole_turn,
)


def log_records(events: list[Event], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    caplog.set_level(logging.DEBUG, "massmem")
    view = TurnView()
    renderer = LogRenderer(view)
    for event in events:
        view.feed(event)
        renderer.feed(event)
    renderer.close()
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_nearly_full_contexts_are_warnings(caplog: pytest.LogCaptureFixture):
    events = [begin("ann"), measurement(1, 45_000, source="api"), measurement(2, 96_000), compression(3)]
    nearly_full = "ann: Context Buffer (Turn 1): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!"
    assert [record for record in log_records(events, caplog) if record[0] > logging.DEBUG] == [
        (logging.INFO, "ann: Context Window (Turn 1): 45,000 / 128,000 tokens (35%) [API actual]"),
        (logging.WARNING, nearly_full),
        (logging.WARNING, nearly_full),
        (logging.WARNING, "ann: Attempting compression (96,000 → 51,200 tokens)"),
        (logging.WARNING, "ann: Context compressed: Removed 15 messages (44,800 tokens)."),
        (logging.WARNING, "ann: Kept 8 recent messages (51,200 tokens)."),
    ]


def test_texts_are_logged_by_their_length_only(caplog: pytest.LogCaptureFixture):
    records = log_records([*whole_turn(), *waiting_turn(), tool_call(1), tool_result(1)], caplog)
    assert {level for level, _ in records} == {logging.DEBUG}
    log = "\n".join(line for _, line in records)
    assert f"user_replied param='order_id' text={len(SECRET)} characters" in log
    for text in (
        SECRET,
        "sky",
        "scatter",
        "most complete",
        "names the cause",
        "What is the",
        "by the way",
        "of the file",
        "of the call",
    ):
        assert text not in log
    assert not any("Ann counted" in line for _, line in log_records([begin("ann"), compression(1)], caplog))
