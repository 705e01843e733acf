"""Forgetting: from every index, from the queue, and never again from the log."""

import json
import shutil
import string
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from massmem.config.models import EmbeddingConfig, MemoryConfig, PersistentMemoryConfig, QdrantConfig
from massmem.core.errors import IndexDamaged, InputError
from massmem.core.events import Event, decode_event
from massmem.core.records import LogEntry, MessageRecord
from massmem.memory import open_memory
from massmem.memory.extraction.prompts import Extraction, Origin, RecordedMessage
from massmem.memory.opening import set_index_aside
from massmem.memory.persistent import Selection
from massmem.recording.forgetting import (
    DEPTH_STRUCTURE,
    MARK,
    STRUCTURE,
    LogRedactor,
    ParaphraseFinder,
    Redactor,
    fingerprint_fact,
    forget_memories,
    has_only_marks,
    is_forgotten,
    list_sentences,
    open_durable_memory,
    open_session_eraser,
)
from massmem.recording.worker import Recorder
from massmem.store import open_store
from massmem.store.ports import SessionStore
from tests.contract.test_session_store import session
from tests.support.memories import make_episode
from tests.support.qdrant_stub import QdrantStub
from tests.support.sample_turn import (
    START,
    answer,
    begin,
    event,
    other_ends,
    tool_call,
    tool_result,
    waiting_turn,
    whole_turn,
)
from tests.unit.recording.test_worker import Extractor, fact

DAUGHTER = "The user's daughter is named Xenia."
WRITES = "Postgres 16 took 1,200 writes per second on the staging server on 4 March 2025."


@pytest.mark.parametrize(
    ("text", "forgotten"),
    [
        (DAUGHTER, True),
        (DAUGHTER.upper(), True),
        ("Xenia is the daughter of the user.", True),
        ("The user's daughter plays the violin.", False),
        ("Xenia, daughter of the user named Henk, studies mathematics near Toulouse on weekdays.", False),
        ("The user lives in Cobham.", False),
        ("", False),
    ],
)
def test_most_of_its_words_make_it_the_same(text: str, forgotten: bool):
    assert is_forgotten(text, [fingerprint_fact(WRITES), fingerprint_fact(DAUGHTER)]) is forgotten


@pytest.mark.parametrize(
    "other",
    [
        "Postgres 16 took 300 reads per second on the staging server.",
        "Postgres 16 runs on the staging server.",
        "Redis 7 lost the last second of writes when its server was killed.",
    ],
)
def test_another_fact_about_the_same_thing_stays(other: str):
    assert not is_forgotten(other, [fingerprint_fact(WRITES)])


def test_seven_words_of_ten_make_it_the_same():
    seven = "Kites, owls, herons, ravens, doves, finches, swifts."
    ten = f"{seven} Larks, gulls, terns."
    assert is_forgotten(ten, [fingerprint_fact(seven)])
    assert not is_forgotten(f"{ten} Storks.", [fingerprint_fact(seven)])
    assert is_forgotten("Xenia!", [fingerprint_fact("Xenia.")])


def test_nothing_of_the_text_is_kept():
    numbers = fingerprint_fact(DAUGHTER)
    assert len(numbers) == 4
    assert all(0 <= number < 2**32 for number in numbers)
    assert not is_forgotten(DAUGHTER, [])
    assert not is_forgotten("", [()])


DEFAULT = MemoryConfig()
WORDS = MemoryConfig(persistent_memory=PersistentMemoryConfig(embedding=EmbeddingConfig(provider="none")))
BY_KEY = MemoryConfig(persistent_memory=PersistentMemoryConfig(embedding=EmbeddingConfig(provider="openai")))
"""It opens where the key is, and needs no request for that."""
KEYS = {"OPENAI_API_KEY": "key"}


def change(config: MemoryConfig, **persistent: object) -> MemoryConfig:
    """Return the configuration with other values in persistent_memory."""
    persistent_memory = config.persistent_memory.model_copy(update=persistent)
    return config.model_copy(update={"persistent_memory": persistent_memory})


class NameFinder(Extractor):
    """Finds the same fact in each session."""

    async def extract(self, messages: Sequence[RecordedMessage], origin: Origin) -> Extraction:
        return Extraction((fact(origin, f"{origin.session_id} is called Xenia", messages[-1].message_id),))


@dataclass
class Remembered:
    """The sessions a and b, recorded in the index of the default embedder and in that of words alone."""

    store: SessionStore
    home: Path

    async def record(self, config: MemoryConfig, *, again: bool = True) -> None:
        """Record what the store has: as after another embedder was configured, and after `massmem memory rebuild`."""
        memory = await open_memory(config, self.home, {})
        if again:
            await self.store.requeue_recordings(done=True)
        await Recorder(self.store, memory, NameFinder().port).drain()
        await memory.close()

    async def list(self, config: MemoryConfig) -> dict[str, str]:
        """Return the texts of all memories, by kind, session and agent."""
        memory = await open_memory(config, self.home, {})
        memories = await memory.list(Selection())
        await memory.close()
        return {f"{one.kind} {one.session_id} {one.agent_id}": one.text for one in memories}

    async def forget(self, selection: Selection) -> tuple[int, str]:
        memory = await open_memory(WORDS, self.home, {})
        try:
            return await forget_memories(self.store, memory, selection, WORDS, self.home)
        finally:
            await memory.close()

    async def find_id(self, kind: str, session_id: str) -> str:
        memory = await open_memory(WORDS, self.home, {})
        memories = await memory.list(Selection(session_id, "ann"))
        await memory.close()
        (found,) = [one.id for one in memories if one.kind == kind]
        return found


@pytest.fixture
async def home_with_memories(tmp_path: Path) -> AsyncIterator[Remembered]:
    store = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    for name in ("a", "b"):
        await store.create_session(session(name))
        events = [begin("ann", question=f"Who is {name} then?"), answer(1, "ann", f"It is {name}, as ever.")]
        await store.append(name, 1, [*events, event(3, "turn_interrupted", by="user")])
    home_with_memories = Remembered(store, tmp_path)
    await home_with_memories.record(DEFAULT, again=False)
    await home_with_memories.record(WORDS)
    yield home_with_memories
    await store.close()


async def test_forgotten_memory_is_in_no_index_and_is_not_recorded_again(home_with_memories: Remembered):
    everything = await home_with_memories.list(WORDS)
    assert len(everything) == 6
    assert await home_with_memories.list(DEFAULT) == everything
    ids = (await home_with_memories.find_id("episode", "a"), await home_with_memories.find_id("fact", "b"))
    assert await home_with_memories.forget(Selection(ids=ids)) == (2, "")
    left = {name: text for name, text in everything.items() if name not in ("episode a ann", "fact b ann")}
    assert await home_with_memories.list(WORDS) == left
    assert await home_with_memories.list(DEFAULT) == left
    await home_with_memories.record(DEFAULT)
    assert await home_with_memories.list(DEFAULT) == left
    shutil.rmtree(home_with_memories.home / "memory")
    await home_with_memories.record(WORDS)
    assert await home_with_memories.list(WORDS) == left, "all else is still read from the log"


async def test_forgotten_session_is_in_no_index_and_is_not_recorded_again(home_with_memories: Remembered):
    everything = await home_with_memories.list(WORDS)
    assert await home_with_memories.forget(Selection("a")) == (3, "")
    left = {name: text for name, text in everything.items() if " b " in name}
    assert await home_with_memories.list(DEFAULT) == left
    await home_with_memories.record(WORDS)
    assert await home_with_memories.list(WORDS) == left


async def test_nothing_is_forgotten_when_one_of_the_ids_names_no_memory(home_with_memories: Remembered):
    everything = await home_with_memories.list(WORDS)
    ids = (await home_with_memories.find_id("episode", "a"), "m" * 100)
    with pytest.raises(InputError, match=f"there is no memory '{'m' * 60}'$") as refusal:
        await home_with_memories.forget(Selection(ids=ids))
    assert refusal.value.hint == "see them with: massmem memory list; in a conversation: /memory"
    await home_with_memories.record(WORDS)
    assert await home_with_memories.list(WORDS) == everything


async def test_more_memories_are_forgotten_at_once_than_a_page_holds(tmp_path: Path):
    store = await open_store(f"sqlite:///{tmp_path / 'm.db'}", tmp_path)
    memory = await open_memory(WORDS, tmp_path, {})
    await memory.record([make_episode(f"Kite {number} nests.", number) for number in range(101)])
    ids = tuple(one.id for one in await memory.list(Selection(), 200))
    assert await forget_memories(store, memory, Selection(ids=ids), WORDS, tmp_path) == (101, "")
    await memory.close()
    await store.close()


async def test_sessions_are_erased_from_the_indexes_of_all_embedders(home_with_memories: Remembered):
    everything = await home_with_memories.list(WORDS)
    async with open_session_eraser(WORDS, home_with_memories.home, {}) as erase:
        assert await erase([]) == 0
        assert await erase(["a"]) == 6
    left = {name: text for name, text in everything.items() if " b " in name}
    assert await home_with_memories.list(DEFAULT) == left
    assert await home_with_memories.list(WORDS) == left


@pytest.mark.parametrize("tier", [True, False], ids=["of the searchable tier", "of all"])
async def test_server_of_a_memory_that_is_off_is_not_asked_to_erase(tmp_path: Path, tier: bool):
    memory = await open_memory(WORDS, tmp_path, {})
    await memory.record([make_episode("Red kites nest.", session="a")])
    await memory.close()
    nobody = change(WORDS, qdrant=QdrantConfig(mode="server", url="http://127.0.0.1:9"))
    config = change(nobody, enabled=False) if tier else nobody.model_copy(update={"enabled": False})
    async with open_session_eraser(config, tmp_path, {}) as erase:
        assert await erase(["a"]) == 1


async def test_sessions_are_erased_from_a_server(tmp_path: Path):
    with QdrantStub() as server:
        qdrant = QdrantConfig(mode="server", url=server.url)
        config = change(WORDS, qdrant=qdrant)
        memory = await open_memory(config, tmp_path, {})
        await memory.record([make_episode("Red kites nest.", session="a"), make_episode("So do owls.", session="b")])
        async with open_session_eraser(config, tmp_path, {}) as erase:
            assert await erase([]) == 0
            assert await erase(["a", "c"]) == 1
        assert [one.text for one in await memory.list(Selection())] == ["So do owls."]
        await memory.close()
        async with open_session_eraser(change(BY_KEY, qdrant=qdrant), tmp_path, KEYS) as erase:
            assert await erase(["b"]) == 0, "it is in the collection of another embedder"


async def test_memory_of_earlier_runs_is_opened_when_none_is_kept_any_more(tmp_path: Path):
    memory = await open_memory(WORDS, tmp_path, {})
    await memory.record([make_episode("Red kites nest.")])
    await memory.close()
    for _ in range(2):  # the first block has closed it
        async with open_durable_memory(change(WORDS, on_disk=False), tmp_path) as memory:
            assert [one.text for one in await memory.list(Selection())] == ["Red kites nest."]


async def test_damaged_index_is_opened_again_when_it_was_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(*next(iter(KEYS.items())))
    async with open_durable_memory(BY_KEY, tmp_path):
        pass
    (notes,) = tmp_path.glob("memory/*/shard.json")
    notes.write_text("{")
    with pytest.raises(IndexDamaged):
        async with open_durable_memory(BY_KEY, tmp_path):
            pass
    async with open_durable_memory(BY_KEY, tmp_path, set_index_aside) as memory:
        assert await memory.list(Selection()) == []
    assert len(list(notes.parent.glob("shard.damaged-*"))) == 1


# Statements taken out of texts and of logs

STATEMENT = "My daughter's name is Xenia."


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"Hello. {STATEMENT} Bye.", f"Hello. {MARK} Bye."),
        ("MY DAUGHTER'S NAME IS XENIA!", MARK),
        ("My daughter's\n  name is Xenia.", f"{MARK}."),
        ("Remember that my daughter's name is Xenia, please. And tea.", f"{MARK} And tea."),
        ("The name of my daughter is Xenia.", MARK),
        ("The user's daughter is named Xenia", None),
        ("My daughter's name is Anna.", None),
        ("My son's name is Xenia.", None),
        ("My daughter's name was Xenia 2.", None),
        ("My daughter's nickname is Xenial.", None),
        ("", None),
    ],
)
def test_sentence_that_says_the_same_becomes_a_mark(text: str, left: str | None):
    redactor = Redactor([STATEMENT])
    assert redactor.redact(text) == (text if left is None else left)
    assert redactor.mentions(text) == (left is not None)


@pytest.mark.parametrize(
    ("statement", "text", "left"),
    [
        ("I am vegan.", "I am vegan. I am a vegan cook.", f"{MARK} I am a vegan cook."),
        ("4711", "The code is 4711. The other is 47112.", f"{MARK} The other is 47112."),
        ("我住在北京", "你好。我住在北京市。再见。", f"你好。{MARK}再见。"),
        ("Zoë wohnt in Köln.", "ZOË WOHNT IN KÖLN", MARK),
        ("The offset is -5", "The offset is 5.", "The offset is 5."),
    ],
)
def test_short_statements_are_recognised_word_for_word(statement: str, text: str, left: str):
    assert Redactor([statement]).redact(text) == left


def test_json_stays_json():
    redactor = Redactor([STATEMENT])
    value = {"a": [STATEMENT, 1, None], STATEMENT: {"b": f"Tea. {STATEMENT}"}}
    assert json.loads(redactor.redact(json.dumps(value))) == {"a": [MARK, 1, None], MARK: {"b": f"Tea. {MARK}"}}
    untouched = '{"a":  "tea",\n "daughter": 1}'
    assert redactor.redact(untouched) == untouched
    assert redactor.redact(f"{{not json. {STATEMENT}") == f"{{not json. {MARK}"


def test_title_that_ends_within_the_sentence_is_redacted():
    redactor = Redactor([STATEMENT])
    redactor.redact(f"Hello. {STATEMENT}")
    assert redactor.redact_title("Hello. My daughter's na") == f"Hello. {MARK}"
    assert redactor.redact_title("Hello. My daughter's na (fork)") == f"Hello. {MARK}"
    assert redactor.redact_title("Hello. My da") == "Hello. My da"


@given(st.text(string.ascii_letters + ".!? \n\"'{}[]:,", max_size=60), st.text(string.printable, max_size=60))
def test_nothing_else_changes(before: str, after: str):
    text = f"{before}\n{STATEMENT}\n{after}"
    redactor = Redactor([STATEMENT])
    left = redactor.redact(text)
    assert "Xenia" not in left.replace(before, "").replace(after, "")
    assert redactor.redact(left) == left


def test_sentences_of_json_are_those_of_its_strings():
    assert list_sentences('{"a": ["One. Two."], "b": 3}') == ["a", "One.", "Two.", "b"]
    assert list_sentences("One. Two.\nThree") == ["One.", "Two.", "Three"]


def test_text_of_marks_alone_is_recognised():
    assert has_only_marks(f"{MARK}. {MARK}")
    assert not has_only_marks(f"{MARK} tea")
    assert not has_only_marks("...")


def entries(*events: Event) -> list[LogEntry]:
    return [LogEntry(seq=n, turn=1, payload=e.model_dump_json()) for n, e in enumerate(events, 1)]


def redact(log: list[LogEntry], statement: str = STATEMENT) -> list[LogEntry]:
    redactor = LogRedactor(Redactor([statement]))
    redactor.add(log)
    redactor.close()
    return redactor.changed


def delta(text: str, agent: str = "ann") -> Event:
    return event(1, "agent_delta", agent_id=agent, round=1, channel="text", text=text)


def test_state_of_a_call_goes_with_any_sentence():
    called = tool_call(1).model_copy(update={"state": "api.example m\n{}"})
    changed = [decode_event(entry.payload) for entry in redact(entries(called, begin("a", question=STATEMENT)))]
    assert [(e.type, getattr(e, "state", None)) for e in changed] == [("turn_started", None), ("tool_called", "")]
    assert redact(entries(called, begin("a"))) == []


def test_sentence_in_pieces_is_found():
    log = entries(
        delta("Tea. My daugh"), delta("tea", "bob"), delta("ter's name is X"), delta("enia. More"), begin("a")
    )
    texts = {entry.seq: json.loads(entry.payload)["text"] for entry in redact(log)}
    assert texts == {1: f"Tea. {MARK} More", 3: "", 4: ""}
    other = entries(delta("My daughter's name"), event(2, "agent_started", agent_id="ann", round=1, step="answer"))
    assert redact([*other, *entries(delta(" is Xenia."))]) == []


def put(value: Any) -> Any:
    """Put the statement into every string of a value."""
    match value:
        case str():
            return f"{value}\n{STATEMENT}"
        case dict():
            return {key: put(item) for key, item in value.items()}
        case list():
            return [put(item) for item in value]
        case _:
            return value


@pytest.mark.parametrize(
    "sample",
    [*whole_turn(), *other_ends(), *waiting_turn(), tool_call(1), tool_result(2)],
    ids=lambda sample: sample.type,
)
def test_every_text_of_an_event_is_redacted_and_what_it_names_is_not(sample: Event):
    plain = json.loads(sample.model_dump_json())
    structure = DEPTH_STRUCTURE if sample.type == "depth_decided" else STRUCTURE
    full = {name: value if name in structure else put(value) for name, value in plain.items()}
    log = [LogEntry(seq=1, turn=1, payload=json.dumps(full))]
    changed = redact(log)
    assert bool(changed) == (full != plain)
    for entry in changed:
        assert "Xenia" not in entry.payload
        new = json.loads(decode_event(entry.payload).model_dump_json())
        assert {name: new[name] for name in structure & new.keys()} == {n: plain[n] for n in structure & plain.keys()}


def test_fields_that_name_things_are_kept_even_when_they_are_the_statement():
    assert redact(entries(event(1, "agent_started", agent_id="marina", round=1, step="answer")), "marina") == []


def message(text: str, number: int) -> MessageRecord:
    return MessageRecord(
        id=str(number), session_id="s", seq=number, turn=1, round=0, kind="user", role="user", content=text,
        created_at=START,
    )  # fmt: skip


def find(*texts: str, limit: int = 9) -> list[str]:
    finder = ParaphraseFinder(Redactor([STATEMENT]))
    finder.add(message(text, number) for number, text in enumerate(texts))
    return [sentence for _, sentence in finder.list_best(limit)]


COMMON = [f"What is the name of street {number}?" for number in range(30)]


def test_sentence_with_the_rare_words_is_near_and_one_with_common_words_is_not():
    assert find(*COMMON, "Tea, please. Xenia is nine.", "A kite.") == ["Xenia is nine."]


def test_best_sentence_stands_first_and_the_limit_holds():
    texts = (*COMMON, "Xenia is nine.", "Our daughter Xenia plays chess.")
    assert find(*texts) == ["Our daughter Xenia plays chess.", "Xenia is nine."]
    assert find(*texts, limit=1) == ["Our daughter Xenia plays chess."]


def test_sentence_that_goes_anyway_is_not_named():
    assert find(*COMMON, "I said it: my daughter's name is Xenia!") == []
    assert find() == []


def test_many_statements_cost_hardly_more_than_one():
    texts = [message(f"{' '.join(COMMON)} {STATEMENT} Nest {number}.", number) for number in range(60)]

    def measure(count: int) -> float:
        statements = [f"{STATEMENT[:-1]} and nest {number} of {number} streets is {number}." for number in range(count)]
        finder = ParaphraseFinder(Redactor(statements))
        start = time.process_time()
        finder.add(texts)
        return time.process_time() - start

    assert measure(60) < 8 * measure(3), "each sentence is taken apart once, not once for each statement"


@pytest.mark.parametrize("depth", [500, 5_000, 100_000])
def test_deeply_nested_json_is_redacted_as_text(depth: int):
    text = "[" * depth + json.dumps(STATEMENT) + "]" * depth
    assert STATEMENT[:-1] not in Redactor([STATEMENT]).redact(text)
    assert list_sentences(text)
