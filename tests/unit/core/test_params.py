from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.params import (
    MAX_REPLY_LENGTH,
    MAX_VALUE_LENGTH,
    ParamSpec,
    Value,
    build_question,
    describe_form,
    detect_intent,
    find_value,
    parse_value,
)

ORDER = ParamSpec(pattern=r"O-\d{5}", mapping=("order number", "order no."), examples=("O-12345",))
PLAN = ParamSpec(values=("basic", "pro", "pro plus"))
SPECS = [
    ORDER, PLAN, *(ParamSpec(type=kind) for kind in
    ("string", "integer", "number", "boolean", "date", "email")),
]  # fmt: skip


def of(kind: str, **more: Any) -> ParamSpec:
    return ParamSpec(type=kind, **more)


@pytest.mark.parametrize(
    ("spec", "raw", "value"),
    [
        (of("string"), "  anything at all ", "anything at all"),
        (of("string"), "", None),
        (of("string"), "x" * (MAX_VALUE_LENGTH + 1), None),
        (of("string"), "two\nlines", None),
        (of("string"), 7, None),
        (ORDER, "O-12345", "O-12345"),
        (ORDER, "O-123456", None),
        (PLAN, "Pro Plus", "pro plus"),
        (PLAN, "gold", None),
        (of("integer"), "-12", -12),
        (of("integer"), 12.0, 12),
        (of("integer"), "12.5", None),
        (of("integer"), True, None),
        (of("number"), "12.5", 12.5),
        (of("number"), float("nan"), None),
        (of("number"), "1,000", None),
        (of("boolean"), "Yes", True),
        (of("boolean"), False, False),
        (of("boolean"), "maybe", None),
        (of("date"), "2026-02-28", "2026-02-28"),
        (of("date"), "28.2.2026", "2026-02-28"),
        (of("date"), "2026-02-30", None),
        (of("email"), "ann@example.org", "ann@example.org"),
        (of("email"), "ann@", None),
        (of("integer", values=("1", "2")), "2", 2),
        (of("integer", values=("1", "2")), "3", None),
    ],
)
def test_param_accepts_its_values_only(spec: ParamSpec, raw: object, value: Value | None):
    assert parse_value(spec, raw) == value
    assert type(parse_value(spec, raw)) is type(value)


@pytest.mark.parametrize(
    ("spec", "message", "value"),
    [
        (ORDER, "It's O-12345.", "O-12345"),
        (ORDER, "O-12345", "O-12345"),
        (ORDER, "The order number is O-12345, thanks", "O-12345"),
        (ORDER, "O-12345 or O-54321", None),
        (ORDER, "NO-123456", None),
        (of("string", pattern=r"\d{5}"), "it is O-98765", None),
        (of("string", pattern=r"\d{5}"), "12345-678", None),
        (of("string", pattern=r"\d{5}"), "it is (12345).", "12345"),
        (ORDER, "what do you need that for?", None),
        (ORDER, "Why, is O-12345 late?", None),
        (ORDER, "it is not O-12345", None),
        (PLAN, "the pro plus one please", "pro plus"),
        (PLAN, "pro or basic", None),
        (PLAN, "improve it", None),
        (of("integer"), "I am 42.", 42),
        (of("integer"), "between 3 and 5", None),
        (of("integer"), "In 1989 the wall came down and nobody had thought that this could ever happen at all", None),
        (of("number"), "about 12.5", 12.5),
        (of("boolean"), "yes please", True),
        (of("boolean"), "nope", False),
        (of("boolean"), "no I would like to hear about the weather", None),
        (of("date"), "on 2026-03-31 in the morning", "2026-03-31"),
        (of("date"), "on the 31.3.2026", "2026-03-31"),
        (of("date"), "tomorrow", None),
        (of("email"), "write to ann@example.org.", "ann@example.org"),
        (of("string"), "Berlin", None),
        (of("string"), "my city is Berlin.", None),
        (of("string", mapping=("city",)), "my city is Berlin.", "Berlin"),
        (of("string", mapping=("city",)), "city: New York", "New York"),
    ],
)
def test_value_is_read_from_a_message(spec: ParamSpec, message: str, value: Value | None):
    assert find_value("order_id", spec, message) == value


def test_a_message_of_any_length_is_read_in_no_time():
    assert find_value("order_id", ORDER, "O-12345 " + "x" * MAX_REPLY_LENGTH) is None


@given(st.sampled_from(SPECS), st.text(max_size=300))
def test_value_read_from_a_message_is_always_valid(spec: ParamSpec, message: str):
    value = find_value("order_id", spec, message)
    assert value is None or parse_value(spec, value) == value


@given(st.sampled_from(SPECS), st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()))
def test_a_checked_value_stays_what_it_is(spec: ParamSpec, raw: object):
    value = parse_value(spec, raw)
    assert value is None or parse_value(spec, value) == value


@pytest.mark.parametrize(
    ("message", "wanted"),
    [("cancel", "cancel"), ("Never mind!", "cancel"), ("/reset", "reset"), ("Start over.", "reset"), ("stop it", None)],
)
def test_plain_words_stop_the_waiting(message: str, wanted: str | None):
    assert detect_intent(message) == wanted


def test_the_second_question_says_what_is_wanted_and_the_third_how_it_looks():
    spec = ParamSpec(description="The number of the order.", pattern=r"O-\d{5}", examples=("O-12345",))
    first, second, third = (build_question("order_id", spec, "Which order?", n) for n in (1, 2, 3))
    assert first == "Which order?"
    assert second == "I could not read that. I need the number of the order. Which order?"
    assert "For example: O-12345." in third and '"cancel"' in third


def test_forms_are_named():
    assert describe_form(PLAN) == "one of: basic, pro, pro plus"
    assert "a whole number" in build_question("size", of("integer"), "How many?", 2)
