"""Memories as points of an index: their ids and payloads; and which points say a statement. Pure.

An id is derived from what is stored, so that storing it again stores it once. Below 2**62: passages, 40 bits for the
session and 22 for the position, so that passages that follow each other have ids that differ by one. From 2**62 to
2**63: facts. All fit a signed 64-bit column.

What a memory claims stands in its payload, so that both are written, forgotten and rebuilt as one: `claims`, and the
`topics` of these, by which the index finds them; with a fact also `stated_in`, the messages that it was read from.

`origin` is a list, so that one key finds who said it, and what rests on any tool, or on one:
`["agent", "tool", "tool:fetch"]`, or on the web: `["agent", "web"]`. The result of a tool has its `call`, and once for
all who got it in a turn. `frame` is the note of what claims nothing.

What the user changed is noted in `changes` (ids of messages), `edited_at`, `pin` (of a standing wish
from the beginning) and `pin_at`, `global` and `scope_at`.

A payload has mem0's field names, so that mem0's adapter reads the same collection. `f` holds the numbers that ranking
needs: position in the session, number of the message, flags, content words, tokens of the text as it is shown, and the
ordinal of its day. `seen` and `at` are keys for the index: who may see it (massmem.memory.access), and its second.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import blake2b, md5
from typing import Any

from massmem.memory.access import read_project, reader_keys
from massmem.memory.claims import find_topic
from massmem.memory.frames import find_wishes
from massmem.memory.index import ALL_POINTS, PINNED, WISH, Index, Payloads, matching, second_of
from massmem.memory.origins import AGENT, OUTSIDE, TOOL, WEB
from massmem.memory.persistent import USER, Claim, Episode, Fact, Kind, Memory, MemoryChange, Selection
from massmem.memory.quoting import FROM_OUTSIDE, NOT_CHOSEN, STANDING_WISH, quote_text
from massmem.memory.words import build_query_vector, extract_query_forms, has_time, is_question

POSITION_BITS = 22
MOST_PASSAGES = 1 << POSITION_BITS
"""Of one session."""

FIRST_FACT = 1 << 62

USER_ID = "massmem"
"""mem0 wants a user; here sessions and agents tell memories apart."""

ASKS, HAS_TIME = 1, 2
"""Flags: the text is a question, it names a time."""

_BALLOT = 4
"""Flag of earlier builds."""

CountTokens = Callable[[str], int]


def session_base(session_id: str, attempt: int) -> int:
    """Return the id of the session's first passage. attempt: counts up while another session has that id."""
    return _number(40, session_id, str(attempt)) << POSITION_BITS


def base_of(passage_id: int) -> int:
    """Return the id of the first passage of the same session."""
    return passage_id >> POSITION_BITS << POSITION_BITS


def fact_id(fact: Fact, text: str) -> int:
    """Return the same id for a fact that its agent states again; for a claim only when it is from the same messages.

    A claim that is made again may hold again: each time counts. text: of the fact, normalised.
    """
    sources = sorted(fact.message_ids) if fact.claim else ()
    return FIRST_FACT | _number(62, fact.session_id, fact.agent_id, text, *sources)


def message_number(message_id: str) -> int:
    """Return a number that stands for a message's id."""
    return _number(62, message_id)


def result_number(call: str, text: str) -> int:
    """Return a number that stands for a passage of what a call gave back."""
    return _number(62, call, text)


def passage_payload(
    episode: Episode,
    text: str,
    word_count: int,
    position: int,
    count: CountTokens,
    *,
    claims: Sequence[Claim] = (),
) -> dict[str, Any]:
    """Return the payload of a passage. word_count: content words. position: among the passages of the session."""
    flags, *counts = _numbers(text, word_count, "episode", count)
    numbers = [position, episode.position, flags, *counts, episode.created_at.toordinal()]
    return {
        "kind": "episode",
        "message_ids": [episode.message_id],
        "f": numbers,
        **({"call": episode.call} if episode.call else {}),
        **({"lost": True} if episode.lost else {}),
        **_common_fields(episode, text),
        **_claim_fields(claims),
    }


def fact_payload(fact: Fact, word_count: int, count: CountTokens) -> dict[str, Any]:
    """Return the payload of a fact. word_count: content words."""
    numbers = [0, 0, *_numbers(fact.text, word_count, "fact", count), fact.created_at.toordinal()]
    claims = _claim_fields([fact.claim] if fact.claim else ())
    if fact.claim:
        claims["stated_in"] = [*fact.message_ids]
    return {
        "kind": "fact",
        "message_ids": [*fact.message_ids],
        "f": numbers,
        **_common_fields(fact, fact.text),
        **({"used": True} if fact.used else {}),
        **({"turns": [*fact.turns]} if fact.turns else {}),
        **claims,
    }


def add_keys(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload as it is stored: with `seen` and `at`."""
    time = datetime.fromisoformat(payload["created_at"])
    return {**payload, "seen": reader_keys(payload), "at": second_of(time)}


def renew(payload: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the payload of a point that an earlier build stored as this one stores it; None: a ballot, no memory."""
    if payload["f"][2] & _BALLOT or payload["data"].startswith("[Tool Call: vote]"):
        return None
    origin = payload.get("origin") or [USER if payload["agent_id"] == USER else AGENT]
    return add_keys({**payload, "origin": [AGENT, *origin] if origin[0] == TOOL else origin})


def to_memory(point_id: int, payload: Mapping[str, Any], score: float = 0.0) -> Memory:
    return Memory(
        id=str(point_id),
        kind=payload["kind"],
        session_id=payload["run_id"],
        turn=payload["turn"],
        agent_id=payload["agent_id"],
        text=payload["data"],
        message_ids=tuple(payload["message_ids"]),
        created_at=datetime.fromisoformat(payload["created_at"]),
        score=score,
        group=payload.get("group", ""),
        project=read_project(payload),
        note=_find_note(payload),
        claims=_read_claim_fields(payload),
        origin=read_origin(payload)[0],
        rests_on=read_origin(payload)[1],
        call=payload.get("call", ""),
        callers=tuple(payload.get("callers", ())),
        edited_at=_read_time(payload, "edited_at"),
        is_pinned=bool(payload.get("pin")),
        is_global=payload.get("global", False),
        changes=tuple(payload.get("changes", ())),
        turns=tuple(payload.get("turns", ())),
    )


def apply_change(
    payload: Mapping[str, Any], change: MemoryChange, word_count: int, count: CountTokens, claims: Sequence[Claim]
) -> dict[str, Any]:
    """Return the payload after a change. word_count: content words of its text. claims: what its text says holds.

    A change that is older than the last one of its kind, which another process has carried out, is only noted.
    """
    new = {**payload, "changes": [*payload.get("changes", ()), change.id]}
    field = {"edit": "edited_at", "promote": "scope_at", "demote": "scope_at"}.get(change.action, "pin_at")
    last = _read_time(payload, field)
    if last is not None and last > change.created_at:
        return new
    new[field] = change.created_at.isoformat()
    if field == "scope_at":
        return new | {"global": change.action == "promote"}
    if change.action != "edit":
        return new | {"pin": [PINNED] if change.action == "pin" else []}
    for name in ("call", "frame", "claims", "topics", "stated_in"):  # what it was says nothing of the new text
        new.pop(name, None)
    position, message, _, _, _, day = payload["f"]
    flags, *counts = _numbers(change.text, word_count, payload["kind"], count)
    if new.get("pin") in (None, [WISH]):
        new["pin"] = [WISH] if find_wishes(change.text) else []
    new |= {"f": [position, message, flags, *counts, day], "origin": [USER]}
    return new | _text_fields(change.text) | _claim_fields(claims)


def copy_outside(point_id: str, payload: Mapping[str, Any]) -> Fact | None:
    """Return what a program with mem0 wrote as a fact that all agents may see; None: it has no text."""
    text, time = payload.get("data"), payload.get("created_at")
    if not isinstance(text, str) or not text.strip():
        return None
    try:
        created_at = datetime.fromisoformat(str(time))
    except ValueError:
        created_at = datetime.now(UTC)
    return Fact(
        session_id=str(payload.get("run_id") or OUTSIDE),
        turn=0,
        agent_id=str(payload.get("agent_id") or "mem0"),
        text=text,
        message_ids=(point_id,),
        created_at=created_at if created_at.tzinfo else created_at.replace(tzinfo=UTC),
        won=True,
        origin=OUTSIDE,
    )


def to_fact(payload: Mapping[str, Any]) -> Fact:
    return Fact(
        session_id=payload["run_id"],
        turn=payload["turn"],
        agent_id=payload["agent_id"],
        text=payload["data"],
        message_ids=tuple(payload["message_ids"]),
        created_at=datetime.fromisoformat(payload["created_at"]),
        won=payload["won"],
        group=payload.get("group", ""),
        project=payload.get("project", ""),
        claim=next(iter(_read_claim_fields(payload)), None),
        used=payload.get("used", False),
        turns=tuple(payload.get("turns", ())),
        origin=read_origin(payload)[0],
        rests_on=read_origin(payload)[1],
    )


def share_result(payload: Mapping[str, Any], episode: Episode) -> dict[str, Any]:
    """Return the fields in which the passage of a result changes when its call gives the same once more.

    It is in the same turn, or everybody may see it. Who got it in one turn share it; the winner's name stands on it.
    """
    ids = [*dict.fromkeys([*payload["message_ids"], episode.message_id])]
    if payload["won"]:
        return {"message_ids": ids}
    callers = [*dict.fromkeys([*payload.get("callers", ()), episode.agent_id])]
    fields = {"message_ids": ids, "callers": [name for name in callers if name != payload["agent_id"]]}
    return fields | (name_winner({**payload, **fields}, episode.agent_id) if episode.won else {})


def name_winner(payload: Mapping[str, Any], winner: str) -> dict[str, Any]:
    """Return the fields in which a payload changes when an agent that got it wins its turn."""
    fields: dict[str, Any] = {"won": True}
    if callers := payload.get("callers"):
        others = [name for name in (payload["agent_id"], *callers) if name != winner]
        fields |= {"agent_id": winner, "callers": others}
    return fields


def read_origin(payload: Mapping[str, Any]) -> tuple[str, str]:
    """Return origin and rests_on."""
    origins: Sequence[str] = payload["origin"]
    return origins[0], origins[-1] if len(origins) > 1 else ""


def _number(bits: int, *parts: str) -> int:
    digest = blake2b("\0".join(parts).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> (64 - bits)


def _claim_fields(claims: Sequence[Claim]) -> dict[str, Any]:
    if not claims:
        return {}
    rows = [[claim.subject, claim.attribute, claim.value, claim.by] for claim in claims]
    return {"claims": rows, "topics": list(dict.fromkeys(map(find_topic, claims)))}


def _read_claim_fields(payload: Mapping[str, Any]) -> tuple[Claim, ...]:
    return tuple(Claim(*row) for row in payload.get("claims", ()))


def _find_note(payload: Mapping[str, Any]) -> str:
    if payload.get("lost"):
        return NOT_CHOSEN
    if WISH in payload.get("pin", ()):
        return STANDING_WISH
    return FROM_OUTSIDE if read_origin(payload)[0] == OUTSIDE else payload.get("frame", "")


def _write_origin(source: Episode | Fact) -> list[str]:
    origin = source.origin or (USER if source.agent_id == USER else AGENT)
    if source.rests_on == WEB:
        return [origin, WEB]
    return [origin, TOOL, source.rests_on] if source.rests_on else [origin]


def _common_fields(source: Episode | Fact, text: str) -> dict[str, Any]:
    return {
        **_text_fields(text),
        "user_id": USER_ID,
        "run_id": source.session_id,
        "agent_id": source.agent_id,
        "turn": source.turn,
        "group": source.group,
        **({"project": source.project} if source.project else {}),
        "won": source.won,
        "created_at": source.created_at.isoformat(),
        "origin": _write_origin(source),
    }


def _text_fields(text: str) -> dict[str, str]:
    return {
        "data": text,
        "hash": md5(text.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest(),
    }


def _read_time(payload: Mapping[str, Any], field: str) -> datetime | None:
    return datetime.fromisoformat(payload[field]) if field in payload else None


def _numbers(text: str, word_count: int, kind: Kind, count: CountTokens) -> tuple[int, int, int]:
    flags = (ASKS if is_question(text) else 0) | (HAS_TIME if has_time(text) else 0)
    return flags, word_count, count(f" {quote_text(text, kind)}")


_BY_WORDS = 10_000
"""Memories that are looked at for each statement, those that share most words with it."""


@dataclass(frozen=True, slots=True)
class StatementQuery:
    statements: Sequence[str]
    is_said_in: Callable[[str], bool]
    """Whether a text says one of the statements."""
    among: Selection
    message_ids: tuple[str, ...] = ()
    """Passages of these messages are meant as well, whatever they say."""


def find_statements(index: Index, query: StatementQuery) -> list[Memory]:
    """Return the memories that say a statement, or are of one of the messages. Raises MemoryUnavailable."""
    points = dict(
        point for statement in query.statements for point in find_by_words(index, statement, query.among, _BY_WORDS)
    )
    memories = [to_memory(point_id, payload) for point_id, payload in points.items()]
    meant = {memory.id: memory for memory in memories if any(map(query.is_said_in, (memory.text, memory.call)))}
    if query.message_ids:
        of_messages = replace(query.among, message_ids=query.message_ids, kind="episode")
        passages = [to_memory(*point) for point in index.page(of_messages, ALL_POINTS)]
        meant |= {memory.id: memory for memory in passages}
    return [*meant.values()]


def find_by_words(index: Index, text: str, among: Selection, limit: int) -> Payloads:
    """Return what shares words with a text, best first; everything when the text has no word to look for."""
    words = build_query_vector(extract_query_forms(text))
    if not words:
        return index.page(among, ALL_POINTS)
    ids = [point_id for point_id, _ in index.search_words(words, matching(among), limit)]
    payloads = index.read_payloads(ids)
    return [(point_id, payloads[point_id]) for point_id in ids if point_id in payloads]
