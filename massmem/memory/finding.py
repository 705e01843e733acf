"""Finding memories: asks the index for candidates, ranks them, packs the best, and checks each once more."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from massmem.memory.access import may_see
from massmem.memory.index.payload import to_memory
from massmem.memory.index.point_ids import FIRST_FACT, message_number
from massmem.memory.index.visible import Visible
from massmem.memory.persistent import Memory, RecallOptions, RecallResult, Scope
from massmem.memory.quoting import Quote, quoted, render
from massmem.memory.ranking import excerpts, retrieval
from massmem.memory.ranking.excerpts import Excerpt
from massmem.memory.ranking.question import Question, analyse, named, query_terms
from massmem.memory.ranking.retrieval import Candidates, Floats, Ints, Picked, Room
from massmem.memory.ranking.text import query_vector, terms
from massmem.memory.rows import Rows, Table, find

if TYPE_CHECKING:
    from massmem.memory.places import Index

Vector = Sequence[float]

_LEXICAL = 200
"""Passages that share a word with the question."""
_WITH_NEIGHBOURS = 60
"""Best of them whose neighbours join in."""
_NEIGHBOURS = np.array([step for step in range(-5, 6) if step], np.int64)
"""More than are scored together: they count when the one asked about said them, or on the day asked about."""
_ON_A_DAY = 64
"""Passages that were told on a date that the question names, whatever their words."""
_FEW = 20
"""With fewer passages that share a word, as many join in that mean the same in other words."""
_SAME = 0.8
"""Share of a fact's words that stands in a passage of its own message: beside that the fact says nothing new."""
_MOST_ROUNDS = 4
"""Times that the room is filled again after something in it turned out not to be shown."""


@dataclass(frozen=True, slots=True)
class _Search:
    question: Question
    scope: Scope
    visible: Visible
    vector: Vector | None
    wanted: RecallOptions


@dataclass(frozen=True, slots=True)
class _Shown:
    """What was chosen: candidates by index, best first, and their memories; whole: which are more than excerpts."""

    chosen: list[int]
    memories: dict[int, Memory]
    whole: frozenset[int]
    tokens: int


_COVERING = 40
"""Candidates that are looked at for their own words, whatever else speaks for others."""
_SENTENCES = 4096
"""Whose tokens are kept: what is recalled once is often recalled again."""


class Finder:
    """Safe to use from several threads. count: tokens of a text."""

    def __init__(self, index: "Index", rows: Rows, count: Callable[[str], int]) -> None:
        self._index = index
        self._rows = rows

        @lru_cache(_SENTENCES)
        def tokens(sentence: str) -> int:
            return count(f" {quoted(sentence)}")

        self._count = tokens

    def find(self, query: str, vector: Vector | None, scope: Scope, wanted: RecallOptions) -> RecallResult:
        """vector: of the query; None: words alone decide."""
        search = _Search(analyse(query), scope, Visible.of(scope), vector, wanted)
        found = self._candidates(search)
        scores = retrieval.score(search.question, found)
        # Only now: what the conversation shows anyway still says where its neighbours stand.
        new = np.flatnonzero(~_of_messages(found, wanted.exclude))
        covering = retrieval.shortlist(retrieval.coverage(found)[new], _COVERING)
        best = new[np.union1d(retrieval.shortlist(scores[new]), covering)]
        found, scores = found.take(best), scores[best]
        if vector is not None and len(scores):
            scores = retrieval.with_meaning(scores, self._cosines(search, found.key))
        shown = self._checked(search, found, scores)
        return RecallResult(
            text=_rendered(found, shown, scope.agent_id),
            memories=tuple(shown.memories[i] for i in shown.chosen),
            tokens=shown.tokens,
            lexical_only=vector is None,
        )

    def _candidates(self, search: _Search) -> Candidates:
        """Names of speakers are no words to look for, but who speaks is known only afterwards: then once more."""
        names = named(search.question, self._rows.speakers)
        found = self._candidates_without(names, search)
        really = named(search.question, found.speakers)
        return found if really == names else self._candidates_without(really, search)

    def _candidates_without(self, names: frozenset[str], search: _Search) -> Candidates:
        vector = query_vector(query_terms(search.question, names))
        hits = self._index.lexical(vector, search.visible, _LEXICAL) if vector else []
        ids = np.array([point_id for point_id, _ in hits], np.int64)
        self._rows.not_absent(ids)
        keys, table = self._known(np.unique(np.concatenate([ids, *self._others(search, ids)])))
        found = find(keys, ids)
        bm25 = np.zeros(len(keys))
        bm25[found[found >= 0]] = np.array([score for _, score in hits])[found >= 0]
        hit = bm25 > 0
        visible = self._rows.visible(table, search.scope)
        if len(stale := keys[hit & ~visible]):  # the index knows of a winner that the rows do not
            self._rows.add(self._index.payloads(stale.tolist()).items())
            visible |= hit
        return self._rows.candidates(keys[visible], table[visible], bm25[visible], search.scope.agent_id)

    def _others(self, search: _Search, ids: Ints) -> list[Ints]:
        """Neighbours of the best, what was told on a date asked about, and what means the same, where words are few."""
        best = ids[:_WITH_NEIGHBOURS]
        others = [(best[best < FIRST_FACT, None] + _NEIGHBOURS).ravel()]
        for first, last in search.question.days:
            others.append(np.array(self._index.told_between(first, last, search.visible, _ON_A_DAY), np.int64))
        if search.vector is not None and len(ids) < _FEW:
            near = self._index.semantic(search.vector, search.visible, _FEW)
            others.append(np.array([point_id for point_id, _ in near], np.int64))
        return others

    def _known(self, keys: Ints) -> tuple[Ints, Table]:
        """Those that there are, and a row for each."""
        found, table = self._rows.read(keys)
        missing = self._rows.missing(keys) if len(found) < len(keys) else []
        if missing:
            there = self._index.payloads(missing)
            self._rows.add(there.items())
            self._rows.add_absent(key for key in missing if key not in there)
            found, table = self._rows.read(keys)
        return found, table

    def _cosines(self, search: _Search, keys: Ints) -> Floats:
        assert search.vector is not None
        ids = keys.tolist()
        of = dict(self._index.semantic(search.vector, None, len(ids), ids))  # the rows said who may be seen
        return np.array([of.get(key, 0.0) for key in ids])

    def _checked(self, search: _Search, found: Candidates, scores: Floats) -> _Shown:
        """Fill the room; what must not be shown, or says nothing new, makes room for others."""
        room = Room(search.wanted.max_tokens, search.wanted.limit)
        memories: dict[int, Memory | None] = {}
        small = search.wanted.max_tokens <= excerpts.SMALL_ROOM
        first = self._excerpts(search, found, scores, memories) if small else {}
        tokens = {i: excerpts.cost_of(excerpt, self._count) for i, excerpt in first.items()} if small else None
        out: set[int] = {i for i, memory in memories.items() if memory is None}
        shown = _Shown([], {}, frozenset(), 0)
        for _ in range(_MOST_ROUNDS):
            picked = retrieval.select(search.question, found, scores, room, tokens, out)
            self._read(search.scope, found, scores, picked.chosen, memories)
            shown = _fitting(picked, first, memories, search.wanted.exclude)
            if len(shown.chosen) == len(picked.chosen):
                break
            out.update(i for i in picked.chosen if i not in shown.memories)
        return shown

    def _excerpts(
        self, search: _Search, found: Candidates, scores: Floats, memories: dict[int, Memory | None]
    ) -> dict[int, Excerpt]:
        """Of the passages that have most of the question's words; what is read for it goes into `memories`."""
        read = excerpts.to_read(found, scores).tolist()
        self._read(search.scope, found, scores, read, memories)
        texts = {i: memory.text for i in read if (memory := memories[i]) is not None}
        words = frozenset(query_terms(search.question, named(search.question, found.speakers)))
        return excerpts.excerpts(found, scores, texts, words, search.wanted.max_tokens, self._count)

    def _read(
        self,
        scope: Scope,
        found: Candidates,
        scores: Floats,
        wanted: Iterable[int],
        memories: dict[int, Memory | None],
    ) -> None:
        """Add the memories of these candidates that are not there yet; None for what may not be shown."""
        new = [i for i in wanted if i not in memories]
        read = self._memories(scope, found.key[new].tolist(), scores[new].tolist()) if new else []
        memories.update(zip(new, read, strict=True))

    def _memories(self, scope: Scope, keys: Sequence[int], scores: Sequence[float]) -> list[Memory | None]:
        """What is stored there; None where there is nothing, or nothing that the scope allows."""
        payloads = self._index.payloads(keys)
        return [
            memory
            if (payload := payloads.get(key)) is not None
            and may_see(scope, memory := to_memory(key, payload, score), won=payload["won"] is True)
            else None
            for key, score in zip(keys, scores, strict=True)
        ]


def _of_messages(found: Candidates, message_ids: Iterable[str]) -> retrieval.Flags:
    numbers = [message_number(message_id) for message_id in message_ids]
    return np.isin(found.message, numbers) if numbers else np.zeros(len(found.key), np.bool_)


def _fitting(
    picked: Picked,
    first: Mapping[int, Excerpt],
    memories: Mapping[int, Memory | None],
    shown_already: frozenset[str],
) -> _Shown:
    """Those that may be shown and say something new, as they are shown."""
    there = {
        i: memory if i in picked.whole else replace(memory, text=excerpts.shown(first[i]))
        for i in picked.chosen
        if (memory := memories[i]) is not None
    }
    kept: dict[int, Memory] = {}
    for i, memory in there.items():
        if memory.kind == "fact":
            passages = [m for m in there.values() if m.kind == "episode" and m.message_ids[0] in memory.message_ids]
            facts = [m for m in kept.values() if m.kind == "fact"]
            if shown_already.issuperset(memory.message_ids) or _repeats(memory, [*passages, *facts]):
                continue
        kept[i] = memory
    return _Shown(list(kept), kept, picked.whole, picked.tokens)


def _repeats(fact: Memory, others: Iterable[Memory]) -> bool:
    """Does one of the others say the same, as far as its words tell?"""
    words = set(terms(fact.text))
    return any(len(words.intersection(terms(other.text))) >= _SAME * len(words) for other in others)


def _rendered(found: Candidates, shown: _Shown, reader: str) -> str:
    quotes: list[Quote] = []
    before = -1
    for i in retrieval.in_time_order(found, shown.chosen):
        key = int(found.key[i])
        quotes.append(Quote(shown.memories[i], follows=i in shown.whole and key == before + 1))
        before = key if i in shown.whole else -1
    return render(quotes, reader)
