"""Events as they were stored before they were msgspec's: tests/data/events.jsonl has two of each type by pydantic.

The first has only what must be given, the second another value than the default in each field.
"""

import json
from pathlib import Path
from typing import Any, get_args

import pytest

from massmem.core.events import Event, Notice, UserReplied, decode_event, read_event
from massmem.store.encoding import encode_event

STORED = (Path(__file__).parent.parent.parent / "data" / "events.jsonl").read_bytes().splitlines()
ENDS = ("turn_completed", "turn_failed", "turn_interrupted", "turn_waiting", "turn_abandoned")
LATER: dict[str, dict[str, Any]] = {
    "agent_busy": {"what": ""},
    **{kind: {"spent": {}} for kind in ENDS},
    "turn_completed": {"spent": {}, "carried_out": None},
    "turn_started": {"shape": "vote", "job": "", "variation": {}},
    "turn_resumed": {"shape": "vote"},
    "answer_submitted": {"items": None, "checks": []},
}
"""Fields that came after these were stored, with their defaults."""
FAILED = '{"type":"agent_failed","agent_id":"a","round":1,"step":"answer","error":"e","message":"m","usage":%s}'


def test_there_are_two_of_each_type():
    assert sorted(json.loads(line)["type"] for line in STORED) == sorted(2 * [k.type for k in get_args(Event)])


@pytest.mark.parametrize("line", STORED, ids=[json.loads(line)["type"] for line in STORED])
def test_a_stored_event_is_read_and_written_as_before(line: bytes) -> None:
    event = decode_event(line)
    stored = json.loads(line)
    stored |= LATER.get(stored["type"], {})
    assert json.loads(event.model_dump_json()) == stored
    assert list(event.model_dump(mode="json")) == ["type", *(name for name in stored if name != "type")]
    assert read_event(event.model_dump(mode="json")) == read_event(stored) == event
    assert encode_event(event).json == event.model_dump_json()


@pytest.mark.parametrize("line", STORED[1::2], ids=[json.loads(line)["type"] for line in STORED[1::2]])
def test_fields_that_earlier_releases_did_not_have_get_their_defaults(line: bytes) -> None:
    stored, short = json.loads(line), json.loads(STORED[STORED.index(line) - 1])
    names = decode_event(line).__struct_fields__
    needed = {name for name in names if _is_refused({n: value for n, value in stored.items() if n != name})}
    event = decode_event(json.dumps({n: value for n, value in short.items() if n in needed | {"type", "at"}}))
    assert event.model_dump(mode="json") == short | LATER.get(short["type"], {})


def _is_refused(fields: dict[str, Any]) -> bool:
    try:
        decode_event(json.dumps(fields))
    except ValueError:
        return True
    return False


@pytest.mark.parametrize(
    "usage", ['{"prompt":"3"}', '{"prompt":3.0}', '{"prompt":3,"cost":null}', '{"prompt":3,"saved":0}']
)
def test_numbers_in_other_forms_are_read(usage: str) -> None:
    assert decode_event(FAILED % usage).model_dump(mode="json")["usage"]["prompt"] == 3


@pytest.mark.parametrize(
    "payload",
    [
        *(FAILED % usage for usage in ('{"prompt":3.5}', '{"prompt":null}', "[]", "1", "{")),
        '{"type":"notice"}',
        '{"type":"notice","message":5}',
        '{"type":"notice","message":null}',
        '{"type":"notice","message":"x","new":1}',
        '{"type":"notice","message":"x","at":null}',
        '{"type":"notice","message":"\\ud800"}',
        '{"type":"notice","message":"\\ud800x"}',
        b'{"type":"notice","message":"\xff"}',
        '{"type":"winner_decided","agent_id":"a","votes":{},"by":"chance"}',
        '{"type":"new_in_a_later_release"}',
        '{"message":"x"}',
        "[]",
        "null",
        "",
        "[" * 100_000,
        '{"type":"new_in_a_later_release",',
    ],
)
def test_json_that_is_no_event_is_refused(payload: str | bytes) -> None:
    with pytest.raises(ValueError):
        decode_event(payload)


def test_numbers_that_no_processor_has_are_stored_whole():
    added = read_event({"type": "message_added", "role": "user", "text": "", "metadata": {"n": 10**40, "m": -(10**40)}})
    assert decode_event(encode_event(added).json) == added


def test_characters_that_a_database_refuses_are_replaced_before_they_are_stored():
    encoded = encode_event(Notice(message="a\ud800b\x00c"))
    assert encoded.event == decode_event(encoded.json) == Notice(at=encoded.event.at, message="a�b�c")


def test_a_reply_is_not_shown_in_tracebacks():
    assert "4711" not in repr(UserReplied(param="pin", text="4711"))


def test_an_event_does_not_change():
    with pytest.raises(AttributeError):
        Notice(message="x").message = "y"  # type: ignore[misc]
