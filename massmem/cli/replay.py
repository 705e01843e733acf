"""`massmem replay`: the question of a turn again, beside the original."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import typer

from massmem.cli.options import MAX_TURN, AsJson, Config, OwnerName, SessionName
from massmem.cli.setup import find_session_config, load_setup
from massmem.cli.streams import show_activity, write_json, write_out
from massmem.config.models import BackendConfig, TeamConfig
from massmem.config.variation import choose_backend
from massmem.core.errors import InputError
from massmem.core.ids import check_session_name
from massmem.core.text import one_line
from massmem.core.turn_result import TurnResult
from massmem.render.text import format_columns
from massmem.session.fork import ask_again
from massmem.session.team import Team
from massmem.store.lookup import find_session

app = typer.Typer(help="Ask the question of a turn again with something changed, and compare.")

_LABEL_WIDTH = 22
_WIDTH = 52
"""Most characters of what an agent did, in the table."""


@app.command()
async def replay_command(
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
    owner: OwnerName = None,
    config: Config = None,
    output: Annotated[
        Literal["plain", "json"] | None,
        typer.Option("--output", "-o", metavar="FORMAT", help="plain or json. [default: plain]"),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Ask the question of a turn again, and say whether the winner changes. The session stays as it is.

    All agents are asked again, which costs a turn: without a change it shows how far the turn was chance.
    """
    chosen = config or (find_session_config(check_session_name(name)) if owner is None else None)
    is_json = as_json or output == "json"
    setup = load_setup(chosen, owner)
    backends = _read_models(setup.config, agents or ())
    models = [f"{agent_id} with {backend.model or backend.type}" for agent_id, backend in backends.items()]
    changes = [*(f"without memory {memory}" for memory in without or ()), *models]
    with show_activity("asking again", quiet=is_json):
        team = await Team.open(setup.config, home=setup.home, records=False)
        try:
            session = await find_session(team.store, name, setup.owner)
            tries = await ask_again(team, session, turn, without or (), backends)
        finally:
            await team.close()
    session_id, original, replay = session.session_id, *map(TurnResult.of, tries)
    if is_json:
        first, second = _to_dict(original), _to_dict(replay)
        changed = {f"{key}_changed": first[key] != second[key] for key in ("winner", "answer")}
        place = {"session_id": session_id, "turn": turn}
        write_json({**place, "changes": changes, "original": first, "replay": second, **changed})
    else:
        write_out(f"{session_id} turn {turn}, {', '.join(changes) or 'nothing changed'}\n\n")
        write_out("\n".join([*_format_table(original, replay), "", *_conclude(original, replay, changes)]) + "\n")
    return 0


def _read_models(team: TeamConfig, options: Sequence[str]) -> dict[str, BackendConfig]:
    backends: dict[str, BackendConfig] = {}
    for option in options:
        agent_id, _, model = option.partition("=")
        if not (agent_id and model):
            raise InputError(f"--agent {option!r} names no model", "write it as --agent ID=MODEL")
        backends[agent_id] = choose_backend(team, model)
    return backends


def _to_dict(result: TurnResult) -> dict[str, Any]:
    steps = [{"agent_id": agent, "round": number, "result": text} for (number, agent), text in _read(result).items()]
    return result.model_dump(mode="json") | {"steps": steps}


def _read(result: TurnResult) -> dict[tuple[int, str], str]:
    """Return what the agents did, by round and agent."""
    steps: dict[tuple[int, str], str] = {}
    for agent in result.agents:
        steps |= {(answer.round, agent.id): answer.content for answer in agent.answers}
        steps |= {(b.round, agent.id): f"votes for {b.choice}: {b.reason}" for b in agent.ballots}
        if agent.error is not None:
            steps[agent.error.round or 0, agent.id] = f"failed: {agent.error.error}"
    return steps


def _format_table(original: TurnResult, replay: TurnResult) -> list[str]:
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    width = max(12, min(_WIDTH, (columns - _LABEL_WIDTH - 4) // 2))
    before, after = _read(original), _read(replay)
    rows = [("", "original", "replay")]
    for number, agent_id in sorted({*before, *after}):
        first, second = (steps.get((number, agent_id), "(did not act)") for steps in (before, after))
        shown = "the same" if first == second else one_line(second, width)
        rows.append((one_line(f"{agent_id} round {number}", _LABEL_WIDTH), one_line(first, width), shown))
    rows.append(("winner", _describe_winner(original), _describe_winner(replay)))
    return format_columns(rows)


def _describe_winner(result: TurnResult) -> str:
    if result.winner is None:
        return "none"
    votes = result.votes.get(result.winner, 0)
    return f"{result.winner} ({result.decided_by}, {votes} of {sum(result.votes.values())} votes)"


def _conclude(original: TurnResult, replay: TurnResult, changes: Sequence[str]) -> list[str]:
    old, new = (result.winner or "nobody" for result in (original, replay))
    chance = [] if changes else ["Nothing was changed: the models answered otherwise this time."]
    if old != new:
        return [f"The winner changed: {old} in the original, {new} in the replay.", *chance]
    if original.answer == replay.answer:
        return [f"The winner stays {old}, with the same answer."]
    answer = one_line(replay.answer or "(none)", 400)
    return [
        f"The winner stays {old}; the final answer is another one:",
        textwrap.indent(textwrap.fill(answer, 110), "  "),
        *chance,
    ]
