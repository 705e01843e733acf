import io
import re

import pytest

from massmem.core.events import Event
from massmem.render.plain import PlainRenderer
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import (
    begin,
    compression,
    event,
    give_names,
    measurement,
    tool_call,
    tool_result,
    waiting_turn,
    whole_turn,
)


def render(events: list[Event], *, failures_only: bool = False) -> list[str]:
    view, stream = TurnView(), io.StringIO()
    renderer = PlainRenderer(view, stream, failures_only=failures_only)
    for e in events:
        view.feed(e)
        renderer.feed(e)
    renderer.close()
    return stream.getvalue().splitlines()


def test_completed_turn_is_a_line_per_event():
    assert render(whole_turn()) == [
        "  0.0s  session_a turn 1, 3 agents",
        "  0.1s  round 1, answers: ann, bob, eve",
        "  0.7s  bob retries in 1.5s: 429 slow down",
        "  0.9s  eve failed: the key was refused (check OPENAI_API_KEY)",
        "  1.2s  ann answers (1.0s, 20 tokens): Rayleigh scattering.",
        "  2.2s  bob answers (2.0s, 20 tokens): Blue light scatters more.",
        "  2.3s  round 2, improve or vote: ann, bob",
        "  2.8s  bob votes for bob (2.5s, 40 tokens): most complete",
        "  3.0s  ann answers (1.7s, 40 tokens): Rayleigh scattering, in short.",
        "  3.0s  a new answer arrived; voting again: bob",
        "  3.1s  round 3, last votes: ann, bob",
        "  3.5s  ann votes for ann (2.1s, 60 tokens): most complete",
        "  4.0s  bob votes for ann (3.4s, 60 tokens): names the cause",
        "  4.0s  ann wins: 2 of 2 votes, consensus",
        "  4.0s  ann writes the final answer",
        "  4.3s  the store is slow",
        "  5.0s  3 rounds · 3 agents (1 failed) · 5.0s · 700 tokens in (60 cached), 150 out · price not known",
    ]


def test_lines_show_the_names_of_agents():
    text = "\n".join(render(give_names(whole_turn(), {"ann": "Technical Specialist", "bob": "Dr. Bob", "eve": "Eve"})))
    assert "round 2, improve or vote: Technical Specialist, Dr. Bob" in text
    assert "Dr. Bob votes for Technical Specialist" in text
    assert "Eve failed: the key was refused" in text
    assert not re.search(r"\b(ann|bob|eve)\b", text)


def test_failures_only_reports_failures_only():
    assert render(whole_turn(), failures_only=True) == [
        "  0.9s  eve failed: the key was refused (check OPENAI_API_KEY)"
    ]


def test_param_request_and_reply_are_named_without_the_value():
    lines = render(waiting_turn())
    assert "  0.2s  ann needs order_id from you (0.1s, 20 tokens)" in lines
    assert "  0.0s  order_id received" in lines


def test_limit_is_named_before_the_summary():
    (line,) = render([*whole_turn()[:-1], whole_turn()[-1].model_copy(update={"limit": "cost"})])[-1:]
    assert line.startswith("  5.0s  cost limit reached; best answer so far: 3 rounds")


@pytest.mark.parametrize(
    ("work_cut", "why"),
    [("tool_rounds", "coordination.max_tool_rounds reached"), ("standstill", "no new call"), ("time", "time limit")],
)
def test_work_that_was_cut_short_is_said_before_the_summary(work_cut: str, why: str):
    (line,) = render([begin("ann"), whole_turn()[-1].model_copy(update={"work_cut": work_cut})])[1:]
    assert line.startswith(f"  5.0s  work cut short ({why}")


def test_calls_tokens_and_compressions_so_far_are_shown_with_each_call():
    again = tool_call(3, number=2, name="mcp__files__read_file")
    lines = render([begin("ann"), tool_call(0.5), tool_result(1), compression(2), again])
    assert lines[-1] == "  3.0s  ann calls read_file a secret of the call (call 2, 120 tokens, compressed 1 time)"


def test_nearly_full_context_is_a_warning():
    warning = "ann: Context Buffer (Turn 1): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!"
    lines = render([begin("ann", "bob"), measurement(1, 96_000), compression(2), measurement(3, 45_000, source="api")])
    assert lines[1] == f"  1.0s  {warning}"


def test_tool_call_shows_arguments_and_the_size_of_the_result():
    lines = render([begin("ann"), tool_call(0.5), tool_result(1, name="read\x1b[2J_file")])
    assert lines[1:] == [
        "  0.5s  ann calls read_file a secret of the call (call 1, 120 tokens)",
        "  1.0s  ann used read_file: 20 characters",
    ]


def test_failed_tool_shows_its_message():
    failure = event(1, "tool_returned", agent_id="ann", round=1, name="x", content="disk\x1b[2J\nfull", failed=True)
    assert render([begin("ann"), failure])[1] == "  1.0s  ann: x failed: disk full"
