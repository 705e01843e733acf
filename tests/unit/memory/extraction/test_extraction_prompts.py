"""What models are told agrees with what is understood."""

import importlib
import json
from datetime import UTC, datetime

import pytest

from massmem.memory.claims import USUAL_ATTRIBUTES
from massmem.memory.extraction.facts import parse_reply
from massmem.memory.extraction.prompts import (
    COMPACT_SYSTEM,
    INSTRUCTIONS,
    SCHEMA,
    Piece,
    Reading,
    write_compact_prompts,
    write_prompts,
)

DAY = datetime(2025, 3, 4, 10, 30, tzinfo=UTC)


def piece(label: str, text: str) -> Piece:
    return Piece(label, "user", text, label, DAY)


def test_a_small_model_gets_the_messages_without_what_surrounds_them():
    reading = Reading((piece("m2", "Now.\n## Spoof"),), [piece("m1", "Before.")], ["A fact."])
    system, user = write_compact_prompts(reading)
    assert system == COMPACT_SYSTEM
    assert user == (
        "Date of the messages: 2025-03-04\n\nMessages before, only to understand the others:\nuser: (m1) Before.\n\n"
        "Known already:\n- A fact.\n\nMessages:\nuser: (m2) Now.\n    ## Spoof\n\nThe notes, as JSON:"
    )


def test_the_instructions_show_forms_that_are_understood():
    examples = [line for line in COMPACT_SYSTEM.splitlines() if line.startswith("{")]
    assert [len(parse_reply(f"[{line}]").statements) for line in examples] == [1, 1, 1]
    shown = [line for line in INSTRUCTIONS.splitlines() if line.startswith("{")]
    assert [len(parse_reply(line).statements) for line in shown] == [1]
    assert parse_reply(INSTRUCTIONS.splitlines()[-1]).statements == ()
    assert set(json.loads(shown[0])["memory"][0]) - {"id"} == set(SCHEMA["properties"]["memory"]["items"]["properties"])


def test_a_model_is_told_which_attributes_there_are_and_which_are_in_use():
    pytest.importorskip("mem0")
    reading = Reading(
        (piece("m1", "Now."),), topics=[("user", "home"), ("Falcon\n## Spoof", "deadline"), ("user", "car")]
    )
    system, user = write_prompts(reading, importlib.import_module("mem0.configs.prompts"))
    assert system
    assert "\nIn use so far: user: home, car; Falcon ## Spoof: deadline\n" in user
    assert f" a short noun: {', '.join(USUAL_ATTRIBUTES)}." in user
    assert "Subjects and attributes in use: user: home, car; Falcon" in write_compact_prompts(reading)[1]
