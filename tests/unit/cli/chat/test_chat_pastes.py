import pytest

from massmem.cli.chat.pastes import LONGEST_SHOWN, Pastes


def test_a_short_paste_is_put_into_the_line():
    assert Pastes().taken("one\r\ntwo\rthree") == "one\ntwo\nthree"


@pytest.mark.parametrize("text", ["x" * (LONGEST_SHOWN + 1), "line\n" * 40])
def test_a_long_one_has_a_mark_that_stands_for_it(text: str):
    pastes = Pastes()
    mark = pastes.taken(text)
    assert len(mark) < 40
    assert pastes.whole(f"see {mark}!") == f"see {text}!"


def test_each_paste_has_a_mark_of_its_own():
    pastes = Pastes()
    first, second = pastes.taken("a" * 5_000), pastes.taken("b" * 5_000)
    assert first != second
    assert pastes.whole(second + first) == "b" * 5_000 + "a" * 5_000


def test_a_mark_that_was_changed_or_written_by_hand_stays():
    pastes = Pastes()
    mark = pastes.taken("a" * 5_000)
    assert pastes.whole(mark.replace("5,000", "5,001")) == mark.replace("5,000", "5,001")
    assert pastes.whole("[pasted 5,000 characters #2]") == "[pasted 5,000 characters #2]"
    pastes.clear()
    assert pastes.whole(mark) == mark
