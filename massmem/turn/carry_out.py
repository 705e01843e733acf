"""After the final answer: an agent program carries it out in the folder that the user allowed it to change.

What it asks for, or has us write, stays in the folder and away from secrets and git's own files. What it does without
asking is not ours to prevent: what has changed is read from the disk. A turn does this once, also when it is resumed.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, cast

from massmem.core import events as ev
from massmem.core.errors import MassmemError
from massmem.core.messages import ActivityChunk, ChatMessage, ChatRequest, NoticeChunk, Reply, SearchChunk, clean_text
from massmem.core.report import CarriedOut
from massmem.core.text import one_line
from massmem.memory.budget import Budget
from massmem.providers.base import Writer
from massmem.tools.folder import is_secret, show_name
from massmem.tools.toolbox import read_text_file
from massmem.turn.agent import Agent
from massmem.turn.request import Task, report_chunk

_TASK = "Carry it out now in {}: change the files and run the commands that it takes, there and nowhere else. Then say \
what you changed, what you ran and with what result, and what is left."
_PLACES = ("cwd", "workdir", "directory", "file", "files", "source", "destination")
_SKIPPED = {".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".pytest_cache"}
_MOST_FILES, _MOST_NAMED = 50_000, 20


class FolderWriter:
    def __init__(self, folder: str) -> None:
        self._root = Path(folder).resolve()

    def allows(self, call: Mapping[str, Any]) -> bool:
        paths, kind = list(_list_paths(call)), call.get("kind")
        is_clear = bool(paths) if kind in ("edit", "delete", "move") else kind in ("read", "search", "execute")
        with suppress(OSError, ValueError, RuntimeError):
            return is_clear and all(map(self._find, paths))
        return False

    def write(self, path: str, text: str) -> None:
        place = self._find(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=".massmem-") as spare:
            new = Path(spare, "new")
            new.write_text(text, "utf-8", newline="")
            new.chmod(place.stat().st_mode & 0o777 if place.exists() else 0o644)
            new.replace(place)

    def _find(self, path: str) -> Path:
        """Return where a path leads, without links. Raises as `write`."""
        place = Path(self._root, Path(path).expanduser()).resolve()
        names = place.relative_to(self._root).parts
        if ".git" in map(str.lower, names) or (names and is_secret("/".join(names))):
            raise ValueError(f"{path} may not be changed: it is git's own, or may hold secrets")
        return place

    def take_snapshot(self) -> dict[str, tuple[int, int]] | None:
        """Return size and time of each file, without those of git, packages and caches; None: there are too many."""
        files: dict[str, tuple[int, int]] = {}
        for folder, names, file_names in os.walk(self._root):
            names[:] = [name for name in names if name not in _SKIPPED]
            for path in (Path(folder, name) for name in file_names):
                with suppress(OSError):  # it is gone
                    state = path.lstat()
                    files[show_name(str(path.relative_to(self._root)))] = (state.st_size, state.st_mtime_ns)
            if len(files) > _MOST_FILES:
                return None
        return files


def _list_paths(value: Any, key: str = "") -> Iterator[str]:
    """Yield the paths that a request for permission names. In `changes`, as Codex has them, they are the keys."""
    if isinstance(value, str) and ("path" in key.lower() or key in _PLACES):
        yield value
    inside: Any = value
    items = inside.items() if isinstance(value, dict) else [(key, v) for v in inside] if isinstance(value, list) else ()
    for name, inner in items:
        yield from [name] if key == "changes" and name != key else _list_paths(inner, name)


async def carry_out(
    agent: Agent, folder: str, completed: ev.TurnCompleted, task: Task, budget: Budget, run: Callable[..., Any]
) -> CarriedOut:
    """Store that it begins, start the agent's program anew for writing, and let it work; return what was done."""
    from massmem.providers.acp import AcpFactory

    writer, reply, error, emit = FolderWriter(folder), Reply(), "it was stopped", task.outbox.emit
    before = await asyncio.to_thread(writer.take_snapshot)
    emit(ev.CarryOutStarted(agent_id=agent.id, folder=folder, completed=completed.model_dump()))
    await task.outbox.wait_until_stored()
    parts = task.question, "This is the answer on which the agents have settled:", completed.answer
    text = "\n\n".join((*parts, _TASK.format(folder)))

    async def work() -> None:
        nonlocal error
        backend = agent.config.backend.model_copy(update={"folder": folder})
        factory = AcpFactory(read_text_file, Writer(writer.allows, writer.write))
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
    after, changes = await asyncio.to_thread(writer.take_snapshot), None
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
    head = f"{name} did not finish ({done.error}); {what}." if done.error else f"Carried out by {name}: {what}."
    if not done.agent_id:
        head = f"Not carried out in {done.folder}: {done.error}."
    answer = "\n\n".join(filter(None, (completed.answer, "---", head, done.text)))
    return completed.model_copy(update={"at": ev.now(), "answer": answer, "carried_out": done})
