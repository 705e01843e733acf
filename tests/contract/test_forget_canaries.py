"""Canaries: statements that are said everywhere and then forgotten come back by no search, prompt, export or byte."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path

import pytest

from massmem.config.models import TeamConfig
from massmem.core.errors import SessionBusyError
from massmem.core.events import Event
from massmem.core.messages import make_attachment
from massmem.core.records import COMMAND_LINE_USER, EVERYBODY, SessionState
from massmem.export import FORMATS
from massmem.memory.persistent import Fact, RecallOptions, Scope, Selection
from massmem.recording.forgetting import open_durable_memory
from massmem.recording.worker import Recorder
from massmem.session.erasure import Eraser, Receipt, finish_forgetting
from massmem.session.recall import recall_by_words
from massmem.session.session import Session
from massmem.store import open_store
from tests.contract.test_session_store import done, session
from tests.support.qdrant_stub import QdrantStub
from tests.support.sample_turn import START, USAGE, answer, ballot, begin, compression, event
from tests.support.sessions import open_sessions
from tests.support.stores import KINDS, NewPlace

# Stores and indexes do not know each other: in short, each is there once.
CASES = [
    *((kind, False, 4) for kind in KINDS),
    ("sqlite", True, 4),
    *(pytest.param(kind, served, 1_000, marks=pytest.mark.full) for kind in KINDS for served in (False, True)),
]


def code(number: int) -> str:
    """What is looked for: it stands nowhere else."""
    return f"zq{number:05}x"


def write_canary(number: int) -> str:
    return f"The locker of Canary{number} at the harbour opens with {code(number)}."


def find_place(number: int, count: int) -> tuple[str, int]:
    """Return the session and the turn that says the canary: ten turns to a session, but two sessions at least."""
    turns = min(10, count // 2)
    return f"session_{number // turns}", number % turns + 1


def write_turn(number: int, turn: int) -> list[Event]:
    """A turn that says the canary in every kind of message, beside what stays."""
    canary, kite = write_canary(number), f"Kite {number} nests."
    tools = [
        event(
            1, "tool_called", agent_id="ann", round=1, call_id="c", batch=1, name="note",
            arguments=json.dumps({"text": canary}), text=canary, reasoning=f"Well. {canary}", usage=USAGE,
        ),
        event(1, "tool_returned", agent_id="ann", round=1, call_id="c", name="note", content=json.dumps([canary])),
        event(1, "agent_delta", agent_id="ann", round=1, channel="text", text=canary[:15]),
        event(1, "agent_delta", agent_id="ann", round=1, channel="text", text=canary[15:]),
    ]  # fmt: skip
    summary = compression(3).model_copy(update={"summary": f"{kite}\n{canary}", "until": 1})
    asked = begin("ann", "bob", question=f"{kite} {canary}").model_copy(update={"turn": turn})
    answers = [answer(2, "ann", f"{canary} {kite}"), ballot(3, "bob", "ann", reason=canary)]
    return [asked, *tools, *answers, summary, done(4, f"{kite} {canary}")]


@asynccontextmanager
async def open_eraser(config: TeamConfig, home: Path) -> AsyncIterator[Eraser]:
    store = await open_store(config.store.url, home)
    async with open_durable_memory(config.memory, home) as memory:
        yield Eraser(config, home, home, store, memory, COMMAND_LINE_USER)
    await store.close()


async def fill(eraser: Eraser, count: int) -> None:
    """Say the canaries; record them; let each agent have extracted each as a fact."""
    store, files = eraser.store, {}
    for number in range(count):
        name, turn = find_place(number, count)
        if turn == 1:
            await store.create_session(session(name))
            picture = make_attachment("a.png", "image/png", f"\x89PNG {write_canary(number)}".encode("latin-1"))
            files = {picture.file.hash: picture.data}
            await store.save_files(name, files)
            params = {f"p{n}": write_canary(n) for n in range(count) if find_place(n, count)[0] == name}
            await store.save_state(name, SessionState(params=params))
        await store.append(name, turn, write_turn(number, turn))
    await Recorder(store, eraser.memory, leaves_facts=True).drain()
    await eraser.memory.add_facts(
        [
            Fact(*find_place(number, count), agent, write_canary(number), (), START)
            for number in range(count)
            for agent in ("ann", "bob")
        ]
    )


async def forget(eraser: Eraser, count: int) -> list[Receipt]:
    """Every second batch by the ids of memories, the others by their words."""
    receipts: list[Receipt] = []
    size = max(2, count // 20)
    for start in range(0, count, size):
        texts = [write_canary(number) for number in range(start, start + size)]
        ids: Sequence[str] = ()
        if start // size % 2:
            facts = await eraser.memory.list(Selection(agent_id="ann", kind="fact"), 10 * count)
            ids, texts = [fact.id for fact in facts if fact.text in texts], []
        receipts.append(await eraser.erase(await eraser.read_orders(ids, texts)))
    return receipts


async def read_everything(eraser: Eraser) -> str:
    """Everything that store and index hand out."""
    store, parts = eraser.store, list[object]()
    sessions = open_sessions(store, eraser.home)
    for record in await store.list_sessions():
        name = record.session_id
        parts += [record, await store.load_state(name), await store.get_latest_summary(name, "ann")]
        parts += [await store.read_messages(name), await store.export_log(name, 0, 10_000, with_trimmed=True)]
        parts += [await store.read_conversation(name, None, 1_000)]
        copy = await store.export_session(name)
        assert copy is not None
        parts.append(await store.load_files(name, copy.files))
        for form in FORMATS.values():
            parts += [piece async for piece, _ in sessions.export(record, form, detailed=True)]
    parts += await eraser.memory.list(Selection(), 1_000_000)
    return "\n".join(map(str, parts))


async def search(eraser: Eraser, number: int) -> str:
    """What agents recall, from the index and from the log, when they are asked for a canary."""
    options, replies = RecallOptions(4_000), list[str]()
    for question in (write_canary(number), f"How does the locker of Canary{number} open?", code(number)):
        for agent in ("ann", "bob", "user"):
            scope = Scope("", agent, 1, all_sessions=True)
            replies.append((await eraser.memory.recall(question, scope, options)).text)
            replies.append((await recall_by_words(eraser.store, question, scope, options)).text)
        replies += map(str, await eraser.store.search_messages(question, owner=EVERYBODY))
        replies += map(str, await eraser.memory.find_near(question, Selection(), 20))
    return "\n".join(replies)


async def preview(config: TeamConfig, home: Path, name: str, number: int) -> str:
    """What the agents would be sent when they are asked for a canary in this session."""
    session_ = await Session.open(config, home=home, session_id=name)
    try:
        contexts = await session_.preview(f"How does the locker of Canary{number} at the harbour open?")
        return "\n".join(str(context.prompt.messages()) for context in contexts.values())
    finally:
        await session_.close()


def count_in_files(folders: Sequence[Path], texts: Sequence[str]) -> int:
    """Count the files that have one of the texts in their bytes."""
    paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    return sum(any(text.encode() in data for text in texts) for data in map(Path.read_bytes, paths))


@pytest.mark.parametrize(("kind", "served", "count"), CASES)
async def test_forgotten_canaries_never_come_back(
    new_place: NewPlace, kind: str, tmp_path: Path, count: int, served: bool
):
    home = tmp_path / "massmem"
    home.mkdir()
    with QdrantStub() if served else nullcontext() as server:
        qdrant = {"mode": "server", "url": server.url} if server else {}
        persistent = {"embedding": {"model": "none"}, "qdrant": qdrant, "session_name": None}
        agents = [
            {"id": name, "backend": {"type": "scripted", "script": {"answer": "Hello."}}} for name in ("ann", "bob")
        ]
        config = TeamConfig.model_validate(
            {"agents": agents, "store": {"url": new_place()}, "memory": {"persistent_memory": persistent}}
        )
        async with open_eraser(config, home) as eraser:
            await fill(eraser, count)
            before = await read_everything(eraser)
            assert all(before.count(code(number)) > 10 for number in range(count)), "they are there before"
            receipts = await forget(eraser, count)
            assert all(receipt.checks.is_clean for receipt in receipts), [r.to_dict() for r in receipts]
            after = await read_everything(eraser)
            replies = [await search(eraser, number) for number in range(count)]
        firsts = {find_place(number, count)[0]: number for number in reversed(range(count))}
        prompts = [await preview(config, home, name, number) for name, number in firsts.items()]
        codes = [code(number) for number in range(count)]
        counts = {
            "stored": sum(text in after for text in codes),
            "search": sum(text in reply for text, reply in zip(codes, replies, strict=True)),
            "prompt": sum(text in prompt for text in codes for prompt in prompts),
            "byte": count_in_files([home, tmp_path], codes),
        }
        print(f"canaries, {kind}, {'served' if served else 'embedded'}, {count}: {counts}")
        assert counts == dict.fromkeys(counts, 0)
        assert all(f"Kite {number} nests." in after for number in range(count)), "the rest stays"


def make_config(home: Path, url: str) -> TeamConfig:
    home.mkdir()
    agents = [{"id": "ann", "backend": {"type": "scripted", "script": {"answer": "Hello."}}}]
    memory = {"persistent_memory": {"embedding": {"model": "none"}}}
    return TeamConfig.model_validate({"agents": agents, "memory": memory, "store": {"url": url}})


@pytest.mark.parametrize("times", [2, pytest.param(60, marks=pytest.mark.full)])
async def test_forgetting_that_was_cancelled_is_finished(new_place: NewPlace, tmp_path: Path, times: int):
    home = tmp_path / "massmem"
    config = make_config(home, new_place())
    marks, unfinished = home / "forgetting", 0
    async with open_eraser(config, home) as eraser:
        await fill(eraser, times)
        for number in range(times):
            orders = await eraser.read_orders([], [write_canary(number)])
            forgetting = asyncio.create_task(eraser.erase(orders))
            while not (any(marks.glob("*.begun")) or forgetting.done()):
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05 * number)
            forgetting.cancel()
            await asyncio.wait([forgetting])
            opened = partial(nullcontext, eraser.memory)
            receipts = await finish_forgetting(config, home, eraser.store, opened, EVERYBODY)
            assert all(receipt.checks.is_clean for receipt in receipts), [r.to_dict() for r in receipts]
            unfinished += len(receipts)
            assert not marks.exists()
            assert code(number) not in await read_everything(eraser)
        after = await read_everything(eraser)
    print(f"{unfinished} of {times} were finished")
    assert all(f"Kite {number} nests." in after for number in range(times)), "the rest stays"


async def test_two_that_forget_at_once_lose_nothing_else(tmp_path: Path):
    home = tmp_path / "massmem"
    config = make_config(home, f"sqlite:///{tmp_path / 'store.db'}")
    async with open_eraser(config, home) as eraser:
        await fill(eraser, 4)
        orders = [await eraser.read_orders([], [write_canary(number)]) for number in range(4)]
        ends = await asyncio.gather(*(eraser.erase(order) for order in orders), return_exceptions=True)
        for order, end in zip(orders, ends, strict=True):
            if isinstance(end, BaseException):
                assert isinstance(end, SessionBusyError)
                assert (await eraser.erase(order)).checks.is_clean
        await Recorder(eraser.store, eraser.memory, leaves_facts=True).drain()
        after = await read_everything(eraser)
        listed = str(await eraser.memory.list(Selection(), 1_000))
    assert not any(code(number) in after + listed for number in range(4))
    assert all(f"Kite {number} nests." in text for number in range(4) for text in (after, listed))


async def test_others_go_on_while_a_large_store_is_searched(tmp_path: Path):
    home = tmp_path / "massmem"
    config = make_config(home, f"sqlite:///{tmp_path / 'store.db'}")
    letters = str.maketrans("0123456789", "abcdefghij")
    names = [str(number).translate(letters) for number in range(300)]
    common = " ".join(f"The harbour of locker {name} opens with a code." for name in names)
    stops: list[float] = []

    async def watch() -> None:
        while True:
            start = time.monotonic()
            await asyncio.sleep(0.005)
            stops.append(time.monotonic() - start)

    async with open_eraser(config, home) as eraser:
        for number in range(20):
            await eraser.store.create_session(session(f"session_{number}"))
            said = f"{common} {write_canary(0)}" if number % 5 == 0 else common
            await eraser.store.append(f"session_{number}", 1, [begin("ann", question=said), done(4, common)])
        start, watching = time.monotonic(), asyncio.create_task(watch())
        receipt = await eraser.erase(await eraser.read_orders([], [write_canary(0)]))
        whole = time.monotonic() - start
        watching.cancel()
    assert receipt.checks.is_clean
    print(f"forgetting took {whole:.2f} s, the loop stood for {max(stops):.2f} s at most")
    assert max(stops) < whole / 4
