"""Statements taken out of texts and of logs."""

import json
import string
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.core.events import EVENT, Event
from massmem.core.records import LogEntry, MessageRecord
from massmem.recording.redaction import (
    MARK,
    STRUCTURE,
    LogRedactor,
    ParaphraseFinder,
    Redactor,
    has_only_marks,
    list_sentences,
)
from tests.support.sample_turn import START, begin, event, other_ends, tool_call, tool_result, waiting_turn, whole_turn

STATEMENT = "My daughter's name is Xenia."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Hello. {STATEMENT} Bye.", f"Hello. {MARK} Bye."),
        ("MY DAUGHTER'S NAME IS XENIA!", MARK),
        ("My daughter's\n  name is Xenia.", f"{MARK}."),
        ("Remember that my daughter's name is Xenia, please. And tea.", f"{MARK} And tea."),
        ("The name of my daughter is Xenia.", MARK),
        ("The user's daughter is named Xenia", None),
        ("My daughter's name is Anna.", None),
        ("My son's name is Xenia.", None),
        ("My daughter's name was Xenia 2.", None),
        ("My daughter's nickname is Xenial.", None),
        ("", None),
    ],
)
def test_sentence_that_says_the_same_becomes_a_mark(text: str, left: str | None):
    redactor = Redactor([STATEMENT])
    assert redactor.redact(text) == (text if left is None else left)
    assert redactor.mentions(text) == (left is not None)


@pytest.mark.parametrize(
    ("statement", "text", "left"),
    [
        ("I am vegan.", "I am vegan. I am a vegan cook.", f"{MARK} I am a vegan cook."),
        ("4711", "The code is 4711. The other is 47112.", f"{MARK} The other is 47112."),
        ("我住在北京", "你好。我住在北京市。再见。", f"你好。{MARK}再见。"),
        ("Zoë wohnt in Köln.", "ZOË WOHNT IN KÖLN", MARK),
        ("The offset is -5", "The offset is 5.", "The offset is 5."),
    ],
)
def test_short_statements_are_recognised_word_for_word(statement: str, text: str, left: str):
    assert Redactor([statement]).redact(text) == left


def test_json_stays_json():
    redactor = Redactor([STATEMENT])
    value = {"a": [STATEMENT, 1, None], STATEMENT: {"b": f"Tea. {STATEMENT}"}}
    assert json.loads(redactor.redact(json.dumps(value))) == {"a": [MARK, 1, None], MARK: {"b": f"Tea. {MARK}"}}
    untouched = '{"a":  "tea",\n "daughter": 1}'
    assert redactor.redact(untouched) == untouched
    assert redactor.redact(f"{{not json. {STATEMENT}") == f"{{not json. {MARK}"


def test_title_that_ends_within_the_sentence_is_redacted():
    redactor = Redactor([STATEMENT])
    redactor.redact(f"Hello. {STATEMENT}")
    assert redactor.redact_title("Hello. My daughter's na") == f"Hello. {MARK}"
    assert redactor.redact_title("Hello. My daughter's na (fork)") == f"Hello. {MARK}"
    assert redactor.redact_title("Hello. My da") == "Hello. My da"


@given(st.text(string.ascii_letters + ".!? \n\"'{}[]:,", max_size=60), st.text(string.printable, max_size=60))
def test_nothing_else_changes(before: str, after: str):
    text = f"{before}\n{STATEMENT}\n{after}"
    redactor = Redactor([STATEMENT])
    left = redactor.redact(text)
    assert "Xenia" not in left.replace(before, "").replace(after, "")
    assert redactor.redact(left) == left


def test_sentences_of_json_are_those_of_its_strings():
    assert list_sentences('{"a": ["One. Two."], "b": 3}') == ["a", "One.", "Two.", "b"]
    assert list_sentences("One. Two.\nThree") == ["One.", "Two.", "Three"]


def test_text_of_marks_alone_is_recognised():
    assert has_only_marks(f"{MARK}. {MARK}")
    assert not has_only_marks(f"{MARK} tea")
    assert not has_only_marks("...")


def entries(*events: Event) -> list[LogEntry]:
    return [LogEntry(seq=n, turn=1, payload=e.model_dump_json()) for n, e in enumerate(events, 1)]


def redact(log: list[LogEntry], statement: str = STATEMENT) -> list[LogEntry]:
    redactor = LogRedactor(Redactor([statement]))
    redactor.add(log)
    redactor.close()
    return redactor.changed


def delta(text: str, agent: str = "ann") -> Event:
    return event(1, "agent_delta", agent_id=agent, round=1, channel="text", text=text)


def test_state_of_a_call_goes_with_any_sentence():
    called = tool_call(1).model_copy(update={"state": "api.example m\n{}"})
    changed = [EVENT.validate_json(entry.payload) for entry in redact(entries(called, begin("a", question=STATEMENT)))]
    assert [(e.type, getattr(e, "state", None)) for e in changed] == [("turn_started", None), ("tool_called", "")]
    assert redact(entries(called, begin("a"))) == []


def test_sentence_in_pieces_is_found():
    log = entries(
        delta("Tea. My daugh"), delta("tea", "bob"), delta("ter's name is X"), delta("enia. More"), begin("a")
    )
    texts = {entry.seq: json.loads(entry.payload)["text"] for entry in redact(log)}
    assert texts == {1: f"Tea. {MARK} More", 3: "", 4: ""}
    other = entries(delta("My daughter's name"), event(2, "agent_started", agent_id="ann", round=1, step="answer"))
    assert redact([*other, *entries(delta(" is Xenia."))]) == []


def put(value: Any) -> Any:
    """Put the statement into every string of a value."""
    match value:
        case str():
            return f"{value}\n{STATEMENT}"
        case dict():
            return {key: put(item) for key, item in value.items()}
        case list():
            return [put(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize(
    "sample",
    [*whole_turn(), *other_ends(), *waiting_turn(), tool_call(1), tool_result(2)],
    ids=lambda sample: sample.type,
)
def test_every_text_of_an_event_is_redacted_and_what_it_names_is_not(sample: Event):
    plain = json.loads(sample.model_dump_json())
    full = {name: value if name in STRUCTURE else put(value) for name, value in plain.items()}
    log = [LogEntry(seq=1, turn=1, payload=json.dumps(full))]
    changed = redact(log)
    assert bool(changed) == (full != plain)
    for entry in changed:
        assert "Xenia" not in entry.payload
        new = json.loads(EVENT.validate_json(entry.payload).model_dump_json())
        assert {name: new[name] for name in STRUCTURE & new.keys()} == {n: plain[n] for n in STRUCTURE & plain.keys()}


def test_fields_that_name_things_are_kept_even_when_they_are_the_statement():
    assert redact(entries(event(1, "agent_started", agent_id="marina", round=1, step="answer")), "marina") == []


def message(text: str, number: int) -> MessageRecord:
    return MessageRecord(
        id=str(number), session_id="s", seq=number, turn=1, round=0, kind="user", role="user", content=text,
        created_at=START,
    )  # fmt: skip


def find(*texts: str, limit: int = 9) -> list[str]:
    finder = ParaphraseFinder(Redactor([STATEMENT]))
    finder.add(message(text, number) for number, text in enumerate(texts))
    return [paraphrase.sentence for paraphrase in finder.list_best(limit)]


COMMON = [f"What is the name of street {number}?" for number in range(30)]


def test_sentence_with_the_rare_words_is_near_and_one_with_common_words_is_not():
    assert find(*COMMON, "Tea, please. Xenia is nine.", "A kite.") == ["Xenia is nine."]


def test_best_sentence_stands_first_and_the_limit_holds():
    texts = (*COMMON, "Xenia is nine.", "Our daughter Xenia plays chess.")
    assert find(*texts) == ["Our daughter Xenia plays chess.", "Xenia is nine."]
    assert find(*texts, limit=1) == ["Our daughter Xenia plays chess."]


def test_sentence_that_goes_anyway_is_not_named():
    assert find(*COMMON, "I said it: my daughter's name is Xenia!") == []
    assert find() == []


def test_many_statements_cost_hardly_more_than_one():
    texts = [message(f"{' '.join(COMMON)} {STATEMENT} Nest {number}.", number) for number in range(60)]

    def measure(count: int) -> float:
        statements = [f"{STATEMENT[:-1]} and nest {number} of {number} streets is {number}." for number in range(count)]
        finder = ParaphraseFinder(Redactor(statements))
        start = time.process_time()
        finder.add(texts)
        return time.process_time() - start

    assert measure(60) < 8 * measure(3), "each sentence is taken apart once, not once for each statement"


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_deeply_nested_json_is_redacted_as_text(depth: int):
    text = "[" * depth + json.dumps(STATEMENT) + "]" * depth
    assert STATEMENT[:-1] not in Redactor([STATEMENT]).redact(text)
    assert list_sentences(text)
