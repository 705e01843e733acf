"""What is known of a session without reading its log."""

from massmem.events import Event, HistoryCleared, NoteAdded, TurnCompleted, TurnStarted, TurnUndone
from massmem.messages import Usage
from massmem.session.heard import MOST_KEPT, Heard, begin_a_log
from massmem.store.changes import message_id
from massmem.store.projection import numbers_taken
from tests.support.sample_turn import answer, ballot, called

ID = "session_a"


def turn(number: int, text: str = "Cobham.", *between: Event) -> list[Event]:
    began = TurnStarted(session_id=ID, turn=number, question="Where do kites nest?", agents=("ann",), seed=1)
    ended = TurnCompleted(winner="ann", answer=text, presented=False, usage=Usage())
    return [began, *between, ended]


def follow(heard: Heard, number: int, events: list[Event]) -> bool:
    seq, numbers = heard.seq, list[int]()
    for event in events:
        seq += numbers_taken(event)
        numbers.append(seq)
    return heard.follow(ID, number, numbers, events)


def new(*, reasoning: bool = False) -> Heard:
    return Heard.from_the_first(["ann"], reasoning=reasoning)


def ids(*numbers: int) -> frozenset[str]:
    return frozenset(message_id(ID, number) for number in numbers)


def test_what_was_said_is_known_newest_first():
    heard = new()
    assert follow(heard, 1, turn(1, "Cobham.", answer(1, "ann", "Cobham.")))
    assert [(m.seq, m.kind, m.content) for m in heard.newest_first()] == [
        (3, "assistant", "Cobham."),
        (1, "user", "Where do kites nest?"),
    ]
    assert heard.whole


def test_all_is_shown_when_each_question_and_answer_is():
    heard = new()
    assert heard.all_in(frozenset(), 1)
    follow(heard, 1, turn(1, "Cobham.", answer(1, "ann", "Cobham.")))
    assert heard.all_in(ids(1, 3), 2)
    assert not heard.all_in(ids(1), 2)


def test_the_question_under_way_is_not_asked_for():
    heard = new()
    follow(heard, 1, turn(1)[:1])
    assert heard.all_in(frozenset(), 1)


def test_what_no_view_shows_may_be_remembered():
    for more in (answer(1, "ann", "Leeds."), ballot(1, "ann", "ann"), called(1), NoteAdded(text="n")):
        heard = new()
        follow(heard, 1, turn(1, "Cobham.", more))
        assert not heard.all_in(ids(1, 3), 2), more


def test_an_answer_that_led_to_nothing_yet_may_be_remembered():
    heard = new()
    follow(heard, 1, turn(1, "Cobham.", answer(1, "ann", "Cobham."))[:2])
    assert not heard.all_in(ids(1, 2), 2)


def test_reasoning_counts_where_it_is_remembered():
    thought = answer(1, "ann", "Cobham.").model_copy(update={"reasoning": "Kites like parks."})
    for reasoning in (True, False):
        heard = new(reasoning=reasoning)
        follow(heard, 1, turn(1, "Cobham.", thought))
        assert heard.all_in(ids(1, 4), 2) is not reasoning


def test_what_somebody_else_wrote_ends_what_is_known():
    heard = new()
    assert not heard.follow(ID, 1, [2], turn(1)[:1])


def test_an_undone_turn_ends_what_is_known():
    heard = new()
    follow(heard, 1, turn(1))
    assert not follow(heard, 1, [TurnUndone(session_id=ID, turn=1)])


def test_the_newest_summary_is_known():
    heard = new()
    assert heard.summaries == {"": None, "ann": None}
    follow(heard, 0, [HistoryCleared()])
    cleared = heard.summaries[""]
    assert cleared is not None and cleared.metadata["until"] == 1


def test_no_more_is_kept_than_there_is_room_for():
    heard, text = new(), "x" * (MOST_KEPT // 3)
    for number in (1, 2, 3, 4):
        follow(heard, number, turn(number, text))
    assert sum(len(m.content) for m in heard.newest_first()) <= MOST_KEPT
    assert not heard.whole
    assert not heard.all_in(ids(*range(20)), 5)


def test_a_page_that_was_read_goes_before_what_is_known():
    source = new()
    follow(source, 1, turn(1))
    follow(source, 2, turn(2))
    page = source.newest_first()
    heard = Heard(source.seq)
    heard.read(page[:2], None, whole=False)
    heard.read(page[2:3], 1, whole=True)  # not what stands before it
    assert [m.seq for m in heard.newest_first()] == [4, 3]
    heard.read(page[2:], 3, whole=True)
    assert [m.seq for m in heard.newest_first()] == [4, 3, 2, 1]
    assert heard.whole
    assert not heard.all_in(ids(1, 2, 3, 4), 3), "what else is in the log was not read"


def test_events_begin_a_log_when_nothing_is_before_them():
    assert begin_a_log([1], turn(1)[:1])
    assert begin_a_log([2], [answer(1, "ann", "Leeds.").model_copy(update={"reasoning": "Hm."})])
    assert not begin_a_log([2], turn(1)[:1])
    assert not begin_a_log([], [])
