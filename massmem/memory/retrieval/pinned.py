"""Pinned memories: what a reader is shown with every question, whatever it is about, within a small budget."""

from dataclasses import dataclass
from datetime import datetime

from massmem.memory.access import may_see, visible_to
from massmem.memory.index import PINNED, Index, OneOf
from massmem.memory.persistent import Memory, RecallOptions, Scope
from massmem.memory.points import CountTokens, to_memory
from massmem.memory.quoting import Quote, render

PINNED_TOKENS = 200
"""Of all pinned memories together, and never more than half of what may be recalled."""
_MOST_READ = 200


@dataclass(frozen=True, slots=True)
class PinnedPart:
    text: str = ""
    memories: tuple[Memory, ...] = ()
    """In the order in which they were pinned."""
    tokens: int = 0
    left_out: int = 0
    """Memories for which there was no room."""


def read_pinned(index: Index, scope: Scope, options: RecallOptions, count: CountTokens) -> PinnedPart:
    """Return what the scope may see of what is pinned; without room for all, what was pinned first.

    What the prompt shows word for word is not repeated, unless the user has corrected it.

    Raises:
        MemoryUnavailable
    """
    ids = index.list_ids(visible_to(scope, OneOf("pin", (PINNED,))), _MOST_READ, newest_first=True)
    pins: list[tuple[datetime, int, Memory]] = []
    for point_id, payload in index.read_payloads(ids).items():
        memory = to_memory(point_id, payload)
        is_in_prompt = memory.edited_at is None and options.exclude.issuperset(memory.message_ids)
        if may_see(scope, memory, won=payload["won"] is True) and not is_in_prompt:
            pins.append((datetime.fromisoformat(payload["pin_at"]), point_id, memory))
    shown: list[Memory] = []
    room = min(PINNED_TOKENS, options.max_tokens // 2)
    for *_, memory in sorted(pins, key=lambda pin: pin[:2]):
        cost = count(render([Quote(memory)], scope.agent_id, scope.names, plain=options.plain))
        if cost <= room:
            shown.append(memory)
            room -= cost
    in_order = sorted(shown, key=lambda memory: (memory.created_at, memory.id))
    text = render(map(Quote, in_order), scope.agent_id, scope.names, plain=options.plain)
    return PinnedPart(text, tuple(shown), count(text) if text else 0, len(pins) - len(shown))
