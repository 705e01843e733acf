"""After the final answer: an agent program carries it out in the folder that the user allowed it to change.

What it asks for, or has us write, stays in the folder and away from secrets and git's own files. What it does without
asking is not ours to prevent: what has changed is read from the disk. A turn does this once, also when it is resumed.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, cast

from massmem.core import events as ev
from massmem.core.errors import MassmemError
from massmem.core.messages import ActivityChunk, ChatMessage, ChatRequest, NoticeChunk, Reply, SearchChunk, clean_text
from massmem.core.report import CarriedOut
from massmem.core.text import one_line
from massmem.memory.budget import Budget
from massmem.tools.program_folder import ProgramFolder
from massmem.turn.agent import Agent
from massmem.turn.request import Task, report_chunk

_TASK = "Carry it out now in {}: change the files and run the commands that it takes, there and nowhere else. Then say \
what you changed, what you ran and with what result, and what is left."
_MOST_NAMED = 20
"""Files that a text names."""


async def carry_out(
    agent: Agent, folder: str, completed: ev.TurnCompleted, task: Task, budget: Budget, run: Callable[..., Any]
) -> CarriedOut:
    """Store that it begins, start the agent's program anew for writing, and let it work; return what was done."""
    from massmem.providers.acp import AcpFactory

    place, reply, error, emit = ProgramFolder(folder), Reply(), "it was stopped", task.outbox.emit
    before = await asyncio.to_thread(place.take_snapshot)
    emit(ev.CarryOutStarted(agent_id=agent.id, folder=folder, completed=completed.model_dump()))
    await task.outbox.wait_until_stored()
    text = "\n\n".join((task.question, "This is the answer:", completed.answer, _TASK.format(folder)))

    async def work() -> None:
        nonlocal error
        backend = agent.config.backend.model_copy(update={"folder": folder})
        factory = AcpFactory(ProgramFolder, may_write=True)
        try:
            provider = budget.limit(agent.id, backend, factory.open(backend))
            request = ChatRequest((ChatMessage("user", text),), "carry_out", agent.id)
            async with aclosing(provider.stream(request)) as chunks:
                async for chunk in chunks:
                    reply.feed(chunk)
                    if isinstance(chunk, ActivityChunk | SearchChunk | NoticeChunk):
                        emit(report_chunk(agent.config, task.round, chunk))
            error = ""
        except MassmemError as e:
            error = one_line(e.message)
        finally:
            await factory.close()

    with suppress(asyncio.CancelledError):  # the user stops the turn: the answer is there all the same
        await run([work])
    after, changes = await asyncio.to_thread(place.take_snapshot), None
    if before is not None and after is not None:
        names = [path for path in sorted({*before, *after}) if before.get(path) != after.get(path)]
        changes = {n: "new" if n not in before else "changed" if n in after else "deleted" for n in names}
    return CarriedOut(folder, agent.id, clean_text(reply.text).strip(), changes, error)


def complete_cut(events: Sequence[ev.Event], names: Mapping[str, str]) -> ev.TurnCompleted | None:
    """Return the end of a turn that was cut off while its answer was carried out; None: that had not begun."""
    start = next((event for event in events if isinstance(event, ev.CarryOutStarted)), None)
    if start is None:
        return None
    done = CarriedOut(start.folder, start.agent_id, error="it was interrupted while it was changing files")
    completed = cast("ev.TurnCompleted", ev.read_event(start.completed))
    return add_outcome(completed, done, names.get(start.agent_id, start.agent_id))


def add_outcome(completed: ev.TurnCompleted, done: CarriedOut, name: str) -> ev.TurnCompleted:
    """Return the end of the turn with what was done: as the disk shows it, then as the agent, with this name, says."""
    files = [path if how == "changed" else f"{path} ({how})" for path, how in (done.changes or {}).items()]
    what = f"no file in {done.folder} has changed"
    if done.changes is None:
        what = f"the files in {done.folder} were not compared: look at them (`git status`)"
    elif files:
        listed = ", ".join(files[:_MOST_NAMED]) + ", ..." * (len(files) > _MOST_NAMED)
        what = f"changed {len(files)} file{'s' * (len(files) > 1)} in {done.folder}: {listed}"
    head = f"Carried out by {name}: {what}." if done.changes else f"{name} has ended its work; {what}."
    if done.error:
        head = f"{name} did not finish ({done.error}); {what}."
    if not done.agent_id:
        head = f"Not carried out in {done.folder}: {done.error}."
    answer = "\n\n".join(filter(None, (completed.answer, "---", head, done.text)))
    return completed.model_copy(update={"at": ev.now(), "answer": answer, "carried_out": done})
