"""Who may see which memory: the rule for one memory, and the same rule as a condition on an index. Pure."""

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from massmem.core.ids import read_seq
from massmem.memory.index import All, Condition, OneOf, Span, from_origin, until_second
from massmem.memory.origins import OUTSIDE, is_from
from massmem.memory.persistent import USER, Memory, Scope

_EVERYONE = "*"
"""Stands where an agent's name would stand; no agent's name contains it."""
HERE = "|here"
"""Stands where a group would stand: only agents in the memory's own session see it. No group's name contains a "|"."""
_OWNED = re.compile(r"[0-9a-f]{24}(:|$)")
"""The groups of a user of the HTTP service, see massmem.session.owners: only that user\'s agents search them."""


def may_see(scope: Scope, memory: Memory, *, won: bool) -> bool:
    """Return whether the scope's agent may see the memory.

    An agent sees its own memories, the user's messages, and what the winner of a complete turn said in that turn. It
    sees nothing of the running turn but its own, no work in progress of others, and nothing that `scope` excludes.

    won: the memory's turn is complete, and the memory's agent won it.
    """
    if memory.id in scope.without or (memory.kind == "episode" and not scope.without.isdisjoint(memory.message_ids)):
        return False
    too_late = scope.as_of is not None and memory.created_at > scope.as_of
    if too_late or (scope.origin is not None and not is_from(memory.origin, memory.rests_on, scope.origin)):
        return False
    same_session = memory.session_id == scope.session_id or is_shared(scope, memory)
    place = scope.session_id if same_session else memory.session_id
    if all((place, turn) in scope.hidden for turn in memory.turns or (memory.turn,)):
        return False
    same_group = scope.group is not None and memory.group == scope.group
    of_all = scope.all_sessions and not is_owned(memory.group)
    in_reach = (same_group or of_all) and memory.project in ("", scope.project)
    elsewhere = memory.group != HERE and (in_reach or memory.session_id in scope.others)
    if not (same_session or elsewhere):
        return False
    if scope.agent_id in (memory.agent_id, *memory.callers):
        return not same_session or memory.turn <= scope.turn
    running = same_session and memory.turn >= scope.turn
    return not running and (memory.agent_id == USER or won)


def is_shared(scope: Scope, memory: Memory) -> bool:
    """Return whether the memory is of the part that the scope's session shares with one that it was forked from."""
    if memory.origin == OUTSIDE:
        return False
    return any(
        memory.session_id == origin and read_seq(min(memory.message_ids)) <= last for origin, last in scope.origins
    )


def is_owned(group: str) -> bool:
    """Return whether it is the group of a user of the HTTP service."""
    return _OWNED.match(group) is not None


def visible_to(scope: Scope, *more: Condition) -> All:
    """Return `may_see` as one condition, together with more conditions."""
    projects = dict.fromkeys(("", scope.project))
    places: list[str | None] = [scope.session_id, *scope.others, *(origin for origin, _ in scope.origins)]
    if scope.all_sessions:
        places += [_place("", project) for project in projects]
    elif scope.group is not None:
        places += [_place(scope.group, project) for project in projects]
    readers = (scope.agent_id, _EVERYONE)
    seen = OneOf("seen", tuple(_reader_key(reader, place) for reader in readers for place in places))
    own_session_only = not scope.all_sessions and scope.group is None and not scope.others
    here = () if own_session_only else (OneOf("run_id", (scope.session_id,)),)
    later = All((*here, Span("turn", scope.turn + 1, None)))
    of_others_now = All((*here, Span("turn", scope.turn, scope.turn)), (OneOf("agent_id", (scope.agent_id,)),))
    until = () if scope.as_of is None else (until_second(scope.as_of),)
    origin = () if scope.origin is None else (from_origin(scope.origin),)
    return All((seen, *until, *origin, *more), (later, of_others_now, *_list_hidden(scope)))


def _list_hidden(scope: Scope) -> list[Condition]:
    """Return the conditions for what was said in hidden turns of the scope's session; a fact may stand elsewhere, too.

    Not of other sessions: what of these is hidden takes no more room than their other memories.
    """
    spans: list[tuple[int, int]] = []
    for turn in sorted(turn for session_id, turn in scope.hidden if session_id == scope.session_id):
        spans.append((spans.pop()[0], turn) if spans and spans[-1][1] == turn - 1 else (turn, turn))
    here = (OneOf("run_id", (scope.session_id,)), OneOf("kind", ("episode",)))
    return [All((*here, Span("turn", first, last))) for first, last in spans]


def only_author_sees(session_id: str, turn: int, agent_id: str) -> All:
    """Return the condition for what the agent said in this turn, as long as only itself sees it."""
    alone = OneOf("seen", (_reader_key(agent_id, session_id),))
    return All((alone, OneOf("run_id", (session_id,)), Span("turn", turn, turn)))


def reader_keys(payload: Mapping[str, Any]) -> list[str]:
    """Return who may see a point with this run_id, agent_id, group and won, joined with where.

    With these keys the whole rule, but for the running turn, is one look-up in a keyword index: a tenth of the time
    that an OR over several fields takes.
    """
    is_shared = payload["won"] or payload["agent_id"] == USER
    readers = (_EVERYONE,) if is_shared else (payload["agent_id"], *payload.get("callers", ()))
    group = payload.get("group", "")
    places = (payload["run_id"],)
    if group != HERE:
        project = read_project(payload)
        places = (_place("", project), *places, *([_place(group, project)] if group else []))
    return [_reader_key(reader, place) for reader in readers for place in places]


def _reader_key(reader: str, place: str | None) -> str:
    return reader if place is None else f"{reader}|{place}"


def read_project(payload: Mapping[str, Any]) -> str:
    """Return the project outside of which nobody sees a point; "": everybody does."""
    return "" if payload.get("global") else payload.get("project", "")


def _place(group: str, project: str) -> str | None:
    """Return where the sessions of a group and project look; "": of any group, of no project; None: everywhere.

    No session id begins like this. The hash has a fixed length: no name of a group poses as a project.
    """
    root = f"#{sha256(project.encode()).hexdigest()[:16]}" if project else ""
    return f"{root}@{group}" if group else root or None
