"""Every renderer over every event."""

import io
import json
from datetime import timedelta
from typing import get_args

import pytest
from rich.cells import cell_len
from rich.console import Console

from massmem.events import EVENT, Event
from massmem.render.base import Renderer
from massmem.render.board import Board
from massmem.render.jsonl import JsonlRenderer
from massmem.render.live import LiveRenderer, frame
from massmem.render.plain import PlainRenderer
from tests.support.sample_turn import (
    SECRET,
    START,
    answer,
    ballot,
    begin,
    called,
    compressed,
    event,
    measured,
    other_ends,
    returned,
    waiting_turn,
    whole_turn,
)

EVIL = "\x1b[2J\x1b]0;owned\x07[bold red]not markup[/] \u202eevil\r"


def show(events: list[Event], kind: str, **options: bool) -> str:
    board, stream = Board(), io.StringIO()
    renderer: Renderer
    match kind:
        case "jsonl":
            renderer = JsonlRenderer(stream)
        case "plain":
            renderer = PlainRenderer(board, stream, **options)
        case _:
            renderer = LiveRenderer(board, Console(file=stream, force_terminal=True, width=80, height=24))
    for e in events:
        board.feed(e)
        renderer.feed(e)
    renderer.close()
    renderer.close()
    return stream.getvalue()


def test_the_samples_hold_every_event():
    union = get_args(get_args(Event)[0])
    others = [*other_ends(), *waiting_turn(), measured(0, 2_000), compressed(0), called(0), returned(0)]
    assert {type(e) for e in [*whole_turn(), *others]} == set(union)


@pytest.mark.parametrize("kind", ["jsonl", "plain", "live"])
def test_every_event_renders(kind: str):
    text = show(whole_turn(), kind)
    for other in [*other_ends(), *waiting_turn(), measured(1, 2_000), compressed(1), called(1), returned(1)]:
        text += show([begin("ann"), other], kind)
    assert text


def test_jsonl_is_what_was_stored():
    events = whole_turn() + other_ends()
    lines = show(events, "jsonl").splitlines()
    assert [EVENT.validate_json(line) for line in lines] == events
    assert json.loads(lines[0])["type"] == "turn_started"


@pytest.mark.parametrize("kind", ["jsonl", "plain", "live"])
def test_what_the_user_replies_is_shown_nowhere(kind: str):
    text = show(waiting_turn(), kind)
    assert SECRET not in text
    assert "order_id" in text


def test_plain_names_what_is_asked_and_what_is_given():
    text = show(waiting_turn(), "plain")
    assert "  0.2s  ann needs order_id from you (0.1s, 20 tokens)" in text
    assert "order_id is given" in text


def test_plain_tells_the_story_in_lines():
    text = show(whole_turn(), "plain")
    assert text.splitlines() == [
        "  0.0s  session_a turn 1, 3 agents",
        "  0.1s  round 1, answers: ann, bob, eve",
        "  0.7s  bob tries again in 1.5s: 429 slow down",
        "  0.9s  eve failed: the key was refused (check OPENAI_API_KEY)",
        "  1.2s  ann answers (1.0s, 20 tokens): Rayleigh scattering.",
        "  2.2s  bob answers (2.0s, 20 tokens): Blue light scatters more.",
        "  2.3s  round 2, improve or vote: ann, bob",
        "  2.8s  bob votes for bob (2.5s, 40 tokens): most complete",
        "  3.0s  ann answers (1.7s, 40 tokens): Rayleigh scattering, in short.",
        "  3.0s  a new answer came in, these vote again: bob",
        "  3.1s  round 3, last votes: ann, bob",
        "  3.5s  ann votes for ann (2.1s, 60 tokens): most complete",
        "  4.0s  bob votes for ann (3.4s, 60 tokens): names the cause",
        "  4.0s  ann wins: 2 of 2 votes, consensus",
        "  4.0s  ann writes the final answer",
        "  4.3s  the store is slow",
        "  5.0s  3 rounds · 3 agents (1 failed) · 5.0s · 700 tokens in, 150 out · price not known",
    ]


def test_failures_only_says_only_who_failed():
    assert show(whole_turn(), "plain", failures_only=True).splitlines() == [
        "  0.9s  eve failed: the key was refused (check OPENAI_API_KEY)"
    ]


def test_live_leaves_the_summary_and_the_failure_and_a_visible_cursor():
    text = show(whole_turn(), "live")
    assert "eve failed: the key was refused" in text
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "ann wins: 2 of 2 votes" in text.splitlines()[-2]
    assert "3 rounds" in text.splitlines()[-1]


NEARLY_FULL = [begin("ann", "bob"), measured(1, 96_000), compressed(2), measured(3, 45_000, source="api")]


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_a_compressed_context_is_told_in_one_line(kind: str):
    text = show(NEARLY_FULL, kind)
    assert text.count("ann: context compressed: removed 15 messages (44,800 tokens), kept 8 recent (51,200") == 1
    assert "45,000" not in text


def test_plain_warns_of_a_nearly_full_context():
    warning = "ann: Context Buffer (Turn 1): 96,000 / 128,000 tokens (75%) [buffer] - Approaching limit!"
    assert show(NEARLY_FULL, "plain").splitlines()[1] == f"  1.0s  {warning}"


def test_a_tool_is_named_with_its_arguments_but_not_what_it_returned():
    lines = show([begin("ann"), called(0.5), returned(1, name="read\x1b[2J_file")], "plain").splitlines()
    assert lines[1:] == [
        '  0.5s  ann calls read_file {"path": "a secret of the call"}',
        "  1.0s  ann used read_file: 20 characters",
    ]
    failed = event(1, "tool_returned", agent_id="ann", round=1, name="x", content="disk\x1b[2J\nfull", failed=True)
    assert show([begin("ann"), failed], "plain").splitlines()[1] == "  1.0s  ann: x failed: disk full"
    assert "secret" not in show([begin("ann"), returned(1)], "live")


def test_the_view_says_what_an_agent_waits_for():
    board = Board()
    started = event(0, "agent_started", agent_id="ann", round=1, step="answer")
    for e in (begin("ann"), started, called(0.1), called(0.1, number=2, name="list")):
        board.feed(e)
    (line,) = [line.plain for line in frame(board, START, 80, 24) if "ann" in line.plain]
    assert "tools" in line
    assert line.rstrip().endswith("waits for read_file, list")
    board.feed(returned(1).model_copy(update={"call_id": "call_r1b1n1"}))
    assert board.agents["ann"].using == {"call_r1b1n2": "list"}
    assert board.agents["ann"].calls == 2


def test_the_view_has_a_column_for_how_full_contexts_are_once_that_is_known():
    board = Board()
    board.feed(NEARLY_FULL[0])
    assert not any("ctx" in line.plain for line in frame(board, START, 80, 24))
    shares: list[str] = []
    for e in NEARLY_FULL[1:]:
        board.feed(e)
        ann, bob = (line.plain for line in frame(board, START, 80, 24)[1:3])
        shares.append(ann.split(" tok ")[1].split(" ctx")[0].strip())
        assert "ctx" not in bob
    assert shares == ["75%", "40%", "35%"]


def test_the_view_says_how_much_was_recalled_once_anything_was_and_where_there_is_room():
    board = Board()
    for e in (begin("ann", "bob", "eve"), measured(0, 2_000), measured(0, 2_000, agent="bob")):
        board.feed(e)
    assert not any("mem" in line.plain for line in frame(board, START, 80, 24))
    board.feed(measured(1, 2_000, recalled=1_240))
    ann, bob, eve = (line.plain for line in frame(board, START, 80, 24)[1:4])
    assert " 2% ctx  1.2k mem" in ann
    assert " 2% ctx     0 mem" in bob
    assert "mem" not in eve
    assert not any("mem" in line.plain for line in frame(board, START, 60, 24))


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_model_text_is_neither_markup_nor_escape(kind: str):
    events = [
        begin("ann", "bob", question=EVIL),
        event(0.1, "round_started", round=1, agents=("ann",)),
        event(0.2, "agent_started", agent_id="ann", round=1, step="answer"),
        event(0.3, "agent_delta", agent_id="ann", round=1, channel="text", text=EVIL),
        answer(0.4, "ann", EVIL),
        ballot(0.5, "bob", "ann", reason=EVIL),
        event(0.6, "notice", message=EVIL),
    ]
    text = show(events, kind)
    assert "[bold red]not markup[/]" in text
    for trick in ("\x1b[2J", "\x1b]0;", "\u202e", "owned"):
        assert trick not in text


def busy_board(number: int, *, presenting: bool = True) -> Board:
    agents = [f"agent_{i:02}" for i in range(number)]
    board = Board()
    board.feed(begin(*agents, question="日本語の長い質問 " * 20))
    board.feed(event(0.1, "round_started", round=1, agents=agents))
    for i, agent in enumerate(agents):
        board.feed(event(0.2, "agent_started", agent_id=agent, round=1, step="answer"))
        text = ("streamed 日本語 " * 60)[: 30 * i]
        board.feed(event(0.3, "agent_delta", agent_id=agent, round=1, channel="text", text=text))
        if i % 2 == 0:
            board.feed(measured(0.35, 1_000 * (i + 1), agent=agent, window=1_000 if i == 4 else 128_000))
        if i % 3 == 0:
            board.feed(answer(0.4, agent, "an answer " * 30))
        if i % 7 == 0:
            board.feed(ballot(0.5, agent, agents[0]))
    if presenting:
        board.feed(event(1.0, "agent_started", agent_id=agents[0], round=2, step="present"))
        text = "最終的な answer\n" * 40
        board.feed(event(1.1, "agent_delta", agent_id=agents[0], round=2, channel="text", text=text))
    return board


@pytest.mark.parametrize("agents", [1, 2, 5, 20, 50])
@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (40, 10), (20, 3), (200, 60), (8, 2)])
def test_the_view_fits_the_terminal(agents: int, width: int, height: int):
    lines = frame(busy_board(agents), START + timedelta(seconds=2), width, height)
    assert 2 <= len(lines) <= max(height - 1, 2)
    assert max(cell_len(line.plain) for line in lines) <= width


def test_agents_that_do_not_fit_are_counted():
    lines = frame(busy_board(50, presenting=False), START + timedelta(seconds=2), 80, 24)
    assert "and 29 agents more" in lines[-1].plain
    assert sum("agent_" in line.plain for line in lines) == 21


def test_the_votes_are_visible_while_the_winner_writes():
    board = Board()
    for e in whole_turn()[:-1]:
        board.feed(e)
    lines = [line.plain for line in frame(board, START + timedelta(seconds=4.5), 100, 24)]
    assert lines[0].startswith("turn 1 · final answer · Why is the sky blue?")
    assert lines[0].endswith("4.5s")
    assert "writing" in lines[1]
    assert "voted" in lines[2]
    assert "for ann: names the cause" in lines[2]
    assert "the key was refused" in lines[3]
    assert lines[-1] == "The sky is blue because"


def test_one_renderer_shows_two_turns_in_a_row():
    text = show([*whole_turn(), begin("zoe", at=9), other_ends()[2]], "live")
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 2


def test_the_end_of_the_final_answer_has_room_beside_fifty_agents():
    lines = [line.plain for line in frame(busy_board(50), START + timedelta(seconds=2), 80, 24)]
    assert "最終的な answer" in lines[-1]
    assert sum("agent_" in line for line in lines) == 15
