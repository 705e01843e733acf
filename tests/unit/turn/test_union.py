"""Turns of shape union and revise: who is asked what, what they come to, and that they go on exactly."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from massmem.config.models import CoordinationConfig, ItemsConfig
from massmem.core.events import (
    AgentFailed,
    AgentStarted,
    AnswerSubmitted,
    Event,
    ItemsGiven,
    ItemsMerged,
    Notice,
    RoundStarted,
    TurnCompleted,
    TurnFailed,
    TurnResumed,
    decode_event,
)
from massmem.core.turn_result import TurnResult
from massmem.memory.budget import Budget
from massmem.turn.agent import Agent
from massmem.turn.coordinator import Turn
from massmem.turn.revise import RUNS
from tests.support.turns import SEED, Scripts, agents_of, check_order, collect_turn, only


def items(*entries: str | Mapping[str, Any]) -> str:
    return json.dumps({"items": [{"title": e} if isinstance(e, str) else e for e in entries]})


def checks(text: str = "", **stands: str) -> str:
    entries = [{"item": int(n[1:]), "stand": stand, "reason": f"because {n}"} for n, stand in stands.items()]
    return json.dumps({"checks": entries, **({"text": text} if text else {})})


HOLE = {"title": "SQL injection through the user id", "place": "db.py:10", "severity": "high"}
SAME_HOLE = {"title": "The user id allows SQL injection", "place": "db.py:12", "suggestion": "Bind it."}
UNION: Scripts = {
    "ann": {"items": items(HOLE, "Passwords are logged"), "check": checks(i3="reject"), "present": "One hole."},
    "ben": {"items": items(SAME_HOLE, "Nothing limits attempts"), "check": checks(i2="confirm")},
    "cyd": {"items": items(), "check": checks(i1="confirm", i2="abstain", i3="confirm")},
}
REVISE: Scripts = {
    "ann": {
        "answer": "A note on mill.",
        "check": [checks("A note on the mill.", i1="confirm", i2="reject"), checks("The mill.", i3="confirm")],
    },
    "ben": {"items": [items("An article is missing"), items("It is too long")]},
    "cyd": {"items": [items("It says nothing of the owner"), items()]},
}


async def play(shape: Any, scripts: Scripts, earlier: Sequence[Event] = (), question: str = "why?", **settings: Any):
    return await run(shape, await agents_of(scripts), earlier, question, **settings)


async def run(
    shape: Any, agents: Mapping[str, Agent], earlier: Sequence[Event], question: str, *more: Any, **settings: Any
) -> list[Event]:
    resumed = TurnResumed(session_id="session_x", turn=1, question=question, agents=tuple(agents), shape=shape)
    before = [*earlier, resumed] if earlier else []
    turn = Turn("session_x", 1, question, SEED, before, kind=RUNS[shape])
    return [*before[-1:], *await collect_turn(turn, agents, CoordinationConfig(shape=shape, **settings), *more)]


def sort_checks(result: TurnResult) -> list[Any]:
    """Return the items with what was said of them, whoever said it first."""
    items = [*(result.items or ()), *(result.revisions or ())]
    return [replace(item, checks=tuple(sorted(item.checks, key=lambda c: c.agent))) for item in items]


async def test_a_union_has_what_anybody_found_with_what_the_others_say() -> None:
    events = await play("union", UNION)
    check_order(events)
    result = TurnResult.of(decode_event(event.model_dump_json()) for event in events)
    assert result.items is not None
    shown = [
        (i.number, i.item.title, i.found_by, i.list_agents("confirm"), i.list_agents("reject")) for i in result.items
    ]
    assert shown == [
        (1, "SQL injection through the user id", ("ann", "ben"), ["cyd"], []),
        (2, "Passwords are logged", ("ann",), ["ben"], []),
        (3, "Nothing limits attempts", ("ben",), ["cyd"], ["ann"]),
    ]
    assert result.items[0].item.suggestion == "Bind it." and result.items[2].checks[0].reason == "because i3"
    assert result.answer is not None and result.answer.startswith("One hole.\n\n- **1. SQL injection")
    assert "### Contested\n\n- **3. Nothing" in result.answer
    assert (result.verdict, result.confidence, result.dissent, result.shape) == (None, None, None, "union")
    assert result.agreement == "not compared: 3 of 3 agents listed 3 items, 1 contested"
    assert sum(agent.usage.prompt for agent in result.agents) == result.usage.prompt


async def test_whoever_fails_is_counted_out_and_an_unreadable_list_is_asked_for_once_more() -> None:
    broken = {"answer": "", "items": [{"text": "", "error": "auth"}]}
    prose = {"items": ["I like it.", items("Passwords are logged")], "check": "What?"}
    events = await play("union", UNION | {"ben": broken, "cyd": prose})
    result = TurnResult.of(events)
    assert result.items is not None
    assert result.agreement == "not compared: 2 of 3 agents listed 2 items, 0 contested, not checked by ben, cyd"
    assert "2 of 2 found it (ann, cyd)" in (result.answer or "")
    assert [(e.agent_id, e.out) for e in only(events, AgentFailed)] == [("ben", True), ("cyd", False)]


async def test_entries_that_cannot_be_read_are_named() -> None:
    events = await play("union", {"ann": {"items": items("one", {"severity": "low"})}})
    assert [n.message for n in only(events, Notice)] == ["1 of 2 items were not read: low"]
    assert TurnResult.of(events).answer == "- **1. one**: 1 of 1 found it (ann); 0 confirmed"
    assert len(only(events, RoundStarted)) == 1


async def test_where_code_cannot_tell_one_agent_is_asked_about_all_pairs_when_that_pays() -> None:
    texts = {
        "ann": {"title": "Unchecked input in the statement", "place": "db.py:10", "reason": "Anybody can end it. " * 9},
        "ben": {"title": "SQL-Einschleusung über die Kennung", "place": "db.py:10", "reason": "Jeder kann das. " * 9},
    }
    scripts: dict[str, dict[str, Any]] = {name: {"items": items(text)} for name, text in texts.items()}
    scripts |= {name: {"items": items()} for name in ("cyd", "dan", "eve", "fay", "gus")}
    for reply, count in ((checks(i1="confirm"), 1), (checks(i1="reject"), 2), ("?", 2)):
        scripts["ann"]["compare"] = {"raw": reply}
        (merged,) = only(await play("union", scripts), ItemsMerged)
        assert (len(merged.items), merged.by, merged.compared) == (count, "ann", 1)
        assert merged.usage.prompt
    scripts["cyd"] = scripts["ben"]
    (merged,) = only(await play("union", scripts), ItemsMerged)
    assert merged.compared == 1, "what two wrote alike is compared once"
    (merged,) = only(await play("union", {name: scripts[name] for name in ("ann", "ben")}), ItemsMerged)
    assert (len(merged.items), merged.by) == (2, "")


async def test_a_form_of_ones_own_is_asked_for() -> None:
    form = ItemsConfig(kinds=("option",), task="List the options.", check="Could it work?", places=False)
    prompts: list[str] = []
    agents = await agents_of({"ann": {"items": [items("stay")]}, "ben": {"items": [items("go")]}})
    for agent in agents.values():
        provider: Any = agent._provider
        stream = provider.stream
        provider.stream = lambda request, stream=stream: prompts.append(request.messages[-1].content) or stream(request)
        agent._sender._provider = provider
    await run("union", agents, (), "Stay?", items=form, presentation="as_is")
    assert "List the options. Write nothing but this JSON object" in prompts[0] and '"place"' not in prompts[0]
    assert "Could it work?" in prompts[-1] and "- **" in prompts[-1]


async def test_a_draft_is_revised_until_the_rounds_are_over() -> None:
    events = await play("revise", REVISE)
    check_order(events)
    result = TurnResult.of(events)
    assert (result.answer, result.winner, result.verdict) == ("The mill.", "ann", None)
    assert result.agreement == "not compared: 3 points of criticism, 2 revised, 1 declined"
    assert result.revisions is not None
    assert [(p.number, p.found_by, [c.stand for c in p.checks]) for p in result.revisions] == [
        (1, ("ben",), ["confirm"]), (2, ("cyd",), ["reject"]), (3, ("ben",), ["confirm"])
    ]  # fmt: skip
    assert [a.content for a in result.find_agent("ann").answers] == [
        "A note on mill.",
        "A note on the mill.",
        "The mill.",
    ]
    assert result.report is not None and [d.positions[1].text for d in result.report.disputed] == [
        "revised: because i1", "declined: because i2", "revised: because i3"
    ]  # fmt: skip


async def test_a_draft_is_not_replaced_by_the_words_of_the_form() -> None:
    script = REVISE["ann"] | {"check": checks("<the whole revised text>", i1="confirm", i2="confirm")}
    events = await play("revise", REVISE | {"ann": script}, max_rounds=1)
    assert only(events, TurnCompleted)[0].answer == "A note on mill."


async def test_it_ends_when_nobody_has_a_criticism_left() -> None:
    scripts = REVISE | {"ben": {"items": [items("An article is missing"), items()]}, "cyd": {"items": items()}}
    events = await play(
        "revise", scripts | {"ann": REVISE["ann"] | {"check": checks("A note on the mill.", i1="confirm")}}
    )
    assert [e.round for e in only(events, RoundStarted)] == [1, 2, 3, 4]
    end = only(events, TurnCompleted)[0]
    assert end.answer == "A note on the mill."
    assert end.agreement == "not compared: 1 point of criticism, 1 revised, 0 declined, and nobody has one left"


async def test_the_users_text_is_the_draft() -> None:
    events = await play("revise", REVISE, question="Our mill is old.", draft="given", max_rounds=1)
    first, second = only(events, AnswerSubmitted)
    assert (first.content, first.usage.requests, first.remember) == ("Our mill is old.", 0, False)
    assert second.content == "A note on the mill."


@pytest.mark.parametrize(("shape", "scripts"), [("union", UNION), ("revise", REVISE)])
async def test_one_that_was_cut_off_anywhere_asks_nobody_twice(shape: Any, scripts: Scripts) -> None:
    whole = await play(shape, scripts)
    paid = (AnswerSubmitted, ItemsGiven, ItemsMerged)
    result = TurnResult.of(whole)
    for cut in range(1, len(whole)):
        earlier = whole[:cut]
        done = {(e.agent_id, e.round) for e in earlier if isinstance(e, AnswerSubmitted | ItemsGiven)}
        # What was replied before does not come again: the rest of the script is for the rest of the turn.
        rest = {
            name: {
                purpose: replies[sum(r > 1 and a == name and (r % 2 == 0) == (purpose == "items") for a, r in done):]
                if shape == "revise" and isinstance(replies, list) else replies
                for purpose, replies in script.items()
            }
            for name, script in scripts.items()
        }  # fmt: skip
        events = await play(shape, rest, earlier)
        again = {(e.agent_id, e.round) for e in only(events, AgentStarted) if e.step != "present"}
        assert not again & done, cut
        after = TurnResult.of([*earlier, *events])
        assert (after.answer, after.agreement) == (result.answer, result.agreement), cut
        assert [len(only([*earlier, *events], kind)) for kind in paid] == [len(only(whole, kind)) for kind in paid]
        assert sort_checks(after) == sort_checks(result)


async def test_now_and_at_a_limit_a_union_has_what_there_is() -> None:
    slow = {"items": {"text": items("late"), "delay": 30}, "check": {"text": checks(i1="confirm"), "delay": 30}}
    events = await play("union", {"ann": {"items": items("early")}, "ben": slow}, timeout=0.5)
    end = only(events, TurnCompleted)[0]
    assert (end.limit, end.answer) == ("timeout", "- **1. early**: 1 of 1 found it (ann); 0 confirmed")
    now = asyncio.Event()
    now.set()
    events = await run("union", await agents_of({"ann": {"items": items("early")}, "ben": slow}), (), "q", None, now)
    assert only(events, TurnCompleted)[0].answer.startswith("- **1. early**")
    settings = CoordinationConfig(max_tokens=1, shape="union")
    agents = await agents_of(UNION)
    budget = Budget(settings)
    for agent in agents.values():
        provider = budget.limit(agent.id, agent.config.backend, agent._provider)
        agent._provider = agent._sender._provider = provider
    events = await run("union", agents, (), "why?", budget, max_tokens=1)
    assert only(events, TurnFailed)[0].exit_code == 4


async def test_now_a_draft_is_the_answer_as_it_is() -> None:
    now = asyncio.Event()
    now.set()
    events = await run("revise", await agents_of(REVISE), (), "q", None, now)
    assert only(events, TurnCompleted)[0].answer == "A note on mill."


async def test_an_author_that_fails_leaves_its_draft() -> None:
    events = await play("revise", REVISE | {"ann": {"answer": "A note.", "check": "Never."}})
    end = only(events, TurnCompleted)[0]
    assert end.answer == "A note."
    assert end.agreement == "not compared: 2 points of criticism, 0 revised, 0 declined, 2 without a reply"


async def test_one_agent_alone_judges_its_own_draft() -> None:
    script = {"answer": "A.", "items": [items("Too short"), items()], "check": checks("A longer one.", i1="confirm")}
    assert only(await play("revise", {"ann": script}), TurnCompleted)[0].answer == "A longer one."


async def test_a_revision_that_quotes_the_notes_is_asked_for_once_more_and_never_shown() -> None:
    quoted = checks("<notes>\nA note.\n</notes>", i1="confirm")
    ben = {"items": [items("Too short", "<one sentence>"), items()]}
    for replies, text in (([quoted, checks("A longer note.", i1="confirm")], "A longer note."), (quoted, "A note.")):
        events = await play("revise", {"ann": {"answer": "A note.", "check": replies}, "ben": ben})
        assert TurnResult.of(events).answer == text
        assert [notice.message for notice in only(events, Notice)] == ["1 of 2 items were not read: <one sentence>"]
