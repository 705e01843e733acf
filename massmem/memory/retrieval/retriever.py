"""Recalls: asks the index for candidates that the reader may see, ranks them, and packs the best into a text."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import numpy as np

from massmem.memory.access import may_see, visible_to
from massmem.memory.claims import Chain, build_chains, find_topic, find_usual_name
from massmem.memory.embedders import Embedder
from massmem.memory.index import ALL_POINTS, PINNED, WISH, All, Index, OneOf, between_days, valid_ids
from massmem.memory.persistent import PINNED_TOKENS, USER, Claim, Memory, RecallOptions, RecallResult, Scope
from massmem.memory.points import FIRST_FACT, CountTokens, to_memory
from massmem.memory.quoting import CHANGED, HOLDS, PASSAGES, PINS, STANDING_WISH, WISHES, Quote, quote_text, render
from massmem.memory.retrieval import pack
from massmem.memory.retrieval.current import find_holding, select_chains, settle
from massmem.memory.retrieval.later import Link, follows_any, is_no_answer, link_later, mark_earlier
from massmem.memory.retrieval.pack import Packed, Room, cut_headlines
from massmem.memory.retrieval.query import (
    Question,
    analyse,
    asks_beginning,
    find_names,
    find_spellings,
    is_short,
    name_topic,
    search_forms,
    split_asks,
)
from massmem.memory.retrieval.rank import (
    WEIGHTS,
    Candidates,
    Flags,
    Floats,
    add_meaning,
    build_candidates,
    coverage,
    expand_query,
    score,
    shortlist,
    sort_by_score,
)
from massmem.memory.retrieval.repeats import SAME_SHARE, PromptTexts, drop_copies, find_revised, is_echo, normalise
from massmem.memory.retrieval.silence import Embed, Silence, find_word_shares
from massmem.memory.words import build_query_vector, extract_terms, is_question, split_words

Vector = Sequence[float]

_BY_WORDS = 200
"""Memories that share a word with the question."""
_BY_WORDS_FOR_OVERVIEW = 400
_WITH_NEIGHBOURS = 60
"""The best of them, whose neighbours are candidates too: as many on each side as are scored together. Two more would
cost a third more reading, and recall the same."""
_BY_FEEDBACK = 200
"""Memories that share words with the best of them."""
_ON_A_DAY = 64
"""Memories of a date that the question names, whatever their words."""
_FEW = 20
"""With fewer memories that share a word, as many join in that mean the same in other words."""
_BY_MEANING = 60
"""Those that join in always with a multilingual embedder: most words that a question in other words shares are "the"
and "of" in its language."""
_COVERING = 40
"""Candidates that stay for their own words, whatever the other signals say."""
_MOST_CLAIMS = 400
"""Claims that a recall reads at once, see _Pool."""
_MOST_SILENCED = 20
"""Memories that are named as left out."""
_MOST_PINS = 200
"""Pinned memories that are read, the newest."""
_BEST_OF_ASK, _FEW_TERMS = 3, 3
"""Memories that are shown for each of several things that are asked for; words that ask for nothing by themselves."""
_MOST_ROUNDS = 4
"""Times that the room is filled again after a fact in it turned out to say nothing new."""


@dataclass(slots=True)
class _Pool:
    """All that one search has read from the index."""

    scope: Scope
    most_claims: int = _MOST_CLAIMS
    """Claims that are read at once; of one topic, the newest."""
    lexical_only: bool = False
    """Without vectors."""
    numbers: dict[int, Sequence[int]] = field(default_factory=dict[int, Sequence[int]])
    """`f` of each payload, by id."""
    memories: dict[int, Memory] = field(default_factory=dict[int, Memory])
    bm25: Mapping[int, float] = field(default_factory=dict[int, float])
    """How well the words of a memory match, by id; none of what shares no word with the question."""
    near: set[int] = field(default_factory=set[int])
    """Ids of what a multilingual embedder finds near."""
    read: set[int] = field(default_factory=set[int])
    """Ids that the index was asked for, whether or not there is such a point."""
    chains: dict[str, Chain] = field(default_factory=dict[str, Chain])
    """The ledger of what was read, by topic."""
    links: Sequence[Link] = ()
    """From what the user said to what the user said later about the same."""

    def add(self, payloads: Mapping[int, Mapping[str, Any]]) -> None:
        """Keep what the scope may see; the index was asked for neighbours whatever they are."""
        for point_id, payload in payloads.items():
            memory = to_memory(point_id, payload)
            if may_see(self.scope, memory, won=payload["won"] is True):
                self.memories[point_id] = memory
                self.numbers[point_id] = payload["f"]

    def select(self, ids: Iterable[int]) -> list[Memory]:
        """Return those that the scope may see."""
        return [self.memories[point_id] for point_id in ids if point_id in self.memories]


class Retriever:
    """Searches one index. Safe to use from several threads."""

    def __init__(self, index: Index, count: CountTokens, embed: Embed, embedder: Embedder | None) -> None:
        """count: tokens of a text. embed: see silence.py. embedder: None: words alone are searched."""
        self._index = index
        self._count = count
        self._embed = embed
        self._is_multilingual = embedder is not None and embedder.is_multilingual
        self._silence = Silence(index, embed, averages_words=embedder is not None and embedder.averages_words)

    def recall(self, query: str, scope: Scope, options: RecallOptions) -> RecallResult:
        """See PersistentMemory. What asks for several things is searched as a whole, and for each of them."""
        request = query if options.abstain else ""
        own = "" if options.is_search else request
        whole = self._recall(query, own, scope, options)
        parts = [self._recall(ask, own, scope, options) for ask in split_asks("" if options.plain else request)]
        first = self._read_beginning(scope, options) if request and asks_beginning(query) else []
        best = {m.id: m for m in (*first, *whole.memories)} | {
            m.id: m for part in parts for m in part.memories[:_BEST_OF_ASK]
        }
        if len(best) == len(whole.memories):
            return whole
        decision = next((result.decision for result in (whole, *parts) if result.memories), whole.decision)
        return replace(self._write([*best.values()][: options.limit], scope, options), decision=decision)

    def _read_beginning(self, scope: Scope, options: RecallOptions) -> list[Memory]:
        """Return the first passages of the conversation that the prompt does not show word for word."""
        here = visible_to(scope, OneOf("run_id", (scope.session_id,)))
        first = self._index.list_ids(here, _BEST_OF_ASK, newest_first=False)
        return [m for m in self._read({*first}, _Pool(scope)) if not options.exclude.issuperset(m.message_ids)]

    def _recall(self, query: str, request: str, scope: Scope, options: RecallOptions) -> RecallResult:
        """Return what is shown for a question. request: what a prompt shows the user to ask, "" for none."""
        question, (vector, topic) = analyse(query), self._embed([query, name_topic(query)])
        pool = _Pool(scope, lexical_only=vector is None)
        c = self._find_candidates(question, vector, pool)
        asked = question.terms
        texts = [memory.text for memory in c.memories]
        if spellings := find_spellings(self._index, question, scope, texts, lambda text: is_echo(text, asked)):
            forms = (*question.forms, *((term,) for term in spellings))
            question = replace(question, forms=forms, spellings=len(spellings))
            c = self._find_candidates(question, vector, pool)
        ids: set[int] = {*c.key.tolist()}
        if not question.asks_overview:
            ids |= self._find_more(question, c, pool)
        c = self._build({*ids, *self._read_chains(question, ids, pool)}, pool)
        scores = score(question, c)
        if vector is None:
            c = c.with_relevance(find_word_shares(question, c))
        # Only now: what is left out still says where its neighbours stand.
        new = np.flatnonzero(~_says_nothing_new(request, asked, c, PromptTexts(options, scope.session_id)))
        rest, rest_scores = c.take(new), scores[new]
        if not question.asks_overview:
            best = np.union1d(shortlist(rest, rest_scores), shortlist(rest, coverage(rest), _COVERING))
            best = np.union1d(best, np.flatnonzero(np.isin(rest.key, [*pool.near])))
            best = np.union1d(best, find_holding(question, rest, best, pool.chains))
            pool.links = link_later(question, rest, rest_scores, best)
            best = np.union1d(best, np.flatnonzero(np.isin(rest.key, [link.later for link in pool.links])))
            rest, rest_scores = rest.take(best), rest_scores[best]
        c, scores = rest, rest_scores
        if vector is not None and len(scores):
            scores = add_meaning(scores, self._cosines(vector, c), is_multilingual=self._is_multilingual)
            cosines = self._cosines(topic or vector, c)
            if not cosines.all():  # what cannot be embedded
                cosines = np.where(cosines == 0, find_word_shares(question, c), cosines)
            c = c.with_relevance(cosines)
        c, scores = settle(question, c, scores, pool.chains, self._count)
        c, scores = mark_earlier(c, scores, pool.links, self._count)
        return self._show(question, c, scores, options, pool)

    def _show(
        self, question: Question, c: Candidates, scores: Floats, options: RecallOptions, pool: _Pool
    ) -> RecallResult:
        """Show what matters. What does not is named as left out."""
        decision = self._silence.decide(question, c, pool.scope, options, lexical_only=pool.lexical_only)
        is_tail = np.zeros(len(scores), np.bool_)
        if options.abstain and not pool.lexical_only and not decision.is_silent:
            is_tail = self._silence.find_tail(question, c, scores, pool.scope, decision, options.max_tokens)
            is_tail &= ~follows_any(c, pool.links, ~is_tail)
        is_view = decision.is_silent or question.asks_past or question.asks_overview or pool.scope.origin
        if options.abstain and not is_view:
            is_tail |= np.array(
                [is_no_answer(m) or (is_question(m.text) and is_short(m.text)) for m in c.memories], bool
            )
        rest, rest_scores = c.take(~is_tail), scores[~is_tail]
        result = self._pack(question, rest, rest_scores, options, pool)
        if decision.is_silent:
            silenced = result.memories[:_MOST_SILENCED]
            return RecallResult(lexical_only=pool.lexical_only, silenced=silenced, decision=decision)
        ranked: list[int] = sort_by_score(c, scores).tolist()
        tail = [i for i in ranked if is_tail[i]][:_MOST_SILENCED]
        silenced = tuple(replace(c.memories[i], score=float(scores[i])) for i in tail)
        return replace(result, silenced=silenced, decision=decision)

    def read_pins(self, scope: Scope, options: RecallOptions) -> RecallResult:
        """Return what the scope may see of what is pinned, and standing wishes; the first of each where room is short.

        What the prompt shows word for word is not repeated, unless the user has corrected it. Raises MemoryUnavailable.
        """
        ids = self._index.list_ids(visible_to(scope, OneOf("pin", (PINNED, WISH))), _MOST_PINS, newest_first=True)
        pins: list[tuple[bool, datetime, int, Memory]] = []
        prompt = PromptTexts(options, scope.session_id)
        for point_id, payload in self._index.read_payloads(ids).items():
            memory = to_memory(point_id, payload)
            has_words = memory.edited_at is None and options.exclude.issuperset(memory.message_ids)
            if may_see(scope, memory, won=payload["won"] is True) and not (has_words or prompt.have(memory)):
                time = datetime.fromisoformat(payload.get("pin_at", payload["created_at"]))
                pins.append((memory.note == STANDING_WISH, time, point_id, memory))
        shown: list[Memory] = []
        room = min(PINNED_TOKENS, options.max_tokens // 2)
        for memory in drop_copies(memory for *_, memory in sorted(pins, key=lambda pin: pin[:3])):
            cost = self._count(render([Quote(memory)], scope.agent_id, scope.names, plain=options.plain))
            if cost <= room:
                shown.append(memory)
                room -= cost
        in_order = sorted(shown, key=lambda memory: (memory.note != STANDING_WISH, memory.created_at, memory.id))
        quotes = [Quote(memory, block=WISHES if memory.note == STANDING_WISH else PINS) for memory in in_order]
        text = render(quotes, scope.agent_id, scope.names, plain=options.plain)
        tokens = self._count(text) if text else 0
        return RecallResult(text, tokens=tokens, pinned=tuple(shown), pins_left_out=len(pins) - len(shown))

    def read_history(self, query: str, scope: Scope) -> list[Chain]:
        """Return the chains that bear on the query, best first."""
        question = analyse(query)
        if usual := find_usual_name(query):
            question = replace(question, topics=(*question.topics, find_topic(Claim(USER, usual, "", USER))))
        pool = _Pool(scope, ALL_POINTS)
        ids: set[int] = {*self._find_candidates(question, self._embed([query])[0], pool).key.tolist()}
        c = self._build({*ids, *self._read_chains(question, ids, pool)}, pool)
        return select_chains(question, c, score(question, c), pool.chains)

    def _find_candidates(self, question: Question, vector: Vector | None, pool: _Pool) -> Candidates:
        """Names of speakers are no words to look for, but who spoke is known only afterwards: then search once more."""
        ids = self._search(question, frozenset(), vector, pool)
        if names := find_names(question, {memory.agent_id for memory in pool.select(ids)}):
            ids = self._search(question, names, vector, pool)
        return self._build(ids, pool)

    def _build(self, ids: set[int], pool: _Pool) -> Candidates:
        return build_candidates(pool.select(ids), pool.numbers, pool.bm25, pool.scope, self._count)

    def _search(self, question: Question, names: frozenset[str], vector: Vector | None, pool: _Pool) -> set[int]:
        """Read the candidates. Return their ids."""
        visible = visible_to(pool.scope)
        words = build_query_vector(search_forms(question, names))
        most = _BY_WORDS_FOR_OVERVIEW if question.asks_overview else _BY_WORDS
        hits = self._index.search_words(words, visible, most + 1)
        keys = {*_take_best(hits, most), *_neighbours(_take_best(hits, _WITH_NEIGHBOURS))}
        for first, last in question.days:
            on_days = visible_to(pool.scope, between_days(first, last))
            keys.update(self._index.list_ids(on_days, _ON_A_DAY, newest_first=False))
        if vector is not None and self._is_multilingual:
            pool.near = {point_id for point_id, _ in self._index.search_meaning(vector, visible, _BY_MEANING)}
            keys |= pool.near
        elif vector is not None and len(hits) < _FEW:
            keys.update(point_id for point_id, _ in self._index.search_meaning(vector, visible, _FEW))
        pool.bm25 = dict(hits)
        if len(hits) > most:  # those that came for another reason have words of the question, too
            pool.bm25 = self._match_words(words, keys)
        self._read(keys, pool)
        return keys

    def _match_words(self, words: Mapping[int, float], ids: set[int]) -> dict[int, float]:
        """Return how well the words of each of these memories match, by id."""
        return dict(self._index.search_words(words, All((valid_ids(ids),)), len(ids)))

    def _find_more(self, question: Question, c: Candidates, pool: _Pool) -> set[int]:
        """Read what shares words with the best of the candidates, see feedback.py. Return the ids of what is new."""
        words = build_query_vector(search_forms(question, find_names(question, c.speakers)))
        more = expand_query(words, question, c, score(question, c))
        hits = self._index.search_words(more, visible_to(pool.scope), _BY_FEEDBACK + 1)
        new = {*_take_best(hits, _BY_FEEDBACK), *_neighbours(_take_best(hits, _WITH_NEIGHBOURS))}
        new = {int(memory.id) for memory in self._read(new.difference(c.key.tolist()), pool)}
        pool.bm25 = {**pool.bm25, **self._match_words(words, new)}
        return new

    def _read_chains(self, question: Question, ids: Iterable[int], pool: _Pool) -> set[int]:
        """Read the ledger of what these memories claim. Return the ids of what holds."""
        memories = pool.select(ids)
        messages = {memory.message_ids[0] for memory in memories if memory.kind == "episode"}
        facts = self._read(self._list_claims("stated_in", sorted(messages), pool), pool)
        topics = {*question.topics, *(find_topic(claim) for memory in [*memories, *facts] for claim in memory.claims)}
        chains = build_chains(self._read(self._list_claims("topics", sorted(topics), pool), pool))
        pool.chains = {topic: chain for topic, chain in chains.items() if topic in topics}
        return {int(memory.id) for chain in pool.chains.values() for e in chain.holding for memory in e.memories[-1:]}

    def _list_claims(self, key: str, values: Sequence[str], pool: _Pool) -> set[int]:
        """Return the ids of claims with one of the values, for each value the newest when there are very many."""
        if not values:
            return set()
        condition = visible_to(pool.scope, OneOf(key, tuple(values)))
        ids = self._index.list_ids(condition, pool.most_claims, newest_first=True)
        if len(ids) < pool.most_claims or len(values) == 1:
            return {*ids}
        half = len(values) // 2
        return self._list_claims(key, values[:half], pool) | self._list_claims(key, values[half:], pool)

    def _read(self, ids: set[int], pool: _Pool) -> list[Memory]:
        """Read what was not read yet. Return those of the memories that the scope may see."""
        pool.add(self._index.read_payloads(ids - pool.read))
        pool.read |= ids
        return pool.select(ids)

    def _cosines(self, vector: Vector, c: Candidates) -> Floats:
        ids = c.key.tolist()
        condition = All((valid_ids(ids),))  # who may see them is settled
        cosines = dict(self._index.search_meaning(vector, condition, len(ids)))
        return np.array([cosines.get(key, 0.0) for key in ids])

    def _pack(
        self, question: Question, c: Candidates, scores: Floats, options: RecallOptions, pool: _Pool
    ) -> RecallResult:
        """Fill the room; a fact that says nothing new makes room for others."""
        headlines: Mapping[int, str] = {}
        sizes = None
        if question.asks_overview:
            headlines = cut_headlines(question, c, scores, options.max_tokens, self._count_sentence)
        elif options.max_tokens <= pack.SMALL_ROOM:
            headlines = pack.cut_sentences(c, scores, question.terms, options.max_tokens, self._count_sentence)
        if headlines:
            sizes = {i: self._count_sentence(h) + self._count_note(c.memories[i]) for i, h in headlines.items()}
        room = Room(options.max_tokens, options.limit)
        left_out: set[int] = set()
        shown: dict[int, Memory] = {}
        packed = Packed([], frozenset(), 0)
        for _ in range(_MOST_ROUNDS):
            packed = pack.pack(question, c, scores, room, sizes, left_out)
            shown = _drop_repeats(_as_shown(c, scores, packed, headlines), options.exclude)
            if len(shown) == len(packed.chosen):
                break
            left_out.update(i for i in packed.chosen if i not in shown)
        cut = {c.memories[i].id for i in headlines if i not in packed.whole}
        return replace(self._write(shown.values(), pool.scope, options, cut), lexical_only=pool.lexical_only)

    def _write(
        self, memories: Iterable[Memory], scope: Scope, options: RecallOptions, cut: Collection[str] = ()
    ) -> RecallResult:
        """Show as many of the memories, best first, as there is room for. cut: see _render."""
        shown = [*memories]
        while (tokens := self._count(text := _render(shown, scope, cut, plain=options.plain))) > options.max_tokens:
            shown.pop()
        return RecallResult(text, tuple(shown), tokens)

    def _count_note(self, memory: Memory) -> int:
        return self._count(f" ({memory.note})") if memory.note else 0

    def _count_sentence(self, sentence: str) -> int:
        return self._count(f" {quote_text(sentence)}")


def _neighbours(ids: Iterable[int]) -> set[int]:
    """Return the ids of passages beside these passages; facts have no neighbours."""
    reach = WEIGHTS.reach
    steps = [step for step in range(-reach, reach + 1) if step]
    return {point_id + step for point_id in ids if point_id < FIRST_FACT for step in steps}


def _says_nothing_new(request: str, asked: frozenset[str], c: Candidates, prompt: PromptTexts) -> Flags:
    """Return which candidates stand in the prompt, under this or another id, or only ask for the same once more."""
    opening = split_words(request)[:1] if len(asked) > _FEW_TERMS else []
    flags = (
        (is_echo(memory.text, asked) and (bool(c.asks[i]) or split_words(memory.text)[:1] == opening))
        or prompt.have(memory)
        for i, memory in enumerate(c.memories)
    )
    return np.fromiter(flags, np.bool_, len(c.memories))


def _take_best(hits: Sequence[tuple[int, float]], limit: int) -> list[int]:
    """Return the ids of the best hits; none of those that are as good as one beyond the limit.

    The index cuts anywhere among equal scores. When most are equal, all that fit are taken.
    """
    ids = [point_id for point_id, _ in hits[:limit]]
    if len(hits) <= limit:
        return ids
    better = [point_id for point_id, score in hits[:limit] if round(score, 4) > round(hits[limit][1], 4)]
    return better if len(better) >= limit // 2 else ids


def _as_shown(c: Candidates, scores: Floats, packed: Packed, headlines: Mapping[int, str]) -> dict[int, Memory]:
    """Return the memories by index of the candidate, with their scores, cut to their headlines."""
    shown: dict[int, Memory] = {}
    for i in packed.chosen:
        text = c.memories[i].text if i in packed.whole else headlines[i]
        shown[i] = replace(c.memories[i], text=text, score=float(scores[i]))
    return shown


def _drop_repeats(memories: Mapping[int, Memory], in_prompt: frozenset[str]) -> dict[int, Memory]:
    """Leave out what only repeats others: a result of a tool that came again, a fact; also of messages in the prompt.

    in_prompt: ids of messages.
    """
    revised = find_revised(memories)
    distinct = {memory.id for memory in drop_copies(memories.values())}
    memories = {i: memory for i, memory in memories.items() if i not in revised and memory.id in distinct}
    shown: dict[int, Memory] = {}
    spoken = {normalise(memory.text) for memory in memories.values() if memory.kind == "episode"}
    for i, memory in memories.items():
        if memory.kind == "fact":
            if normalise(memory.text) in spoken:
                continue
            passages = [m for m in memories.values() if m.kind == "episode" and m.message_ids[0] in memory.message_ids]
            facts = [m for m in shown.values() if m.kind == "fact"]
            facts = [m for m in facts if m.claims == memory.claims or not m.claims]
            if in_prompt.issuperset(memory.message_ids) or _is_repeat(memory, [*passages, *facts]):
                continue
        shown[i] = memory
    return shown


def _is_repeat(fact: Memory, others: Iterable[Memory]) -> bool:
    """Return whether one of the others says the same, as far as its words tell."""
    words = set(extract_terms(fact.text))
    return any(len(words.intersection(extract_terms(other.text))) >= SAME_SHARE * len(words) for other in others)


def _render(memories: Sequence[Memory], scope: Scope, cut: Collection[str], *, plain: bool) -> str:
    """Write first what changed, then the rest; the newest stands last in both. cut: ids of what is not shown whole."""
    blocks = {m.id: HOLDS if CHANGED.search(m.note) and not plain else PASSAGES for m in memories}
    quotes: list[Quote] = []
    previous = -1
    for memory in sorted(memories, key=lambda m: (blocks[m.id] != HOLDS, m.created_at, m.session_id, int(m.id))):
        key = int(memory.id)
        quotes.append(Quote(memory, memory.id not in cut and key == previous + 1, blocks[memory.id]))
        previous = -1 if memory.id in cut else key
    return render(quotes, scope.agent_id, scope.names, plain=plain, here=scope.session_id)
