"""Recall is silent unless something stored matters: a home after one turn, with the embedder that is the default."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from massmem.config.models import MemoryConfig
from massmem.memory import open_memory
from massmem.memory.embedders import Embedder
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import Claim, RecallOptions, Scope
from massmem.memory.retrieval.query import asks_memory
from tests.support.memories import asks, fact, make_episode, open_disk_memory

ROOM = RecallOptions(1000)
ELSEWHERE = Scope("new", "a", 1, all_sessions=True)
ANSWERS = (
    "The sky is blue because molecules of air scatter short waves of sunlight more than long ones. At sunset the light "
    "goes a longer way through the air. The blue is scattered away, and red and orange remain.",
    "Sunlight has all colours. Blue light is scattered four times as much as red light. In the evening most of the "
    "blue is lost on the way, which leaves the red that colours sunsets.",
    "Air scatters blue light, so the sky looks blue. Sunsets are red because the light passes through more air. Dust "
    "and smoke make them more intense.",
)


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    """What is remembered of one question and three answers."""
    memory = await open_memory(MemoryConfig(), tmp_path, {})
    await memory.record([make_episode("Why is the sky blue, and why are sunsets red?", 0)])
    await memory.record([make_episode(text, i, by="abc"[i - 1], won=True) for i, text in enumerate(ANSWERS, 1)])
    yield memory
    await memory.close()


@pytest.mark.parametrize(
    "question",
    [
        "What is the capital of Australia?",
        "Write a polite e-mail to my landlord about a broken heater.",
        "Hello!",
        "What is 17 times 23?",
        "Was ist die Hauptstadt von Kanada?",
        "¿Cómo se hace una tortilla de patatas?",
        "三十六乘以十五等于多少？",
    ],
)
async def test_an_unrelated_question_recalls_nothing(home: IndexedMemory, question: str):
    result = await home.recall(question, ELSEWHERE, ROOM)
    assert (result.text, result.memories, result.tokens) == ("", (), 0)
    assert result.decision.score < result.decision.threshold
    assert result.decision.reason.startswith("silent: the best match has ")
    loud = await home.recall(question, ELSEWHERE, RecallOptions(1000, abstain=False))
    assert loud.silenced == ()
    assert [m.id for m in loud.memories][: len(result.silenced)] == [m.id for m in result.silenced]


@pytest.mark.parametrize("question", ["What colour are sunsets?", "Why is the sky blue?", "How is light scattered?"])
async def test_a_related_question_recalls_memories_with_their_relevance(home: IndexedMemory, question: str):
    result = await home.recall(question, ELSEWHERE, ROOM)
    assert result.memories
    assert max(m.relevance for m in result.memories) >= result.decision.threshold
    assert result.decision.reason.startswith("shown: ")


@pytest.mark.parametrize(
    "question",
    [
        "why did you say sunsets are red?",
        "What did we talk about yesterday?",
        "As I said last time, go on.",
        "Was haben wir gestern besprochen?",
        "¿Qué te dije ayer?",
        "上次说到哪里了？",
    ],
)
async def test_a_question_that_asks_for_memory_is_never_met_with_silence(home: IndexedMemory, question: str):
    result = await home.recall(question, ELSEWHERE, ROOM)
    assert result.memories
    assert result.decision.reason == "shown: the question asks for what was said"


@pytest.mark.parametrize(
    "question",
    [
        "How do I remember names better?", "What did Newton discover?", "Summarise the plot of Hamlet.",
        "How do I recall an e-mail in Outlook?", "What do you call a baby swan?", "Why do we dream?",
    ],
)  # fmt: skip
def test_words_of_memory_alone_ask_for_none(question: str):
    assert not asks_memory(question)


async def test_the_work_of_an_agent_on_this_question_is_recalled_whatever_it_is(home: IndexedMemory):
    await home.record([make_episode("Canberra, I think.", 5, turn=3, by="a", session="now")])
    result = await home.recall("What is 17 times 23?", Scope("now", "a", 3), ROOM)
    assert [m.text for m in result.memories] == ["Canberra, I think."]
    assert not (await home.recall("What is 17 times 23?", Scope("now", "a", 4), ROOM)).memories


async def test_a_value_that_is_asked_for_is_shown_without_what_is_near_by_chance(home: IndexedMemory):
    await home.add_facts([fact("The user lives in Ghent.", 1, claim=Claim("user", "home", "Ghent", "user"))])
    result = await home.recall("Where do I live?", asks("a"), ROOM)
    assert result.decision.score < result.decision.threshold
    assert "Ghent" in result.memories[0].text
    assert len(result.memories) <= 2
    everything = await home.recall("Where do I live?", asks("a"), RecallOptions(1000, abstain=False))
    assert len(everything.memories) >= 5


async def test_a_question_about_several_things_brings_each(home: IndexedMemory):
    """None comes near to all of it: the best is below the threshold, and still above what is chance."""
    facts = (
        "My sister Lena lives in Bergen and works as a nurse.",
        "My car is a 2014 Skoda Octavia.",
        "I prefer tea over coffee in the morning.",
    )
    await home.record([make_episode(text, 1, session=f"s{i}") for i, text in enumerate(facts)])
    await home.add_facts([fact("The user has a Skoda.", 1, claim=Claim("user", "car", "Skoda", "user"))])
    question = "Which car do I drive, what do I drink in the morning, and where does my sister live?"
    result = await home.recall(question, ELSEWHERE, ROOM)
    assert result.decision.score < result.decision.threshold
    assert {m.text for m in result.memories} >= set(facts)
    assert "scattered" not in result.text


async def test_a_passage_with_all_words_of_the_question_is_shown_alone(home: IndexedMemory):
    await home.record([make_episode("Der Schlüssel vom Schuppen liegt unter dem Blumentopf.", 9, session="x")])
    result = await home.recall("Wo liegt der Schlüssel vom Schuppen?", ELSEWHERE, ROOM)
    assert [m.text for m in result.memories] == ["Der Schlüssel vom Schuppen liegt unter dem Blumentopf."]


async def test_a_question_that_stands_beside_what_matters_tells_nothing(home: IndexedMemory):
    chat = "My sister lives in Bergen.", "Is Norway cold?", "How do I reverse a list?", "She works there as a nurse."
    await home.record([make_episode(text, i, session="x") for i, text in enumerate(chat)])
    result = await home.recall("Where does my sister live?", ELSEWHERE, ROOM)
    assert {m.text for m in result.memories} == {chat[0], chat[3]}


async def test_a_passage_far_below_the_best_is_left_out(home: IndexedMemory):
    await home.record([make_episode("The parcel goes to Mrs Okafor in Leeds on Tuesday.", 9, session="x")])
    result = await home.recall("Why are sunsets red in the evening on a Tuesday?", ELSEWHERE, ROOM)
    assert "Okafor" not in result.text
    assert "Okafor" in "".join(m.text for m in result.silenced)
    assert result.memories


async def test_the_margin_follows_what_is_stored(home: IndexedMemory):
    """What unrelated questions reach is found anew when the store has grown."""
    before = (await home.recall("Hello!", ELSEWHERE, ROOM)).decision.threshold
    greetings = [
        "Hi, thanks, fine.",
        "Boil an egg.",
        "The capital of Peru is Lima.",
        "Bake bread, cook rice.",
        "A poem.",
    ]
    await home.record([make_episode(text, i, session="y") for i, text in enumerate(greetings)])
    assert (await home.recall("Hello!", ELSEWHERE, ROOM)).decision.threshold > before


async def test_a_provider_is_asked_once_for_the_unrelated_questions(tmp_path: Path):
    requests: list[int] = []

    def encode(texts: Sequence[str]) -> list[list[float]]:
        requests.append(len(texts))
        return [[1.0, len(text)] for text in texts]

    memory = open_disk_memory(tmp_path, Embedder("letters", 2, encode))
    await memory.record([make_episode("Mara is allergic to nuts.", 0)])
    requests.clear()
    for _ in range(2):
        await memory.recall("What is Mara allergic to?", ELSEWHERE, ROOM)
    await memory.close()
    assert requests == [2, 44, 2]


async def test_without_an_embedder_words_that_stand_together_matter(by_words: IndexedMemory):
    await by_words.record([make_episode(text, i, by="b", won=True) for i, text in enumerate(ANSWERS)])
    assert (await by_words.recall("Why are sunsets red in the evening?", asks(), ROOM)).memories
    silent = await by_words.recall("Which red wine do people serve with fish?", asks(), ROOM)
    assert silent.decision.reason == "silent: the best match has 0.20, and what matters has at least 0.33 here"
    assert silent.silenced


@pytest.fixture
async def by_words(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    memory = open_disk_memory(tmp_path / "words")
    yield memory
    await memory.close()


NOTES = (
    "We chose a B-tree for the index of the ledger service.",
    "Prune the apple trees in late February, before the buds swell.",
    "The old Boskoop tree by the fence has canker.",
    "Order rootstock from the nursery in Altenburg.",
    "I don't eat meat.",
    "Deploys of the ledger go out on Tuesdays.",
    "Coffee after three in the afternoon keeps me awake.",
    "Neighbour Olaf takes the windfall for his pigs.",
    "Standup moved to 9:45.",
    "The tractor needs 15W-40.",
    "Passport expires in August.",
    "My sister Hanna collects vintage fountain pens.",
    "The cellar is damp: store apples on slatted trays.",
    "Yoga on Monday evenings in the school gym.",
)


@pytest.fixture
async def notes(tmp_path: Path) -> AsyncIterator[IndexedMemory]:
    """Short notes of one user, side by side in one session."""
    memory = await open_memory(MemoryConfig(), tmp_path / "other", {})
    await memory.record([make_episode(text, i, turn=0, session="notes") for i, text in enumerate(NOTES)])
    yield memory
    await memory.close()


async def test_notes_that_stand_beside_the_best_one_do_not_come_along(notes: IndexedMemory):
    result = await notes.recall("Which oil does the tractor take?", ELSEWHERE, ROOM)
    assert result.memories[0].text == "The tractor needs 15W-40."
    assert len(result.memories) <= 2


async def test_the_rest_of_a_long_answer_comes_along_with_what_fits_best(home: IndexedMemory):
    answer = (
        "Exaggerate a popular trend to the point of absurdity. Mock serious issues in a humorous way. Poke fun at "
        "the stereotypes of your neighbours."
    )
    await home.record([make_episode("What makes comedy sketches funny?", 20, turn=0, session="talk")])
    advice = f"Satire is what makes comedy sketches on TikTok effective. {answer}"
    await home.record([make_episode(advice, 21, by="b", won=True, turn=0, session="talk")])
    result = await home.recall("How is satire used in effective comedy sketches on TikTok?", ELSEWHERE, ROOM)
    assert "Poke fun at the stereotypes of your neighbours." in result.text


async def test_an_empty_memory_is_silent(tmp_path: Path):
    memory = await open_memory(MemoryConfig(), tmp_path / "other", {})
    assert (await memory.recall("Which oil does the tractor take?", ELSEWHERE, ROOM)).memories == ()
    await memory.close()


async def test_a_large_room_keeps_its_breadth(notes: IndexedMemory):
    texts = ["The apple harvest of the orchard was good.", "Apple cake burned again."]
    episodes = [make_episode(f"{1990 + n}: {texts[n % 2]}", n, turn=0, session="years") for n in range(10)]
    await notes.record(episodes)
    question = "How good was the apple harvest of the orchard?"
    usual, large = [await notes.recall(question, ELSEWHERE, RecallOptions(room)) for room in (1000, 8000)]
    assert len(large.memories) > len(usual.memories)


async def test_a_question_for_advice_is_shown_the_best_few(notes: IndexedMemory):
    result = await notes.recall("Suggest a dinner that I would like.", ELSEWHERE, ROOM)
    assert "I don't eat meat." in {m.text for m in result.memories}
    assert 1 <= len(result.memories) <= 8


async def test_advice_for_someone_comes_from_what_was_said_of_them_alone(home: IndexedMemory):
    await home.record([make_episode("Tiago is a vegetarian.", 20)])
    result = await home.recall("What could I cook for Tiago?", ELSEWHERE, ROOM)
    assert [m.text for m in result.memories] == ["Tiago is a vegetarian."]


async def test_a_name_that_the_vectors_do_not_know_is_a_match(notes: IndexedMemory):
    await notes.record([make_episode("Ines is allergic to peanuts.", 20)])
    result = await notes.recall("What should I not put into the lunch box of Ines?", ELSEWHERE, ROOM)
    assert [m.text for m in result.memories] == ["Ines is allergic to peanuts."]
    assert not (await notes.recall("What should I put into a lunch box?", ELSEWHERE, ROOM)).memories


@pytest.mark.parametrize(
    ("before", "after", "question"),
    [
        ("My visit is on 12 May.", "Correction: the visit is on 14 May.", "When is my visit?"),
        ("My daughter Ines is 7 years old.", "Correction: Ines is 8, not 7.", "How old is Ines?"),
    ],
)
async def test_a_correction_marks_what_it_corrects(notes: IndexedMemory, before: str, after: str, question: str):
    """The month of May is no sign of doubt; a name says whom a statement is about."""
    await notes.record([make_episode(before, 20, session="one")])
    await notes.record([make_episode(after, 21, session="two")])
    shown = {m.text: m.note for m in (await notes.recall(question, ELSEWHERE, ROOM)).memories}
    assert after in shown
    assert "newer" in shown[before] or "until" in shown[before]


async def test_a_reply_comes_with_what_it_replies_to(notes: IndexedMemory):
    await notes.record([make_episode("The secrets of billing have to get into the cluster.", 0, session="chat")])
    reply = "Encrypt them with kubeseal on your laptop."
    await notes.record([make_episode(reply, 1, session="chat", by="b", won=True)])
    result = await notes.recall("How do the secrets get into our cluster?", ELSEWHERE, ROOM)
    assert reply in {m.text for m in result.memories}
    assert not {m.text for m in result.memories}.intersection(NOTES)


async def test_a_later_statement_in_other_words_comes_along(notes: IndexedMemory):
    """It has less of the question's words than the old one, and little of its score."""
    changed = "The landlord gave in: it stays at 1,090 for another year."
    await notes.record([make_episode("Rent rises to 1,180 from February.", 20, turn=0, session="notes")])
    await notes.record([make_episode("Bus 61 skips the hospital.", 21, turn=0, session="notes")])
    await notes.record([make_episode(changed, 40, turn=0, session="notes")])
    result = await notes.recall("What is my rent?", ELSEWHERE, ROOM)
    assert changed in {m.text for m in result.memories}
    assert "Bus 61" not in result.text


@pytest.mark.parametrize(
    ("statement", "question"),
    [
        ("I gave up my flat and live on a houseboat now.", "Where is my home?"),
        ("Mein Geld verdiene ich mit dem Reparieren von Uhren.", "Was ist mein Beruf?"),
        ("El marisco me hincha la garganta.", "¿A qué soy alérgico?"),
    ],
)
async def test_a_new_home_answers_questions_about_its_user_in_other_words(
    tmp_path: Path, statement: str, question: str
):
    memory = await open_memory(MemoryConfig(), tmp_path / "other", {})
    await memory.record([make_episode(statement, 0), *[make_episode(NOTES[i], i) for i in (3, 5, 8)]])
    assert statement in (await memory.recall(question, ELSEWHERE, ROOM)).text
    assert not (await memory.recall("How do I boil an egg?", ELSEWHERE, ROOM)).memories
    await memory.close()
