"""Writes memories into an index: each message as passages, each fact as it is, with whose words it rests on.

What is stored already stays.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from threading import Lock
from typing import Any

from massmem.core.errors import MemoryUnavailable
from massmem.core.messages import split_texts
from massmem.core.text import find_look
from massmem.memory.access import is_owned, may_see, only_author_sees, reader_keys, visible_to
from massmem.memory.claims import read_claims
from massmem.memory.extraction.facts import normalize_fact
from massmem.memory.frames import ROLE, ends_role, find_frame, find_wishes
from massmem.memory.index import WISH, All, Index, OneOf, Point, Span, matching, parse_ids
from massmem.memory.origins import (
    AGENT,
    TOOL,
    WEB,
    ToolText,
    ToolWords,
    choose_origin,
    find_tool_name,
    name_tool_origin,
)
from massmem.memory.persistent import USER, CompletedTurn, Episode, Fact, Memory, MemoryChange, Scope, Selection
from massmem.memory.points import (
    MOST_PASSAGES,
    CountTokens,
    apply_change,
    base_of,
    copy_outside,
    fact_id,
    fact_payload,
    message_number,
    name_winner,
    passage_payload,
    result_number,
    session_base,
    share_result,
    to_fact,
    to_memory,
)
from massmem.memory.words import (
    build_document_vector,
    build_query_vector,
    extract_forms,
    guess_language,
    split_passages,
)

_FROM_TOOLS = (OneOf("kind", ("episode",)), OneOf("origin", (TOOL, WEB)))
_MOST_COMPARED = 20
"""Memories from tools that share most words with a new one."""


@dataclass(slots=True)
class OriginFinder:
    """Finds the origins of memories that are about to be written together, the oldest first.

    What an agent repeats of an earlier turn, or of another session, keeps the origin that it has there.
    """

    index: Index
    has_tools: bool | None = None
    """The index holds passages that are from tools; None: nobody has looked."""
    new: list[tuple[Memory, bool]] = field(default_factory=list[tuple[Memory, bool]])
    """Passages from tools that are not in the index yet, and whether their agent won the turn."""

    def find(self, source: Episode | Fact, text: str) -> tuple[str, str]:
        """Return who said a fact, or a passage with this text, and which tool's words it rests on ("": no tool's).

        Raises MemoryUnavailable: the index cannot be used now.
        """
        origin = source.origin or (USER if source.agent_id == USER else AGENT)
        rests_on = origin if find_tool_name(origin) else ""
        words = source.tool_words or ToolWords()
        is_in_doubt = isinstance(source, Fact) and origin == USER and not words.are_users(text)
        if origin == AGENT or is_in_doubt:
            tool = words.find_tool(text)
            tool = tool or ToolWords([*self._find_earlier(source, text)], words.user_texts).find_tool(text)
            rests_on = name_tool_origin(tool) or source.rests_on
        self._note(source, text, rests_on)
        return AGENT if is_in_doubt and rests_on else origin, rests_on

    def _note(self, source: Episode | Fact, text: str, rests_on: str) -> None:
        if isinstance(source, Episode) and rests_on:
            memory = Memory(
                "0",
                "episode",
                source.session_id,
                source.turn,
                source.agent_id,
                text,
                (source.message_id,),
                source.created_at,
                group=source.group,
                project=source.project,
                rests_on=rests_on,
            )
            self.new.append((memory, source.won))

    def _find_earlier(self, source: Episode | Fact, text: str) -> Iterator[ToolText]:
        """Yield passages from tools that the author may have been shown."""
        group = source.group
        scope = Scope(
            source.session_id,
            source.agent_id,
            source.turn,
            all_sessions=not is_owned(group),
            group=group or None,
            project=source.project,
        )
        memories = [*self._search(scope, text), *self.new]
        return (
            ToolText(find_tool_name(memory.rests_on), memory.text)
            for memory, won in memories
            if may_see(scope, memory, won=won)
        )

    def _search(self, scope: Scope, text: str) -> Iterable[tuple[Memory, bool]]:
        if self.has_tools is None:
            self.has_tools = bool(self.index.list_seconds(All(_FROM_TOOLS), 1, newest_first=True))
        if not self.has_tools:
            return ()
        plain = text if text.isascii() else f"{text} {find_look(text)}"  # letters of other alphabets are looked up, too
        words = build_query_vector(extract_forms(plain))
        hits = self.index.search_words(words, visible_to(scope, *_FROM_TOOLS), _MOST_COMPARED)
        payloads = self.index.read_payloads([point_id for point_id, _ in hits])
        return [(to_memory(point_id, payload), payload["won"] is True) for point_id, payload in payloads.items()]


def find_origins(index: Index, sources: Sequence[tuple[Episode | Fact, str]]) -> list[tuple[str, str]]:
    """Return for facts, and for passages of messages, each with its text, what OriginFinder.find returns."""
    finder = OriginFinder(index)
    return [finder.find(source, text) for source, text in sources]


Vectors = Sequence[Sequence[float] | None]

_BATCH = 512
"""Points of one write."""
_MOST_ATTEMPTS = 16
"""Places that a session can have: more of them are needed only when ids of sessions collide, or one is full."""
_MOST_SESSIONS = 100
"""Sessions whose passages are remembered between writes."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a message on its way into the index."""

    episode: Episode
    text: str
    position: int
    """Among the passages of the session."""

    @property
    def result(self) -> tuple[int, int, bool] | None:
        """Of the result of a tool: its number, its turn, whether its agent won that."""
        episode = self.episode
        return (result_number(episode.call, self.text), episode.turn, episode.won) if episode.call else None


@dataclass(slots=True)
class WritePlan:
    passages: dict[int, Passage] = field(default_factory=dict[int, Passage])
    """By id of the point."""
    messages: set[int] = field(default_factory=set[int])
    """Numbers of the messages that the passages belong to."""
    outdated: list[int] = field(default_factory=list[int])
    """Ids of points that they replace: a write that was cut off left only a part of a message."""
    repeats: list[tuple[int, Episode]] = field(default_factory=list[tuple[int, Episode]])
    """Ids of passages that the index has, or that are written now, and the same result of a tool, got again."""


@dataclass(slots=True)
class SessionPassages:
    base: int
    """Id of the session's first passage."""
    next_position: int = 0
    messages: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """Ids of passages, by the number of their message."""
    results: dict[int, tuple[int, int, bool]] = field(default_factory=dict[int, tuple[int, int, bool]])
    """The last passage with a call and a text, by their number: its id, its turn, and whether its agent won that."""

    def plan(self, episodes: Iterable[Episode]) -> WritePlan:
        """Return new ids for the passages of messages that are not in the index, or not whole."""
        plan = WritePlan()
        results = dict(self.results)
        next_id = self.base + self.next_position
        for episode in episodes:
            texts = _split_message(episode)
            number = message_number(episode.message_id)
            stored_ids = self.messages.get(number, [])
            if number in plan.messages or len(stored_ids) >= len(texts):
                continue
            plan.messages.add(number)
            if not episode.call:  # what is left of a result may be of others, too: the rest of it is added
                plan.outdated.extend(stored_ids)
            for text in texts:
                key = result_number(episode.call, text)
                point_id, turn, won = results.get(key, (0, 0, False))
                if episode.call and (won or turn == episode.turn):
                    plan.repeats.append((point_id, episode))
                    continue
                plan.passages[next_id] = Passage(episode, text, next_id - self.base)
                if episode.call:
                    results[key] = (next_id, episode.turn, episode.won)
                next_id += 1
        return plan

    def add(self, point_id: int, message_ids: Iterable[str], result: tuple[int, int, bool] | None = None) -> None:
        """Note a point that is in the index. result: of a tool's result: its number, its turn, whether it was won."""
        for message_id in message_ids:
            self.messages.setdefault(message_number(message_id), []).append(point_id)
        if base_of(point_id) == self.base:
            self.next_position = max(self.next_position, point_id - self.base + 1)
        if result is not None:
            key, turn, won = result
            self.results[key] = (point_id, turn, won)


class PassageIds:
    """Gives passages their ids: a message that is stored again keeps the ids that it has. One thread at a time."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._sessions: dict[str, SessionPassages] = {}
        self._next_positions: dict[int, int] = {}
        """By the base of a session: the position behind the last one that a forgotten passage had."""

    def plan(self, session_id: str, episodes: Sequence[Episode]) -> WritePlan:
        """Return the plan for those of the session's episodes that are not in the index yet.

        Raises MemoryUnavailable: the session is longer than the index allows.
        """
        for attempt in range(-1, _MOST_ATTEMPTS):  # first as this process knows it, then as the index has it
            session = self._sessions.get(session_id) or self._read(session_id, max(0, attempt))
            plan = session.plan(episodes)
            # Another session may have one of the ids, or another process may have written meanwhile.
            is_taken = bool(self._index.read_payloads([*plan.passages]))
            if session.next_position + len(plan.passages) <= MOST_PASSAGES and not is_taken:
                self._sessions[session_id] = session
                return plan
            self._sessions.pop(session_id, None)
        raise MemoryUnavailable(
            f"session {session_id} has no room for more memories",
            "start a new session; what is stored already is still found",
        )

    def note(self, session_id: str, plan: WritePlan) -> None:
        """Note that the plan was carried out."""
        if session := self._sessions.get(session_id):  # else it was dropped below, and is read again when it is needed
            for point_id, passage in plan.passages.items():
                session.add(point_id, [passage.episode.message_id], passage.result)
            for point_id, episode in plan.repeats:
                session.add(point_id, [episode.message_id])
        while len(self._sessions) > _MOST_SESSIONS:
            self._sessions.pop(next(iter(self._sessions)))

    def note_won(self, session_id: str, point_ids: Collection[int]) -> None:
        """Note that everybody may see these passages."""
        results = self._sessions[session_id].results if session_id in self._sessions else {}
        for key, (point_id, turn, _) in results.items():
            if point_id in point_ids:
                results[key] = (point_id, turn, True)

    def clear(self, forgotten: Iterable[int]) -> None:
        """Drop what is known of the index: it changes, and is read again when it is needed.

        forgotten: ids of points that are named to be forgotten. While this process lives no other message gets them:
        who names them again, because the first command was cut off, would forget that one, too.
        """
        for point_id in forgotten:
            base = base_of(point_id)
            self._next_positions[base] = max(self._next_positions.get(base, 0), point_id - base + 1)
        self._sessions.clear()

    def _read(self, session_id: str, attempt: int) -> SessionPassages:
        condition = matching(Selection(session_id=session_id, kind="episode"))
        points = dict(point for page in self._index.read_pages(condition) for point in page)
        bases = {base_of(point_id) for point_id in points}
        used = [i for i in range(_MOST_ATTEMPTS) if session_base(session_id, i) in bases]
        # Beyond the newest of its own places only when that one is full, or another session has it.
        session = SessionPassages(session_base(session_id, max([attempt, *used])))
        for point_id, payload in sorted(points.items()):
            number = result_number(call, payload["data"]) if (call := payload.get("call")) else None
            result = None if number is None else (number, payload["turn"], payload["won"])
            session.add(point_id, payload["message_ids"], result)
        session.next_position = max(session.next_position, self._next_positions.get(session.base, 0))
        return session


def _split_message(episode: Episode) -> list[str]:
    """Return the passages of a message; those of a file's text begin with its name. A wish is a passage of its own."""
    wishes = find_wishes(episode.text) if episode.agent_id == USER else ()
    passages = [
        f"[{name}] {passage}" if name else passage
        for name, part in split_texts(episode.text)
        for passage in split_passages(part, wishes)
    ]
    return [*dict.fromkeys(passages)] if episode.call else passages


class IndexWriter:
    """The only writer of an index in this process. Safe to use from several threads."""

    reads_claims = True
    """Note what the user claims in plain statements; False: a model does."""

    def __init__(self, index: Index, embed: Callable[[Sequence[str]], Vectors], count: CountTokens) -> None:
        """embed: gives a vector for each text, None where there is none. count: tokens of a text."""
        self._index = index
        self._embed = embed
        self._count = count
        self._ids = PassageIds(index)
        self._lock = Lock()

    def record(self, episodes: Sequence[Episode]) -> None:
        """Store messages; what was stored before its turn was won, and comes again as won, becomes visible."""
        by_session: dict[str, list[Episode]] = {}
        for episode in episodes:
            by_session.setdefault(episode.session_id, []).append(episode)
        with self._lock, self._index.writing():
            plans = {session_id: self._ids.plan(session_id, batch) for session_id, batch in by_session.items()}
            self._write_passages(plans)
            for session_id, plan in plans.items():
                self._ids.note(session_id, plan)
            if outdated := [point_id for plan in plans.values() for point_id in plan.outdated]:
                self._index.delete(Selection(ids=tuple(map(str, outdated))), erase=False)
            stored_before = (
                episode
                for session_id, batch in by_session.items()
                for episode in batch
                if episode.won and message_number(episode.message_id) not in plans[session_id].messages
            )
            for turn in {CompletedTurn(e.session_id, e.turn, e.agent_id) for e in stored_before}:
                self._mark_won(turn)

    def add_facts(self, facts: Sequence[Fact]) -> int:
        """Store facts; return how many of them are new. See PersistentMemory."""
        with self._lock, self._index.writing():
            origins = find_origins(self._index, [(fact, fact.text) for fact in facts])
            facts = [
                replace(fact, origin=origin, rests_on=rests_on)
                for fact, (origin, rests_on) in zip(facts, origins, strict=True)
            ]
            by_id = {fact_id(fact, normalize_fact(fact.text)): fact for fact in facts}
            stored = {point_id: to_fact(payload) for point_id, payload in self._index.read_payloads([*by_id]).items()}
            changed = {
                point_id: new
                for point_id, fact in by_id.items()
                if (new := merge_facts(stored[point_id], fact) if point_id in stored else fact) is not None
            }
            words = [extract_forms(fact.text) for fact in changed.values()]
            payloads = [
                fact_payload(fact, len(forms), self._count) for fact, forms in zip(changed.values(), words, strict=True)
            ]
            self._store([*changed], words, payloads)
        return len(by_id) - len(stored)

    def change(self, point_id: int, change: MemoryChange) -> None:
        """Carry out what the user changed of a memory. See PersistentMemory."""
        with self._lock, self._index.writing():
            payload = self._index.read_payloads([point_id]).get(point_id)
            if payload is None or change.id in payload.get("changes", ()):
                return
            forms, new = self._apply(payload, change)
            if new["data"] != payload["data"]:
                self._store([point_id], [forms], [new])
            else:
                self._index.set_payload([point_id], new | {"seen": reader_keys(new)})

    def _apply(self, payload: Mapping[str, Any], change: MemoryChange) -> tuple[list[tuple[str, ...]], dict[str, Any]]:
        """Return the forms of the words, and the payload, of a memory after a change."""
        forms = extract_forms(change.text, guess_language(change.text))
        is_users = payload["kind"] == "episode" and payload["agent_id"] == USER and self.reads_claims
        claims = read_claims(change.text, change.text) if is_users else ()
        return forms, apply_change(payload, change, len(forms), self._count, claims)

    def copy_outside(self) -> None:
        """Store as facts what other programs wrote into the index since the last time."""
        if points := self._index.read_outside():
            self.add_facts([fact for point in points if (fact := copy_outside(*point)) is not None])
            self._index.mark_copied([point_id for point_id, _ in points])

    def sync(self) -> None:
        self._index.sync()

    def complete_turns(self, turns: Iterable[CompletedTurn]) -> None:
        """Make visible to the other agents what each winner said in its turn."""
        with self._lock, self._index.writing():
            for turn in turns:
                self._mark_won(turn)

    def forget(self, selection: Selection) -> int:
        """Delete for good; return how many points that were."""
        with self._lock, self._index.writing():
            # Of what is there alone: an id that somebody makes up would leave its session no room.
            self._ids.clear(self._index.read_payloads(parse_ids(selection.ids).ids))
            count = self._index.delete(selection, erase=False)
        if count:
            self._index.erase_deleted()  # others read while this takes its time
        return count

    def _write_passages(self, plans: Mapping[str, WritePlan]) -> None:
        """Write the passages of all sessions together: one call of the embedder, one of the index."""
        passages = {point_id: passage for plan in plans.values() for point_id, passage in plan.passages.items()}
        words = [
            extract_forms(f"{p.episode.call} {p.text}".lstrip(), guess_language(p.episode.text))
            for p in passages.values()
        ]
        origins = find_origins(self._index, [(passage.episode, passage.text) for passage in passages.values()])
        frames = self._find_frames(passages)
        wishes = {passage.text for passage in passages.values() if passage.text in find_wishes(passage.episode.text)}
        payloads = [
            passage_payload(
                replace(passage.episode, origin=origin, rests_on=rests_on),
                passage.text,
                len(forms),
                passage.position,
                self._count,
                claims=read_claims(passage.episode.text, passage.text)
                if self.reads_claims and passage.episode.agent_id == USER and not frames[point_id]
                else (),
            )
            | ({"frame": frames[point_id]} if frames[point_id] else {})
            | ({"pin": [WISH]} if passage.text in wishes and origin == USER and not frames[point_id] else {})
            for (point_id, passage), forms, (origin, rests_on) in zip(passages.items(), words, origins, strict=True)
        ]
        for i, passage in enumerate(passages.values()):
            for change in passage.episode.changes:
                if change.kind == "episode" and payloads[i]["data"] == change.old:
                    words[i], payloads[i] = self._apply(payloads[i], change)
        self._share_results(dict(zip(passages, payloads, strict=True)), [r for p in plans.values() for r in p.repeats])
        self._store([*passages], words, payloads)

    def _find_frames(self, passages: Mapping[int, Passage]) -> dict[int, str]:
        """Return the frame of each passage, "" for most. A role lasts until the user leaves it."""
        before = self._index.read_payloads({point_id - 1 for point_id in passages}.difference(passages))
        frames = {point_id: payload.get("frame", "") for point_id, payload in before.items()}
        for point_id, passage in passages.items():
            episode, is_users = passage.episode, passage.episode.agent_id == USER
            is_in_role = frames.get(point_id - 1) == ROLE and not (is_users and ends_role(episode.text))
            own = find_frame(episode.text, passage.text) if is_users else ""
            frames[point_id] = ROLE if is_in_role and not episode.call else own
        return frames

    def _share_results(self, new: Mapping[int, dict[str, Any]], repeats: Sequence[tuple[int, Episode]]) -> None:
        """Note in the passages of results who got them once more. new: payloads that are yet to be stored."""
        stored = self._index.read_payloads({point_id for point_id, _ in repeats if point_id not in new})
        changed: dict[int, dict[str, Any]] = {}
        for point_id, episode in repeats:
            if (payload := new.get(point_id) or stored.get(point_id)) is not None:
                changed[point_id] = changed.get(point_id, {}) | share_result(payload, episode)
                payload.update(changed[point_id])
        alike: dict[str, list[int]] = {}
        for point_id, fields in changed.items():
            if point_id in stored:
                alike.setdefault(json.dumps(fields | {"seen": reader_keys(stored[point_id])}), []).append(point_id)
        for fields, ids in alike.items():  # all passages of a result mostly
            self._index.set_payload(ids, json.loads(fields))

    def _store(
        self, ids: Sequence[int], words: Sequence[Sequence[tuple[str, ...]]], payloads: Sequence[dict[str, Any]]
    ) -> None:
        """words: the forms of each content word of each text."""
        for start in range(0, len(ids), _BATCH):
            part = slice(start, start + _BATCH)
            vectors = self._embed(
                [f"{' '.join([p['agent_id'], *filter(None, [p.get('call')])])}: {p['data']}" for p in payloads[part]]
            )
            weights = (build_document_vector(list(chain(*forms)), len(forms)) for forms in words[part])
            parts = zip(ids[part], vectors, weights, payloads[part], strict=True)
            self._index.upsert([Point(*of_point) for of_point in parts])

    def _mark_won(self, turn: CompletedTurn) -> None:
        """Make visible to all what the winner said in its turn; mark what others said."""
        session_id, number, winner = turn
        ids: dict[str, list[int]] = {}
        for page in self._index.read_pages(only_author_sees(session_id, number, winner)):
            for point_id, payload in page:
                fields = name_winner(payload, winner)
                fields["seen"] = reader_keys({**payload, **fields})
                ids.setdefault(json.dumps(fields), []).append(point_id)
        for fields, point_ids in ids.items():
            self._index.set_payload(point_ids, json.loads(fields))
            self._ids.note_won(session_id, frozenset(point_ids))
        of_turn = (OneOf("run_id", (session_id,)), Span("turn", number, number), OneOf("kind", ("episode",)))
        others = All(of_turn, (OneOf("agent_id", (winner, USER)),))
        lost = [i for page in self._index.read_pages(others) for i, p in page if not p.get("call")]
        if lost:
            self._index.set_payload(lost, {"lost": True})


def merge_facts(stored: Fact, restated: Fact) -> Fact | None:
    """Return the stored fact as it is to be stored when its agent states it once more; None when nothing changes.

    It moves to the turn that shows it to most readers: the first one that its agent won, so that the others see it
    after that turn and never before; without any such, the last one, which may still be won. It keeps the messages of
    all of them as its origin. The order in which the turns are recorded makes no difference.
    """
    sources = tuple(sorted({*stored.message_ids, *restated.message_ids}))  # ids of messages rise within a session
    best = max(stored, restated, key=_visibility)
    turns = {*stored.turns, stored.turn, *restated.turns, restated.turn}
    merged = replace(stored, turn=best.turn, created_at=best.created_at, won=best.won, message_ids=sources)
    merged = replace(merged, turns=tuple(sorted(turns)) if len(turns) > 1 else ())
    origin = choose_origin({stored.origin, restated.origin})
    rests_on = "" if origin == USER else min(filter(None, (stored.rests_on, restated.rests_on)), default="")
    merged = replace(merged, origin=origin, rests_on=rests_on)
    unchanged = replace(stored, message_ids=tuple(sorted(set(stored.message_ids))))
    return None if merged == unchanged else merged


def _visibility(fact: Fact) -> tuple[bool, int, datetime]:
    return fact.won, -fact.turn if fact.won else fact.turn, fact.created_at
