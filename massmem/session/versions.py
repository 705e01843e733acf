"""Goes from one version of a turn to another."""

from massmem.core.versions import TurnTree
from massmem.store.ports import SessionStore


async def choose_version(store: SessionStore, session_id: str, turn: int) -> int:
    """Show a version of a turn, with what followed it last; return the last turn that is shown then.

    The caller holds the session's lease. Raises InputError: there is no such version.
    """
    choice = TurnTree(await store.list_places(session_id)).plan_choice(turn)
    if choice.withdrawn or choice.restored:
        await store.append(session_id, 0, [choice])
    return choice.turn
