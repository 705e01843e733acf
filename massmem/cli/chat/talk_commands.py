"""/context, /cost, /continue, /compact, /clear and /undo: the conversation itself."""

from contextlib import aclosing

from massmem.cli.chat.command import Command
from massmem.cli.chat.desk import Desk
from massmem.cli.showing import tell
from massmem.cli.streams import write_out
from massmem.messages import Usage
from massmem.money import dollars
from massmem.render.context import log_lines, share
from massmem.render.figures import count
from massmem.render.printable import one_line
from massmem.store.reading import exchanges


async def _context(desk: Desk, _rest: str) -> None:
    for size in await desk.session.context():
        kinds = ", ".join(f"{kind.replace('_', ' ')} {number:,}" for kind, number in size.entries.items() if number)
        filled = f"{size.tokens:,} of {size.window:,} tokens ({share(size)})"
        write_out(f"{size.agent_id}: {filled}{f': {kinds}' if kinds else ''}\n")
    tell("before the next question and the memories that it brings up")


async def _cost(desk: Desk, _rest: str) -> None:
    total, last = Usage(requests=0), Usage(requests=0)
    agents: dict[str, Usage] = {}
    turns = 0
    async with aclosing(exchanges(desk.team.store, desk.session.id)) as found:
        async for said in found:
            if said.added:
                continue
            turns, last = turns + 1, said.usage
            total += said.usage
            for agent, used in said.used.items():
                agents[agent] = agents.get(agent, Usage(requests=0)) + used
    if not turns:
        tell("nothing was asked yet")
        return
    width = max(len(name) for name in (*agents, "last turn"))
    for name, used in (*agents.items(), ("last turn", last), ("session", total)):
        write_out(f"{name:<{width}}  {_used(used)}\n")


def _used(used: Usage) -> str:
    about = "" if used.reported else "about "
    tokens = f"{about}{count(used.prompt)} tokens in, {about}{count(used.completion)} out"
    return f"{tokens}, {dollars(used.cost)}"


async def _continue(desk: Desk, _rest: str) -> None:
    desk.go_on = True


async def _compact(desk: Desk, _rest: str) -> None:
    reports = await desk.session.compact()
    for report in reports:
        for line in log_lines(report, 0)[1:]:
            tell(f"{report.agent_id}: {line}")
    if not reports:
        tell("there is nothing that would become smaller")


async def _clear(desk: Desk, _rest: str) -> None:
    await desk.session.clear_history()
    tell("the agents start afresh; the log keeps what was said, and what is remembered is still recalled")


async def _undo(desk: Desk, _rest: str) -> None:
    turn = await desk.session.undo()
    tell(f"turn {turn.turn} is undone, with its memories: {one_line(turn.question, 80)!r}; the log keeps it")


COMMANDS = (
    Command("continue", "Finish the turn that was stopped, or failed.", _continue),
    Command("context", "How full each agent's context window is.", _context),
    Command("cost", "Tokens and dollars: of each agent, of the last turn, of the session.", _cost),
    Command("compact", "Replace old messages by a summary in what the agents are sent.", _compact),
    Command("clear", "Show the agents nothing of what was said so far.", _clear),
    Command("undo", "Take the last turn back, and what is remembered of it.", _undo),
)
