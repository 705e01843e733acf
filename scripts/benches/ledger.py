"""What is true now: how often a value that no longer holds is shown as if it did, and whether the one that holds is.

The extractor's way is massmem's own, from the prompt over HTTP to the index; the model at its end is a stub that knows
what each message states, and names attributes as the prompt asks for or in its own words each time. What a real model
misses, it does not.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from massmem.config.models import MemoryConfig, MemoryLlmConfig, PersistentMemoryConfig
from massmem.memory import open_memory
from massmem.memory.claims import USUAL_ATTRIBUTES, name_attribute
from massmem.memory.extraction.extractor import Bounds, FactExtractor, open_model
from massmem.memory.extraction.prompts import Origin, RecordedMessage
from massmem.memory.indexed import IndexedMemory
from massmem.memory.persistent import USER, Episode, Fact, RecallOptions, Scope
from massmem.providers import Providers
from scripts.benches.ledger_chains import Message, Question, Statement, Wording, World, make_worlds
from scripts.benches.rows import Row, at_least, at_most, reported

CHAINS = 200
BUDGET = 1_000
"""Tokens, the default."""
MOST_STALE, LEAST_NEWEST, MOST_LOST = 5.0, 97.0, 0.5

_AGENT = "assistant"
_NOW = Scope("session_now", _AGENT, 1, all_sessions=True)
_LABEL = re.compile(r"^(?:\[From [^\]]*\]|(?:You|User)[^:]*:)")
_DATE_LINE = re.compile(r"^\[\d")
_OUTDATED = ("held until", "rests on")
_NEW_MESSAGE = re.compile(r"^user: \((m\d+)\) (.*)$", re.MULTILINE)
_MISSED = 20
_IN_USE = re.compile(r"^In use so far: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Score:
    """Of one question."""

    question: Question
    shown: bool
    """The answer is shown."""
    stale: bool
    """A value that no longer holds is shown, and nothing says so."""


def run() -> list[Row]:
    return [row for wording in ("direct", "paraphrased") for row in asyncio.run(measure(wording, CHAINS))]


async def measure(wording: Wording, count: int) -> list[Row]:
    """The rows for so many chains."""
    worlds = make_worlds(wording, count)
    nothing: list[list[Fact]] = [[] for _ in worlds]
    plain = await _ask_all(worlds, nothing, reads_claims=False)
    rules = await _ask_all(worlds, nothing, reads_claims=True)
    obedient = [await extract(world, obeys=True) for world in worlds]
    bare = [[replace(fact, claim=None) for fact in facts] for facts in obedient]
    facts_alone = await _ask_all(worlds, bare, reads_claims=False)
    ledger = await _ask_all(worlds, obedient, reads_claims=False)
    free = await _ask_all(worlds, [await extract(world, obeys=False) for world in worlds], reads_claims=False)
    careless = await _ask_all(worlds, [_lose(facts) for facts in obedient], reads_claims=False)
    return [
        *_report(f"{wording}, no extractor, no ledger", plain),
        *_report(f"{wording}, rules", rules, plain),
        *_report(f"{wording}, rules, families held out", [s for s in rules if s.question.held_out]),
        *_report(f"{wording}, facts of an extractor, no ledger", facts_alone),
        *_bound(f"{wording}, extractor", ledger, facts_alone),
        *_report(f"{wording}, extractor with its own words for attributes", free, facts_alone),
        *_report(f"{wording}, extractor that misses every {_MISSED}th fact", careless, facts_alone),
    ]


def _lose(facts: Sequence[Fact]) -> list[Fact]:
    return [fact for number, fact in enumerate(facts, 1) if number % _MISSED]


def _report(what: str, scores: Sequence[Score], before: Sequence[Score] = ()) -> list[Row]:
    stale, newest, lost = _figures(scores, before)
    rows = [reported(f"{what}: stale shown as current", stale, "%"), reported(f"{what}: newest shown", newest, "%")]
    return [*rows, reported(f"{what}: static facts lost", lost, "points")] if before else rows


def _bound(what: str, scores: Sequence[Score], before: Sequence[Score]) -> list[Row]:
    stale, newest, lost = _figures(scores, before)
    return [
        at_most(f"{what}: stale shown as current", stale, "%", MOST_STALE),
        at_least(f"{what}: newest shown", newest, "%", LEAST_NEWEST),
        at_most(f"{what}: static facts lost", lost, "points", MOST_LOST),
    ]


def _figures(scores: Sequence[Score], before: Sequence[Score]) -> tuple[float, float, float]:
    """Stale shown and newest shown, of 100 chains; points of static facts that are shown less than before."""
    chains = [score for score in scores if score.question.stale]
    static, static_before = ([s.shown for s in part if not s.question.stale] for part in (scores, before))
    lost = _percent(static_before) - _percent(static)
    return _percent([s.stale for s in chains]), _percent([s.shown for s in chains]), round(lost, 1)


def _percent(values: Sequence[bool]) -> float:
    return round(100 * sum(values) / len(values), 1) if values else 0.0


async def _ask_all(worlds: Sequence[World], facts: Sequence[Sequence[Fact]], *, reads_claims: bool) -> list[Score]:
    return [
        score
        for world, extracted in zip(worlds, facts, strict=True)
        for score in await ask(world, extracted, reads_claims=reads_claims)
    ]


async def ask(world: World, facts: Sequence[Fact], *, reads_claims: bool) -> list[Score]:
    """Record a world and ask its questions. reads_claims: by rules, as without an extractor."""
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder:
        memory = await _open(Path(folder), reads_claims=reads_claims)
        try:
            await memory.record(list(_make_episodes(world.messages)))
            await memory.add_facts(facts)
            return [await _ask(memory, question) for question in world.questions]
        finally:
            await memory.close()


async def _open(folder: Path, *, reads_claims: bool) -> IndexedMemory:
    llm = None if reads_claims else MemoryLlmConfig(provider="openai")  # it is not asked here
    return await open_memory(MemoryConfig(persistent_memory=PersistentMemoryConfig(llm=llm)), folder, {})


async def _ask(memory: IndexedMemory, question: Question) -> Score:
    text = (await memory.recall(question.text, _NOW, RecallOptions(BUDGET))).text
    lines = [line for line in text.splitlines() if not _DATE_LINE.match(line)]
    return Score(question, shows(lines, question.answer), any(shows(lines, value) for value in question.stale))


def shows(lines: Iterable[str], value: str) -> bool:
    """Return whether a line has the value, and its label does not say that it is outdated."""
    whole = re.compile(rf"(?<![\w-]){re.escape(value)}(?![\w-])")
    labels = ((match.group() if (match := _LABEL.match(line)) else "", line) for line in lines)
    return any(whole.search(line) and not any(mark in label for mark in _OUTDATED) for label, line in labels)


def _make_episodes(messages: Sequence[Message]) -> Iterable[Episode]:
    positions: dict[str, int] = {}
    for number, m in enumerate(messages):
        position = positions[m.session] = positions.get(m.session, -1) + 1
        by = USER if m.author == "user" else _AGENT
        yield Episode(m.session, f"m{number:05}", position, m.turn, by, m.text, m.time, won=by != USER)


async def extract(world: World, *, obeys: bool) -> list[Fact]:
    """Return what a stub at the end of massmem's own way extracts from a world.

    obeys: it names attributes as the prompt asks for; False: in its own words each time.
    """
    from tests.support.extraction_stub import completion
    from tests.support.json_server import serve_posts

    stated = {message.text: message.statement for message in world.messages if message.statement is not None}

    def respond(body: bytes) -> tuple[int, str, bytes]:
        prompt = json.loads(body)["messages"][-1]["content"]
        reply = completion(json.dumps({"memory": _read(prompt, stated, obeys=obeys)}))
        return 200, "text/event-stream", b"".join(part for part in reply.parts if isinstance(part, bytes))

    facts: list[Fact] = []
    providers = Providers()
    with tempfile.TemporaryDirectory(prefix="massmem-bench-") as folder, serve_posts(respond) as url:
        llm = MemoryLlmConfig.model_validate(
            {"provider": "openai", "model": "stub", "api_key": "stub", "base_url": f"{url}/v1"}
        )
        memory = await _open(Path(folder), reads_claims=False)
        try:
            model = await open_model(llm, providers, {}, Bounds())
            extractor = FactExtractor(model, Path(folder), memory.get_known_facts())
            for number, (question, answer) in enumerate(pairwise(world.messages)):
                if question.author == "user":
                    pair = (_to_recorded(question, number), _to_recorded(answer, number + 1))
                    origin = Origin(question.session, _AGENT, question.turn, won=True)
                    new = (await extractor.extract(pair, origin)).facts
                    await memory.add_facts(new)
                    facts += new
        finally:
            await memory.close()
            await providers.close()
    return facts


def _to_recorded(message: Message, number: int) -> RecordedMessage:
    return RecordedMessage(message.author, message.text, f"m{number:05}", message.time)


def _read(prompt: str, stated: Mapping[str, Any], *, obeys: bool) -> list[dict[str, Any]]:
    """What a model would note of the new messages in a prompt."""
    in_use = match.group(1) if (match := _IN_USE.search(prompt)) else ""
    items: list[dict[str, Any]] = []
    for label, text in _NEW_MESSAGE.findall(prompt.rpartition("## New Messages")[2]):
        match stated.get(text):
            case Statement() as s:
                family = s.family
                attribute = _choose_name(family.names, in_use) if obeys else family.names[s.wording % len(family.names)]
                items.append(_note(label, family.subject, attribute, s.value))
            case None:
                pass
            case fact:
                note = {"text": fact.text.replace("My ", "The user's ").replace("I ", "The user "), "sources": [label]}
                claim = fact.claim and {"subject": fact.claim[0], "attribute": fact.claim[1], "value": fact.answer}
                items.append(note | (claim or {}))
    return items


def _choose_name(names: Sequence[str], in_use: str) -> str:
    usual = [name_attribute(name) for name in names if name_attribute(name) in USUAL_ATTRIBUTES]
    return next(iter(usual), None) or next((name for name in names if name in in_use), names[0])


def _note(label: str, subject: str, attribute: str, value: str) -> dict[str, Any]:
    of = "the user" if subject == "user" else subject
    text = f"The {attribute} of {of} is {value}."
    return {"text": text, "sources": [label], "subject": subject, "attribute": attribute, "value": value}
