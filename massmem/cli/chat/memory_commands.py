"""/memory, /remember and /forget: what is remembered beyond the conversation."""

from massmem.cli import memory_actions as actions
from massmem.cli.chat.command import Command
from massmem.cli.chat.desk import Desk
from massmem.cli.memory_view import print_list, print_stats
from massmem.cli.showing import tell
from massmem.cli.streams import say
from massmem.errors import InputError
from massmem.memory.memories import Selection

_NEWEST = 10


async def _memory(desk: Desk, rest: str) -> None:
    if not rest:
        print_stats(await actions.stats(desk.at))
        print_list(await actions.listed(desk.at, Selection(), _NEWEST))
        return
    found, unavailable = await actions.search(desk.at, rest, None, None, (_NEWEST, None))
    if unavailable:
        say(f"{unavailable}: the log was searched by words instead")
    print_list(found.memories[:_NEWEST])


async def _remember(desk: Desk, rest: str) -> None:
    await desk.session.remember(rest)
    tell("it will be remembered, as said by you")


async def _forget(desk: Desk, rest: str) -> None:
    selection = _selected(desk, rest.split())
    number = await actions.counted(desk.at, selection)
    if not number:
        tell("nothing is remembered that matches")
        return
    memories = "1 memory" if number == 1 else f"{number:,} memories"
    if (await desk.ask(f"forget {memories} for good? [y/N] ")).strip().lower() not in ("y", "yes"):
        tell("nothing was forgotten")
        return
    forgotten = await actions.forgotten(desk.at, selection)
    tell(f"forgotten: {forgotten}; the log of the session still holds what was said")


def _selected(desk: Desk, words: list[str]) -> Selection:
    match words:
        case []:
            raise InputError("nothing was named to forget", "name ids as /memory shows them, or: turn N")
        case ["turn", number] if number.isdecimal():
            if not desk.session.id:
                raise InputError("this conversation has not begun", "name ids as /memory shows them")
            return Selection(desk.session.id, turn=int(number))
        case _:
            return Selection(ids=tuple(words))


COMMANDS = (
    Command("memory", "What is remembered; with words: what they bring up.", _memory, "[WORDS]"),
    Command("remember", "Have something remembered, word for word.", _remember, "TEXT"),
    Command("forget", "Delete memories for good.", _forget, "ID... | turn N"),
)
