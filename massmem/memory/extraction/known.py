"""The facts that an agent has stored already: a model is shown those that bear on what it reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from massmem.memory.access import visible_to
from massmem.memory.extraction.messages import Origin
from massmem.memory.index import Index, valid_ids
from massmem.memory.persistent import Scope, Selection

_MOST_SHOWN = 10
_NEWEST = 500
"""Facts of an agent in a session among which those that bear on a conversation are looked for."""


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """What the memory holds."""

    index: Index
    embed: Callable[[str], Sequence[float] | None]
    """Blocking: return the vector of a text, None when there is none."""

    def find_near(self, text: str, origin: Origin) -> list[str]:
        """Return the facts that bear on the text, best first; the newest without a vector. Blocking.

        Raises:
            MemoryUnavailable: the index cannot be used now.
        """
        own = Selection(session_id=origin.session_id, agent_id=origin.agent_id, kind="fact")
        facts = {key: payload for key, payload in self.index.page(own, _NEWEST) if _is_known(payload, origin)}
        best = [*facts][:_MOST_SHOWN]
        if len(facts) > _MOST_SHOWN and (vector := self.embed(text)) is not None:
            scope = Scope(origin.session_id, origin.agent_id, origin.turn)
            nearest = self.index.search_meaning(vector, visible_to(scope, valid_ids(facts)), _MOST_SHOWN)
            best = [key for key, _ in nearest] or best
        return [facts[key]["data"] for key in best]


def _is_known(fact: Mapping[str, Any], origin: Origin) -> bool:
    """Whether to extract the fact again is pointless.

    What an agent said in a turn that it lost stays hidden from the others. Extracted again in one that it won, or may
    still win, it is new to them: it does not count as known then.
    """
    if not (origin.won or origin.undecided):
        return True
    # What the turn itself gave is shown to the others as soon as the turn is won.
    return fact["turn"] == origin.turn or (fact["won"] and fact["turn"] < origin.turn)
