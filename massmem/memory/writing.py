"""Writing memories: each message as passages, each fact as it is; what is there already is left alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from massmem.memory.extraction.facts import normalised
from massmem.memory.index import payload
from massmem.memory.index.point_ids import fact_id, message_number
from massmem.memory.index.visible import Point
from massmem.memory.persistent import CompletedTurn, Episode, Fact, Selection
from massmem.memory.places import Places, Plan
from massmem.memory.ranking.text import document_vector, terms
from massmem.memory.restated import restated
from massmem.memory.rows import Rows

if TYPE_CHECKING:
    from massmem.memory.places import Index

Vectors = Sequence[Sequence[float] | None]

_MOST_AT_ONCE = 512
"""Points of one write."""


class Writer:
    """Safe to use from several threads. embed: a vector for each text, None where there is none."""

    def __init__(
        self, index: "Index", rows: Rows, embed: Callable[[Sequence[str]], Vectors], count: Callable[[str], int]
    ) -> None:
        self._index = index
        self._rows = rows
        self._embed = embed
        self._count = count
        self._places = Places(index, rows.add)
        self._lock = Lock()

    def record(self, episodes: Sequence[Episode]) -> None:
        by_session: dict[str, list[Episode]] = {}
        for episode in episodes:
            by_session.setdefault(episode.session_id, []).append(episode)
        with self._lock:
            plans = {session_id: self._places.plan(session_id, said) for session_id, said in by_session.items()}
            self._write(plans)
            for session_id, plan in plans.items():
                self._places.took(session_id, plan)
            if outdated := [point_id for plan in plans.values() for point_id in plan.outdated]:
                self._index.delete(Selection(ids=tuple(map(str, outdated))), erase=False)
            for session_id, said in by_session.items():
                messages = plans[session_id].messages
                self._win(episode for episode in said if message_number(episode.message_id) not in messages)

    def add_facts(self, facts: Sequence[Fact]) -> int:
        by_id = {fact_id(fact.session_id, fact.agent_id, normalised(fact.text)): fact for fact in facts}
        with self._lock:
            there = self._index.payloads([*by_id])
            changed = {
                i: now
                for i, fact in by_id.items()
                if (now := restated(there[i], fact) if i in there else fact) is not None
            }
            said = [terms(fact.text) for fact in changed.values()]
            facts_and_terms = zip(changed.values(), said, strict=True)
            stored = [payload.of_fact(fact, found, self._count) for fact, found in facts_and_terms]
            self._store([*changed], said, stored)
        return len(by_id) - len(there)

    def sync(self) -> None:
        self._index.sync()

    def complete_turns(self, won: Iterable[CompletedTurn]) -> None:
        with self._lock:
            for turn in won:
                self._set_won(*turn)

    def forget(self, selection: Selection) -> int:
        with self._lock:
            self._places.forget()
            self._rows.clear()
            return self._index.delete(selection)

    def _write(self, plans: Mapping[str, Plan]) -> None:
        """All of them together: one call of the embedder, one of the index."""
        passages = {point_id: passage for plan in plans.values() for point_id, passage in plan.passages.items()}
        said = [terms(passage.text) for passage in passages.values()]
        stored = [
            payload.of_passage(passage.episode, passage.text, found, passage.position, self._count)
            for passage, found in zip(passages.values(), said, strict=True)
        ]
        self._store([*passages], said, stored)

    def _store(self, ids: Sequence[int], said: Sequence[Sequence[str]], payloads: Sequence[dict[str, Any]]) -> None:
        """said: the terms of each text."""
        for start in range(0, len(ids), _MOST_AT_ONCE):
            part = slice(start, start + _MOST_AT_ONCE)
            vectors = self._embed([f"{stored['agent_id']}: {stored['data']}" for stored in payloads[part]])
            points = zip(ids[part], vectors, said[part], payloads[part], strict=True)
            self._index.upsert([Point(i, vector, document_vector(found), p) for i, vector, found, p in points])
            self._rows.add(zip(ids[part], payloads[part], strict=True))

    def _win(self, again: Iterable[Episode]) -> None:
        """What was stored before its turn ended, and comes again as won."""
        for session_id, turn, agent_id in {(said.session_id, said.turn, said.agent_id) for said in again if said.won}:
            self._set_won(session_id, turn, agent_id)

    def _set_won(self, session_id: str, turn: int, agent_id: str) -> None:
        self._rows.set_won((session_id, turn, agent_id), self._index.set_won(session_id, turn, agent_id))
