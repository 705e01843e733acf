"""The bench of values that change: its worlds and what it counts as shown."""

import pytest

from scripts.benches.ledger import ask, extract, shows
from scripts.benches.ledger_chains import HELD_OUT, STATIC, TUNED, Statement, make_worlds

MARKERS = ("now", "moved", "changed", "new", "no longer", "used to", "switched", "anymore")


def test_the_same_seed_makes_the_same_worlds():
    assert make_worlds("paraphrased", 40) == make_worlds("paraphrased", 40)
    assert make_worlds("paraphrased", 20) != make_worlds("paraphrased", 20, seed=19)


def test_worlds_have_chains_of_two_to_four_values_and_facts_that_stay():
    (world,) = make_worlds("paraphrased", 20)
    chains = [question for question in world.questions if question.stale]
    assert len(chains) == len(TUNED) + len(HELD_OUT)
    assert {len(chain.stale) for chain in chains} <= {1, 2, 3}
    assert len(world.questions) == len(chains) + len(STATIC)
    assert [m.time for m in world.messages] == sorted(m.time for m in world.messages)
    assert len({(m.session, m.turn, m.author) for m in world.messages}) == len(world.messages)


@pytest.mark.parametrize("wording", ["direct", "paraphrased"])
def test_statements_have_no_marker_words_and_direct_ones_differ_in_the_value_alone(wording: str):
    for world in make_worlds("direct" if wording == "direct" else "paraphrased", 40):
        stated = [m.statement for m in world.messages if isinstance(m.statement, Statement)]
        assert not [s.text for s in stated if set(s.text.lower().rstrip(".").split()) & {*MARKERS}]
        assert wording == "paraphrased" or {s.wording for s in stated} == {0}


def test_only_whole_values_count_as_shown_and_none_that_is_said_to_be_outdated():
    assert shows(["User: The license is GPL-3.0."], "GPL-3.0")
    assert not shows(["User: The license is AGPL-3.0."], "GPL-3.0")
    assert not shows(["User (held until 9 May 2026): The license is GPL-3.0."], "GPL-3.0")
    assert not shows(["[From b Turn 1, rests on GPL-3.0, which held until 9 May 2026] GPL-3.0 it is."], "GPL-3.0")
    assert shows(["User: It is held until GPL-3.0 ends."], "GPL-3.0")


@pytest.mark.slow
async def test_a_stub_at_the_wire_gives_claims_and_the_ledger_shows_what_holds():
    pytest.importorskip("mem0")
    (world,) = make_worlds("direct", 20)
    facts = await extract(world, obeys=True)
    assert len([fact for fact in facts if fact.claim]) >= sum(
        isinstance(message.statement, Statement) for message in world.messages
    )
    scores = await ask(world, facts, reads_claims=False)
    assert sum(score.stale for score in scores) <= 1
    assert all(score.shown for score in scores if score.question.stale)
