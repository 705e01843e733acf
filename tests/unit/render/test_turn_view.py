from datetime import timedelta

from massmem.core.events import Event
from massmem.core.messages import Usage
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import START, answer, ballot, begin, event, whole_turn


def fold(events: list[Event]) -> TurnView:
    view = TurnView()
    for e in events:
        view.feed(e)
    return view


def test_completed_turn():
    view = fold(whole_turn())
    assert (view.outcome.status, view.outcome.session_id, view.outcome.turn, view.round) == (
        "completed",
        "session_a",
        1,
        3,
    )
    assert view.outcome.answer == "The sky is blue because of Rayleigh scattering."
    assert view.votes == {"ann": 2}
    assert view.notices == ["the store is slow"]
    assert [a.phase for a in view.agents.values()] == ["answered", "voted", "failed"]
    assert [f.agent_id for f in view.agent_failures] == ["eve"]
    assert view.seconds(START + timedelta(hours=1)) == 5.0


def test_usage_of_agents_sums_to_usage_of_turn():
    view = fold(whole_turn())
    assert sum((a.usage for a in view.agents.values()), Usage()) == view.usage == Usage(700, 150, 60, 8)


def test_tokens_are_estimated_until_reported():
    start = [begin("ann"), event(0, "agent_started", agent_id="ann", round=1, step="answer")]
    deltas = [event(1, "agent_delta", agent_id="ann", round=1, channel="text", text="x" * 40) for _ in range(3)]
    assert fold(start + deltas).agents["ann"].tokens == 30
    assert fold([*start, *deltas, answer(2, "ann", "done")]).agents["ann"].tokens == 20
    retry = event(2, "agent_retrying", agent_id="ann", round=1, error="e", delay=1, attempt=1)
    agent = fold([*start, *deltas, retry]).agents["ann"]
    assert (agent.tokens, agent.tail, agent.phase) == (0, "", "retrying")


def test_seconds_count_only_while_agent_works():
    events = [
        begin("ann"),
        event(1, "agent_started", agent_id="ann", round=1, step="answer"),
        answer(3, "ann", "x"),
        event(10, "agent_started", agent_id="ann", round=2, step="vote"),
    ]
    agent = fold(events).agents["ann"]
    assert agent.seconds(START + timedelta(seconds=11.5)) == 3.5


def test_voided_ballots_are_not_counted():
    events = [begin("ann", "bob"), ballot(1, "ann", "bob"), ballot(1, "bob", "bob")]
    assert fold(events).votes == {"bob": 2}
    events.append(event(2, "ballots_voided", round=2, agents=("ann",)))
    assert fold(events).votes == {"bob": 1}


def test_agent_that_was_not_asked_to_vote_waits_no_longer():
    events = [begin("ann", "bob"), event(1, "round_started", round=2, agents=("ann", "bob"), final=True)]
    events.append(event(2, "winner_decided", agent_id="ann", votes={"ann": 1}, by="early_stop", not_asked=("bob",)))
    assert {agent.id: agent.phase for agent in fold(events).agents.values()} == {"ann": "waiting", "bob": "answered"}


def test_new_turn_resets_all_but_notices():
    view = fold([*whole_turn(), begin("zoe", at=9)])
    assert (list(view.agents), view.outcome.status, view.outcome.winner, view.round) == (["zoe"], "running", None, 0)
    assert view.notices == ["the store is slow"]


def test_unannounced_agent_is_added():
    assert list(fold([begin("ann"), answer(1, "ghost", "boo")]).agents) == ["ann", "ghost"]
