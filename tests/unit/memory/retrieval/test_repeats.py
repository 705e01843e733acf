"""What is no memory: what stands in the prompt already, and what its author wrote again."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from massmem.memory.persistent import USER, Memory, RecallOptions
from massmem.memory.retrieval.repeats import PromptTexts, Wording, drop_copies, find_revised

ANSWER = (
    "Use PostgreSQL for the tracker, because two services write to it at once. SQLite lets one writer in at a time. "
    "Plan 20 connections."
)
FINAL = ANSWER.replace("because", "since").replace("Plan 20", "And plan 20")
OF_ANN = Memory("1", "episode", "s", 1, "ann", ANSWER, ("m1",), datetime(2026, 5, 8, tzinfo=UTC))


def stands(memory: Memory, *verbatim: str, exclude: tuple[str, ...] = ()) -> bool:
    return PromptTexts(RecallOptions(100, exclude=frozenset(exclude), verbatim=verbatim), "s").have(memory)


def test_an_answer_that_the_prompt_shows_is_no_memory_also_under_another_id_and_with_small_changes():
    assert stands(OF_ANN, exclude=("m1",))
    assert stands(OF_ANN, f"Answer B.\n\n{ANSWER.upper()}")
    assert stands(OF_ANN, FINAL)
    assert not stands(OF_ANN, "Use PostgreSQL.", exclude=("m2",))
    assert not stands(OF_ANN, FINAL.replace("20", "30"))


def test_a_sentence_of_the_same_author_is_shown_once_whatever_its_session():
    later = replace(OF_ANN, id="2", session_id="t", text=ANSWER.upper(), created_at=datetime(2026, 5, 9, tzinfo=UTC))
    others = [replace(OF_ANN, id="3", agent_id="bob"), replace(OF_ANN, id="4", note="until 9 May")]
    others.append(replace(OF_ANN, id="5", text="Use SQLite."))
    assert drop_copies([OF_ANN, *others, later]) == [later, *others]
    options = RecallOptions(100, pinned=(OF_ANN,))
    assert PromptTexts(options, "s").have(later)
    assert not PromptTexts(options, "s").have(others[0])


def test_words_of_another_session_that_the_question_quotes_are_still_looked_for():
    question = f"Who said this: {ANSWER}"
    assert not stands(replace(OF_ANN, session_id="t"), question)
    assert not stands(replace(OF_ANN, kind="fact"), question)
    assert stands(replace(OF_ANN, session_id="t", agent_id=USER), question)


@pytest.mark.parametrize(
    ("text", "other", "has", "nearly"),
    [
        ("What is the capital of Peru", "what is  the CAPITAL\nof Peru?", True, True),
        ("I live in Porto, not in Ghent, as you know.", "I live in Porto", True, True),
        ("I do not live in Porto.", "I do live in Porto.", False, False),
        ("Kim is here.", "Kim", False, False),
        ("Kim", "kim.", True, True),
        (FINAL, ANSWER, False, True),
        ("我住在波尔图,现在很好。", "我住在波尔图", True, True),
        ("anything", "", False, False),
    ],
)
def test_texts_that_say_the_same(text: str, other: str, has: bool, nearly: bool):
    assert (Wording(text).has(Wording(other)), Wording(text).nearly_has(Wording(other))) == (has, nearly)


def test_of_an_answer_and_the_final_answer_that_repeats_it_the_last_is_shown():
    later = OF_ANN.created_at + timedelta(minutes=1)
    final = replace(OF_ANN, id="2", text=FINAL, message_ids=("m2",), created_at=later)
    assert find_revised({7: OF_ANN, 8: final}) == {7}
    for other in ({"turn": 2}, {"agent_id": "bob"}, {"session_id": "t"}, {"message_ids": ("m1",)}, {"text": "Else."}):
        assert find_revised({7: OF_ANN, 8: replace(final, **other)}) == set()
