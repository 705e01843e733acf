"""What is stored with a point."""

from massmem.memory.index.payload import ASKS, HAS_TIME, is_fact, of_fact, of_passage, to_memory
from tests.support.memories import count, fact, said


def test_a_passage_comes_back_as_it_was_said():
    episode = said("Did it rain? Yes.", number=7, turn=2, by="a", won=True, group="g")
    stored = of_passage(episode, "Did it rain?", ["rain"], 12, count)
    assert stored["f"] == [12, 7, ASKS, 1, count(" Did it rain?"), episode.created_at.toordinal()]
    assert (stored["won"], stored["user_id"]) == (True, "massmem")
    memory = to_memory(5, stored, 0.5)
    assert (memory.id, memory.kind, memory.text, memory.score) == ("5", "episode", "Did it rain?", 0.5)
    assert (memory.session_id, memory.turn, memory.agent_id, memory.group) == ("s", 2, "a", "g")
    assert (memory.message_ids, memory.created_at) == (("s-7",), episode.created_at)


def test_a_fact_names_all_its_messages():
    stored = of_fact(fact("It rained yesterday.", sources=("m1", "m2")), ["rain"], count)
    assert is_fact(stored)
    assert stored["f"][:4] == [0, 0, HAS_TIME, 1]
    assert to_memory(1, stored).message_ids == ("m1", "m2")


def test_tokens_are_those_of_what_is_shown():
    stored = of_passage(said("x"), "a\x1b[31mb", [], 0, count)
    assert stored["f"][4] == count(" a [31mb")
    assert stored["data"] == "a\x1b[31mb", "what was said is kept as it is"
