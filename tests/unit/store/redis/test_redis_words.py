"""Search in Redis: the entries of words, and which messages come first."""

from hypothesis import given
from hypothesis import strategies as st

from massmem.records import MessageRecord
from massmem.store.redis.words import adding, cutting, flat, has_any, ranked
from massmem.store.words import MOST_WORDS, sought, words
from tests.support.sample_turn import START


def message(seq: int, content: str, kind: str = "user") -> MessageRecord:
    fields = {"id": str(seq), "session_id": "s", "turn": 1, "round": 0, "role": "user", "created_at": START}
    return MessageRecord.model_validate({**fields, "seq": seq, "content": content, "kind": kind})


def entries(*messages: MessageRecord) -> dict[str, str]:
    parts = adding(messages)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def found(query: str, sessions: dict[str, list[str]]) -> list[tuple[str, int]]:
    """What is found in sessions whose messages have these texts, numbered from 1."""
    wanted = sought(query)
    reply = []
    for name, texts in sessions.items():
        index = entries(*(message(n, text) for n, text in enumerate(texts, 1)))
        at = [index.get(word, "") for word in flat(wanted)]
        if any(at):
            reply.append((name, [*at, index[""]]))
    return [(hit.session_id, hit.seq) for hit in ranked(wanted, reply, len(sessions))]


def test_words_have_no_case_and_no_accents() -> None:
    assert words("Café, STRASSE straße snake_case 100%") == ["cafe", "strasse", "strasse", "snake", "case", "100"]
    assert sought("snake_case Case case ?") == [("snake", "case"), ("case",)]
    assert len(sought(" ".join(f"w{n}" for n in range(1000)))) == MOST_WORDS


def test_entries_name_messages_and_how_often() -> None:
    assert entries(message(3, "a b a"), message(4, "b"), message(5, "b", "reasoning"), message(6, "?!")) == {
        "": "3:3;4:1;",
        "a": "3:2;",
        "b": "3:1;4:1;",
    }
    assert cutting([message(3, "a b a"), message(5, "b", "reasoning")]) == ["", "3", "a", "3", "b", "3"]


def test_rare_words_and_short_messages_come_first() -> None:
    talk = {
        "x": ["the the plan", "the sky"],
        "y": ["the sky is blue and wide and high today", "sky blue"],
        "z": ["the"],
    }
    assert found("blue", talk) == [("y", 2), ("y", 1)]
    assert found("the plan", talk)[0] == ("x", 1)
    assert found("nothing", talk) == []
    assert set(found("the", talk)) == {("x", 1), ("x", 2), ("y", 1), ("z", 1)}


def test_all_parts_of_a_word_must_be_there() -> None:
    assert found("max_size", {"x": ["max", "size max", "other"]}) == [("x", 2)]
    assert not has_any(sought("max_size"), "size max")
    assert has_any(sought("max_size"), "the max-size of it")
    assert has_any(sought("max_size it"), "it")


def test_rarer_words_choose_what_is_ranked() -> None:
    talk = {f"s{n}": ["common words"] * 60 for n in range(200)} | {"rare": ["common rare", "common"]}
    hits = found("common rare", talk)
    assert hits == [("rare", 1)]
    assert 10_000 <= len(found("common", talk)) < 10_100


@given(st.lists(st.text(alphabet="ab ", max_size=12), min_size=1, max_size=8))
def test_what_has_the_word_is_found(texts: list[str]) -> None:
    assert {seq for _, seq in found("a", {"s": texts})} == {n for n, text in enumerate(texts, 1) if "a" in words(text)}
