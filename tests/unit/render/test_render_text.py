import io
import logging
import re

import pytest

from massmem.core.events import ContextCompressed, ContextMeasured, Event
from massmem.core.messages import Usage
from massmem.render.text import (
    LogRenderer,
    PlainRenderer,
    describe_failure,
    describe_winner,
    format_count,
    format_duration,
    format_tokens,
    format_window_share,
    is_near_limit,
    report_context,
    summarize_context,
    summarize_turn,
)
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import (
    SECRET,
    START,
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


def completed_view() -> TurnView:
    view = TurnView()
    for e in whole_turn():
        view.feed(e)
    return view


def sample_measurement(tokens: int, **options: object) -> ContextMeasured:
    sample = measurement(1, tokens, **options)  # type: ignore[arg-type]
    assert isinstance(sample, ContextMeasured)
    return sample


def sample_compression(**changes: object) -> ContextCompressed:
    sample = compression(1)
    assert isinstance(sample, ContextCompressed)
    return sample.model_copy(update=changes)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0.0s"), (3.24, "3.2s"), (9.96, "10s"), (59.4, "59s"), (59.6, "1m00s"), (125, "2m05s"), (3720, "1h02m")],
)
def test_format_duration(seconds: float, text: str):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (34_400, "34k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_250_000, "1.2M"),
    ],
)
def test_format_count(number: int, text: str):
    assert format_count(number) == text


def test_winner_without_votes():
    decision = event(0, "winner_decided", agent_id="ann", votes={}, by="only_answer")
    assert describe_winner(decision, TurnView()) == "ann wins: the only answer"  # type: ignore[arg-type]


def test_winner_of_a_vote_that_was_decided_early_names_who_was_not_asked():
    decision = event(0, "winner_decided", agent_id="ann", votes={"ann": 2}, by="early_stop", not_asked=("bob", "eve"))
    text = describe_winner(decision, TurnView())  # type: ignore[arg-type]
    assert text == "ann wins: 2 of 2 votes, enough without a vote of bob, eve"


def test_failure_names_the_fix_and_the_next_chance():
    failure = next(e for e in whole_turn() if e.type == "agent_failed")
    assert describe_failure(failure, TurnView()) == "eve failed: the key was refused (check OPENAI_API_KEY)"
    assert describe_failure(failure.model_copy(update={"out": False}), TurnView()).endswith(
        "it may act again in the next round"
    )
    last = failure.model_copy(update={"out": False, "step": "present"})
    assert "next round" not in describe_failure(last, TurnView()), "no round follows the presentation"
    bad_vote = failure.model_copy(update={"out": False, "step": "vote"})
    assert "next round" not in describe_failure(bad_vote, TurnView(final_round=True)), "nor the last votes"


def test_summary_counts_failures_and_names_an_unknown_price():
    assert summarize_turn(completed_view(), START) == (
        "3 rounds · 3 agents (1 failed) · 5.0s · 700 tokens in (60 cached), 150 out · price not known"
    )


@pytest.mark.parametrize(("escalated", "text"), [(False, "agreement 67%"), (True, "agreement 67%, not sure")])
def test_summary_ends_with_the_confidence(escalated: bool, text: str):
    view = completed_view()
    view.feed(whole_turn()[-1].model_copy(update={"confidence": 2 / 3, "escalated": escalated}))
    assert summarize_turn(view, START).split(" · ")[-1] == text


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (measurement(1, 45_000, source="api"), "Context Window (Turn 5): 45,000 / 128,000 tokens (35%) [API actual]"),
        (measurement(1, 45_000), "Context Buffer (Turn 5): 45,000 / 128,000 tokens (35%) [buffer]"),
        (
            measurement(1, 96_000),
            "Context Buffer (Turn 5): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        ),
    ],
)
def test_measurement_report(event: Event, line: str):
    assert isinstance(event, ContextMeasured)
    assert report_context(event, 5) == [line]


def test_compression_report():
    assert report_context(sample_compression(), 11) == [
        "Context Buffer (Turn 11): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        "Attempting compression (96,000 → 51,200 tokens)",
        "Context compressed: Removed 15 messages (44,800 tokens).",
        "Kept 8 recent messages (51,200 tokens).",
    ]


@pytest.mark.parametrize(
    ("removed", "work", "line", "report"),
    [
        (0, 41, "ann: context compressed: 41 messages, 96,000 tokens → 51,200", "Removed 41 messages"),
        (15, 26, "ann: context compressed: 41 messages, 96,000 tokens → 51,200", "Removed 41 messages"),
        (0, 0, "ann: context compressed: 96,000 tokens → 51,200", "Shortened what is sent"),
    ],
)
def test_compression_of_work_is_told_as_what_it_did(removed: int, work: int, line: str, report: str):
    event = sample_compression(removed=removed, removed_work=work)
    assert summarize_context(event, TurnView()) == line
    assert report_context(event, 1)[2] == f"Context compressed: {report} (44,800 tokens)."


def test_compression_report_of_a_refused_prompt():
    assert report_context(sample_compression(why="overflow", before=130_000), 2)[:2] == [
        "Context Buffer (Turn 2): 130,000 / 128,000 tokens (102%) [buffer] - Refused by the provider!",
        "Attempting compression (130,000 → 51,200 tokens)",
    ]


def test_compression_report_without_a_known_window():
    assert report_context(sample_compression(window=None), 1)[0].startswith("Attempting")


def test_summary_longer_than_the_messages_frees_nothing():
    assert "(0 tokens)" in report_context(sample_compression(after=99_000), 1)[2]


def test_only_a_window_near_its_limit_is_worth_a_line():
    assert summarize_context(sample_measurement(95_000), TurnView()) is None
    assert summarize_context(sample_measurement(97_000), TurnView()) is not None


def test_window_without_threshold_is_never_near_its_limit():
    full = sample_measurement(128_000).model_copy(update={"threshold": None})
    assert not is_near_limit(full)
    assert format_window_share(full) == "100%"


def test_window_of_unknown_size_has_no_share():
    assert format_window_share(sample_measurement(5_000, window=0)) == "?"


def test_cached_tokens_stand_with_what_they_saved():
    assert format_tokens(Usage(34_000, 2_100, 30_000, saved=0.04), "") == (
        "34k tokens in (30k cached, saved $0.04), 2.1k out"
    )
    assert format_tokens(Usage(34_000, 2_100, 30_000, saved=-0.01), "") == "34k tokens in (30k cached), 2.1k out"


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


def log_records(events: list[Event], caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    caplog.set_level(logging.DEBUG, "massmem")
    view = TurnView()
    renderer = LogRenderer(view)
    for one in events:
        view.feed(one)
        renderer.feed(one)
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
