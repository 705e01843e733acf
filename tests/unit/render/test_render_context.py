import pytest

from massmem.events import ContextCompressed, ContextMeasured, Event
from massmem.render.context import log_lines, near_limit, share, short_line
from tests.support.sample_turn import compressed, measured


def seen(found: Event) -> ContextMeasured:
    assert isinstance(found, ContextMeasured)
    return found


def shrunk() -> ContextCompressed:
    found = compressed(1)
    assert isinstance(found, ContextCompressed)
    return found


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (measured(1, 45_000, source="api"), "Context Window (Turn 5): 45,000 / 128,000 tokens (35%) [API actual]"),
        (measured(1, 45_000), "Context Buffer (Turn 5): 45,000 / 128,000 tokens (35%) [buffer]"),
        (
            measured(1, 96_000),
            "Context Buffer (Turn 5): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        ),
    ],
)
def test_the_lines_of_the_log(event: Event, line: str):
    assert log_lines(seen(event), 5) == [line]


def test_the_report_of_a_compression():
    assert log_lines(shrunk(), 11) == [
        "Context Buffer (Turn 11): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!",
        "Attempting compression (96,000 → 51,200 tokens)",
        "Context compressed: Removed 15 messages (44,800 tokens).",
        "Kept 8 recent messages (51,200 tokens).",
    ]


def test_the_report_of_a_refused_prompt():
    refused = shrunk().model_copy(update={"why": "overflow", "before": 130_000})
    assert log_lines(refused, 2)[:2] == [
        "Context Buffer (Turn 2): 130,000 / 128,000 tokens (102%) [buffer] - Refused by the provider!",
        "Attempting compression (130,000 → 51,200 tokens)",
    ]


def test_a_compression_in_an_unknown_window():
    assert log_lines(shrunk().model_copy(update={"window": None}), 1)[0].startswith("Attempting")


def test_a_window_with_room_is_not_worth_a_line():
    assert short_line(seen(measured(1, 95_000)), 1) is None
    assert short_line(seen(measured(1, 97_000)), 1) is not None


def test_without_a_threshold_nothing_is_near_it():
    event = seen(measured(1, 128_000)).model_copy(update={"threshold": None})
    assert not near_limit(event)
    assert share(event) == "100%"


def test_a_window_of_unknown_size_has_no_share():
    assert share(seen(measured(1, 5_000, window=0))) == "?"


def test_a_summary_longer_than_what_it_stands_for_frees_nothing():
    assert "(0 tokens)" in log_lines(shrunk().model_copy(update={"after": 99_000}), 1)[2]
