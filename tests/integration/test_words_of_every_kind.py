"""Recall by parts of names, words with a typo, and words without their accents, among 400 other memories.

The facts were written first, and the questions without looking at their wording. None needs an embedder.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import RecallOptions
from tests.support.memories import asks, make_episode, open_disk_memory

ROOM = RecallOptions(250)

NAMES = [
    ("reconcileLedger starts at 03:10 every night.", "When does the ledger get its nightly pass?", "03:10"),
    ("The bug sits in parseInvoiceTotal, line 88.", "Where is the fault in reading an invoice?", "line 88"),
    ("We gave userSessionTimeout 45 minutes.", "After how long does a session end?", "45 minutes"),
    ("HTTPRetryPolicy gives up at the sixth attempt.", "How often is a retry made?", "sixth"),
    ("Marta owns exportWarehouseStock.", "Whose is the code around the warehouse?", "Marta"),
    ("FeatureFlagStore lives in Frankfurt.", "In which city are the flags hosted?", "Frankfurt"),
    ("sendWeeklyDigest was switched off by Omar.", "Who stopped the digest?", "Omar"),
    ("The limit in uploadAvatarImage is 2 MB.", "How large may an avatar be?", "2 MB"),
    ("set max_queue_depth to 512", "How deep may a queue become?", "512"),
    ("the host billing-shadow-node has 96 cores", "How many cores does the shadow machine have?", "96 cores"),
    ("look into infra/terraform/vpcPeering.tf, Ines wrote it", "Who set up the peering?", "Ines"),
    ("calculateShippingCost ignores Iceland.", "For which country is shipping wrong?", "Iceland"),
]
TYPOS = [
    ("Grandma's recipe needs cardamom and nothing else.", "What goes into the recpie?", "cardamom"),
    ("The plumber comes on Thursday at nine.", "On which day is the plumer here?", "Thursday"),
    ("Our landlord is called Petrov.", "What is our landlrod's name?", "Petrov"),
    ("I left the umbrella at the dentist.", "Where did I leave the umbrela?", "dentist"),
    ("The kindergarten closes at half past four.", "When does the kindergartan close?", "half past four"),
    ("My passport is in the blue drawer.", "Where do I keep my passsport?", "blue drawer"),
]
ACCENTS = [
    ("Besançon is where the watch was made.", "What comes from Besancon?", "watch"),
    ("Zoë plays the cello.", "Which instrument does Zoe have?", "cello"),
    ("We meet Jiří in Brno.", "In which town do we see Jiri?", "Brno"),
    ("Frau Grünwald has the spare key.", "What does Mrs Gruenwald keep for us?", "spare key"),
    ("The soup at Phở Hòa was too salty.", "How was the food at Pho Hoa?", "salty"),
    ("Saša booked the hall for May 9.", "For which date did Sasa reserve?", "May 9"),
]


def others() -> list[str]:
    """Messages of the same kinds on other things."""
    verbs = ("load", "render", "merge", "hash", "trim", "queue", "mount", "probe", "rotate", "audit")
    things = ("Widget", "Canvas", "Branch", "Token", "Buffer", "Packet", "Volume", "Sensor", "Secret", "Report")
    people = ("Lena", "Paulo", "Chidi", "Yuki", "Sören", "Aïsha", "Björn", "Noémie", "Tomás", "Kemal")
    places = ("Porto", "Leeds", "Malmö", "Nîmes", "Cádiz", "Graz", "Łomża", "Turku", "Győr", "Sibiu")
    calls = [f"{verb}{thing} takes {i + 2} seconds." for i, verb in enumerate(verbs) for thing in things]
    makers = zip(things, people, strict=True)
    owners = [f"{thing}{verb.title()}er belongs to {person}." for thing, person in makers for verb in verbs]
    trips = [f"{person} spent a weekend in {place}." for person in people for place in places]
    notes = [f"The {thing.lower()} on desk {i} is {person}'s." for i, person in enumerate(people) for thing in things]
    return [*calls, *owners, *trips, *notes]


async def fill(folder: Path, facts: Sequence[str]) -> IndexedMemory:
    memory = open_disk_memory(folder)
    texts = others()
    step = len(texts) // len(facts)
    for i, fact in enumerate(facts):
        texts.insert(i * step, fact)
    await memory.record([make_episode(text, i, turn=i // 2 + 1) for i, text in enumerate(texts)])
    return memory


@pytest.mark.parametrize(("kind", "least"), [(NAMES, 12), (TYPOS, 6), (ACCENTS, 6)], ids=["names", "typos", "accents"])
async def test_facts_are_recalled_in_250_tokens(tmp_path: Path, kind: list[tuple[str, str, str]], least: int):
    memory = await fill(tmp_path, [fact for fact, _, _ in kind])
    recalled = {question: (await memory.recall(question, asks(turn=999), ROOM)).text for _, question, _ in kind}
    missed = [question for _, question, answer in kind if answer not in recalled[question]]
    await memory.close()
    assert len(kind) - len(missed) >= least, missed
