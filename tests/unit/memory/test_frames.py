"""Frames: what stands in one, and what the user says in earnest."""

import pytest

from massmem.memory.frames import (
    CODE,
    FICTION,
    JOKE,
    LETTER,
    QUOTED,
    ROLE,
    SUPPOSED,
    TASK,
    ends_role,
    find_frame,
    find_statement_to_forget,
    find_wishes,
)


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


@pytest.mark.parametrize("wish", [
    "Two sentences at most, always.",
    "From now on answer in German.",
    "Always give me the metric units as well.",
    "Never use emojis in your answers.",
    "Please keep your answers short.",
    "In future, cite your sources.",
    "I want you to always reply in bullet points.",
    "Call me Sam from now on.",
    "Antworte ab jetzt immer auf Deutsch.",
    "Höchstens zwei Sätze, immer.",
    "Bitte in Zukunft keine Emojis verwenden.",
    "Halte deine Antworten bitte kurz.",
    "Responde siempre en español.",
    "A partir de ahora, usa frases cortas.",
    "Nunca uses emojis en tus respuestas.",
    "Réponds toujours en français.",
    "Désormais, tutoie-moi.",
    "Garde tes réponses courtes, s'il te plaît.",
    "以后请用中文回答。",
    "从现在起,回答不要超过两句话。",
])  # fmt: skip
def test_a_request_for_every_answer_is_a_wish(wish: str):
    assert find_wishes(wish) == [wish]


@pytest.mark.parametrize("message", [
    "I always wanted to answer in rhymes.",
    "He said: always answer in two sentences.",
    "Translate into German: Always answer politely.",
    "In my novel the butler says nothing. Always answer him with a nod, never with words.",
    "Give me this answer in two sentences.",
    "My teacher always wanted short answers.",
    "Never answer the phone at the table.",
    "Write a letter to my landlord. Always use formal language.",
    "She never replies in German.",
    "Why do you always answer in English?",
    "Always lock the door when you leave.",
    "From now on I answer all emails myself.",
    "Ich wollte immer schon auf Deutsch antworten.",
    "Übersetze: Antworten Sie immer höflich.",
    "Mein Chef will immer kurze Antworten.",
    "Siempre quise responder en español.",
    "Traduce al inglés: Responde siempre en español.",
    "Il répond toujours en français.",
    "Je n'ai jamais répondu en français.",
    "他总是用中文回答。",
])  # fmt: skip
def test_a_text_that_looks_like_a_wish_is_none(message: str):
    assert find_wishes(message) == []


def test_a_wish_stands_alone_among_other_sentences():
    assert find_wishes("We run a bakery in Leeds. Two sentences at most, always.") == ["Two sentences at most, always."]


@pytest.mark.parametrize(
    "message, statement",
    [
        ("Forget that I have a cat.", "I have a cat."),
        ("Thanks. Please forget what I told you about my salary!", "my salary!"),
        ("Vergiss bitte, dass ich eine Katze habe.", "ich eine Katze habe."),
        ("Oublie que j’ai un chat.", "j’ai un chat."),
        ("Olvida que tengo un gato.", "tengo un gato."),
        ("Dimentica che ho un gatto.", "ho un gatto."),
        ("请忘记我有一只猫。", "我有一只猫。"),
    ],
)
def test_a_request_to_forget_names_the_statement(message: str, statement: str):
    assert find_statement_to_forget(message) == statement


@pytest.mark.parametrize(
    "message",
    [
        "Forget it, let's talk of something else.",
        "Forget that, I changed my mind.",
        "Don't forget the milk.",
        "Don't forget that I have a cat.",
        "Never forget my birthday.",
        "I forgot my keys.",
        "I forget that I have a cat.",
        "Did I forget my keys?",
        "Forget my last question.",
        "Forget that I have a cat for a moment.",
        "Translate into German: Forget that I have a cat.",
        'She said: "Forget that I have a cat." What does she mean?',
        "Vergiss nicht, dass ich eine Katze habe.",
        "N'oublie pas que j'ai un chat.",
        "No olvides que tengo un gato.",
    ],
)
def test_other_talk_of_forgetting_asks_for_nothing(message: str):
    assert find_statement_to_forget(message) == ""
