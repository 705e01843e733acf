"""What the wording of a question tells."""

from datetime import date

import pytest

from massmem.memory.retrieval.query import TOLD_WITHIN, analyse, find_days, find_names, search_forms


@pytest.mark.parametrize(
    ("question", "user"),
    [("What is my plan?", True), ("What did the user want?", True), ("When did we start?", True), ("Who won?", False)],
)
def test_it_knows_when_the_user_is_meant(question: str, user: bool):
    assert analyse(question).about_user is user


@pytest.mark.parametrize(
    ("question", "time"), [("When was it?", True), ("How many days did it take?", True), ("Where was it?", False)]
)
def test_it_knows_when_a_time_is_asked_for(question: str, time: bool):
    assert analyse(question).asks_time is time


@pytest.mark.parametrize(
    ("question", "order", "overview"),
    [
        ("In what order did I bring up my plans?", True, True),
        ("Can you list the order in which we did it?", True, True),
        ("Summarize how I got on.", False, True),
        ("What have we decided so far?", False, True),
        ("How has my garden changed?", False, True),
        ("How many plants did I name across my messages?", False, True),
        ("How many cupcakes did I order?", False, False),
        ("How did Ana feel about her work?", False, False),
        ("What changed?", False, False),
    ],
)
def test_it_knows_when_a_whole_course_is_asked_for(question: str, order: bool, overview: bool):
    asked = analyse(question)
    assert (asked.asks_order, asked.asks_overview) == (order, overview)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("on 13 March, 2023", date(2023, 3, 13), date(2023, 3, 13)),
        ("on May 3rd, 2023", date(2023, 5, 3), date(2023, 5, 3)),
        ("in June 2023", date(2023, 6, 1), date(2023, 6, 30)),
        ("on 2023-06-09", date(2023, 6, 9), date(2023, 6, 9)),
    ],
)
def test_dates_with_a_year_are_ranges(text: str, first: date, last: date):
    assert find_days(text) == ((first.toordinal(), last.toordinal() + TOLD_WITHIN),)


@pytest.mark.parametrize("text", ["31 February 2023", "May 0000", "2023-13-01", "2023-02-30", "in May", "9999-12-31"])
def test_text_without_a_date_gives_none(text: str):
    assert find_days(text) == ()


def test_speakers_are_named_by_all_parts_of_their_name_and_roles_are_no_names():
    speakers = ["Maria", "agent_b", "user", "assistant"]
    assert find_names(analyse("What did Maria's dog eat?"), speakers) == {"Maria"}
    assert find_names(analyse("What did agent b and the assistant find?"), speakers) == {"agent_b"}
    assert find_names(analyse("What did b find?"), speakers) == frozenset()


def test_names_are_no_words_to_look_for_unless_nothing_else_is_left():
    question = analyse("What did Maria paint?")
    assert [*search_forms(question, ["Maria"])] == [("paint",)]
    assert [*search_forms(question, [])] == [("maria",), ("paint",)]
    assert [*search_forms(analyse("Maria?"), ["Maria"])] == [("maria",)]
