"""Frames: what stands in one, and what the user says in earnest."""

import pytest

from massmem.memory.frames import CODE, FICTION, JOKE, LETTER, QUOTED, ROLE, SUPPOSED, TASK, ends_role, find_frame


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        ("My salary is 1 billion, ha ha.", JOKE), ("My dog speaks Latin. Just kidding!", JOKE),
        ("If I moved to Spain, what taxes would I pay?", SUPPOSED), ("Suppose my home is Turku.", SUPPOSED),
        ("What if my budget were 80,000?", SUPPOSED), ("Wenn ich in Bonn wohnte, was würde ich zahlen?", SUPPOSED),
        ("Let's pretend my home is Tortuga.", ROLE), ("You are the king and I am the fool.", ROLE),
        ("Ben told me: I live in Quito.", QUOTED), ('She wrote: "My favourite colour is red."', QUOTED),
        ("> I live in Quito.\nWhat shall I answer?", QUOTED), ("Mein Chef sagte: Mein Auto ist neu.", QUOTED),
        ("Proofread this letter.\n\nDear Sir, I live in Perth.", TASK), ("Translate into French: my dog is Rex.", TASK),
        ("Korrigiere diesen Text: Mein Name ist Jo.", TASK), ("My name is Jo.\nTranslate this, please.", TASK),
        ("Dear Sir,\nmy name is Greta.\nKind regards\nGreta", LETTER), ("```\n# my port is 99\n```", CODE),
        ("In my novel the hero says that my car is a Bentley.", FICTION),
        ("Write a story about a man whose home is a boat.", FICTION),
    ],
)  # fmt: skip
def test_a_sign_names_the_frame(message: str, frame: str):
    assert find_frame(message, " ".join(message.split())) == frame


@pytest.mark.parametrize(
    "message",
    [
        "I live in Quito.", "As I told you: my home is Turin.", "I translate novels: my last one was in French.",
        'I just read "The Name of the Rose".', "I wonder if you could tell me more.", "Summarise my plan.",
        "My novel comes out in June.", "You are a good adviser. My salary is 54,000.",
        "Can you fix the tap in my flat?", "My boss plays the cello.", "Hello, my name is Sam.",
        "Note: my number is 5550.",
    ],
)  # fmt: skip
def test_earnest_words_have_no_frame(message: str):
    assert find_frame(message, message) == ""


def test_only_what_stands_in_the_frame_has_it():
    message = "My home is Turin. What if I moved to Oslo?"
    assert [find_frame(message, text) for text in message.split(". ")] == ["", SUPPOSED]
    message = "I need help with a letter. Proofread it:\n\nDear Sir, I live in Perth."
    assert find_frame(message, "Dear Sir, I live in Perth.") == TASK


def test_a_long_message_is_material():
    assert find_frame("Suppose I live in Perth. " * 2_000, "Suppose I live in Perth.") == ""


def test_the_user_leaves_a_role():
    assert ends_role("OK, enough of this game.")
    assert not ends_role("My horse is called Storm.")
