"""Which value holds when: order of time, authors, restatements and disputes."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from massmem.memory.ledger import Chain, build_chains
from massmem.memory.persistent import USER, Claim, Memory

START = datetime(2026, 5, 8, 9, tzinfo=UTC)


def note(number: int, day: float, value: str, by: str = USER) -> Memory:
    claim = Claim("user", "home", value, by)
    time = START + timedelta(days=day)
    return Memory(str(number), "fact", "s", 1, "a", f"Home is {value}.", (f"m{number}",), time, claims=(claim,))


def chain(*memories: Memory) -> Chain:
    (one,) = build_chains(memories).values()
    return one


def spans(*memories: Memory) -> list[tuple[str, int, int | None]]:
    """Each value with the first day and the day when it ended."""
    return [
        (e.claim.value, (e.since - START).days, None if e.until is None else (e.until - START).days)
        for e in chain(*memories).entries
    ]


def test_a_later_value_takes_the_place_of_an_earlier_one_whatever_the_order_of_recording():
    assert spans(note(2, 5, "Ghent"), note(1, 0, "Porto")) == [("Porto", 0, 5), ("Ghent", 5, None)]


def test_a_value_that_is_said_again_holds_from_the_first_time():
    assert spans(note(1, 0, "Porto"), note(2, 5, "porto"), note(3, 9, "Ghent")) == [("Porto", 0, 9), ("Ghent", 9, None)]


def test_a_value_that_comes_back_holds_again():
    memories = note(1, 0, "Porto"), note(2, 5, "Ghent"), note(3, 9, "Porto")
    assert spans(*memories) == [("Porto", 0, 5), ("Ghent", 5, 9), ("Porto", 9, None)]


def test_agents_who_disagree_are_both_shown_and_named():
    one = chain(note(1, 0, "Porto", "a"), note(2, 5, "Ghent", "b"))
    assert [(e.claim.value, e.authors, e.disputed_by) for e in one.holding] == [
        ("Porto", ["a"], ("b",)), ("Ghent", ["b"], ("a",)),
    ]  # fmt: skip


def test_an_agent_corrects_itself_and_nobody_else():
    memories = note(1, 0, "Porto", "a"), note(2, 1, "Porto", "b"), note(3, 5, "Ghent", "a")
    assert [(e.claim.value, e.authors) for e in chain(*memories).holding] == [("Porto", ["b"]), ("Ghent", ["a"])]


def test_the_user_settles_what_agents_said_before_but_not_what_they_say_later():
    settled = note(1, 0, "Porto", "a"), note(2, 1, "Ghent", "b"), note(3, 5, "Turku")
    assert [e.claim.value for e in chain(*settled).holding] == ["Turku"]
    disputed = chain(*settled, note(4, 9, "Ghent", "b"))
    assert [(e.claim.value, e.disputed_by) for e in disputed.holding] == [("Turku", ("b",)), ("Ghent", (USER,))]


def test_of_two_values_of_one_moment_none_is_newer():
    assert [e.claim.value for e in chain(note(1, 0, "Porto"), note(2, 0, "Ghent")).holding] == ["Porto", "Ghent"]


def test_of_two_passages_of_one_message_the_later_one_holds():
    first, second = note(1, 0, "Porto"), note(2, 0, "Ghent")
    passages = [
        Memory(m.id, "episode", "s", 1, USER, m.text, ("m",), m.created_at, claims=m.claims) for m in (first, second)
    ]
    assert [e.claim.value for e in chain(*passages).holding] == ["Ghent"]


def test_topics_are_apart():
    other = Memory("9", "fact", "s", 1, "a", "x", ("m9",), START, claims=(Claim("user", "car", "Zoe", USER),))
    assert {t: [e.claim.value for e in c.holding] for t, c in build_chains([note(1, 0, "Porto"), other]).items()} == {
        "user|home": ["Porto"], "user|car": ["Zoe"],
    }  # fmt: skip


@given(st.permutations([(1, 0, "Porto"), (2, 3, "Ghent"), (3, 5, "Porto"), (4, 9, "Turku"), (5, 9.5, "Turku")]))
def test_the_order_in_which_memories_are_read_makes_no_difference(rows: list[tuple[int, float, str]]):
    assert spans(*(note(*row) for row in rows)) == [
        ("Porto", 0, 3), ("Ghent", 3, 5), ("Porto", 5, 9), ("Turku", 9, None),
    ]  # fmt: skip


def test_without_a_memory_the_rest_is_as_if_it_had_never_been_said():
    assert spans(note(1, 0, "Porto"), note(3, 9, "Porto")) == [("Porto", 0, None)]
