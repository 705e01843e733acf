"""The hash of a conversation: the same for what a client trims, another for anything that was changed."""

import pytest

from massmem.server.routes.openai import Conversation, Exchanged, hash_history, is_side_task

CONVERSATION: list[Exchanged] = [("user", "Why?"), ("agent", "It is  blue.\n")]


def test_blanks_do_not_count() -> None:
    assert hash_history([("user", " Why?"), ("agent", "It is blue.")]) == hash_history(CONVERSATION)


@pytest.mark.parametrize(
    "changed",
    [
        [("user", "Why?")],
        [("user", "Why!"), ("agent", "It is blue.")],
        [("agent", "Why?"), ("user", "It is blue.")],
        [("user", "Why? It is"), ("agent", "blue.")],
        [*CONVERSATION, ("user", "")],
    ],
)
def test_another_conversation_has_another_hash(changed: list[Exchanged]) -> None:
    assert hash_history(changed) != hash_history(CONVERSATION)


@pytest.mark.parametrize(
    ("text", "is_task"),
    [
        ("### Task:\nGenerate a title.\n### Chat History:\n<chat_history>\nUSER: a\n</chat_history>", True),
        ("  ### Task:\nYou are an autocompletion system.\n<chat_history></chat_history>", True),
        # The prompt with which Open WebUI sends a question and what it has found is the user's question.
        ("### Task:\nRespond to the user query using the provided context.\n<context>x</context>\nWhy?", False),
        ("What does <chat_history> mean?", False),
    ],
)
def test_side_task_is_known_by_its_prompt(text: str, is_task: bool) -> None:
    assert is_side_task(Conversation("", (), ("user", text), text), None) is is_task
