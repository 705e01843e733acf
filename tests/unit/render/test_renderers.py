"""Every renderer over every event."""

import io
from typing import get_args

import pytest
from rich.console import Console

from massmem.core.events import CarryOutStarted, Event, ItemsGiven, ItemsMerged, UsageBooked, VersionChosen
from massmem.core.messages import Usage
from massmem.render import Renderer
from massmem.render.live import LiveRenderer
from massmem.render.text import JsonlRenderer, PlainRenderer
from massmem.render.turn_view import TurnView
from tests.support.sample_turn import (
    SECRET,
    answer,
    ballot,
    begin,
    busy,
    compression,
    event,
    measurement,
    other_ends,
    search,
    tool_call,
    tool_result,
    waiting_turn,
    whole_turn,
)

EVIL = "\x1b[2J\x1b]0;owned\x07[bold red]not markup[/] \u202eevil\r"


def render(events: list[Event], kind: str) -> str:
    view, stream = TurnView(), io.StringIO()
    renderer: Renderer
    match kind:
        case "jsonl":
            renderer = JsonlRenderer(stream.write)
        case "plain":
            renderer = PlainRenderer(view, stream)
        case _:
            renderer = LiveRenderer(view, Console(file=stream, force_terminal=True, width=80, height=24))
    for e in events:
        view.feed(e)
        renderer.feed(e)
    renderer.close()
    renderer.close()
    return stream.getvalue()


def test_samples_contain_every_event():
    union = get_args(Event)
    others = [
        *other_ends(),
        *waiting_turn(),
        measurement(0, 2_000),
        compression(0),
        tool_call(0),
        tool_result(0),
        busy(0),
        UsageBooked(purpose="extract", usage=Usage()),
        search(0),
        ItemsGiven(agent_id="writer", round=2, usage=Usage()),
        ItemsMerged(round=1, items=()),
        VersionChosen(turn=1, withdrawn=(2,), restored=(1,)),
        CarryOutStarted(agent_id="writer", folder="/project", completed={}),
    ]
    assert {type(e) for e in [*whole_turn(), *others]} == set(union)


@pytest.mark.parametrize("kind", ["jsonl", "plain", "live"])
def test_every_event_renders(kind: str):
    output = render(whole_turn(), kind)
    for other in [
        *other_ends(),
        *waiting_turn(),
        measurement(1, 2_000),
        compression(1),
        tool_call(1),
        tool_result(1),
        busy(1),
        search(1),
        ItemsGiven(agent_id="writer", round=2, usage=Usage()),
        ItemsMerged(round=1, items=()),
        VersionChosen(turn=1, withdrawn=(2,), restored=(1,)),
        CarryOutStarted(agent_id="ann", folder="/project", completed={}),
    ]:
        output += render([begin("ann"), other], kind)
    assert output


@pytest.mark.parametrize("kind", ["jsonl", "plain", "live"])
def test_a_search_is_shown_on_one_line(kind: str):
    output = render([*whole_turn()[:3], search(1, "sky colour")], kind)
    assert ('"query":"sky colour"' if kind == "jsonl" else "searching: sky colour") in output


@pytest.mark.parametrize("kind", ["jsonl", "plain", "live"])
def test_reply_of_the_user_is_not_shown(kind: str):
    output = render(waiting_turn(), kind)
    assert SECRET not in output
    assert "order_id" in output


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_compressed_context_is_one_line(kind: str):
    events = [begin("ann", "bob"), measurement(1, 96_000), compression(2), measurement(3, 45_000, source="api")]
    output = render(events, kind)
    assert output.count("ann: context compressed: 15 messages, 96,000 tokens → 51,200") == 1
    assert "45,000" not in output


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_model_text_is_neither_markup_nor_escape_sequence(kind: str):
    events = [
        begin("ann", "bob", question=EVIL),
        event(0.1, "round_started", round=1, agents=("ann",)),
        event(0.2, "agent_started", agent_id="ann", round=1, step="answer"),
        event(0.3, "agent_delta", agent_id="ann", round=1, channel="text", text=EVIL),
        answer(0.4, "ann", EVIL),
        ballot(0.5, "bob", "ann", reason=EVIL),
        event(0.6, "notice", message=EVIL),
    ]
    output = render(events, kind)
    assert "[bold red]not markup[/]" in output
    for attack in ("\x1b[2J", "\x1b]0;", "\u202e", "owned"):
        assert attack not in output
