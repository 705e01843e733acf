import io
import json
from datetime import timedelta

from massmem.core.events import Event, decode_event
from massmem.render.text import JsonlRenderer
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import START, answer, begin, event, other_ends, whole_turn


def fold(events: list[Event]) -> TurnView:
    view = TurnView()
    for e in events:
        view.feed(e)
    return view


def test_completed_turn():
    view = fold(whole_turn())
    assert [a.phase for a in view.agents.values()] == ["answered", "voted", "failed"]
    assert view.seconds(START + timedelta(hours=1)) == 5.0


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


def test_agent_that_was_not_asked_to_vote_waits_no_longer():
    events = [begin("ann", "bob"), event(1, "round_started", round=2, agents=("ann", "bob"), final=True)]
    events.append(event(2, "winner_decided", agent_id="ann", votes={"ann": 1}, by="early_stop", not_asked=("bob",)))
    assert {agent.id: agent.phase for agent in fold(events).agents.values()} == {"ann": "waiting", "bob": "answered"}


def test_unannounced_agent_is_added():
    assert list(fold([begin("ann"), answer(1, "ghost", "boo")]).agents) == ["ann", "ghost"]


def test_jsonl_lines_are_the_stored_events():
    events, stream = whole_turn() + other_ends(), io.StringIO()
    renderer = JsonlRenderer(stream.write)
    for e in events:
        renderer.feed(e)
    lines = stream.getvalue().splitlines()
    assert [decode_event(line) for line in lines] == events
    assert json.loads(lines[0])["type"] == "turn_started"
