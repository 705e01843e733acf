"""A session's log as Redis keeps it, and its messages and turns, which are read from it by the common projection."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from massmem.events import EVENT, Event
from massmem.records import MessageRecord, SessionRecord, TurnRecord, TurnStatus
from massmem.store import changes, projection


class Head(BaseModel):
    """What is known of a session without its log.

    seq, position: the last that were given. turns: number of the last turn. said: messages of the conversation.
    newest: messages of the last turn, and pinned: of the others that are never trimmed. confidence, escalated: of the
    last answer. pending, done, failed: rows of the queue. undone: turns that were taken back.
    """

    session: SessionRecord
    seq: int = 0
    position: int = -1
    turns: int = 0
    said: int = 0
    newest: int = 0
    pinned: int = 0
    confidence: float | None = None
    escalated: bool = False
    pending: int = 0
    done: int = 0
    failed: int = 0
    undone: frozenset[int] = frozenset()


class TurnRow(BaseModel):
    """A row of turns, with what the next events of the turn are read by.

    begun: when it was begun or last taken up. spoke: seq of each agent's last message. extracted: up to which seq
    the extraction of facts was queued. requests: seq of
    what was asked, by the name under which it was.
    """

    status: TurnStatus
    question_seq: int
    answer_seq: int | None = None
    winner: str | None = None
    seed: int
    started_at: datetime
    ended_at: datetime | None = None
    begun: datetime | None = None
    spoke: dict[str, int] = {}
    extracted: int | None = None
    requests: dict[str, int] = {}


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of the log. seconds: how long the user waited for this answer, when it is one."""

    seq: int
    turn: int
    seconds: float | None
    payload: str

    def event(self) -> Event:
        return EVENT.validate_json(self.payload)


@dataclass(frozen=True, slots=True)
class Said:
    """A message, and whether it is an answer that an agent submitted."""

    message: MessageRecord
    answer: bool


def packed(entry: Entry) -> str:
    seconds = "" if entry.seconds is None else repr(entry.seconds)
    return f"{entry.seq}\0{entry.turn}\0{seconds}\0{entry.payload}"


def unpacked(member: str) -> Entry:
    seq, turn, seconds, payload = member.split("\0", 3)
    return Entry(int(seq), int(turn), float(seconds) if seconds else None, payload)


def said(session_id: str, entry: Entry) -> list[Said]:
    """The messages that an event is."""
    messages: list[MessageRecord] = []
    answers: set[int] = set()
    for operation in projection.project(session_id, entry.turn, entry.seq, entry.event()):
        match operation:
            case changes.Insert("chat_messages", row):
                if row["final"] and entry.seconds is not None:
                    row["metadata"]["response_time"] = entry.seconds
                messages.append(MessageRecord(**row))
            case changes.Insert("answers", row):
                answers.add(row["seq"])
            case _:
                pass
    return [Said(message, message.seq in answers) for message in messages]


def messages_of(session_id: str, entries: Iterable[Entry]) -> list[MessageRecord]:
    return [each.message for entry in entries for each in said(session_id, entry)]


def turn_record(session_id: str, number: int, row: TurnRow, question: str, answer: str | None) -> TurnRecord:
    fields = row.model_dump(include={"status", "winner", "seed", "started_at", "ended_at"})
    return TurnRecord(session_id=session_id, turn=number, question=question, answer=answer, **fields)


def is_loose(entry: Entry, event: Event) -> bool:
    """Whether it stands for itself: nothing of a turn is read by it, and the turn can be taken up without it."""
    return entry.turn == 0 or event.type == "message_added" or (event.type == "tool_returned" and event.round == 0)
