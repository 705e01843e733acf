"""Twelve everyday questions to the embedded model: what was said in other conversations does not spoil its answers."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from massmem.config.models import TeamConfig
from massmem.core import prompts
from massmem.core.errors import MissingModelError
from massmem.core.events import TurnCompleted
from massmem.core.records import COMMAND_LINE_USER
from massmem.providers.weights import require_weights
from massmem.session.session import Session
from massmem.session.team import Team
from tests.support.sessions import ask, collect
from tests.support.turns import only

pytestmark = [pytest.mark.slow, pytest.mark.model]

EARLIER = {
    "Why is the sky blue, and why are sunsets red?": (
        "Blue light is scattered by air molecules more than red light, so the sky is blue. At sunset the light has a "
        "longer way through the air, and red light is what is left of it."
    ),
    "My daughter Mara has a nut allergy; she turns six on 14 May. What should I bake for her party?": (
        "Bake a lemon cake without nuts, and ask the bakery whether its sprinkles may contain traces of them."
    ),
    "My dog Bruno is afraid of thunder. What helps?": (
        "Close the windows, play calm music, and let Bruno hide where he feels safe."
    ),
    "We build a tracker called Falcon. Which database should it use?": (
        "Use PostgreSQL for Falcon, because two services write at once."
    ),
    "I want to run a half marathon in October. How do I begin?": (
        "Run three times a week, and make the long run on Sunday one kilometre longer each week."
    ),
    "The heating in our bathroom is broken since Monday. Who pays for it?": (
        "Your landlord pays for the repair of the heating; write to him and give him two weeks."
    ),
}

QUESTIONS: Mapping[str, str] = {
    "What is the capital of Australia?": "canberra",
    "What is the capital of Japan?": "tokyo",
    "What is 17 times 24?": r"\b408\b",
    "What is 144 divided by 12?": r"\b12\b|twelve",
    "Translate 'good morning' into German.": "guten morgen",
    "Who wrote Romeo and Juliet?": "shakespeare",
    "What is the chemical symbol of gold?": r"\bau\b",
    "How many days does a week have?": r"\b7\b|seven",
    "In which country is the city of Porto?": "portugal",
    "What is the opposite of hot?": "cold",
    "Write a Python function that adds two numbers.": r"def \w+\(",
    "Write one sentence that thanks a colleague for her help.": "thank|grateful|appreciat",
}
NEED_MEMORY = {"What is the name of my dog?": "bruno", "When is Mara's birthday?": "14 may|may 14|14th of may"}
OTHERS_MATTERS = re.compile(
    r"\bmara\b|\bbruno\b|falcon|scatter|marathon|landlord|earlier (?:I|you) said", re.IGNORECASE
)
ABOUT_ITSELF = re.compile(r"memor(?:y|ies)|earlier (?:I|you) said|\bnotes\b", re.IGNORECASE)


def load_config(backend: dict[str, Any], *, remembers: bool) -> TeamConfig:
    memory = {"enabled": remembers, "persistent_memory": {"session_name": None}}
    return TeamConfig.model_validate({"agents": [{"id": "red", "backend": backend}], "memory": memory})


async def answer_all(home: Path, questions: Mapping[str, str], *, remembers: bool) -> dict[str, str]:
    """Ask each question in a conversation of its own; return the answers."""
    backend = {"type": "local", "temperature": 0, "max_tokens": 80}
    team = await Team.open(load_config(backend, remembers=remembers), home=home)
    answers: dict[str, str] = {}
    try:
        await team.start()
        for number, question in enumerate(questions):
            name = f"session_20260601_{remembers:d}{len(questions):02}{number:03}"
            session = await Session.get_or_create(team, name, COMMAND_LINE_USER)
            (end,) = only(await collect(session.ask(question)), TurnCompleted)
            answers[question] = end.answer
    finally:
        await team.close()
    return answers


def count_right(answers: Mapping[str, str], questions: Mapping[str, str]) -> int:
    return sum(bool(re.search(right, answers[question].lower())) for question, right in questions.items())


async def test_earlier_conversations_cost_no_right_answer(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        require_weights("")
    except MissingModelError as e:
        pytest.skip(f"{e.message}; {e.hint}")
    folder = home / ".massmem"
    for question, text in EARLIER.items():
        config = load_config({"type": "scripted", "script": {"answer": text}}, remembers=True)
        await ask(config, folder, question)
    # Without memory a prompt is what it is on an empty home.
    alone = await answer_all(folder, QUESTIONS, remembers=False)
    with_memory = await answer_all(folder, QUESTIONS, remembers=True)
    own = await answer_all(folder, NEED_MEMORY, remembers=True)
    right = [count_right(answers, QUESTIONS) for answers in (alone, with_memory)]
    frames = [q for q, a in (with_memory | own).items() if prompts.quotes_frame(a, "", q) or ABOUT_ITSELF.search(a)]
    leaks = [question for question, answer in with_memory.items() if OTHERS_MATTERS.search(answer)]
    with capsys.disabled():
        print(
            f"\nright of {len(QUESTIONS)}: {right[0]} on an empty home, {right[1]} after {len(EARLIER)} conversations; "
            f"{count_right(own, NEED_MEMORY)} of {len(NEED_MEMORY)} that need memory; "
            f"{len(frames)} quote a frame, {len(leaks)} speak of something else"
        )
        for question in [*leaks, *(q for q, r in QUESTIONS.items() if not re.search(r, with_memory[q].lower()))]:
            print(f"  {question} -> {' '.join(with_memory[question].split())[:160]}")
    assert right[1] >= right[0] - 1
    assert count_right(own, NEED_MEMORY) == len(NEED_MEMORY), own
    assert frames == []
    assert len(leaks) <= 1, leaks
