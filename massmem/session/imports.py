"""Makes sessions of the conversations that other programs export.

Formats, as their programs write them in 2026:
- ChatGPT: `conversations.json`, a list of conversations; `mapping` is a tree of messages, `current_node` its open end.
- Claude: `conversations.json`, a list of conversations with `chat_messages`.
- massmem: `sessions export --format json`, with `turns`.
- messages: a list of `{"role": ..., "content": ...}`, as the APIs take them, in JSON or one a line (JSONL).
- MassGen: folders `.massgen/sessions/ID/turn_N` with `metadata.json` and `answer.txt`, one turn each. It has no export.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

from massmem.core.errors import InputError, SessionBusyError, SessionExistsError
from massmem.core.events import (
    AnswerSubmitted,
    Event,
    RoundStarted,
    TurnCompleted,
    TurnStarted,
    WinnerDecided,
    now,
)
from massmem.core.ids import MAX_NAME_LENGTH, SESSION_ID
from massmem.core.messages import Usage, clean_text
from massmem.core.records import Owner, SessionRecord
from massmem.session.lease import ProcessLock, hold_lease
from massmem.session.owners import public_session_id, to_stored_id
from massmem.store.ports import SessionStore

Source = Literal["chatgpt", "claude", "massmem", "assistant"]
"""Who answered, where the export does not say: the agent's id in the session."""

WITHOUT_FACTS = "imported without facts"
_MAX_BYTES = 2 << 30
_MAX_ID_LENGTH = 100
"""Characters; clients of the service cannot name sessions with longer ones."""
_NO_COST = Usage(requests=0)
_MASSGEN_TURN = re.compile(r"turn_[0-9]{1,9}")
_KNOWN = "known are exports of ChatGPT and Claude (conversations.json), of massmem, and lists of messages"


@dataclass(frozen=True, slots=True)
class ImportedTurn:
    question: str
    answer: str
    agent: str
    """Who answered."""
    time: datetime | None = None


@dataclass(frozen=True, slots=True)
class ImportedConversation:
    session_id: str
    """The same in every export of the conversation."""
    title: str
    turns: tuple[ImportedTurn, ...]


@dataclass(frozen=True, slots=True)
class ImportResult:
    session_id: str
    title: str
    added: int
    """Turns that were not there yet."""
    turns: int
    """Of the export."""
    conflict: bool = False
    """The session has gone on in another way here, and was left as it is."""
    busy: bool = False
    """A turn of the session is under way, and it was left as it is."""


def read_conversations(path: Path) -> list[ImportedConversation]:
    """Return the conversations of an export, or of a folder of MassGen, that have a question and an answer.

    path: a file, a session of MassGen, a folder of such sessions, or the folder that MassGen ran in.

    Raises InputError: the path cannot be read, or is none of the known exports.
    """
    if path.is_dir():
        return _read_massgen(path)
    return parse_conversations(_read_text(path), path.stem, str(path))


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"{path} is larger than 2 GB", "split it, or import the conversations one by one")
        return path.read_text(encoding="utf-8-sig")
    except OSError as e:
        raise InputError(f"{path} cannot be read: {e.strerror or e}", "name the file of an export") from e
    except UnicodeDecodeError as e:
        raise InputError(f"{path} is no text", "unpack an archive first: conversations.json is inside") from e


def parse_conversations(text: str, name: str, file: str) -> list[ImportedConversation]:
    """Return the conversations in the text of an export that have a question and an answer.

    name: of the export, without a suffix: tells lists of messages apart. file: as messages call it.

    Raises InputError: the text is none of the known exports.
    """
    try:
        conversations = [one for one in _list_conversations(_parse(text, file), name) if one.turns]
    except RecursionError as e:
        raise _depth_error(file) from e
    if not conversations:
        raise InputError(f"{file} has no conversation with a question and an answer", _KNOWN)
    return conversations


@dataclass(frozen=True, slots=True)
class ImportTarget:
    """Where conversations are imported to."""

    store: SessionStore
    process: ProcessLock
    """Of the process that imports."""
    owner: Owner
    """Whose sessions they become."""
    group: str = ""
    """As `SessionRecord.memory_group`."""
    facts: bool = False
    """A model extracts facts of every turn later, where one is configured; else turns are remembered word for word."""


async def import_conversation(target: ImportTarget, conversation: ImportedConversation) -> ImportResult:
    """Store a conversation as a session, or what was added to it since the last import.

    It can be killed at any time and repeated: what is there is not stored again.

    Raises StoreError.
    """
    store, total = target.store, len(conversation.turns)
    result = ImportResult(conversation.session_id, conversation.title, 0, total)
    session_id = to_stored_id(target.owner, conversation.session_id)
    if not await _create_session(target, conversation, session_id):
        return replace(result, conflict=True)
    try:
        async with hold_lease(store, target.process, session_id):
            stored = await store.list_turns(session_id, 0, total)
            if any(record.question != turn.question for record, turn in zip(stored, conversation.turns, strict=False)):
                return replace(result, conflict=True)
            missing = conversation.turns[len(stored) :]
            for number, turn in enumerate(missing, len(stored) + 1):
                await store.append(session_id, number, _build_events(session_id, number, turn))
            if not target.facts:
                extractions = await store.list_due_recordings("extract", total, session_id)
                await store.finish_recordings([job for job in extractions if job.turn <= total], WITHOUT_FACTS)
    except SessionBusyError:
        return replace(result, busy=True)
    return replace(result, added=len(missing))


async def _create_session(target: ImportTarget, conversation: ImportedConversation, session_id: str) -> bool:
    """Create the session unless it is there. Return whether it can be added to: it is the owner's, and stays."""
    store = target.store
    if await store.get_session(session_id) is None:
        changes = {"session_id": session_id, "user_id": target.owner.user_id, "memory_group": target.group}
        with suppress(SessionExistsError):  # another import was faster
            await store.create_session(_make_record(conversation).model_copy(update=changes))
    session = await store.get_session(session_id)
    return session is not None and session.owner == target.owner and session.status != "deleting"


def _build_events(session_id: str, number: int, turn: ImportedTurn) -> list[Event]:
    """Return the events of a turn in which one agent was asked."""
    time, agent = turn.time or now(), turn.agent
    return [
        TurnStarted(
            imported=True, at=time, session_id=session_id, turn=number, question=turn.question, agents=(agent,), seed=0
        ),
        RoundStarted(at=time, round=1, agents=(agent,)),
        AnswerSubmitted(imported=True, at=time, agent_id=agent, round=1, number=1, content=turn.answer, usage=_NO_COST),
        WinnerDecided(at=time, agent_id=agent, votes={}, by="only_answer"),
        TurnCompleted(imported=True, at=time, winner=agent, answer=turn.answer, presented=False, usage=_NO_COST),
    ]


def _make_record(conversation: ImportedConversation) -> SessionRecord:
    times = [turn.time for turn in conversation.turns if turn.time is not None]
    return SessionRecord(
        session_id=conversation.session_id,
        title=conversation.title,
        model=conversation.turns[0].agent,
        description=conversation.title,
        created_at=min(times, default=now()),
        updated_at=max(times, default=now()),
    )


def _depth_error(file: str) -> InputError:
    return InputError(f"{file} is nested too deeply", _KNOWN)


def _parse(text: str, file: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError as e:
        raise _depth_error(file) from e
    except ValueError:  # also for numbers with thousands of digits
        pass
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except ValueError as e:
        raise InputError(f"{file} is neither JSON nor JSON lines", _KNOWN) from e


def _list_conversations(data: Any, name: str) -> Iterator[ImportedConversation]:
    """Yield the conversations in the JSON of an export. name: of the file."""
    match data:
        case {"conversations": [*conversations]}:
            yield from _list_conversations(conversations, name)
        case [{"role": _}, *_]:
            yield _read_messages({"messages": data}, name)
        case [*conversations]:
            for conversation in conversations:
                yield from _read_conversation(_as_object(conversation), name)
        case _:
            yield from _read_conversation(_as_object(data), name)


def _read_conversation(conversation: Mapping[str, Any], name: str) -> Iterator[ImportedConversation]:
    """Yield the conversation, or nothing when its form is not known."""
    if "mapping" in conversation:
        yield _read_chatgpt(conversation)
    elif "chat_messages" in conversation:
        yield _read_claude(conversation)
    elif "turns" in conversation:
        yield _read_massmem(conversation)
    elif "messages" in conversation:
        yield _read_messages(conversation, name)


def _read_chatgpt(conversation: Mapping[str, Any]) -> ImportedConversation:
    """Follow the branch that is open in the program; messages of other branches were replaced there."""
    mapping = _as_object(conversation["mapping"])
    branch: list[tuple[str, str, datetime | None]] = []
    node_id, visited = conversation.get("current_node"), set[str]()
    while isinstance(node_id, str) and node_id not in visited:
        visited.add(node_id)
        node = _as_object(mapping.get(node_id))
        message = _as_object(node.get("message"))
        content = _as_object(message.get("content"))
        texts = [part for part in _as_list(content.get("parts")) if isinstance(part, str)]
        if content.get("content_type") in ("text", "multimodal_text"):
            role = str(_as_object(message.get("author")).get("role"))
            branch.append((role, "\n".join(texts), _read_time(message.get("create_time"))))
        node_id = node.get("parent")
    key = conversation.get("conversation_id") or conversation.get("id") or json.dumps(mapping, sort_keys=True)
    return _build(f"chatgpt:{key}", conversation.get("title"), reversed(branch), "chatgpt")


def _read_claude(conversation: Mapping[str, Any]) -> ImportedConversation:
    messages = _as_list(conversation["chat_messages"])
    exchanged: list[tuple[str, str, datetime | None]] = []
    for message in map(_as_object, messages):
        role = "user" if message.get("sender") == "human" else str(message.get("sender"))
        exchanged.append((role, _read_content(message), _read_time(message.get("created_at"))))
    key = conversation.get("uuid") or json.dumps(messages, sort_keys=True)
    return _build(f"claude:{key}", conversation.get("name"), exchanged, "claude")


def _read_massmem(export: Mapping[str, Any]) -> ImportedConversation:
    """Read an export of massmem. The session keeps its id, whosever it was, unless it cannot be one."""
    session = _as_object(export.get("session"))
    turns = tuple(filter(None, map(_read_turn, map(_as_object, _as_list(export["turns"])))))
    session_id = session.get("session_id")
    if isinstance(session_id, str):
        session_id = public_session_id(session_id)
        if len(session_id) > _MAX_ID_LENGTH or not SESSION_ID.fullmatch(session_id):
            session_id = _make_id(f"massmem:{session_id}")
        return ImportedConversation(session_id, _make_title(session.get("title"), turns), turns)
    return ImportedConversation(_make_id(json.dumps(export["turns"])), _make_title(None, turns), turns)


def _read_turn(turn: Mapping[str, Any]) -> ImportedTurn | None:
    match turn:
        case {"question": str(question), "answer": str(answer)} if question.strip() and answer.strip():
            agent = clean_text(str(turn.get("winner") or "massmem"))[:_MAX_ID_LENGTH]
            return ImportedTurn(clean_text(question), clean_text(answer), agent, _read_time(turn.get("started_at")))
        case _:
            return None


def _read_massgen(folder: Path) -> list[ImportedConversation]:
    """Read the sessions that MassGen left in a folder. Raises InputError: there is none, or a file is damaged."""
    for sessions in (folder, folder / "sessions", folder / ".massgen" / "sessions"):
        candidates = map(_read_massgen_session, [sessions, *_list_folders(sessions)])
        if conversations := [candidate for candidate in candidates if candidate.turns]:
            return conversations
    raise InputError(f"{folder} has no session of MassGen with an answer", "name .massgen/sessions, or a session in it")


def _read_massgen_session(folder: Path) -> ImportedConversation:
    numbered = [(int(turn.name[5:]), turn) for turn in _list_folders(folder) if _MASSGEN_TURN.fullmatch(turn.name)]
    session_id, turns = folder.resolve().name, list[ImportedTurn]()
    for _, turn in sorted(numbered):
        # The answer is written before its metadata: a turn that was cut off has none, and MassGen writes it again.
        if not (turn / "metadata.json").exists() or not (turn / "answer.txt").exists():
            continue
        metadata = _as_object(_parse(_read_text(turn / "metadata.json"), str(turn / "metadata.json")))
        session_id = str(metadata.get("session_id") or session_id)
        answer, time = _read_text(turn / "answer.txt"), _read_time(metadata.get("timestamp"), zone=None)
        record = {"question": metadata.get("task"), "answer": answer, "winner": metadata.get("winning_agent")}
        if imported := _read_turn(record):
            turns.append(replace(imported, time=time))
    return ImportedConversation(_make_id(f"massgen:{session_id}"), _make_title(None, turns), tuple(turns))


def _list_folders(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    except OSError as e:
        raise InputError(f"{folder} cannot be read: {e.strerror or e}", "name a folder that you may read") from e


def _read_messages(conversation: Mapping[str, Any], name: str) -> ImportedConversation:
    messages = list(map(_as_object, _as_list(conversation["messages"])))
    first = json.dumps(messages[:1], sort_keys=True)  # files are renamed and copied: the beginning tells them apart
    key = conversation.get("id") or conversation.get("session_id") or name
    exchanged = [
        (str(message.get("role")), _read_content(message), _read_time(message.get("timestamp"))) for message in messages
    ]
    return _build(f"messages:{key}:{first}", conversation.get("title"), exchanged, "assistant")


def _build(
    key: str, title: Any, messages: Iterable[tuple[str, str, datetime | None]], agent: Source
) -> ImportedConversation:
    """Pair what the user wrote with the answers below it. Tools' and system messages are left out."""
    turns: list[ImportedTurn] = []
    questions: list[str] = []
    answers: list[str] = []
    asked_at: datetime | None = None

    def end_turn() -> None:
        if questions and answers:
            question, answer = (clean_text("\n\n".join(texts)) for texts in (questions, answers))
            turns.append(ImportedTurn(question, answer, agent, asked_at))
            questions.clear()
        answers.clear()

    for role, text, time in messages:
        if role == "user" and text.strip():
            end_turn()
            asked_at = asked_at if questions else time
            questions.append(text.strip())
        elif role in ("assistant", "agent", "model") and text.strip():
            answers.append(text.strip())
    end_turn()
    return ImportedConversation(_make_id(key), _make_title(title, turns), tuple(turns))


def _make_id(key: str) -> str:
    """Return the id of a session. key: what the program calls the conversation."""
    return f"import_{sha256(key.encode(errors='surrogatepass')).hexdigest()[:16]}"


def _make_title(title: Any, turns: Sequence[ImportedTurn]) -> str:
    text = title if isinstance(title, str) and title.strip() else turns[0].question if turns else ""
    return " ".join(text.split())[:MAX_NAME_LENGTH]


def _read_content(message: Mapping[str, Any]) -> str:
    """Return the text of a message: a string, or the texts among its parts."""
    for value in (message.get("text"), message.get("content")):
        if isinstance(value, str) and value.strip():
            return value
        texts = [part.get("text") for part in map(_as_object, _as_list(value))]
        if joined := "\n".join(text for text in texts if isinstance(text, str)):
            return joined
    return ""


def _read_time(value: Any, zone: tzinfo | None = UTC) -> datetime | None:
    """Return a time that is given in seconds since 1970 or in ISO 8601; None for anything else, and for the future.

    zone: of a time that names none; None: this machine's.
    """
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            value = (time if time.tzinfo else time.replace(tzinfo=zone)).timestamp()
        if isinstance(value, int | float) and 0 <= value <= now().timestamp():
            return datetime.fromtimestamp(value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None


def _as_object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []  # pyright: ignore[reportUnknownVariableType]
