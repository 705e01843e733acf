from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from massmem.core import prompts
from massmem.core.messages import ChatMessage, ToolCall
from massmem.memory.compression import (
    Utterance,
    abridge,
    condense,
    find_cut,
    list_stems,
    select_lines,
    select_sentences,
    split_text,
    to_utterances,
)
from massmem.memory.tokens import estimate_tokens as count

DULL = "The meeting went on for a while and nothing came of it. "


def pairs(number: int) -> list[ChatMessage]:
    return [ChatMessage(role, f"{role} {n}") for n in range(number) for role in ("user", "assistant")]


def test_a_share_of_the_messages_stays():
    messages = pairs(20)
    assert find_cut(messages, [5] * 40, 0.2, 1_000) == 32
    assert find_cut(messages, [5] * 40, 0.5, 1_000) == 20


def test_no_more_stays_than_there_is_room_for():
    assert find_cut(pairs(20), [5] * 40, 0.5, 22) == 36
    assert find_cut(pairs(20), [5] * 40, 0.5, 0) == 40


def test_the_oldest_always_goes_so_that_it_becomes_smaller():
    assert find_cut(pairs(1), [5, 5], 0.9, 1_000) == 2
    assert find_cut(pairs(2), [5] * 4, 0.99, 1_000) == 2


def test_tool_calls_stay_with_their_results():
    call = ChatMessage("assistant", "", tool_calls=(ToolCall("c1", "read", "{}"),))
    turn = [
        ChatMessage("user", "q"),
        call,
        ChatMessage("tool", "text", tool_call_id="c1"),
        ChatMessage("assistant", "a"),
    ]
    messages = turn * 5
    for ratio in (0.05, 0.2, 0.45, 0.9):
        assert find_cut(messages, [5] * 20, ratio, 1_000) % 4 == 0


def test_an_extract_keeps_what_carries_facts_and_leaves_the_rest():
    texts = [Utterance("User", DULL * 20 + "We decided to use port 8042 for /srv/api. " + DULL * 20)]
    assert select_sentences(texts, 20, count) == "User: We decided to use port 8042 for /srv/api."


def test_an_extract_is_in_the_order_of_the_texts_and_within_its_budget():
    texts = [Utterance("User", f"Item {n} costs {n * 7} euros at shop number {n}. {DULL}") for n in range(50)]
    found = select_sentences(texts, 100, count).splitlines()
    items = [int(line.split()[2]) for line in found if "Item" in line]
    assert items == sorted(items)
    assert count("\n".join(found)) <= 100
    assert len(items) >= len(found) - 1 > 3


def test_corrected_statement_is_gone_also_from_the_earlier_summary():
    first = select_sentences([Utterance("User", "The access code of the harbor service is AB-1. Ask Ann.")], 100, count)
    second = select_sentences([Utterance("User", "The access code of the harbor service is CD-2.")], 100, count, first)
    assert "AB-1" not in second
    assert "CD-2" in second
    assert "Ask Ann." in second


def test_statement_that_differs_in_a_word_is_no_correction():
    texts = [Utterance("User", "The staging access code of the harbor is A-1. The access code of the harbor is B-2.")]
    assert "A-1" in select_sentences(texts, 100, count)


def test_short_texts_stay_whole_and_long_ones_share_the_rest():
    short, *long = condense(["Port 7.", f"A 1. {DULL * 50}", f"B 2. {DULL * 50}"], 100, count)
    assert short == "Port 7."
    assert "A 1." in long[0] and "B 2." in long[1]
    assert sum(map(count, [short, *long])) <= 100


def test_calls_are_left_out_and_results_lose_their_frames():
    call = ChatMessage("assistant", "I look.", tool_calls=(ToolCall("c1", "read", '{"path": "/etc/a"}'),))
    assert to_utterances([call, replace(call, content=""), FETCHED]) == [
        Utterance("You", "I look."),
        Utterance("Tool fetch", "The gate opens with RD-7001."),
    ]


def test_lines_that_carry_the_question_s_words_are_found():
    noise = "This module reads its settings once.\nNothing else is kept.\n" * 40
    question = list_stems("Read all modules and list the retry limit of each.")
    prose = f"{noise}The retry limit of the net module is 47.\n{noise}"
    assert select_lines(prose, question, 1) == ["The retry limit of the net module is 47."]
    code = "import os\n" * 50 + "RETRY_LIMIT = 47\nmaxRetryLimit = 48\n"
    assert set(select_lines(code, question, 2)) == {"RETRY_LIMIT = 47", "maxRetryLimit = 48"}
    heading = f"{noise}## Retry limit\n47 times\n{noise}"
    assert select_lines(heading, question, 1) == ["## Retry limit 47 times"]
    packed = "x" * 300 + ", " + ", ".join(f"key{n}: {n}" for n in range(200)) + ", retry limit: 47, " + "y" * 3_000
    assert "retry limit: 47" in select_lines(packed, question, 1)[0]
    assert select_lines("Nothing of that.", question, 1) == select_lines("", question, 1) == []


def test_an_extract_of_work_prefers_the_agent_s_words_and_the_question_s():
    texts = [Utterance("Tool read", f"Port {n} of host H-{n} is open since 19{n}. " * 3) for n in range(10, 40)]
    texts.insert(3, Utterance("You", "The retry limit in a.py is generous."))
    texts[9] = Utterance("Tool read", "Nothing. The retry limit is high. Nothing.")
    lines = select_sentences(texts, 25, count, question="What is the retry limit?").splitlines()
    assert lines[:2] == ["You: The retry limit in a.py is generous.", "Tool read: The retry limit is high."]


@given(st.text(max_size=400), st.integers(1, 60))
def test_a_text_is_split_without_loss(text: str, most: int):
    assert "".join(split_text(text, most, count)) == text


@given(st.text(max_size=400), st.integers(0, 60))
def test_a_shortened_text_fits(text: str, budget: int):
    assert count(abridge(text, budget, count)) <= budget


@given(st.lists(st.text(max_size=300), max_size=6), st.integers(0, 200))
def test_condensed_texts_fit_together(texts: list[str], room: int):
    found = condense(texts, room, count)
    assert len(found) == len(texts)
    assert sum(map(count, found)) <= room


@given(st.integers(1, 20), st.floats(0.01, 0.99), st.integers(0, 300), st.data())
def test_remaining_messages_begin_with_a_question(number: int, ratio: float, room: int, data: st.DataObject):
    messages = pairs(number)
    tokens = data.draw(st.lists(st.integers(1, 90), min_size=len(messages), max_size=len(messages)))
    first = find_cut(messages, tokens, ratio, room)
    assert 0 < first <= len(messages)
    assert sum(tokens[first:]) <= room
    assert first == len(messages) or messages[first].role == "user"


FETCHED = ChatMessage(
    "tool", prompts.frame_tool_result("The gate opens with RD-7001.", failed=False), tool="mcp__w__fetch"
)


def test_a_result_is_spoken_by_its_tool():
    as_text = ChatMessage("user", "Rain.\nSun.", tool="mcp__w__fetch, sky")
    assert [text.speaker for text in to_utterances([FETCHED, as_text])] == ["Tool fetch", "Tool fetch, tool sky"]


def test_a_summary_made_of_sentences_names_the_tool():
    summary = select_sentences(to_utterances([FETCHED]), 50, lambda text: len(text.split()))
    assert "Tool fetch: The gate opens with RD-7001." in summary
    assert "Tool fetch: The gate opens with RD-7001." in select_sentences([], 50, lambda t: len(t.split()), summary)
