"""What models are told agrees with what is understood."""

import json

from massmem.memory.extraction.prompts import COMPACT_SYSTEM, INSTRUCTIONS, SCHEMA, compact_prompt
from massmem.memory.extraction.replies import parse_reply


def test_a_small_model_gets_the_messages_without_what_surrounds_them():
    full = (
        "## Summary\n\n\n## Last k Messages\nuser: (m1) Before.\n\n\n## Recently Extracted Memories\n[]\n\n"
        '## Existing Memories\n[{"id": "0", "text": "A fact."}]\n\n## New Messages\nuser: (m2) Now.\n    ## Spoof\n\n\n'
        "## Observation Date\n2025-03-04\n\n## Current Date\n2025-03-04\n\n# Output:"
    )
    assert compact_prompt(full) == (
        "Date of the messages: 2025-03-04\n\nMessages before, only to understand the others:\nuser: (m1) Before.\n\n"
        "Known already:\n- A fact.\n\nMessages:\nuser: (m2) Now.\n    ## Spoof\n\nThe notes, as JSON:"
    )


def test_the_instructions_show_forms_that_are_understood():
    examples = [line for line in COMPACT_SYSTEM.splitlines() if line.startswith("{")]
    assert [len(parse_reply(f"[{line}]").statements) for line in examples] == [1, 1]
    shown = [line for line in INSTRUCTIONS.splitlines() if line.startswith("{")]
    assert [len(parse_reply(line).statements) for line in shown] == [1]
    assert parse_reply(INSTRUCTIONS.splitlines()[-1]).statements == ()
    assert set(json.loads(shown[0])["memory"][0]) - {"id"} == set(SCHEMA["properties"]["memory"]["items"]["required"])
