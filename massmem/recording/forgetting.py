"""Forgetting for good: memories leave every index and the queue, and statements leave texts.

Whoever forgets memories alone (`forget_memories`) leaves the log as it is. `massmem.session.erasure` takes statements
out of the log, too. `massmem.session.sessions` deletes whole sessions, with what is remembered of them
(`open_session_eraser`).
"""

import asyncio
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from massmem.config.models import MemoryConfig
from massmem.core.calls import parse_json
from massmem.core.errors import IndexDamaged, InputError, MemoryUnavailable, UnknownMemoryError
from massmem.core.records import LogEntry, MessageRecord
from massmem.core.redact import map_texts
from massmem.memory import open_memory
from massmem.memory.extraction.facts import STEM, find_telling_words, normalize_fact
from massmem.memory.opening import IndexFolders, erase_in_other_indexes, index_root
from massmem.memory.persistent import QUEUED, Memory, Selection, find_ids, is_short_id, shorten_id
from massmem.memory.words import count_unspaced, find_sentences, split_sentences
from massmem.store.ports import SessionStore

if TYPE_CHECKING:
    from massmem.memory.indexed import IndexedMemory

T = TypeVar("T")

# Which texts say the same

SAME_WORDS = 0.7
"""Two statements are the same when they share this part of the words of the longer one."""


def fingerprint_fact(text: str) -> tuple[int, ...]:
    """Return numbers that recognise a forgotten fact when the same messages are read again, and do not reveal it.

    They stand for the text's words. A model words the same fact differently each time: see `is_forgotten`.
    """
    stems = list_stems(text)
    return tuple(sorted(int.from_bytes(blake2b(stem.encode(), digest_size=4).digest()) for stem in stems))


def is_forgotten(text: str, forgotten: Iterable[Sequence[int]]) -> bool:
    """Return whether the text says what one of the forgotten facts said. forgotten: their fingerprints."""
    words = set(fingerprint_fact(text))
    return any(is_same(words, set(other)) for other in forgotten)


def list_stems(text: str) -> frozenset[str]:
    """Return the words that tell what a text says, cut so that their forms are the same."""
    return frozenset(word.removesuffix("'s")[:STEM] for word in find_telling_words(text))


def is_same(words: Set[T], others: Set[T]) -> bool:
    """Return whether two statements with these words say the same."""
    return len(words & others) >= SAME_WORDS * max(len(words), len(others), 1)


# Memories

DamageHandler = Callable[[MemoryConfig, Path, Mapping[str, str]], Awaitable[None]]
"""(configuration, home, environment): gets a damaged index out of the way."""

EraseSessions = Callable[[Sequence[str]], Awaitable[int]]
"""Deletes the memories of the sessions with these ids; returns how many there were."""


@asynccontextmanager
async def open_durable_memory(
    config: MemoryConfig, home: Path, on_damage: DamageHandler | None = None
) -> AsyncGenerator["IndexedMemory"]:
    """Open the memory that is kept between runs, even if the configuration now keeps none (`on_disk: false`).

    on_damage: called when the index is damaged, before it is opened again.

    Raises MemoryUnavailable: another process has it, its server is away, or it is damaged and `on_damage` is None.
    """
    persistent = config.persistent_memory.model_copy(update={"on_disk": True})
    config = config.model_copy(update={"persistent_memory": persistent})
    try:
        memory = await open_memory(config, home, os.environ)
    except IndexDamaged:
        if on_damage is None:
            raise
        await on_damage(config, home, os.environ)
        memory = await open_memory(config, home, os.environ)
    try:
        yield memory
    finally:
        await memory.close()


@asynccontextmanager
async def open_session_eraser(
    config: MemoryConfig, home: Path, environ: Mapping[str, str]
) -> AsyncGenerator[EraseSessions]:
    """Open all memory there is, so that no other process writes to it, and yield a function that erases sessions.

    Embedded: the indexes of all embedders that were ever used, and copies of damaged ones. Server: the collection of
    the configured embedder, which other processes may write to.

    Raises MemoryUnavailable: an index is in use by another process, damaged, or its server does not answer.
    """
    settings = config.persistent_memory
    if settings.qdrant.mode == "server" and config.enabled and settings.enabled:
        memory = await open_memory(config, home, environ)

        async def erase(session_ids: Sequence[str]) -> int:
            return await memory.forget(Selection(session_ids=tuple(session_ids))) if session_ids else 0

        try:
            yield erase
        finally:
            await memory.close()
        return
    indexes = IndexFolders()
    try:
        await asyncio.to_thread(indexes.open, index_root(config, home))
        yield partial(asyncio.to_thread, indexes.erase_sessions)
    finally:
        await asyncio.to_thread(indexes.close)


async def forget_memories(
    store: SessionStore, memory: "IndexedMemory", selection: Selection, config: MemoryConfig, home: Path
) -> tuple[int, str]:
    """Delete what is selected from every index, and never record it again; return how many memories that were.

    Also a note, "" when they are gone: an index cannot be written now, and whoever opens it next deletes them there.

    Raises:
        InputError: one of the ids names no memory.
        MemoryUnavailable: the index cannot be read.
    """
    memories = await memory.list(selection, len(selection.ids)) if selection.ids else ()
    # The queue first: whoever records beside this finds nothing to record any more.
    await _forget_jobs(store, selection, memories)
    try:
        return await erase_from_indexes(memory, selection, memories, config, home), ""
    except MemoryUnavailable as e:
        return 0, f"{QUEUED}: {e.message}"


async def erase_from_indexes(
    memory: "IndexedMemory", selection: Selection, memories: Sequence[Memory], config: MemoryConfig, home: Path
) -> int:
    """Delete what is selected from the open index, then from all others; return how many memories the first one had.

    memories: those that the selection names by their ids. Raises MemoryUnavailable: one may still hold them.
    """
    count = await memory.forget(selection)
    await erase_in_other_indexes(index_root(config, home), memory.folder, selection, memories)
    return count


def unknown_memory(memory_id: str) -> UnknownMemoryError:
    return UnknownMemoryError(
        f"there is no memory {memory_id[:60]!r}", "see them with: massmem memory list; in a conversation: /memory"
    )


async def resolve_ids(memory: "IndexedMemory", names: Iterable[str], among: Selection) -> tuple[str, ...]:
    """Return the ids of memories that are named by their ids or by the beginnings of their short forms.

    Raises:
        InputError: a short form fits no memory, or several.
        MemoryUnavailable
    """
    names, numbers = tuple(names), list[int]()
    if any(map(is_short_id, names)):
        numbers = [*await memory.list_ids(among)]
    return tuple(_choose_id(name, numbers) if is_short_id(name) else name for name in names)


def _choose_id(name: str, numbers: Sequence[int]) -> str:
    match find_ids(name, numbers):
        case [memory_id]:
            return memory_id
        case []:
            raise unknown_memory(name)
        case several:
            forms = ", ".join(shorten_id(memory_id) for memory_id in several[:5])
            raise InputError(f"{len(several)} memories begin with {name}: {forms}", "write more of the id")


async def _forget_jobs(store: SessionStore, selection: Selection, memories: Sequence[Memory]) -> None:
    if not selection.ids:
        await store.forget_recordings(selection)
        return
    for missing in set(selection.ids) - {memory.id for memory in memories}:
        raise unknown_memory(missing)
    for memory in memories:
        if forgotten := (*memory.changes, *(memory.message_ids if memory.kind == "episode" else ())):
            await store.forget_recordings(Selection(), forgotten)
        if memory.kind == "fact":
            words = fingerprint_fact(memory.text)
            await store.forget_fact(memory.session_id, memory.agent_id, memory.message_ids, words)


# Statements in texts and logs
#
# A sentence says a statement when it contains it word for word, or when it shares seven words of ten with it
# (`is_same`) and none of the words in which the two differ is a number or a name. What may say one in other words is
# found, and the user decides.

MARK = "[forgotten]"
"""Stands where a sentence stood."""

STRUCTURE = frozenset(
    """
    shape type at schema_version session_id turn agents agent_id names winner winner_name agent_name choice request seed
    round step channel call_id batch name param by why source activity role limit entries votes not_asked usage weights
    action kind made_from fallback asked next same verdict measured_confidence purpose spent
    """.split()  # noqa: SIM905 - a list literal of this length reads badly
)
"""Fields of events that name things or come from a fixed list: they are left as they are."""
DEPTH_STRUCTURE = STRUCTURE | {"reason"}
"""Of `depth_decided`: the reason of a ballot is a text."""

_SHORTEST = 3
"""Telling words without which a statement is recognised only word for word: "I am vegan." says little in common."""

_EVERYBODY = frozenset({"user"})
"""In extracted facts it stands for "I", and tells nothing."""

_MIN_BEGINNING = 10
"""Characters of a sentence that is cut: fewer could begin any other."""

_BETWEEN = r"[\s.,;:!?…\"'`´‘’“”„«»()\[\]{}*_。、！？]+"
"""Between two words of a statement."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One sentence that is to be forgotten, or a piece of one."""

    text: str
    stems: frozenset[str]
    names: frozenset[str]
    """Stems of its numbers and names, see `_find_names`."""
    pattern: re.Pattern[str]
    """Finds it word for word in a text, whatever the case, spaces and punctuation."""

    @classmethod
    def parse(cls, text: str) -> "Statement":
        return cls(text, list_stems(text) - _EVERYBODY, _find_names(text), _compile(text))

    def may_be_in(self, folded: str, stems: frozenset[str]) -> bool:
        """Return, at once, whether a folded text with these stems has enough of its words to say it."""
        if not self.stems:
            return normalize_fact(self.text).split()[0] in folded
        return len(self.stems & stems) >= SAME_WORDS * len(self.stems)

    def is_like(self, stems: frozenset[str], names: frozenset[str]) -> bool:
        """Return whether a sentence with these stems says it in nearly the same words. names: as in Statement."""
        if min(len(stems), len(self.stems)) < _SHORTEST or not is_same(self.stems, stems):
            return False
        return (self.stems ^ stems).isdisjoint(self.names | names)


class Redactor:
    """Takes statements out of texts, and keeps in mind which sentences it has taken out."""

    def __init__(self, statements: Iterable[str]) -> None:
        """statements: each is taken sentence by sentence."""
        sentences = (sentence for text in statements for sentence in list_sentences(text))
        self.statements = [
            Statement.parse(sentence) for sentence in dict.fromkeys(sentences) if normalize_fact(sentence)
        ]
        self.stems = frozenset(stem for statement in self.statements for stem in statement.stems)
        self.removed: set[str] = set()
        """Sentences that were taken out, as they stood there."""

    def says(self, sentence: str) -> bool:
        """Return whether the sentence says one of the statements."""
        folded = _fold(sentence)
        if not (statements := self._choose(folded)):
            return False
        if any(statement.pattern.search(text) for statement in statements for text in (sentence, folded)):
            return True
        stems, names = list_stems(sentence) - _EVERYBODY, _find_names(sentence)
        return any(statement.is_like(stems, names) for statement in statements)

    def _choose(self, folded: str) -> list[Statement]:
        """Return the statements that a folded text may say."""
        stems = frozenset(stem for stem in self.stems if stem in folded)
        return [statement for statement in self.statements if statement.may_be_in(folded, stems)]

    def mentions(self, text: str) -> bool:
        """Return whether there is something in the text to take out."""
        return self.redact(text) != text

    def redact(self, text: str) -> str:
        """Return the text with a mark in place of each sentence that says a statement. JSON stays JSON."""
        if not (statements := self._choose(_fold(text))):
            return text
        if (value := parse_json(text)) is not None:
            with suppress(RecursionError):  # nested too deeply: as text
                new = self.redact_value(value)
                return text if new == value else json.dumps(new, ensure_ascii=False)
        return self._redact_lines(self._redact_sentences(text), statements)

    def redact_value(self, value: Any) -> Any:
        """Return a JSON value with every string in it, and every key, redacted."""
        return map_texts(value, self.redact, lambda fields: {self.redact(key): part for key, part in fields.items()})

    def redact_title(self, title: str) -> str:
        """Return a title, which is the beginning of a text and may end within a sentence."""
        text = self.redact(title)
        for start, end in reversed(find_sentences(text)):
            beginning = _fold(text[start:end].strip().removesuffix("(fork)").strip())
            if len(beginning) >= _MIN_BEGINNING and any(_fold(s).startswith(beginning) for s in self.removed):
                text = text[:start] + MARK + text[end:]
        return text

    def _redact_sentences(self, text: str) -> str:
        parts: list[str] = []
        last = 0
        for start, end in find_sentences(text):
            sentence = text[start:end].strip()
            if sentence and self.says(sentence):
                self.removed.add(sentence)
                parts += [text[last:start], MARK]
                last = end
        return "".join([*parts, text[last:]])

    def _redact_lines(self, text: str, statements: Iterable[Statement]) -> str:

        def remove(match: re.Match[str]) -> str:
            self.removed.add(match[0])
            return MARK

        for statement in statements:
            text = statement.pattern.sub(remove, text)
        return text


@dataclass(slots=True)
class LogRedactor:
    """Redacts the entries of one session's log, one after the other.

    An agent streams its output in pieces: a sentence may stand in several entries.
    """

    redactor: Redactor
    short_sentences: Mapping[int, Redactor] = field(default_factory=dict[int, Redactor])
    """For single turns, too, by their numbers."""
    changed: list[LogEntry] = field(default_factory=list[LogEntry])
    """Entries with something taken out, as they are to be."""
    files: set[str] = field(default_factory=set[str])
    """Hashes of files in whose description something was taken out."""
    memory_changes: list[LogEntry] = field(default_factory=list[LogEntry])
    """Entries that say what the user changed of memories."""
    _streams: dict[tuple[Any, ...], list[LogEntry]] = field(default_factory=dict[tuple[Any, ...], list[LogEntry]])
    """Pieces of output that goes on."""
    _without_state: list[LogEntry] = field(default_factory=list[LogEntry])
    """Calls of tools as they are without what only their provider can read, which may say anything."""

    def add(self, entries: Iterable[LogEntry]) -> None:
        """Look at the next entries."""
        for entry in entries:
            event = json.loads(entry.payload)
            if event.pop("state", ""):
                self._without_state.append(_replace_payload(entry, event))
            if event["type"] == "agent_delta":
                self._streams.setdefault((event["agent_id"], event["round"], event["channel"]), []).append(entry)
                continue
            if event["type"] == "memory_changed":
                self.memory_changes.append(entry)
            self._end_streams(event.get("agent_id") or "")
            new = self._redact_event(event, entry.turn)
            self._change(entry, event, new)
            if new.get("description") != event.get("description"):
                self.files.update(file["hash"] for file in event["attachments"])

    def close(self) -> None:
        """Redact what has come so far and may have gone on.

        Once something is taken out, what only providers can read goes too: nobody knows whether it is in there.
        """
        self._end_streams()
        changed = {entry.seq for entry in self.changed}
        self.changed += [entry for entry in self._without_state if changed and entry.seq not in changed]

    def _redact(self, value: Any, turn: int) -> Any:
        value = self.redactor.redact_value(value)
        return self.short_sentences[turn].redact_value(value) if turn in self.short_sentences else value

    def _redact_event(self, event: Mapping[str, Any], turn: int) -> dict[str, Any]:
        fixed = DEPTH_STRUCTURE if event["type"] == "depth_decided" else STRUCTURE
        new = {name: value if name in fixed else self._redact(value, turn) for name, value in event.items()}
        for file, old in zip(new.get("attachments", ()), event.get("attachments", ()), strict=True):
            file |= old | {"name": file["name"]}  # their bytes are looked at elsewhere
        return new

    def _end_streams(self, agent_id: str | None = None) -> None:
        """agent_id: of the one whose output has ended; None: all output has."""
        for key in [key for key in self._streams if agent_id in (None, key[0])]:
            entries = self._streams.pop(key)
            events = [json.loads(entry.payload) for entry in entries]
            whole = "".join(event["text"] for event in events)
            text = self._redact(whole, entries[0].turn)
            for number, (entry, event) in enumerate(zip(entries, events, strict=True) if text != whole else ()):
                self._change(entry, event, event | {"text": "" if number else text})

    def _change(self, entry: LogEntry, event: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        if new != event:
            self.changed.append(_replace_payload(entry, new))


def _replace_payload(entry: LogEntry, event: Mapping[str, Any]) -> LogEntry:
    payload = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    return entry.model_copy(update={"payload": payload})


def has_only_marks(text: str) -> bool:
    """Return whether nothing is left of a text but marks."""
    return MARK in text and not any(map(str.isalnum, text.replace(MARK, "")))


def list_sentences(text: str) -> list[str]:
    """Return the sentences of a text; of a JSON value, those of its strings."""
    try:
        parts = [*_list_strings(parse_json(text) or text)]
    except RecursionError:
        parts = [text]
    return [sentence for part in parts for sentence in split_sentences(part)]


def _list_strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for key, item in cast("Mapping[str, Any]", value).items():
                yield key
                yield from _list_strings(item)
        case list():
            for item in cast("list[Any]", value):
                yield from _list_strings(item)
        case _:
            pass


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _find_names(text: str) -> frozenset[str]:
    """Return the stems of words with digits, and of those that are capitalised behind the first word."""
    words = text.split()
    names = [word for number, word in enumerate(words) if re.search(r"\d", word) or (number and _is_capitalised(word))]
    return list_stems(" ".join(names))


def _is_capitalised(word: str) -> bool:
    return word.lstrip("\"'([{«„“‘")[:1].isupper()


def _compile(text: str) -> re.Pattern[str]:
    """Return the pattern of a statement. The words of scripts without spaces may stand anywhere."""
    words = normalize_fact(text).split()
    whole = _BETWEEN.join(map(re.escape, words))
    if not count_unspaced(text):
        whole = rf"(?<!\w){whole}(?!\w)"
    return re.compile(whole, re.IGNORECASE)


MAX_STATEMENTS = 200
"""Sentences that are looked for: each sentence of the log is compared with all of them."""
OWN_SHARE = 0.5
"""A sentence that a fact came from has this part of the fact's words."""


def choose_statements(is_fact: bool, texts: Sequence[str], contents: Sequence[str]) -> Sequence[str]:
    """Return what a memory says, in the words of the messages that it came from where these are known.

    texts: what it says and said. contents: of the messages.
    """
    sentences = dict.fromkeys(sentence for content in contents for sentence in list_sentences(content))
    if is_fact:
        words = [list_stems(text) - {"user"} for text in texts]
        own = [s for s in sentences if any(len(w & list_stems(s)) >= OWN_SHARE * max(len(w), 1) for w in words)]
        return [*texts, *own[:MAX_STATEMENTS]]
    passage = Redactor(texts)
    own = [s for s in sentences if passage.says(s) or any(map(Redactor([s]).says, texts))]
    return [*own[:MAX_STATEMENTS], *(text for text in texts if len(texts) > 1 or not own)]


def encode_texts(redactor: Redactor) -> list[bytes]:
    """Return how the statements, and the sentences that were taken out, are written in files."""
    texts = {*redactor.removed, *(statement.text for statement in redactor.statements)}
    in_json = {json.dumps(text, ensure_ascii=ascii_only)[1:-1] for text in texts for ascii_only in (True, False)}
    return [form.encode("utf-8", "surrogatepass") for form in sorted(texts | in_json)]


def write_questions(statement: Statement) -> list[str]:
    """Return questions whose answer the statement is, in its words."""
    words = [word for word in normalize_fact(statement.text).split() if list_stems(word)]
    words = words or normalize_fact(statement.text).split()
    rarest = sorted(words, key=lambda word: (not list_stems(word) & statement.names, -len(word)))[:2]
    return [
        statement.text,
        f"What do you know about {' and '.join(rarest)}?",
        " ".join(reversed(words)),
        *(f"Who or what is {word}?" for word in rarest),
        "What did the user say about " + ", ".join(sorted(words)) + "?",
    ]


_MIN_SHARE = 0.35
"""Of the weight of a statement's words: with less in common a sentence is about something else."""
_MAX_OF_A_KIND = 50
"""Sentences with the same words of a statement that are kept."""
_MAX_KEPT = 5_000
"""Sentences that are kept; of more, those that share most words."""


class ParaphraseFinder:
    """Looks at message after message for sentences that share words with a statement, and do not say one."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._stems = [*dict.fromkeys(statement.stems for statement in redactor.statements if statement.stems)]
        self._counts: Counter[str] = Counter()
        self._messages = 0
        self._sentences: dict[frozenset[str], list[tuple[MessageRecord, str]]] = {}
        """By the words that they share with all statements together."""
        self._kept = 0

    def add(self, messages: Iterable[MessageRecord]) -> None:
        """Look at messages: at each sentence once, however many statements there are."""
        for message in messages:
            self._messages += 1
            folded = message.content.casefold()
            shared = [stem for stem in self._redactor.stems if stem in folded]
            self._counts.update(shared)
            for sentence in list_sentences(message.content) if shared else ():
                same = self._redactor.stems & list_stems(sentence)
                similar = self._sentences.setdefault(same, [])
                if same and len(similar) < _MAX_OF_A_KIND and not self._redactor.says(sentence):
                    similar.append((message, sentence))
                    self._kept += 1
            if self._kept > 2 * _MAX_KEPT:
                self._drop_least()

    def _drop_least(self) -> None:
        most = sorted(self._sentences.items(), key=lambda item: -len(item[0]))
        self._sentences, self._kept = {}, 0
        for same, sentences in most:
            if self._kept < _MAX_KEPT:
                self._sentences[same] = sentences
                self._kept += len(sentences)

    def list_best(self, limit: int) -> Sequence[tuple[MessageRecord, str]]:
        """Return the sentences that share most with one of the statements, with their messages, best first.

        Of the weight of a statement's words, that is; rare words weigh most.
        """
        weights = {stem: log(1 + self._messages / (1 + self._counts[stem])) for stem in self._redactor.stems}
        whole = {stems: sum(weights[stem] for stem in stems) or 1.0 for stems in self._stems}
        paraphrases: list[tuple[float, MessageRecord, str]] = []
        for same, sentences in self._sentences.items():
            share = max(sum(weights[stem] for stem in same & stems) / whole[stems] for stems in self._stems)
            if share >= _MIN_SHARE:
                paraphrases += [(share, message, sentence) for message, sentence in sentences]
        best = sorted(paraphrases, key=lambda paraphrase: -paraphrase[0])[:limit]
        return [(message, sentence) for _, message, sentence in best]
