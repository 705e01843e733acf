"""Who may see which memory."""

from massmem.memory.persistent import USER, Memory, Scope


def may_see(scope: Scope, memory: Memory, *, won: bool) -> bool:
    """Return whether the scope's agent may see the memory.

    An agent sees its own memories, the user's messages, and what the winner of a complete turn said in that turn. It
    sees nothing of the running turn but its own, and no work in progress of other agents.

    won: the memory's turn is complete, and the memory's agent won it.
    """
    same_session = memory.session_id == scope.session_id
    same_group = scope.group is not None and memory.group == scope.group
    if not (same_session or same_group or scope.all_sessions):
        return False
    if memory.agent_id == scope.agent_id:
        return not same_session or memory.turn <= scope.turn
    running = same_session and memory.turn >= scope.turn
    return not running and (memory.agent_id == USER or won)
