"""Sentences that are cut out of passages, on candidates made by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from massmem.memory.ranking.excerpts import Excerpt, cost_of, excerpts, shown, to_read
from massmem.memory.ranking.retrieval import Candidates
from massmem.memory.ranking.text import document_vector, query_terms, term_id, terms
from tests.support.memories import count

LONG = "Nobody has said a word about the new chairs in the hall so far, and nobody will before the end of May."


def candidates(bm25: Sequence[float], **columns: Sequence[int]) -> Candidates:
    """Passages of one session and one speaker, each a message of its own, unless columns say otherwise."""
    n = len(bm25)
    ints = {"key": range(n), "session": [0] * n, "message": range(n), "speaker": [0] * n, "label": [2] * n}
    ints |= {"tokens": [20] * n, "day": [700_000] * n}
    return Candidates(
        bm25=np.array(bm25, float),
        **{k: np.array(list(columns.get(k, v)), np.int64) for k, v in ints.items()},
        **{k: np.zeros(n, np.bool_) for k in ("from_user", "asks", "has_time")},
        speakers=("a", "b"),
    )


def cut(
    question: str, texts: Sequence[str], tokens: int = 200, bm25: Sequence[float] = (), **columns: Sequence[int]
) -> Mapping[int, Excerpt]:
    """bm25: as if every word were equally rare, unless it is given."""
    words = query_terms(question)
    c = candidates(bm25 or [sum(document_vector(terms(t)).get(term_id(w), 0) for w in words) for t in texts], **columns)
    return excerpts(c, c.bm25, dict(enumerate(texts)), frozenset(words), tokens, count)


def lines(found: Mapping[int, Excerpt]) -> list[str]:
    return [shown(excerpt) for excerpt in found.values()]


def test_the_sentence_with_the_words_is_cut_out():
    found = cut("Which kites nest here?", [f"{LONG} Red kites nest in Cobham. {LONG}"])
    assert lines(found) == ["Red kites nest in Cobham."]


def test_short_neighbours_stay():
    found = cut("Which kites nest here?", [f"{LONG} I looked. Red kites nest in Cobham. In oaks. {LONG}"])
    assert lines(found) == ["I looked. Red kites nest in Cobham. In oaks."]


def test_what_is_left_out_between_two_sentences_is_marked():
    found = cut("Which kites nest here?", [f"Red kites nest in Cobham. {LONG} Black kites nest there, too."])
    assert lines(found) == ["Red kites nest in Cobham. … Black kites nest there, too."]
    assert cost_of(found[0], count) == count("Red kites nest in Cobham. Black kites nest there, too.") + 2


def test_more_of_the_words_come_first_and_much_fewer_not_at_all():
    texts = ["Kites eat voles.", "Red kites nest in Cobham.", "Red kites nest."]
    found = cut("Where in Cobham do red kites nest?", texts)
    assert lines(found) == ["Red kites nest in Cobham.", "Red kites nest."]


def test_of_two_that_say_as_much_the_shorter_is_first():
    texts = ["The kites of the old north tower that was closed last autumn nest.", "Kites nest."]
    assert list(cut("Where do kites nest?", texts)) == [1, 0]


def test_a_word_of_its_own_counts_more_than_a_part_of_a_code():
    texts = ["The door code of Elm is REED-4410.", "The door code of Reed is KITE-2093."]
    found = cut("reed", texts, tokens=14)
    assert lines(found) == [texts[1]]
    assert lines(cut("What is REED-4410?", texts))[0] == texts[0]


def test_what_differs_in_numbers_alone_is_shown_as_it_was_said_last():
    texts = ["The meter of Elm shows 4410.", "The meter of Oak shows 17.", "The meter of Elm shows 4502."]
    assert sorted(cut("What do the meters show?", texts)) == [1, 2]
    assert sorted(cut("What do the meters show?", texts, speaker=[0, 0, 1])) == [0, 1, 2]  # who said it matters
    assert next(iter(cut("Does the meter of Elm show 4410?", texts))) == 0  # the question tells them apart


def test_a_correction_in_other_words_comes_with_what_it_corrects():
    texts = ["The door code of Elm is KITE-2093.", "The door code of Elm is FINCH-77."]
    assert sorted(cut("What is the door code of Elm?", texts)) == [0, 1]
    assert lines(cut("What is the door code of Elm?", texts, tokens=14)) == [texts[1]]


def test_the_label_is_paid_once_for_a_message():
    texts = ["Red kites nest.", "Black kites nest."]
    assert len(cut("Which kites nest?", texts, tokens=12)) == 2
    assert len(cut("Which kites nest?", texts, tokens=12, label=[5, 5])) == 1
    assert len(cut("Which kites nest?", texts, tokens=15, label=[5, 5], message=[3, 3])) == 2


def test_no_word_no_excerpt():
    assert cut("Which kites nest?", [LONG]) == {}
    assert cut("Which kites nest?", []) == {}
    assert to_read(candidates([]), np.zeros(0)).tolist() == []
    assert to_read(candidates([0, 0]), np.zeros(2)).tolist() == []


def test_what_is_read_has_about_as_much_of_the_question_as_the_best():
    c = candidates([4, 1, 3, 4, 0])
    assert to_read(c, np.array([1.0, 9, 9, 2, 9])).tolist() == [3, 0, 2]
    assert to_read(candidates([1] * 99), np.zeros(99)).tolist() == [*range(98, 58, -1)]


@settings(max_examples=50)
@given(
    st.integers(0, 400),
    st.lists(st.lists(st.sampled_from([LONG, "Kites nest.", "Red kites.", "Oaks."]), max_size=4), max_size=30),
)
def test_the_room_is_never_exceeded(tokens: int, texts: list[list[str]]):
    found = cut("Which red kites nest?", [" ".join(text) for text in texts], tokens=tokens)
    assert sum(cost_of(excerpt, count) + 2 for excerpt in found.values()) <= min(tokens, 250)
