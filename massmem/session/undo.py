"""Undoing the last turn of a session: hidden from the agents, and removed from the memory."""

from contextlib import aclosing

from massmem.core.errors import InputError
from massmem.core.events import ParamProvided, TurnUndone
from massmem.core.records import SessionState, TurnRecord
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import forget_everywhere
from massmem.session.team import Team
from massmem.store.lookup import read_turns_backwards
from massmem.store.ports import SessionStore


async def undo_last_turn(team: Team, session_id: str) -> TurnRecord:
    """Undo the newest turn that is not undone yet, however it ended; the log keeps it.

    Its memories are deleted first: after a kill on the way, the turn can be undone again.

    Raises:
        InputError: there is none.
        MemoryUnavailable: its memories cannot be deleted now; the turn is not undone.
        StoreError: the store cannot be used.
    """
    async with aclosing(read_turns_backwards(team.store, session_id)) as turns:
        turn = await anext((turn async for turn in turns if turn.status != "undone"), None)
    if turn is None:
        raise InputError("there is no turn to undo", "ask a question first")
    selection = Selection(session_id=session_id, turn=turn.turn)
    async with team.open_durable_memory() as memory:
        await forget_everywhere(team.store, memory, selection, team.config.memory, team.home)
        state = await _remove_turn_values(team.store, turn)
        await team.store.append(session_id, turn.turn, [TurnUndone(session_id=session_id, turn=turn.turn)], state=state)
        # A recorder may have taken something out of the queue before.
        await memory.forget(selection)
    return turn


async def _remove_turn_values(store: SessionStore, turn: TurnRecord) -> SessionState:
    """Return the session's state without the values that the user gave in the turn, and waiting for none."""
    state = await store.load_state(turn.session_id)
    events = await store.read_turn_events(turn.session_id, turn.turn)
    names = {event.param for event in events if isinstance(event, ParamProvided)}
    params = {name: value for name, value in state.params.items() if name not in names}
    result = state.last_result if (state.last_result or {}).get("turn") != turn.turn else None
    changed = {"params": params, "waiting_for_param": None, "plan_execution": None, "last_result": result}
    return state.model_copy(update=changed)
