"""What is read from the logs of a Redis store: messages, turns, events, pages for another store."""

import re
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Any

from massmem.events import Event
from massmem.messages import clean_text
from massmem.records import LogEntry, MessageRecord, RecordingRecord, TurnRecord
from massmem.store.redis.client import RedisClient
from massmem.store.redis.keys import Command, id_key, key
from massmem.store.redis.log import Entry, Head, Said, TurnRow, messages_of, said, turn_record, unpacked
from massmem.store.redis.scripts import SEARCH
from massmem.store.redis.trim import Aside
from massmem.store.redis.words import flat, has_any, ranked
from massmem.store.rows import entries
from massmem.store.words import sought

_PAGE = 500
_ID = re.compile(r"([0-9a-f]{16})([0-9a-f]{16})")


class Reading:
    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def messages(self, session_id: str, after: int, limit: int) -> list[MessageRecord]:
        found: list[MessageRecord] = []
        async with aclosing(self._log(session_id, after, min(limit, _PAGE))) as pages:
            async for page in pages:
                found += [m for m in messages_of(session_id, page) if m.seq > after]
                if len(found) >= limit:
                    break
        return found[:limit]

    async def conversation(self, session_id: str, before: int | None, limit: int) -> list[MessageRecord]:
        found: list[MessageRecord] = []
        undone = (await self._undone([session_id]))[session_id]
        newest, page = "+inf" if before is None else f"({before}", max(64, 4 * limit)
        while len(found) < limit:
            command = ("ZREVRANGEBYSCORE", key("log", session_id), newest, "-inf", "LIMIT", 0, page)
            log = [unpacked(member) for member in await self._client.run(*command)]
            said_ = messages_of(session_id, log)
            found += [m for m in said_ if (m.kind == "user" or m.final) and m.turn not in undone]
            if len(log) < page:
                break
            newest = f"({log[-1].seq}"
        return found[:limit]

    async def latest_summary(self, session_id: str, agent_id: str) -> MessageRecord | None:
        newest = await self._client.run("HGET", key("summaries", session_id), clean_text(agent_id))
        if newest is None:
            return None
        found = MessageRecord.model_validate_json(newest)
        undone = (await self._undone([session_id]))[session_id]
        if found.turn not in undone:
            return found
        log = [unpacked(member) for member in await self._client.run("ZRANGE", key("log", session_id), 0, -1)]
        standing = [m for m in messages_of(session_id, log) if m.kind == "injection" and m.turn not in undone]
        return next((m for m in reversed(standing) if m.agent_id == clean_text(agent_id)), None)

    async def messages_by_id(self, ids: Iterable[str]) -> list[MessageRecord]:
        wanted = {id_: (match[1], int(match[2], 16)) for id_ in ids if (match := _ID.fullmatch(id_))}
        found: dict[str, MessageRecord] = {}
        for session_id, seqs in (await self._places(wanted.values())).items():
            for message in await self._at(session_id, seqs):
                found[message.id] = message
        return [found[id_] for id_ in sorted(found) if id_ in wanted]

    async def places(self, ids: Iterable[str]) -> dict[str, set[int]]:
        """The session and seq of each message, also of one that is no longer kept."""
        return await self._places((m[1], int(m[2], 16)) for id_ in ids if (m := _ID.fullmatch(id_)))

    async def turn_said(self, session_id: str, turn: int) -> list[Said]:
        """Everything that was said in one turn, also what is only kept for the queue."""
        log, aside = await self._turn(session_id, turn)
        found = [Said(m.message, m.answer) for each in aside if each.turn == turn for m in each.messages]
        found += [each for entry in log for each in said(session_id, entry)]
        return sorted(found, key=lambda each: each.message.seq)

    async def asked(self, session_id: str, request: str) -> int | None:
        rows: dict[str, str] = await self._client.run("HGETALL", key("turns", session_id))
        named = (TurnRow.model_validate_json(row).requests.get(request) for row in rows.values())
        return next((seq for seq in named if seq is not None), None)

    async def turn_events(self, session_id: str, turn: int) -> list[Event]:
        log, _ = await self._turn(session_id, turn)
        return [entry.event() for entry in log]

    async def turns(self, session_id: str, after: int, limit: int) -> list[TurnRecord]:
        """Those whose question is kept."""
        kept = [(turn, row) for turn, row in await self._kept_turns(session_id) if turn > after]
        return await self._with_texts(session_id, kept[:limit])

    async def last_turn(self, session_id: str, turn: int) -> TurnRecord | None:
        """turn: the last number that was given."""
        text = await self._client.run("HGET", key("turns", session_id), turn)
        found = [] if text is None else await self._with_texts(session_id, [(turn, TurnRow.model_validate_json(text))])
        return found[0] if found else None

    async def abandoned(self, session_id: str) -> tuple[int, ...]:
        """The turns that were given up, of those that are kept."""
        kept = await self._kept_turns(session_id)
        return tuple(turn for turn, row in kept if row.status == "abandoned")

    async def search(self, query: str, session_ids: Sequence[str], limit: int) -> list[MessageRecord]:
        """Some hundred sessions are looked into at a time, so that others are not kept waiting."""
        wanted = sought(query)
        single = flat(wanted)
        if not single:
            return []
        reply: list[tuple[str, list[str]]] = []
        for at in range(0, len(session_ids), _PAGE):
            part = session_ids[at : at + _PAGE]
            reply += [(i, texts) for i, texts in await self._client.program(SEARCH, len(single), *single, *part)]
        hits = ranked(wanted, reply, len(session_ids))
        undone = await self._undone({hit.session_id for hit in hits})
        found: list[MessageRecord] = []
        for at in range(0, len(hits), max(limit, 1)):
            reads: list[Command] = [
                ("ZRANGEBYSCORE", key("log", hit.session_id), hit.seq, hit.seq) for hit in hits[at : at + limit]
            ]
            for hit, log in zip(hits[at : at + limit], await self._client.many(reads), strict=True):
                said_ = [m for m in messages_of(hit.session_id, map(unpacked, log)) if m.seq == hit.seq]
                # Parts of a word need not stand side by side in what the index finds.
                found += [m for m in said_ if has_any(wanted, m.content) and m.turn not in undone[m.session_id]]
            if len(found) >= limit:
                break
        return found[:limit]

    async def export_log(self, session_id: str, after: int, limit: int) -> list[LogEntry]:
        reads: list[Command] = [
            ("ZRANGEBYSCORE", key(kind, session_id), f"({after}", "+inf", "LIMIT", 0, limit)
            for kind in ("log", "deltas")
        ]  # fmt: skip
        log, deltas, rows, aside = await self._client.many(
            [*reads, ("HGETALL", key("recordings", session_id)), ("HVALS", key("aside", session_id))]
        )
        page = sorted(map(unpacked, [*log, *deltas]), key=lambda entry: entry.seq)[:limit]
        if not page:
            return []
        without = {field for text in aside for field in Aside.model_validate_json(text).fields}
        queue = [RecordingRecord.model_validate_json(text) for field, text in rows.items() if field not in without]
        mine = [row for row in queue if after < row.seq <= page[-1].seq]
        mine.sort(key=lambda row: (row.seq, row.kind, row.agent_id or ""))
        return entries([{"seq": e.seq, "turn": e.turn, "payload": e.payload} for e in page], mine)

    async def _undone(self, session_ids: Iterable[str]) -> dict[str, frozenset[int]]:
        """The turns of each session that were taken back."""
        names = list(session_ids)
        heads = await self._client.many([("HGET", key("session", name), "head") for name in names])
        nothing = frozenset[int]()
        return {
            name: nothing if head is None else Head.model_validate_json(head).undone
            for name, head in zip(names, heads, strict=True)
        }

    async def _kept_turns(self, session_id: str) -> list[tuple[int, TurnRow]]:
        """In order, without those that were trimmed."""
        first, known = await self._client.many(
            [("ZRANGE", key("log", session_id), 0, 0), ("HGETALL", key("turns", session_id))]
        )
        oldest = unpacked(first[0]).seq if first else 0
        rows = ((int(turn), TurnRow.model_validate_json(text)) for turn, text in known.items())
        kept = [(turn, row) for turn, row in rows if first and row.question_seq >= oldest]
        return sorted(kept, key=lambda each: each[0])

    async def _log(self, session_id: str, after: int, page: int) -> AsyncGenerator[list[Entry]]:
        """The log without deltas, in pages."""
        while True:
            command = ("ZRANGEBYSCORE", key("log", session_id), f"({after}", "+inf", "LIMIT", 0, page)
            log = [unpacked(member) for member in await self._client.run(*command)]
            if log:
                yield log
                after = log[-1].seq
            if len(log) < page:
                return

    async def _turn(self, session_id: str, turn: int) -> tuple[list[Entry], list[Aside]]:
        """Its events, and what was set aside of it."""
        before, aside = await self._client.many(
            [("HGET", key("turns", session_id), turn - 1), ("HVALS", key("aside", session_id))]
        )
        # What comes before the question, such as notices, comes after that of the turn before.
        start = 0 if before is None else TurnRow.model_validate_json(before).question_seq
        found: list[Entry] = []
        async with aclosing(self._log(session_id, start, _PAGE)) as pages:
            async for page in pages:
                mine = [entry for entry in page if entry.turn == turn]
                found += mine
                if found and not mine:
                    break
        return found, [Aside.model_validate_json(text) for text in aside]

    async def _with_texts(self, session_id: str, rows: Sequence[tuple[int, TurnRow]]) -> list[TurnRecord]:
        reads: list[Command] = [
            ("ZRANGEBYSCORE", key("log", session_id), seq, seq)
            for _, row in rows
            for seq in (row.question_seq, row.answer_seq or 0)
        ]  # fmt: skip
        texts = [_text(session_id, log) for log in await self._client.many(reads)]
        return [
            turn_record(session_id, turn, row, question, texts[2 * i + 1])
            for i, (turn, row) in enumerate(rows)
            if (question := texts[2 * i]) is not None
        ]

    async def _places(self, wanted: Iterable[tuple[str, int]]) -> dict[str, set[int]]:
        seqs: dict[str, set[int]] = {}
        for hash_, seq in wanted:
            seqs.setdefault(hash_, set()).add(seq)
        names = await self._client.many([("GET", id_key(hash_)) for hash_ in seqs])
        return {name: of for name, of in zip(names, seqs.values(), strict=True) if name is not None}

    async def _at(self, session_id: str, seqs: set[int]) -> list[MessageRecord]:
        # Reasoning stands one before the event that it belongs to.
        reads: list[Command] = [("ZRANGEBYSCORE", key("log", session_id), seq, seq + 1) for seq in sorted(seqs)]
        *logs, aside = await self._client.many([*reads, ("HVALS", key("aside", session_id))])
        found = [m for log in logs for m in messages_of(session_id, map(unpacked, log)) if m.seq in seqs]
        kept = [m.message for text in aside for m in Aside.model_validate_json(text).messages]
        return [*found, *(m for m in kept if m.seq in seqs)]


def _text(session_id: str, log: Sequence[Any]) -> str | None:
    """Of the message that is the event itself."""
    found = [each.message for member in log for each in said(session_id, unpacked(member))]
    return found[-1].content if found else None
