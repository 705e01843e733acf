import io
from contextlib import redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.cli.session_view import (
    format_heading,
    format_hits,
    format_insights,
    format_table,
    format_turn,
)
from massmem.core.insights import Insights
from massmem.core.records import ListedSession
from massmem.core.text import cut_excerpt
from massmem.session.sessions import SessionHit
from tests.support.sample_turn import USAGE, event
from tests.support.sessions_said import make_program_turn, make_transcript, message, session_record

EVIL = "\x1b[2J\x1b]0;x\x07Titel \u202egnirts"


def test_table_aligns_columns_and_marks_escalation():
    rows = [
        ListedSession(session=session_record(), turns=1, confidence=0.5, escalated=True),
        ListedSession(session=session_record(session_id="session_b", title="Ärger 日本"), turns=12),
    ]
    lines = format_table(rows).splitlines()
    assert [line.index("20") for line in lines[1:]] == [lines[0].index("LAST USED")] * 2
    assert lines[1].endswith("50%!   Why is the sky blue?")
    assert lines[2].endswith("Ärger 日本")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("columns", "has_all"), [("80", False), ("120", True)])
def test_table_fits_the_terminal(columns: str, has_all: bool, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    session = session_record(session_id="session_20261124_101430_cdea", title="long " * 50)
    with redirect_stdout(Terminal()):
        lines = format_table([ListedSession(session=session, turns=1)]).splitlines()
    assert (len(lines), "AGREE" in lines[0]) == (2, has_all)
    assert max(map(len, lines)) <= int(columns)


def test_control_sequences_in_titles_are_removed():
    session = session_record(title=EVIL, model=EVIL)
    for text in (format_table([ListedSession(session=session, turns=1)]), format_heading(session)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_turn_has_speakers_and_the_decision():
    text = format_turn(make_transcript(), detailed=False)
    assert "You:\n  Why is the sky blue?\n\nann:\n  The final answer.\n\n2 of 2 votes, 3 rounds, agreement 90%" in text
    failed = event(2, "turn_failed", message="no agent could answer", exit_code=1, usage=USAGE)
    assert "No answer: the turn is failed." in format_turn(make_transcript(end=failed), detailed=False)
    whole = format_turn(make_transcript(), detailed=True)
    parts = ["ann, reasoning:\n  Let me think.", "bob:\n  Second.", "bob votes for bob, void", "bob votes for ann:"]
    assert [whole.index(part) for part in parts] == sorted(whole.index(part) for part in parts)


def test_messages_outside_of_turns():
    for detailed in (False, True):
        text = format_turn(make_program_turn(), detailed=detailed)
        assert text.startswith("\n── Outside of turns · ")
        assert text.endswith("In hall four.\n\nann, tool result:\n  Hall H-412, shelf 3.\n\n")


def test_excerpt_is_around_the_first_word():
    text = "begin " * 100 + "the needle is here " + "end " * 100
    result = cut_excerpt(text, ["needle"])
    assert result.startswith("…begin")
    assert "the needle is here" in result
    assert len(result) <= 161
    assert cut_excerpt("Needles\nand needle.", ["NEEDLE"]) == "Needles and needle."
    assert cut_excerpt("nothing of it", ["needle"]) == "nothing of it"
    assert cut_excerpt("text", []) == "text"


@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_excerpt_of_any_text_is_one_line(text: str, words: list[str]):
    result = cut_excerpt(text, words)
    assert "\n" not in result
    assert len(result) <= 161


def test_hits_name_session_turn_and_speaker():
    vote = message(7, "tool_call", '{"vote": {"reason": "names the cause", "choice": "ann"}}', "bob", 2)
    asked = SessionHit(message(1, "user", "Why?"), session_record(), "Why?", is_ballot=False)
    hits = [asked, SessionHit(vote, session_record(), "names the cause", is_ballot=True)]
    first, _, second, reason = format_hits(hits, "cause why").splitlines()
    assert first.startswith("session_a  turn 1  you  ")
    assert second.startswith("session_a  turn 1  bob, vote  ")
    assert reason == "  names the cause"


def test_insights_with_and_without_turns():
    empty = Insights()
    assert "sessions    0" in format_insights(empty.to_json())
    empty.add_session(session_record())
    empty.add_turn(make_transcript().result)
    text = format_insights(empty.to_json())
    assert "agreement   90% on average" in text
    assert "cost        1 turn without a known price" in text
    empty.add_turn(make_transcript(cost=0.5).result)
    assert "cost        $0.50, and 1 turn without a known price" in format_insights(empty.to_json())
    assert text.splitlines()[-2].startswith("ann")
