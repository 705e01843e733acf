from datetime import timedelta

import pytest

from massmem.events import Event
from massmem.messages import Usage
from massmem.render.board import Board
from tests.support.sample_turn import START, answer, ballot, begin, event, other_ends, whole_turn


def board_of(events: list[Event]) -> Board:
    board = Board()
    for e in events:
        board.feed(e)
    return board


def test_a_whole_turn():
    board = board_of(whole_turn())
    assert (board.status, board.session_id, board.turn, board.round) == ("completed", "session_a", 1, 3)
    assert board.answer == "The sky is blue because of Rayleigh scattering."
    assert board.votes == {"ann": 2}
    assert board.notices == ["the store is slow"]
    assert [a.phase for a in board.agents.values()] == ["answered", "voted", "failed"]
    assert [f.agent_id for f in board.failed_agents] == ["eve"]
    assert board.seconds(START + timedelta(hours=1)) == 5.0


def test_the_agents_usages_sum_to_the_turns():
    board = board_of(whole_turn())
    assert sum((a.usage for a in board.agents.values()), Usage()) == board.usage == Usage(700, 150, 60, 8)


def test_tokens_are_estimated_until_they_are_reported():
    start = [begin("ann"), event(0, "agent_started", agent_id="ann", round=1, step="answer")]
    deltas = [event(1, "agent_delta", agent_id="ann", round=1, channel="text", text="x" * 40) for _ in range(3)]
    assert board_of(start + deltas).agents["ann"].tokens == 30
    assert board_of([*start, *deltas, answer(2, "ann", "done")]).agents["ann"].tokens == 20
    retry = event(2, "agent_retrying", agent_id="ann", round=1, error="e", delay=1, attempt=1)
    agent = board_of([*start, *deltas, retry]).agents["ann"]
    assert (agent.tokens, agent.tail, agent.phase) == (0, "", "retrying")


def test_time_at_work_counts_only_while_an_agent_acts():
    events = [
        begin("ann"),
        event(1, "agent_started", agent_id="ann", round=1, step="answer"),
        answer(3, "ann", "x"),
        event(10, "agent_started", agent_id="ann", round=2, step="vote"),
    ]
    agent = board_of(events).agents["ann"]
    assert agent.seconds(START + timedelta(seconds=11.5)) == 3.5


def test_votes_so_far_leave_out_what_was_voided():
    events = [begin("ann", "bob"), ballot(1, "ann", "bob"), ballot(1, "bob", "bob")]
    assert board_of(events).votes == {"bob": 2}
    events.append(event(2, "ballots_voided", round=2, agents=("ann",)))
    assert board_of(events).votes == {"bob": 1}


def test_a_new_turn_starts_afresh_and_keeps_the_notices():
    board = board_of([*whole_turn(), begin("zoe", at=9)])
    assert (list(board.agents), board.status, board.winner, board.round) == (["zoe"], "running", None, 0)
    assert board.notices == ["the store is slow"]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (other_ends()[1], "failed"),
        (other_ends()[2], "interrupted"),
        (event(1, "turn_failed", message="late", exit_code=4, usage=Usage()), "limit"),
        (
            event(1, "turn_completed", winner="a", answer="x", presented=False, usage=Usage(), limit="timeout"),
            "limit",
        ),
    ],
)
def test_how_a_turn_can_end(end: Event, status: str):
    assert board_of([begin("a"), end]).status == status


def test_an_agent_that_nobody_announced_is_shown_all_the_same():
    assert list(board_of([begin("ann"), answer(1, "ghost", "boo")]).agents) == ["ann", "ghost"]
