"""`massmem replay`: a turn again, beside the original."""

import asyncio
import shutil
import sys
import textwrap
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer

from massmem.cli.options import MAX_TURN, AsJson, Config, OwnerName, SessionName
from massmem.cli.setup import Setup, choose_backend, find_session_config, load_setup
from massmem.cli.streams import show_activity, write_json, write_out
from massmem.config.models import TeamConfig
from massmem.core.display import make_printable, one_line
from massmem.core.errors import InputError, TurnError
from massmem.core.events import Event, WinnerDecided
from massmem.core.ids import check_session_name
from massmem.core.outcome import TurnOutcome
from massmem.core.records import SessionRecord, TurnRecord
from massmem.session.replay import Change, Comparison, TurnReplayer, load_recorded_turn
from massmem.session.team import Team
from massmem.turn.recorded import RecordedStep, StepKey, Verdict, describe_result, read_steps, replay_as_recorded


class OutputName(StrEnum):
    PLAIN = "plain"
    JSON = "json"


app = typer.Typer(help="Run a turn again with something changed, and compare.")

_LABEL_WIDTH = 22
_WIDTH = 52
"""Most characters of what an agent did, in the table."""

_STEPS = {"answer": "answer", "vote": "vote", "present": "final answer"}


@app.command()
def replay_command(
    name: SessionName,
    turn: Annotated[int, typer.Option("--turn", min=1, max=MAX_TURN, metavar="N", help="The turn.")],
    without: Annotated[
        list[str] | None,
        typer.Option("--without-memory", metavar="ID", help="Leave this memory out; may be given several times."),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="ID=MODEL", help="Give an agent another model; may be given several times."),
    ] = None,
    as_recorded: Annotated[
        bool, typer.Option("--as-recorded", help="Ask no model: check that the log comes out the same.")
    ] = False,
    owner: OwnerName = None,
    config: Config = None,
    output: Annotated[
        OutputName | None, typer.Option("--output", "-o", metavar="FORMAT", help="plain or json. [default: plain]")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Run a turn again, and say whether the winner changes and why. The session stays as it is.

    What an agent did is taken from the log; it is asked again only where what it is sent has changed. Without a change
    all agents are asked again. With --as-recorded the exit code is 1 when an event comes out otherwise.
    """
    if as_recorded and (without or agents):
        raise InputError("--as-recorded changes nothing", "leave --without-memory and --agent out")
    session_name = check_session_name(name)
    chosen = config or (find_session_config(session_name) if owner is None else None)
    is_json = as_json or output is OutputName.JSON
    setup = load_setup(chosen, owner)
    if as_recorded:
        session_id, verdict = asyncio.run(_verify(setup, session_name, turn))
        _write_verdict(session_id, turn, verdict, as_json=is_json)
        return 0 if verdict.is_identical else TurnError.exit_code
    changes = [*(Change(memory_id=memory) for memory in without or ()), *_read_models(setup.config, agents or ())]
    with show_activity("replaying the turn", quiet=is_json):
        session_id, comparison = asyncio.run(_compare(setup, session_name, turn, changes))
    if is_json:
        write_json(_to_dict(session_id, turn, comparison))
    else:
        write_out(_format(session_id, turn, comparison))
    return 0


def _read_models(team: TeamConfig, options: Sequence[str]) -> list[Change]:
    changes: list[Change] = []
    for option in options:
        agent_id, _, model = option.partition("=")
        if not (agent_id and model):
            raise InputError(f"--agent {option!r} names no model", "write it as --agent ID=MODEL")
        changes.append(Change(agent_id=agent_id, backend=choose_backend(team, model)))
    return changes


async def _load_turn(setup: Setup, name: str, number: int) -> tuple[SessionRecord, TurnRecord, list[Event]]:
    async with setup.open_store() as store:
        session = await setup.find_session(store, name)
        return session, *await load_recorded_turn(store, session.session_id, number)


async def _verify(setup: Setup, name: str, number: int) -> tuple[str, Verdict]:
    session, _, events = await _load_turn(setup, name, number)
    settings = setup.config.coordination
    return session.session_id, await replay_as_recorded(events, settings, setup.config.param_specs)


async def _compare(setup: Setup, name: str, number: int, changes: Sequence[Change]) -> tuple[str, Comparison]:
    session, turn, events = await _load_turn(setup, name, number)  # before any model is loaded
    team = await Team.open(setup.config, home=setup.home)
    try:
        replayer = TurnReplayer(team, session, turn, events)
        await team.start()
        return session.session_id, await replayer.compare(changes)
    finally:
        await team.close()


def _write_verdict(session_id: str, turn: int, verdict: Verdict, *, as_json: bool) -> None:
    difference = verdict.difference
    if as_json:
        first = None if difference is None else {"recorded": difference.recorded, "replayed": difference.replayed}
        identical = {"identical": verdict.is_identical, "events": verdict.events}
        limit = {"ended_by_limit": verdict.ended_by_limit, "difference": first}
        write_json({"session_id": session_id, "turn": turn, **identical, **limit})
        return
    head = f"{session_id} turn {turn}"
    if difference is None:
        more = "; what followed a limit was not compared" if verdict.ended_by_limit else ""
        write_out(f"{head}: {verdict.events} events come out the same, byte for byte{more}\n")
        return
    write_out(f"{head}: after {verdict.events} events that are the same, one is not\n")
    write_out(f"  in the log:  {make_printable(difference.recorded) or '(none)'}\n")
    write_out(f"  replayed:    {make_printable(difference.replayed) or '(none)'}\n")
    write_out("  The team's coordination may have changed since, or massmem has; --config names another team.\n")


def _to_dict(session_id: str, turn: int, comparison: Comparison) -> dict[str, Any]:
    replay = comparison.replay
    asked = [
        {"agent_id": step.agent_id, "round": step.round, "step": step.step, "reason": step.reason}
        for step in replay.asked
    ]
    return {
        "session_id": session_id,
        "turn": turn,
        "changes": [str(change) for change in replay.changes],
        "original": _outcome_to_dict(comparison.original),
        "replay": _outcome_to_dict(replay.events),
        "winner_changed": comparison.winner_changed,
        "answer_changed": comparison.answer_changed,
        "causes": [_change_to_dict(change) for change in comparison.causes],
        "only_together": comparison.together,
        "asked_again": asked,
    }


def _change_to_dict(change: Change) -> dict[str, Any]:
    if change.backend is None:
        return {"memory": change.memory_id}
    return {"agent": change.agent_id, "model": change.backend.model or change.backend.type}


def _outcome_to_dict(events: Sequence[Event]) -> dict[str, Any]:
    outcome, winner = TurnOutcome.of(events), TurnOutcome.of(events).winner
    steps = [
        {"agent_id": agent_id, "round": number, "step": step, "result": describe_result(recorded)}
        for (agent_id, number, step), recorded in read_steps(events).items()
    ]
    return {
        "status": outcome.status,
        "winner": None if winner is None else winner.agent_id,
        "by": None if winner is None else winner.by,
        "votes": {} if winner is None else winner.votes,
        "answer": outcome.answer,
        "confidence": outcome.confidence,
        "steps": steps,
    }


def _format(session_id: str, turn: int, comparison: Comparison) -> str:
    replay = comparison.replay
    before, after = read_steps(comparison.original), read_steps(replay.events)
    asked = replay.asked if replay.changes else ()
    reasons = {(step.agent_id, step.round, step.step): step.reason for step in asked}
    changes = ", ".join(map(str, replay.changes)) or "nothing changed, all asked again"
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    width = max(12, min(_WIDTH, (columns - _LABEL_WIDTH - 4) // 2))
    lines = [f"{session_id} turn {turn}, {changes}", "", _format_row("", "original", "replay", width)]
    for key in sorted({*before, *after}, key=lambda key: (key[1], key[2] == "present", key[0])):
        lines += _format_step(key, before.get(key), after.get(key), reasons.get(key), width)
    old, new = (_describe_winner(TurnOutcome.of(events).winner) for events in (comparison.original, replay.events))
    lines += [_format_row("winner", old, "the same" if old == new else new, width), "", *_conclude(comparison)]
    return "\n".join(lines) + "\n"


def _format_step(
    key: StepKey, original: RecordedStep | None, replayed: RecordedStep | None, reason: str | None, width: int
) -> list[str]:
    agent_id, number, step = key
    results = ["(did not act)" if one is None else describe_result(one) for one in (original, replayed)]
    first, second = (one_line(result, width) for result in results)
    if first == second:
        second = "the same" if results[0] == results[1] else "begins the same"
    label = f"{agent_id} {_STEPS[step]}" if step == "present" else f"{agent_id} {_STEPS[step]} {number}"
    row = _format_row(label, first, second, width)
    return [row, *([f"{'':{_LABEL_WIDTH + 2}}asked again: {make_printable(reason)}"] if reason else [])]


def _format_row(label: str, original: str, replayed: str, width: int) -> str:
    label = f"{make_printable(label):<{_LABEL_WIDTH}.{_LABEL_WIDTH}}"
    return f"{label}  {make_printable(original):<{width}}  {make_printable(replayed)}".rstrip()


def _describe_winner(winner: WinnerDecided | None) -> str:
    if winner is None:
        return "none"
    votes = winner.votes.get(winner.agent_id, 0)
    return f"{winner.agent_id} ({winner.by}, {votes} of {sum(winner.votes.values())} votes)"


def _conclude(comparison: Comparison) -> list[str]:
    """Return what came of it, in words."""
    replay = comparison.replay
    if not replay.asked:
        return ["Nothing changed: no agent was sent what you changed, so no model was asked."]
    if comparison.winner_changed:
        head = f"The winner changed: {comparison.winner} in the original, {replay.winner or 'nobody'} in the replay."
    elif comparison.answer_changed:
        head = f"The winner stays {comparison.winner}; the final answer is another one:"
        answer = one_line(replay.outcome.answer or "(none)", 400)
        return [head, textwrap.indent(textwrap.fill(make_printable(answer), 110), "  ")]
    else:
        return [f"The winner stays {comparison.winner}, with the same answer."]
    causes = "; ".join(map(str, comparison.causes))
    if not causes:
        return [head, "Nothing was changed: the models answered otherwise this time."]
    return [head, f"The cause: {causes}{' (only together)' if comparison.together else ''}."]
