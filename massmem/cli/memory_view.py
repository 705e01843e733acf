"""Memories as people read them in a terminal."""

from collections.abc import Sequence

from massmem.cli.memory_actions import Stats
from massmem.cli.streams import say, write_out
from massmem.memory.memories import Memory
from massmem.render.printable import one_line, printable

MB = 1e6
_SHOWN = 160


def print_list(memories: Sequence[Memory]) -> None:
    """Each with its id, where it was said, and its beginning."""
    for memory in memories:
        write_out(f"{head(memory)}\n{indented(one_line(memory.text, _SHOWN))}\n")
    if not memories:
        say("nothing is remembered that matches")


def head(memory: Memory) -> str:
    return printable(f"{memory.id}  {memory.kind}  {memory.session_id} turn {memory.turn}  {memory.agent_id}")


def indented(text: str, columns: int = 2) -> str:
    return "\n".join(" " * columns + line for line in printable(text).splitlines())


def print_stats(found: Stats) -> None:
    """How much is remembered, what waits to be recorded, and where it is kept."""
    if found.memory is not None:
        m = found.memory
        write_out(f"messages   {m.episodes:,} in {m.passages:,} passages, of {m.sessions:,} sessions\n")
        write_out(f"facts      {m.facts:,}\nembedder   {m.embedder}\n")
    queue = found.queue
    write_out(f"recording  {queue.pending:,} pending, {queue.done:,} done, {queue.failed:,} failed\n")
    if queue.reason:
        write_out(f"           last failure: {one_line(queue.reason)}\n")
    size = "" if found.size is None else f", {found.size / MB:,.1f} MB"
    write_out(f"location   {printable(found.location)}{size}\n")
    if found.note:
        say(found.note)
    if found.unavailable:
        say(f"{found.unavailable}: what is in the memory cannot be counted now")
