"""The facts that an agent has stored already: a model is shown those that bear on what it reads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from massmem.memory.access import may_see, visible_to
from massmem.memory.extraction.messages import Origin
from massmem.memory.index import Index, OneOf, valid_ids
from massmem.memory.ledger import Chain, build_chains
from massmem.memory.persistent import Scope, Selection
from massmem.memory.points import to_memory

_MOST_SHOWN = 10
_NEWEST = 500
"""Facts of an agent in a session among which those that bear on a conversation are looked for."""


_MOST_TOPICS = 40
"""Topics whose names a model is shown, the last used."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a model is shown of the memory."""

    facts: Sequence[str] = ()
    """Those that bear on what it reads."""
    topics: Sequence[tuple[str, str]] = ()
    """Subjects and attributes that claims are about."""


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """What the memory holds."""

    index: Index
    embed: Callable[[str], Sequence[float] | None]
    """Blocking: return the vector of a text, None when there is none."""

    def find_near(self, text: str, origin: Origin) -> Known:
        """Return the facts that bear on the text, best first; the newest without a vector. Blocking.

        A claim that no longer holds is not among them: made again, it is new. Topics are those of all sessions that
        share a memory with the origin, so that a value is recognised as one of a topic that another session began.

        Raises:
            MemoryUnavailable: the index cannot be used now.
        """
        chains = self._read_chains(origin)
        outdated = {int(m.id) for c in chains.values() for e in c.entries if e.until is not None for m in e.memories}
        own = Selection(session_id=origin.session_id, agent_id=origin.agent_id, kind="fact")
        facts = {
            key: payload
            for key, payload in self.index.page(own, _NEWEST)
            if key not in outdated and _is_known(payload, origin)
        }
        best = [*facts][:_MOST_SHOWN]
        if len(facts) > _MOST_SHOWN and (vector := self.embed(text)) is not None:
            scope = Scope(origin.session_id, origin.agent_id, origin.turn)
            nearest = self.index.search_meaning(vector, visible_to(scope, valid_ids(facts)), _MOST_SHOWN)
            best = [key for key, _ in nearest] or best
        last_used = sorted(chains.values(), key=lambda chain: chain.entries[-1].memories[-1].created_at, reverse=True)
        claims = [chain.entries[-1].claim for chain in last_used[:_MOST_TOPICS]]
        return Known([facts[key]["data"] for key in best], [(claim.subject, claim.attribute) for claim in claims])

    def _read_chains(self, origin: Origin) -> dict[str, Chain]:
        scope = Scope(
            origin.session_id,
            origin.agent_id,
            origin.turn + 1,
            all_sessions=not origin.group,
            group=origin.group or None,
        )
        ids = self.index.list_ids(visible_to(scope, OneOf("kind", ("fact",))), _NEWEST, newest_first=True)
        memories = [to_memory(key, payload) for key, payload in self.index.read_payloads(ids).items()]
        return build_chains(memory for memory in memories if may_see(scope, memory, won=True))


def _is_known(fact: Mapping[str, Any], origin: Origin) -> bool:
    """Whether to extract the fact again is pointless.

    What an agent said in a turn that it lost stays hidden from the others. Extracted again in one that it won, or may
    still win, it is new to them: it does not count as known then.
    """
    if not (origin.won or origin.undecided):
        return True
    # What the turn itself gave is shown to the others as soon as the turn is won.
    return fact["turn"] == origin.turn or (fact["won"] and fact["turn"] < origin.turn)
