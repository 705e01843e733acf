"""Which stored facts a model is shown, from a real index, and what counts as known."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from massmem.core.errors import MemoryUnavailable
from massmem.memory.extraction.prompts import KnownFacts, Origin
from massmem.memory.index import Point
from massmem.memory.index_edge import EdgeIndex
from massmem.memory.persistent import Claim, Fact
from massmem.memory.points import fact_payload
from tests.support.extraction_stub import (
    DAY,
    FIRST,
    ORIGIN,
    SECOND,
    TURN,
    Open,
    completion,
    facts,
    prompts,
    section,
    texts,
)
from tests.support.provider_stub import Stub


def embed(text: str) -> Sequence[float]:
    return [1.0, 0.0] if "Postgres" in text else [0.0, 1.0]


def store_facts(index: EdgeIndex, texts_: Sequence[str], origin: Origin = ORIGIN, first_id: int = 1) -> None:
    for number, text in enumerate(texts_, first_id):
        fact = Fact(origin.session_id, origin.turn, origin.agent_id, text, ("q0",), DAY - timedelta(number), origin.won)
        index.upsert([Point(number, embed(text), {number: 1.0}, fact_payload(fact, ["word"], len))])


@pytest.fixture
def index(tmp_path: Path) -> EdgeIndex:
    return EdgeIndex(tmp_path / "index", 2)


async def test_the_model_is_shown_what_the_agent_knows_and_nobody_else(
    stub: Stub, open_extractor: Open, index: EdgeIndex
):
    store_facts(index, [FIRST])
    store_facts(index, ["Of another agent."], replace(ORIGIN, agent_id="agent_b"), 2)
    store_facts(index, ["Of another session."], replace(ORIGIN, session_id="s2"), 3)
    stub.replies = [facts(FIRST.upper(), SECOND)]
    extraction = await open_extractor(known=KnownFacts(index, embed)).extract(TURN, ORIGIN)
    known = json.loads(section(prompts(stub.requests[0])[1], "Existing Memories"))
    assert [item["text"] for item in known] == [FIRST]
    assert texts(extraction) == [SECOND]
    assert extraction.duplicates == 1


async def test_duplicate_hidden_from_others_is_stored_when_its_agent_wins(
    stub: Stub, open_extractor: Open, index: EdgeIndex
):
    store_facts(index, [FIRST])
    store_facts(index, [SECOND], replace(ORIGIN, won=True), 2)
    stub.replies = [facts(FIRST, SECOND)]
    extraction = await open_extractor(known=KnownFacts(index, embed)).extract(TURN, replace(ORIGIN, turn=3, won=True))
    assert texts(extraction) == [FIRST]


@pytest.mark.parametrize(
    ("origin", "new"),
    [
        (replace(ORIGIN, turn=3), []),
        (replace(ORIGIN, turn=3, undecided=True), [FIRST]),
        (replace(ORIGIN, turn=1, undecided=True), []),
    ],
    ids=["lost", "may be won", "same turn"],
)
async def test_duplicate_that_others_may_come_to_see_is_stored(
    stub: Stub, open_extractor: Open, index: EdgeIndex, origin: Origin, new: list[str]
):
    store_facts(index, [FIRST])
    stub.replies = [facts(FIRST)]
    assert texts(await open_extractor(known=KnownFacts(index, embed)).extract(TURN, origin)) == new


async def test_of_many_known_facts_those_near_the_conversation_are_shown(
    stub: Stub, open_extractor: Open, index: EdgeIndex
):
    store_facts(index, [*(f"Redis fact number {n}." for n in range(30)), FIRST])
    stub.replies = [completion("[]")]
    await open_extractor(known=KnownFacts(index, embed)).extract(TURN, ORIGIN)
    known = json.loads(section(prompts(stub.requests[0])[1], "Existing Memories"))
    assert len(known) == 10
    assert known[0]["text"] == FIRST


async def test_without_a_vector_the_newest_facts_are_shown(stub: Stub, open_extractor: Open, index: EdgeIndex):
    store_facts(index, [f"Redis fact number {n}." for n in range(15)])
    stub.replies = [facts(FIRST)]
    extraction = await open_extractor(known=KnownFacts(index, lambda _: None)).extract(TURN, ORIGIN)
    known = json.loads(section(prompts(stub.requests[0])[1], "Existing Memories"))
    assert [item["text"] for item in known] == [f"Redis fact number {n}." for n in range(10)]
    assert texts(extraction) == [FIRST]


async def test_an_index_that_is_away_is_said_before_a_model_is_paid(stub: Stub, open_extractor: Open, index: EdgeIndex):
    index.close()
    with pytest.raises(MemoryUnavailable):
        await open_extractor(known=KnownFacts(index, embed)).extract(TURN, ORIGIN)
    assert stub.requests == []


def claim_home(index: EdgeIndex, number: int, town: str, origin: Origin = ORIGIN) -> None:
    claim, time = Claim("user", "home", town, "user"), DAY + timedelta(number)
    fact = Fact(origin.session_id, 1, origin.agent_id, f"The home of the user is {town}.", (f"q{number}",), time, True)
    fact = replace(fact, claim=claim, group=origin.group)
    index.upsert([Point(number, [0.0, 1.0], {number: 1.0}, fact_payload(fact, 1, len))])


async def test_a_value_that_no_longer_holds_is_not_known_and_is_new_when_it_is_said_again(
    stub: Stub, open_extractor: Open, index: EdgeIndex
):
    claim_home(index, 1, "Porto")
    claim_home(index, 2, "Ghent")
    stub.replies = [facts("The home of the user is Porto.", "The home of the user is Ghent.")]
    extraction = await open_extractor(known=KnownFacts(index, embed)).extract(TURN, replace(ORIGIN, turn=3, won=True))
    assert texts(extraction) == ["The home of the user is Porto."]
    known = json.loads(section(prompts(stub.requests[0])[1], "Existing Memories"))
    assert [item["text"] for item in known] == ["The home of the user is Ghent."]


def test_topics_are_those_of_all_sessions_that_share_a_memory_and_of_no_others(index: EdgeIndex):
    claim_home(index, 1, "Porto", replace(ORIGIN, session_id="s2", group="mine"))
    known = KnownFacts(index, embed)
    assert known.find_near("Anything.", replace(ORIGIN, group="mine")).topics == [("user", "home")]
    assert known.find_near("Anything.", replace(ORIGIN, group="yours")).topics == []
