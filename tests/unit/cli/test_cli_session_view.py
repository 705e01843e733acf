from hypothesis import given
from hypothesis import strategies as st

from massmem.cli.session_actions import Found
from massmem.cli.session_view import conversation, excerpt, heading, insights, matches, table
from massmem.insights import Insights
from massmem.records import ListedSession
from tests.support.sessions_said import added, message, said, session_record

EVIL = "\x1b[2J\x1b]0;x\x07Titel \u202egnirts"


def test_a_table_lines_up_and_marks_what_is_escalated():
    rows = [
        ListedSession(session=session_record(), turns=1, confidence=0.5, escalated=True),
        ListedSession(session=session_record(session_id="session_b", title="Ärger 日本"), turns=12),
    ]
    lines = table(rows).splitlines()
    assert [line.index("20") for line in lines[1:]] == [lines[0].index("LAST USED")] * 2
    assert lines[1].endswith("50%!  Why is the sky blue?")
    assert lines[2].endswith("Ärger 日本")


def test_titles_and_names_are_shown_not_obeyed():
    session = session_record(title=EVIL, model=EVIL)
    for text in (table([ListedSession(session=session, turns=1)]), heading(session)):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_a_conversation_says_who_said_what_and_how_it_was_decided():
    text = conversation(said(), everything=False)
    assert "You:\n  Why is the sky blue?\n\nann:\n  The final answer.\n\n2 of 2 votes, 3 rounds, confidence 90%" in text
    assert "No answer: the turn is failed." in conversation(said(answer=None, status="failed"), everything=False)
    whole = conversation(said(), everything=True)
    parts = ["ann, reasoning:\n  Let me think.", "bob:\n  Second.", "bob votes for bob, void", "bob votes for ann:"]
    assert [whole.index(part) for part in parts] == sorted(whole.index(part) for part in parts)


def test_what_was_added_before_the_first_turn():
    for everything in (False, True):
        text = conversation(added(), everything=everything)
        assert text.startswith("\n── Outside of turns · ")
        assert text.endswith("In hall four.\n\nann, tool result:\n  Hall H-412, shelf 3.\n\n")


def test_an_excerpt_is_around_the_first_word():
    text = "begin " * 100 + "the needle is here " + "end " * 100
    found = excerpt(text, ["needle"])
    assert found.startswith("…begin")
    assert "the needle is here" in found
    assert len(found) <= 161
    assert excerpt("Needles\nand needle.", ["NEEDLE"]) == "Needles and needle."
    assert excerpt("nothing of it", ["needle"]) == "nothing of it"
    assert excerpt("text", []) == "text"


@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_any_text_has_an_excerpt_of_one_line(text: str, words: list[str]):
    found = excerpt(text, words)
    assert "\n" not in found
    assert len(found) <= 161


def test_matches_name_session_turn_and_speaker():
    vote = message(7, "tool_call", '{"vote": {"reason": "names the cause", "choice": "ann"}}', "bob", 2)
    found = [Found(message(1, "user", "Why?"), session_record()), Found(vote, session_record())]
    first, _, second, reason = matches(found, "cause why").splitlines()
    assert first.startswith("session_a  turn 1  you  ")
    assert second.startswith("session_a  turn 1  bob, vote  ")
    assert reason == "  names the cause"


def test_insights_of_nothing_and_of_something():
    empty = Insights()
    assert "sessions    0" in insights(empty.result())
    empty.add_session(session_record())
    empty.add_turn(said())
    text = insights(empty.result())
    assert "confidence  90% on average" in text
    assert "cost        1 turn of which the price is not known" in text
    empty.add_turn(said(cost=0.5))
    assert "cost        $0.50, and 1 turn of which the price is not known" in insights(empty.result())
    assert text.splitlines()[-2].startswith("ann")
